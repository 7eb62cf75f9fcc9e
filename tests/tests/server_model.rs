//! See [`odafs_tests::server_model`].

use odafs_tests::server_model::run;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_in_any_order(choices in vec(any::<u8>(), 0..2500)) {
        run(&choices);
    }
}

/// What the fuzzer found worth keeping.
#[test]
fn the_corpus_replays() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/server");
    for input in std::fs::read_dir(corpus).unwrap() {
        run(&std::fs::read(input.unwrap().path()).unwrap());
    }
}
