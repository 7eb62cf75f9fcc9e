//! Replays the inputs that the fuzz targets of this crate have found.

use std::fs;
use std::path::Path;

/// A fuzz target: its name, which is that of its corpus directory, and the function that it runs.
type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("iwarp", crate::iwarp::protocol::fuzz::endpoint),
    ("mpa", crate::iwarp::protocol::fuzz::mpa),
    ("shm_packet", crate::shm::fuzz::packet),
];

#[test]
fn the_corpus_replays() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in TARGETS {
        let inputs = fs::read_dir(corpus.join(name)).expect("a corpus for each target");
        let inputs: Vec<_> = inputs
            .map(|input| input.expect("an input").path())
            .collect();
        assert!(!inputs.is_empty(), "{name} has no inputs");
        for input in inputs {
            target(&fs::read(&input).expect("an input"));
        }
    }
}
