//! See [`odafs_tests::compounds`].

use odafs_tests::compounds::run;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(4),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn compounds_in_any_order(choices in vec(any::<u8>(), 0..1500)) {
        run(&choices);
    }
}

/// What the fuzzer found worth keeping.
#[test]
fn the_corpus_replays() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/compounds");
    let mut inputs = 0;
    for input in std::fs::read_dir(corpus).unwrap() {
        run(&std::fs::read(input.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0);
}
