//! See [`odafs_tests::server_model`].

use std::cell::RefCell;

use odafs_common::wire::nfs3::Procedure;
use odafs_common::wire::odafs;
use odafs_tests::server_model::{Answered, run};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

/// What is called of the ODAFS program. A good request for a session, references or a new key does not fail.
const ODAFS: [odafs::Procedure; 4] = [
    odafs::Procedure::OpenSession,
    odafs::Procedure::Read,
    odafs::Procedure::GetRefs,
    odafs::Procedure::Rekey,
];

/// Every procedure succeeds in one case or another, and those of NFS, and direct reads, fail in others. The same cases each time:
/// one in many series of 150 would not have all.
#[test]
fn calls_in_any_order() {
    let config = ProptestConfig {
        cases: 150,
        rng_seed: RngSeed::Fixed(3),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let all = RefCell::new(Answered::new());
    let run = |choices: Vec<u8>| {
        for (answer, count) in run(&choices) {
            *all.borrow_mut().entry(answer).or_default() += count;
        }
        Ok(())
    };
    let done = TestRunner::new(config).run(&vec(any::<u8>(), 0..2500), run);
    done.unwrap_or_else(|failed| panic!("{failed}"));
    let all = all.into_inner();
    let is_there = |what: &str, succeeded| {
        assert!(
            all.contains_key(&(what.to_owned(), succeeded)),
            "no {what} that succeeds ({succeeded}): {all:?}"
        );
    };
    for procedure in Procedure::ALL {
        if *procedure != Procedure::Null {
            is_there(&format!("{procedure:?}"), true);
            is_there(&format!("{procedure:?}"), false);
        }
    }
    for procedure in ODAFS {
        is_there(&format!("Odafs{procedure:?}"), true);
    }
    is_there("Direct", true);
    is_there("Direct", false);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Other calls each time.
    #[test]
    fn any_calls_in_any_order(choices in vec(any::<u8>(), 0..2500)) {
        run(&choices);
    }
}

/// What the fuzzer found worth keeping.
#[test]
fn the_corpus_replays() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/server");
    let mut inputs = 0;
    for input in std::fs::read_dir(corpus).unwrap() {
        run(&std::fs::read(input.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0);
}
