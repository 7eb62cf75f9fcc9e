use super::*;
use crate::wire::testing::{hex, round_trip};
use proptest::prelude::*;

#[test]
fn words_are_big_endian() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.u32(0x0102_0304);
    w.i32(-2);
    w.u64(0x1122_3344_5566_7788);
    w.bool(true);
    w.bool(false);
    assert_eq!(
        bytes,
        hex("01020304 fffffffe 11223344 55667788 00000001 00000000")
    );
    let mut r = Reader::new(&bytes);
    assert_eq!(r.u32(), Ok(0x0102_0304));
    assert_eq!(r.i32(), Ok(-2));
    assert_eq!(r.position(), 8);
    assert_eq!(r.u64(), Ok(0x1122_3344_5566_7788));
    assert_eq!(r.bool(), Ok(true));
    assert_eq!(r.finish(), Err(XdrError::Trailing(4)));
    assert_eq!(r.bool(), Ok(false));
    assert_eq!(r.finish(), Ok(()));
    assert_eq!(r.u32(), Err(XdrError::Short));
    assert_eq!(r.u64(), Err(XdrError::Short));
}

/// The example of RFC 4506, section 7: a file named "sillyprog", of type EXEC (2) with the interpreter
/// "lisp", owned by "john", with the data "(quit)".
#[test]
fn the_example_of_the_rfc() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.opaque(b"sillyprog");
    w.u32(2);
    w.opaque(b"lisp");
    w.opaque(b"john");
    w.opaque(b"(quit)");
    let golden = hex(
        "00000009 73696c6c 7970726f 67000000 00000002 00000004 6c697370
                      00000004 6a6f686e 00000006 28717569 74290000",
    );
    assert_eq!(bytes, golden);
    let mut r = Reader::new(&golden);
    assert_eq!(r.opaque("name", 255), Ok(&b"sillyprog"[..]));
    assert_eq!(r.u32(), Ok(2));
    assert_eq!(r.opaque("name", 255), Ok(&b"lisp"[..]));
    assert_eq!(r.opaque("name", 255), Ok(&b"john"[..]));
    assert_eq!(r.opaque("data", 65535), Ok(&b"(quit)"[..]));
    assert_eq!(r.finish(), Ok(()));
}

#[test]
fn padding_must_be_there_and_may_hold_anything() {
    let padded = hex("00000001 41ffffff");
    assert_eq!(Reader::new(&padded).opaque("name", 1), Ok(&b"A"[..]));
    for end in 0..padded.len() {
        assert_eq!(
            Reader::new(&padded[..end]).opaque("name", 1),
            Err(XdrError::Short)
        );
    }
    assert_eq!(
        Reader::new(&padded).opaque_fixed::<5>(),
        Ok(&[0, 0, 0, 1, 0x41])
    );
    assert_eq!(
        Reader::new(&padded[..7]).opaque_fixed::<5>(),
        Err(XdrError::Short)
    );
}

#[test]
fn lengths_are_checked_before_anything_else() {
    let bytes = hex("ffffffff");
    let too_long = XdrError::TooLong {
        what: "name",
        len: u32::MAX,
        max: 255,
    };
    assert_eq!(Reader::new(&bytes).opaque("name", 255), Err(too_long));
    assert_eq!(Reader::new(&bytes).array::<u64>("name", 255), Err(too_long));
    assert_eq!(
        Reader::new(&bytes).opaque("name", u32::MAX),
        Err(XdrError::Short)
    );
    assert_eq!(
        Reader::new(&bytes).array::<u64>("words", u32::MAX),
        Err(XdrError::Short)
    );
}

#[test]
fn a_boolean_is_zero_or_one() {
    let bad = XdrError::BadValue {
        what: "boolean",
        value: 2,
    };
    assert_eq!(Reader::new(&hex("00000002")).bool(), Err(bad));
    assert_eq!(
        Option::<u32>::from_bytes(&hex("00000002 00000000")),
        Err(bad)
    );
}

