use proptest::prelude::*;

use super::attributes::full;
use super::*;
use crate::wire::xdr::{Reader, Writer};

proptest! {
    #[test]
    fn a_read_reply_in_place_is_the_result(data: Vec<u8>, spare in 0u32..9, eof: bool, before: Vec<u8>) {
        let count = data.len() as u32;
        let mut bytes = before.clone();
        let mut w = Writer::new(&mut bytes);
        let mut reply = ReadReply::begin(&mut w, count + spare);
        prop_assert_eq!(reply.data().len() as u32, count + spare);
        reply.data().fill(0xee);
        reply.data()[..data.len()].copy_from_slice(&data);
        reply.finish(count, eof);

        let whole = ReadResult::Ok(ReadOk { eof, data: Payload(&data) });
        prop_assert_eq!(&bytes[..before.len()], &before[..]);
        prop_assert_eq!(&bytes[before.len()..], &whole.to_bytes()[..]);
    }

    #[test]
    fn a_read_plus_reply_in_place_is_the_result(
        contents: Vec<Result<Vec<u8>, (u64, u64)>>, spare in 0u32..9, eof: bool, before: Vec<u8>,
    ) {
        let mut bytes = before.clone();
        let mut w = Writer::new(&mut bytes);
        let mut reply = ReadPlusReply::begin(&mut w);
        let mut expected = Vec::new();
        for content in &contents {
            match content {
                Ok(data) => {
                    let count = data.len() as u32;
                    let added = reply.data(5, count + spare, |room| {
                        room.fill(0xee);
                        room[..data.len()].copy_from_slice(data);
                        Ok::<_, ()>(count)
                    });
                    prop_assert_eq!(added, Ok(count));
                    if count > 0 {
                        expected.push(Content::Data(5, Data(data)));
                    }
                }
                Err((offset, length)) => {
                    reply.hole(*offset, *length);
                    expected.push(Content::Hole(*offset, *length));
                }
            }
        }
        prop_assert_eq!(reply.data(5, 9, |_| Err(3)), Err(3));
        reply.finish(eof);
        let whole = ReadPlusResult::Ok(ReadPlusOk { eof, contents: List(expected) });
        prop_assert_eq!(&bytes[..before.len()], &before[..]);
        prop_assert_eq!(&bytes[before.len()..], &whole.to_bytes()[..]);
    }
}

#[test]
fn a_placed_read_reply_is_the_result_without_its_data() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    assert_eq!(ReadReply::placed(&mut w, 5, true), 12);
    let data = Payload(b"hello");
    let whole = ReadResult::Ok(ReadOk { eof: true, data });
    assert_eq!(bytes, whole.to_bytes()[..12]);
}

#[test]
#[should_panic(expected = "more data than there is room for")]
fn a_read_reply_holds_no_more_than_its_room() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    ReadReply::begin(&mut w, 100).finish(101, false);
}

#[test]
fn payloads_can_be_taken_out() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let data = Payload(b"hello");
    let done = ReadResult::Ok(ReadOk { eof: true, data });
    ResultWriter::begin(&mut w, Opaque(b"")).push(OpCode::Read, &done);
    let range = w.payload_range().expect("a payload");
    assert_eq!(&bytes[range], b"hello");
}

#[test]
fn a_write_takes_its_data_from_elsewhere() {
    let write = Operation::Write(WriteArgs {
        state: STATE,
        offset: 0,
        stable: Stable::Unstable,
        data: Payload(b"hello"),
    });
    let whole = super::framing::call(0, std::slice::from_ref(&write));
    let reduced = &whole[..whole.len() - 8];
    let apart = crate::wire::xdr::Apart::Next {
        bytes: 5,
        data: b"hello",
    };
    let r = Reader::new(reduced).reduced(apart);
    let mut operations = Operations::begin(r).expect("a compound");
    assert_eq!(operations.next(), Some(Ok(write)));
    assert_eq!(operations.finish(), Ok(()));
}

fn budget(total: u32, directory: u32) -> EntryBudget {
    EntryBudget { total, directory }
}

/// How many of three entries fit, and the result.
fn list(budget: EntryBudget) -> (Result<u32, TooSmall>, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let mut entries = EntryWriter::begin(&mut w, budget, VERIFIER);
    let asked = Bitmap::of(&[Attribute::FileId]);
    let all = (3..6).all(|cookie| entries.push(cookie, b"name", &full(), &asked));
    let done = entries.finish(all);
    (done, bytes)
}

/// Follows, cookie, name and its length, the mask and the values with their lengths.
const ENTRY: u32 = 4 + 8 + 8 + 8 + 12;
/// Verifier, FALSE and EOF.
const FRAME: u32 = 8 + 4 + 4;

#[test]
fn entries_are_written_while_they_fit() {
    for (total, expected) in [
        (FRAME + 3 * ENTRY, Ok(3)),
        (FRAME + 3 * ENTRY - 1, Ok(2)),
        (FRAME + ENTRY, Ok(1)),
        (FRAME + ENTRY - 1, Err(TooSmall)),
        (FRAME, Err(TooSmall)),
        (0, Err(TooSmall)),
    ] {
        let (done, bytes) = list(budget(total, u32::MAX));
        assert_eq!(done, expected, "{total}");
        assert!(bytes.len() as u32 <= 4 + total);
        let Ok(count) = expected else {
            assert_eq!(bytes, []);
            continue;
        };
        assert_eq!(bytes.len() as u32, 4 + FRAME + count * ENTRY);
        let read = ReadDirResult::from_bytes(&bytes).unwrap().unwrap();
        assert_eq!(read.entries.len() as u32, count);
        assert_eq!(read.eof, count == 3);
    }
}

#[test]
fn cookies_and_names_have_a_budget_of_their_own() {
    // A cookie and a name are 16 bytes. One entry is always given, and 0 is no hint.
    for (directory, expected) in [(48, 3), (47, 2), (32, 2), (31, 1), (1, 1), (0, 3)] {
        let args = ReadDirArgs {
            cookie: 0,
            verifier: [0; 8],
            directory_count: directory,
            max_count: 4096,
            asked: Bitmap::EMPTY,
        };
        assert_eq!(list(args.budget()).0, Ok(expected), "{directory}");
    }
}

#[test]
fn raw_entries_are_written_as_they_are() {
    let entry = Entry {
        cookie: 3,
        name: Name(b"a"),
        attributes: ATTRIBUTES,
    };
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let mut entries = EntryWriter::begin(&mut w, budget(4096, 4096), VERIFIER);
    assert!(entries.push_raw(&entry));
    assert_eq!(entries.entries(), 1);
    assert_eq!(entries.finish(true), Ok(1));
    let whole = ReadDirResult::Ok(ReadDirOk {
        verifier: VERIFIER,
        entries: vec![entry],
        eof: true,
    });
    assert_eq!(bytes, whole.to_bytes());
}
