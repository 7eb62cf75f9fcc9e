use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::attributes::full;
use super::*;
use crate::wire::testing::{bytes, hex, round_trip};
use crate::wire::xdr::{Reader, Writer};

fn state() -> impl Strategy<Value = StateId> {
    any::<(u32, [u8; 12])>().prop_map(|(sequence, other)| StateId { sequence, other })
}

fn owner() -> impl Strategy<Value = StateOwner<'static>> {
    (any::<u64>(), bytes(1024).prop_map(Opaque))
        .prop_map(|(client_id, owner)| StateOwner { client_id, owner })
}

fn set(numbers: &BTreeSet<u32>) -> Bitmap {
    numbers
        .iter()
        .fold(Bitmap::EMPTY, |set, number| set.with(*number))
}

/// Bytes with one word changed: still a value that survives, or an error.
fn survive<T: Encode + Decode<'static> + PartialEq + Debug>(digits: &str, at: usize, word: u32) {
    let mut changed = hex(digits);
    let at = at % (changed.len() / 4) * 4;
    changed[at..at + 4].copy_from_slice(&word.to_be_bytes());
    let changed: &'static [u8] = changed.leak();
    if let Ok(value) = T::from_bytes(changed) {
        let again: &'static [u8] = value.to_bytes().leak();
        assert_eq!(again.len(), changed.len());
        assert_eq!(T::from_bytes(again), Ok(value));
    }
}

proptest! {
    #[test]
    fn sets_are_sets(ours in btree_set(0u32..256, 0..20), theirs in btree_set(0u32..256, 0..20)) {
        let (a, b) = (set(&ours), set(&theirs));
        prop_assert!(a.iter().eq(ours.iter().copied()));
        prop_assert!((0..300).all(|number| a.has(number) == ours.contains(&number)));
        prop_assert_eq!(a.and(&b), set(&(&ours & &theirs)));
        prop_assert_eq!(a.or(&b), set(&(&ours | &theirs)));
        prop_assert_eq!(a.without(&b), set(&(&ours - &theirs)));
        prop_assert_eq!(a.is_empty(), ours.is_empty());
        prop_assert_eq!(a == b, ours == theirs);
        // No zeros at the end, whatever the way to the set.
        let words = ours.last().map_or(0, |last| last / 32 + 1) as usize;
        prop_assert_eq!(a.to_bytes().len(), 4 + 4 * words);
        prop_assert_eq!(a.or(&b).without(&b).or(&a).to_bytes(), a.to_bytes());
        round_trip(a);
    }

    #[test]
    fn words_of_zeros_do_not_matter(words in vec(any::<u32>(), 0..7)) {
        let mut longer = words.clone();
        longer.push(0);
        let [short, long] = [words, longer].map(|words| {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).array(&words);
            let set = Bitmap::from_bytes(&bytes).unwrap();
            assert_eq!(set.to_bytes(), bytes);
            set
        });
        prop_assert_eq!(short, long);
    }

    #[test]
    fn opens(
        (sequence, share_access, share_deny) in any::<(u32, u32, u32)>(), owner in owner(),
        verifier in proptest::option::of(any::<[u8; 8]>()), name in bytes(300), state in state(),
    ) {
        let create = verifier.map(CreateHow::Exclusive);
        for claim in [Claim::Null(Name(name)), Claim::DelegateCurrent(state, Name(name)), Claim::File] {
            round_trip(OpenArgs { sequence, share_access, share_deny, owner, create, claim });
        }
    }

    #[test]
    fn locks(kind in select(LockType::ALL), reclaim: bool, offset: u64, length: u64, state in state(),
             (first, second) in any::<(u32, u32)>(), owner in owner()) {
        let new = Locker::New(OpenToLockOwner {
            open_sequence: first, open: state, lock_sequence: second, owner,
        });
        let existing = Locker::Existing(ExistingLockOwner { lock: state, lock_sequence: first });
        for locker in [new, existing] {
            round_trip(LockArgs { kind, reclaim, offset, length, locker });
        }
        round_trip(LockResult::Err(LockFailed::Denied(LockDenied { offset, length, kind, owner })));
    }

    #[test]
    fn data(state in state(), offset: u64, stable in select(Stable::ALL), data in bytes(999)) {
        round_trip(WriteArgs { state, offset, stable, data: Payload(data) });
        round_trip(ReadResult::Ok(ReadOk { eof: offset % 2 == 0, data: Payload(data) }));
        round_trip(Content::Data(offset, Data(data)));
    }

    #[test]
    fn attributes_that_are_asked_for(asked in btree_set(0u32..87, 0..87), there in btree_set(0u32..87, 0..87)) {
        let (asked, there) = (set(&asked), set(&there));
        let mut bytes = Vec::new();
        full().encode_asked(&there, &mut Writer::new(&mut bytes));
        let some = Attributes::parse(&RawAttributes::from_bytes(&bytes).unwrap()).unwrap();
        prop_assert_eq!(some.mask(), there.and(&READABLE));

        let mut bytes = Vec::new();
        some.encode_asked(&asked, &mut Writer::new(&mut bytes));
        let raw = RawAttributes::from_bytes(&bytes).unwrap();
        let mask = asked.and(&there).and(&READABLE);
        prop_assert_eq!(raw.mask, mask);
        let given = Attributes::parse(&raw).unwrap();
        prop_assert_eq!(given.mask(), mask);
        if !mask.contains(Attribute::ReadAttributeError) {
            prop_assert_eq!(full().matches(&raw), Ok(true));
        }
    }

    #[test]
    fn changed_operations(at: prop::sample::Index, place: usize, word in prop_oneof![0u32..8, any::<u32>()]) {
        let (calls, replies) = (operations(), results());
        survive::<Operation<'_>>(&calls[at.index(calls.len())].1, place, word);
        survive::<OperationResult<'_>>(&replies[at.index(replies.len())].1, place, word);
        let (calls, replies) = (callbacks::operations(), callbacks::results());
        survive::<CallbackOperation<'_>>(&calls[at.index(calls.len())].1, place, word);
        survive::<CallbackResult<'_>>(&replies[at.index(replies.len())].1, place, word);
    }

    #[test]
    fn compounds_of_any_operations(picks in vec(any::<prop::sample::Index>(), 0..9)) {
        let golden = operations();
        let picked: Vec<_> = picks.iter().map(|at| golden[at.index(golden.len())].0.clone()).collect();
        let bytes = framing::call(2, &picked);
        let mut read = Operations::begin(Reader::new(&bytes)).unwrap();
        for operation in picked {
            let Some(Ok(got)) = read.next() else {
                prop_assert!(operation.code().is_of_minor_version_0_alone());
                prop_assert_eq!(read.next(), None);
                return Ok(());
            };
            prop_assert_eq!(got, operation);
        }
        prop_assert_eq!(read.next(), None);
        prop_assert_eq!(read.finish(), Ok(()));
    }
}