#[test]
fn chains_end_at_their_limit() {
    let three = hex("00000001 0000000a 00000001 0000000b 00000001 0000000c 00000000");
    assert_eq!(
        Reader::new(&three).chain("numbers", 3),
        Ok(vec![10u32, 11, 12])
    );
    let too_long = XdrError::TooLong {
        what: "numbers",
        len: 3,
        max: 2,
    };
    assert_eq!(
        Reader::new(&three).chain::<u32>("numbers", 2),
        Err(too_long)
    );
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).chain(&[10u32, 11, 12]);
    assert_eq!(bytes, three);
}

#[test]
fn optional_and_fixed_data() {
    assert_eq!(Some(7u64).to_bytes(), hex("00000001 00000000 00000007"));
    assert_eq!(None::<u64>.to_bytes(), hex("00000000"));
    assert_eq!([1u8, 2, 3].to_bytes(), hex("01020300"));
    round_trip(Some([1u8, 2, 3, 4, 5, 6]));
    round_trip(None::<[u8; 3]>);
}

#[test]
fn what_was_written_can_be_changed() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.u64(0);
    w.u32(7);
    w.patch_u32(4, 5);
    w.overwrite(0, &6u32);
    assert_eq!(w.position(), 12);
    w.truncate(8);
    w.zeros(4);
    w.written(8).copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(bytes, hex("00000006 00000005 01020304"));
}

#[test]
#[should_panic(expected = "longer than what it replaces")]
fn overwriting_stays_within_what_was_written() {
    let mut bytes = vec![0; 4];
    Writer::new(&mut bytes).overwrite(0, &0u64);
}

proptest! {
    #[test]
    fn opaque_round_trips(data: Vec<u8>, before: Vec<u8>) {
        let mut bytes = before.clone();
        Writer::new(&mut bytes).opaque(&data);
        let encoded = &bytes[before.len()..];
        prop_assert_eq!(encoded.len(), 4 + data.len().next_multiple_of(4));
        let mut r = Reader::new(encoded);
        prop_assert_eq!(r.opaque("data", data.len() as u32), Ok(&data[..]));
        prop_assert_eq!(r.finish(), Ok(()));
    }
}

#[test]
fn a_payload_may_be_apart_from_its_message() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.u32(7);
    w.payload(b"hello");
    w.u32(8);
    assert_eq!(w.payload_range(), Some(8..13));
    let whole = Reader::new(&bytes);
    let read = |mut r: Reader<'_>| {
        assert_eq!(r.u32(), Ok(7));
        let data = r.payload("data", 8)?.to_vec();
        assert_eq!(r.u32(), Ok(8));
        assert_eq!(r.finish(), Ok(()));
        Ok(data)
    };
    assert_eq!(read(whole), Ok(b"hello".to_vec()));
    let mut without = bytes.clone();
    without.drain(8..16);
    let brought = |bytes, data| Apart::Next { bytes, data };
    let reduced = |apart| read(Reader::new(&without).reduced(apart));
    assert_eq!(reduced(brought(5, b"hello")), Ok(b"hello".to_vec()));
    assert_eq!(reduced(brought(5, b"")), Ok(Vec::new()));
    let other = XdrError::BadValue {
        what: "data",
        value: 5,
    };
    assert_eq!(reduced(brought(4, b"hell")), Err(other));
    // What was brought and belongs nowhere.
    let mut r = Reader::new(&without[..4]).reduced(brought(5, b"hello"));
    assert_eq!(r.u32(), Ok(7));
    assert_eq!(r.finish(), Err(XdrError::Trailing(5)));
    let mut unused = Reader::new(&without[..4]).reduced(brought(0, b""));
    assert_eq!(unused.u32(), Ok(7));
    assert_eq!(unused.finish(), Ok(()));
    // And what is here although there was a place for it.
    let elsewhere = Reader::new(&bytes[4..])
        .reduced(brought(0, b""))
        .payload("data", 8);
    assert!(elsewhere.is_err());
}
