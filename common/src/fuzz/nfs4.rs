use std::fmt::Debug;

use super::check;
use crate::wire::nfs4::*;
use crate::wire::xdr::{Decode, Encode, Reader, Writer};

/// The first byte selects callbacks (odd) or calls (even). The rest is a COMPOUND or CB_COMPOUND.
pub fn calls(bytes: &[u8]) {
    match bytes.split_first() {
        Some((kind, call)) if kind % 2 == 0 => compound(call),
        Some((_, call)) => {
            let mut r = Reader::new(call);
            if let Ok(header) = CallbackHeader::decode(&mut r) {
                for _ in 0..header.operations {
                    let before = r.rest();
                    let Ok(operation) = CallbackOperation::decode(&mut r) else {
                        break;
                    };
                    survives(&operation, before, r.rest());
                }
            }
        }
        None => {}
    }
}

/// Each operation must survive; those before a bad one are given all the same, and nothing after it.
fn compound(call: &[u8]) {
    let Ok(mut operations) = Operations::begin(Reader::new(call)) else {
        return;
    };
    let header = *operations.header();
    let mut read = 0;
    let mut again = Vec::new();
    let mut w = Writer::new(&mut again);
    let mut writer = CallWriter::compound(&mut w, header.tag, header.minor_version);
    for operation in operations.by_ref() {
        read += 1;
        match operation {
            Ok(operation) => {
                assert!(operation.code().minor_version() <= header.minor_version);
                writer = writer.push(&operation);
            }
            Err(bad) => {
                assert_ne!(bad.status(), Status::Ok);
                assert!(operations.next().is_none());
                return;
            }
        }
    }
    writer.finish();
    assert_eq!(read, header.operations);
    if operations.finish().is_ok() {
        assert_eq!(again.len(), call.len());
        let once = Operations::begin(Reader::new(call)).map(Vec::from_iter);
        assert_eq!(
            Operations::begin(Reader::new(&again)).map(Vec::from_iter),
            once
        );
    }
}

/// The first byte selects callbacks (odd) or calls (even). The rest is the reply.
pub fn replies(bytes: &[u8]) {
    let Some((kind, reply)) = bytes.split_first() else {
        return;
    };
    let Ok(mut results) = Results::begin(Reader::new(reply)) else {
        return;
    };
    if kind % 2 == 0 {
        for result in results.flatten() {
            let bytes = result.to_bytes();
            survives(&result, &bytes, &[]);
        }
    } else {
        while let Some(Ok(result)) = results.next_as::<CallbackResult<'_>>() {
            let bytes = result.to_bytes();
            survives(&result, &bytes, &[]);
        }
    }
}

/// A `fattr4`, taken for attributes to set, to read and to compare.
pub fn attributes(bytes: &[u8]) {
    check!(RawAttributes<'_>, bytes);
    let Ok(raw) = RawAttributes::from_bytes(bytes) else {
        return;
    };
    let supported = READABLE.or(&SETTABLE);
    if let Ok(set) = SetAttributes::parse(&raw, &supported) {
        assert_eq!(set.mask(), raw.mask);
        let again = set.to_bytes();
        let raw = RawAttributes::from_bytes(&again).expect("what was encoded");
        assert_eq!(SetAttributes::parse(&raw, &supported), Ok(set));
    }
    if let Ok(read) = Attributes::parse(&raw) {
        assert_eq!(read.mask(), raw.mask);
        let again = read.to_bytes();
        let raw = RawAttributes::from_bytes(&again).expect("what was encoded");
        assert_eq!(Attributes::parse(&raw).as_ref(), Ok(&read));
        if !raw.mask.contains(Attribute::ReadAttributeError) {
            assert_eq!(read.matches(&raw), Ok(true));
        }
    }
}

/// The value, which came from `before` up to `after`, is as long again and the same again.
fn survives<'a, T: Encode + Decode<'a> + PartialEq + Debug>(
    value: &T,
    before: &'a [u8],
    after: &[u8],
) {
    let taken = &before[..before.len() - after.len()];
    assert_eq!(value.to_bytes().len(), taken.len(), "{value:?}");
    assert_eq!(T::from_bytes(taken).as_ref(), Ok(value));
}
