//! What the tests of the wire share: bytes written as words, and values at random.

use std::fmt::Debug;

use nfs3_types::xdr_codec::{Pack, Unpack};
use proptest::collection::vec;
use proptest::prelude::*;

use super::nfs3::{
    Attributes, Device, FileHandle, FileType, Payload, SetAttributes, SetTime, Time, WccAttributes,
    WccData,
};
use super::xdr::{Decode, Encode, XdrError};

/// Bytes from hexadecimal digits; white space does not count.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hexadecimal digit"))
        .collect();
    assert_eq!(digits.len() % 8, 0, "whole words");
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

/// The value is these bytes, and these bytes are the value.
#[track_caller]
pub fn golden<T>(value: T, digits: &str)
where
    T: Encode + Decode<'static> + PartialEq + Debug,
{
    let bytes = hex(digits);
    assert_eq!(value.to_bytes(), bytes, "encoding {value:?}");
    round_trip(value);
}

/// Decoding returns what was encoded, and fails for each shorter part of it.
#[track_caller]
pub fn round_trip<T>(value: T)
where
    T: Encode + Decode<'static> + PartialEq + Debug,
{
    let bytes: &'static [u8] = value.to_bytes().leak();
    assert_eq!(bytes.len() % 4, 0);
    assert_eq!(T::from_bytes(bytes).as_ref(), Ok(&value));
    for end in 0..bytes.len() {
        assert_eq!(
            T::from_bytes(&bytes[..end]).err(),
            Some(XdrError::Short),
            "cut at {end}"
        );
    }
    let longer: &'static [u8] = [bytes, &[0; 4]].concat().leak();
    assert_eq!(T::from_bytes(longer).err(), Some(XdrError::Trailing(4)));
}

/// The value makes the round trip here, and its bytes the round trip through another codec.
#[track_caller]
pub fn both<Theirs, Ours>(value: Ours)
where
    Theirs: Pack + Unpack,
    Ours: Encode + Decode<'static> + PartialEq + Debug,
{
    let bytes = value.to_bytes();
    let (decoded, taken) = Theirs::unpack(&mut bytes.as_slice()).expect("what the RFC describes");
    assert_eq!(taken, bytes.len());
    let mut again = Vec::new();
    decoded.pack(&mut again).expect("room");
    assert_eq!(again, bytes, "{value:?}");
    round_trip(value);
}

/// Up to `max` bytes. They are never freed: decoded values borrow from them.
pub fn bytes(max: usize) -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..=max).prop_map(|bytes| &*bytes.leak())
}

pub fn file_handle() -> impl Strategy<Value = FileHandle<'static>> {
    bytes(64).prop_map(FileHandle)
}

pub fn payload() -> impl Strategy<Value = Payload<'static>> {
    bytes(99).prop_map(Payload)
}

pub fn time() -> impl Strategy<Value = Time> {
    any::<(u32, u32)>().prop_map(|(seconds, nanoseconds)| Time {
        seconds,
        nanoseconds,
    })
}

pub fn device() -> impl Strategy<Value = Device> {
    any::<(u32, u32)>().prop_map(|(major, minor)| Device { major, minor })
}

pub fn attributes() -> impl Strategy<Value = Attributes> {
    let kind = proptest::sample::select(FileType::ALL);
    let numbers = any::<([u32; 4], [u64; 4])>();
    (kind, numbers, device(), [time(), time(), time()]).prop_map(
        |(kind, ([mode, links, uid, gid], [size, used, fsid, fileid]), device, times)| Attributes {
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            used,
            device,
            fsid,
            fileid,
            atime: times[0],
            mtime: times[1],
            ctime: times[2],
        },
    )
}

pub fn post_attributes() -> impl Strategy<Value = Option<Attributes>> {
    proptest::option::of(attributes())
}

pub fn wcc() -> impl Strategy<Value = WccData> {
    let before = (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttributes {
        size,
        mtime,
        ctime,
    });
    (proptest::option::of(before), post_attributes())
        .prop_map(|(before, after)| WccData { before, after })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::Keep),
        Just(SetTime::ServerTime),
        time().prop_map(SetTime::To)
    ]
}

pub fn set_attributes() -> impl Strategy<Value = SetAttributes> {
    (
        any::<[Option<u32>; 3]>(),
        any::<Option<u64>>(),
        set_time(),
        set_time(),
    )
        .prop_map(|([mode, uid, gid], size, atime, mtime)| SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        })
}
