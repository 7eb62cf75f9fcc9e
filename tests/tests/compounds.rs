//! See [`odafs_tests::compounds`].

use std::cell::RefCell;

use odafs_common::wire::nfs4::{OpCode, Status};
use odafs_tests::compounds::{Answered, run};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};

/// What the server does not do: layouts and SSV, named attributes, patterns, copies between servers, and delegations of directories
/// or without an open. Delegations end with their client.
const REFUSED: [OpCode; 15] = [
    OpCode::DelegationPurge,
    OpCode::OpenAttributeDirectory,
    OpCode::GetDirDelegation,
    OpCode::GetDeviceInfo,
    OpCode::GetDeviceList,
    OpCode::LayoutCommit,
    OpCode::LayoutGet,
    OpCode::LayoutReturn,
    OpCode::SetSsv,
    OpCode::WantDelegation,
    OpCode::CopyNotify,
    OpCode::LayoutError,
    OpCode::LayoutStats,
    OpCode::WriteSame,
    OpCode::Illegal,
];
/// What fails in no way that depends on the arguments.
const SURE: [OpCode; 3] = [
    OpCode::PutPublicFileHandle,
    OpCode::PutRootFileHandle,
    OpCode::TestStateId,
];

/// Every operation is answered. Those that the server has succeed in one case or another, and fail in others.
#[test]
fn compounds_in_any_order() {
    let config = ProptestConfig {
        cases: 3000,
        rng_seed: RngSeed::Fixed(4),
        failure_persistence: None,
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    };
    let all = RefCell::new(Answered::new());
    let run = |choices: Vec<u8>| {
        for (answer, count) in run(&choices) {
            *all.borrow_mut().entry(answer).or_default() += count;
        }
        Ok(())
    };
    let done = TestRunner::new(config).run(&vec(any::<u8>(), 0..2000), run);
    done.unwrap_or_else(|failed| panic!("{failed}"));
    let all = all.into_inner();
    for code in OpCode::ALL {
        let mut of = all.keys().filter(|(answered, _)| answered == code);
        let succeeds = all.contains_key(&(*code, Status::Ok));
        assert_eq!(succeeds, !REFUSED.contains(code), "{code:?}");
        let fails = of.any(|(_, status)| *status != Status::Ok);
        assert!(fails || SURE.contains(code), "{code:?}");
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
