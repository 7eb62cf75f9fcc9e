use super::golden::{ATTRIBUTES, FILE};
use crate::wire::nfs3::*;
use crate::wire::testing::golden;
use crate::wire::xdr::{Decode as _, Encode as _, Writer, XdrError};

const DOT: Entry<'static> = Entry {
    fileid: 2,
    name: b".",
    cookie: 1,
};
const FIVE: Entry<'static> = Entry {
    fileid: 3,
    name: b"five5",
    cookie: 2,
};
const VERIFIER: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 9];

/// An entry's XDR: number, name, cookie.
const DOT_BYTES: u32 = 8 + 8 + 8;
const FIVE_BYTES: u32 = 8 + 12 + 8;
/// A `resok` without entries and without attributes: attributes_follow, verifier, no entry, EOF.
const EMPTY: u32 = 4 + 8 + 4 + 4;

#[test]
fn entries() {
    golden(
        ReadDirResult::Ok(ReadDirOk {
            attributes: None,
            verifier: VERIFIER,
            entries: vec![DOT, FIVE],
            eof: true,
        }),
        "00000000 00000000 00000000 00000009
         00000001 00000000 00000002 00000001 2e000000 00000000 00000001
         00000001 00000000 00000003 00000005 66697665 35000000 00000000 00000002
         00000000 00000001",
    );
    golden(
        ReadDirPlusResult::Ok(ReadDirPlusOk {
            attributes: None,
            verifier: VERIFIER,
            entries: vec![EntryPlus {
                entry: DOT,
                attributes: None,
                file: Some(FILE),
            }],
            eof: false,
        }),
        "00000000 00000000 00000000 00000009
         00000001 00000000 00000002 00000001 2e000000 00000000 00000001
            00000000 00000001 00000005 01020304 05000000
         00000000 00000000",
    );
}

fn write(
    budget: EntryBudget,
    entries: &[Entry<'_>],
    eof: bool,
) -> (Vec<u8>, Result<u32, TooSmall>, usize) {
    let mut bytes = vec![7];
    let mut w = Writer::new(&mut bytes);
    let mut list = EntryWriter::begin(&mut w, budget, None, VERIFIER);
    let taken = entries.iter().take_while(|entry| list.push(entry)).count();
    assert!(
        taken == entries.len() || !list.push(&DOT),
        "nothing more after a refusal"
    );
    let done = list.finish(eof && taken == entries.len());
    assert_eq!(bytes.remove(0), 7);
    (bytes, done, taken)
}

fn only_total(total: u32) -> EntryBudget {
    EntryBudget {
        total,
        directory: u32::MAX,
    }
}

#[test]
fn the_writer_makes_what_the_struct_makes() {
    let ok = |entries, eof| {
        ReadDirResult::Ok(ReadDirOk {
            attributes: None,
            verifier: VERIFIER,
            entries,
            eof,
        })
    };
    let (bytes, done, _) = write(only_total(1000), &[DOT, FIVE], true);
    assert_eq!(bytes, ok(vec![DOT, FIVE], true).to_bytes());
    assert_eq!(done, Ok(2));
    let (bytes, done, _) = write(only_total(1000), &[], true);
    assert_eq!(bytes, ok(vec![], true).to_bytes());
    assert_eq!(done, Ok(0));
}

#[test]
fn the_budget_is_kept_to_the_byte() {
    let both = EMPTY + 4 + DOT_BYTES + 4 + FIVE_BYTES;
    let (bytes, done, taken) = write(only_total(both), &[DOT, FIVE], true);
    assert_eq!((done, taken, bytes.len() as u32), (Ok(2), 2, 4 + both));
    let (bytes, done, taken) = write(only_total(both - 1), &[DOT, FIVE], true);
    assert_eq!((done, taken), (Ok(1), 1));
    assert_eq!(bytes.len() as u32, 4 + EMPTY + 4 + DOT_BYTES);
    let parsed = ReadDirResult::from_bytes(&bytes).unwrap().unwrap();
    assert_eq!((parsed.entries, parsed.eof), (vec![DOT], false));
}

#[test]
fn too_small_for_one_entry() {
    let one = EMPTY + 4 + DOT_BYTES;
    assert_eq!(write(only_total(one), &[DOT], true).1, Ok(1));
    let (bytes, done, _) = write(only_total(one - 1), &[DOT], true);
    assert_eq!((bytes.len(), done), (0, Err(TooSmall)));
    assert_eq!(write(only_total(EMPTY), &[], true).1, Ok(0));
    let (bytes, done, _) = write(only_total(EMPTY - 1), &[], true);
    assert_eq!((bytes.len(), done), (0, Err(TooSmall)));
}

#[test]
fn the_directory_budget_counts_numbers_names_and_cookies() {
    let plus = |entry| EntryPlus {
        entry,
        attributes: Some(ATTRIBUTES),
        file: Some(FILE),
    };
    let count = |directory| {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        let budget = EntryBudget {
            total: 10_000,
            directory,
        };
        let mut list = EntryWriter::begin(&mut w, budget, Some(&ATTRIBUTES), VERIFIER);
        let taken = [DOT, FIVE]
            .iter()
            .take_while(|entry| list.push_plus(&plus(**entry)))
            .count();
        assert_eq!(list.entries() as usize, taken);
        assert_eq!(list.finish(false), Ok(taken as u32));
        let parsed = ReadDirPlusResult::from_bytes(&bytes).unwrap().unwrap();
        assert_eq!(parsed.attributes, Some(ATTRIBUTES));
        assert_eq!(parsed.entries, [DOT, FIVE].map(plus)[..taken]);
        taken
    };
    assert_eq!(count(DOT_BYTES + FIVE_BYTES), 2);
    assert_eq!(count(DOT_BYTES + FIVE_BYTES - 1), 1);
    // A client that asks for less than one entry gets one.
    assert_eq!(count(0), 1);
}

#[test]
fn cancelling_takes_everything_back() {
    let mut bytes = vec![7];
    let mut w = Writer::new(&mut bytes);
    let mut list = EntryWriter::begin(&mut w, only_total(1000), None, VERIFIER);
    assert!(list.push(&DOT));
    list.cancel();
    assert_eq!(bytes, [7]);
}

#[test]
fn a_list_has_an_end() {
    let entries = vec![
        Entry {
            fileid: 0,
            name: b"",
            cookie: 0
        };
        MAX_ENTRIES as usize + 1
    ];
    let many = ReadDirOk {
        attributes: None,
        verifier: VERIFIER,
        entries,
        eof: true,
    }
    .to_bytes();
    assert!(matches!(
        ReadDirOk::from_bytes(&many),
        Err(XdrError::TooLong { .. })
    ));
}
