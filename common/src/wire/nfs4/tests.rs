mod attributes;
mod callbacks;
mod files;
mod framing;
mod hostile;
mod in_place;
mod round_trip;
mod space;
mod state;

use std::fmt::Debug;

use super::*;
use crate::wire::testing::golden;
use crate::wire::xdr::{Decode, Encode};

/// A stateid, and its bytes.
const STATE: StateId = StateId {
    sequence: 7,
    other: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
};
const STATE_HEX: &str = "00000007 00010203 04050607 08090a0b";
/// An owner, and its bytes.
const OWNER: StateOwner<'_> = StateOwner {
    client_id: 0x1122_3344_5566_7788,
    owner: Opaque(b"owner"),
};
const OWNER_HEX: &str = "11223344 55667788 00000005 6f776e65 72000000";
/// A session, and its bytes.
const SESSION: SessionId = [0xab; 16];
const SESSION_HEX: &str = "abababab abababab abababab abababab";
/// A verifier, and its bytes.
const VERIFIER: Verifier = [1, 2, 3, 4, 5, 6, 7, 8];
const VERIFIER_HEX: &str = "01020304 05060708";
/// Attributes: a size of 4096 and a mode of 0644, and their bytes.
const ATTRIBUTES: RawAttributes<'_> = RawAttributes {
    mask: Bitmap::of(&[Attribute::Size, Attribute::Mode]),
    values: AttributeValues(&[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 1, 0xa4]),
};
const ATTRIBUTES_HEX: &str = "00000002 00000010 00000002 0000000c 00000000 00001000 000001a4";
/// A change of a directory, and its bytes.
const CHANGE: ChangeInfo = ChangeInfo {
    atomic: true,
    before: 8,
    after: 9,
};
const CHANGE_HEX: &str = "00000001 00000000 00000008 00000000 00000009";

/// Operations or results with the bytes that the RFCs' XDR gives them.
type Golden<T> = Vec<(T, String)>;

/// A value behind its number: what is `STATE` and the like in the digits stands for the bytes above.
fn of<T>(value: T, digits: &str) -> (T, String) {
    let digits = digits
        .replace("STATE", STATE_HEX)
        .replace("OWNER", OWNER_HEX)
        .replace("SESSION", SESSION_HEX)
        .replace("VERIFIER", VERIFIER_HEX)
        .replace("ATTRIBUTES", ATTRIBUTES_HEX)
        .replace("CHANGE", CHANGE_HEX);
    (value, digits)
}

#[track_caller]
fn check<T: Encode + Decode<'static> + PartialEq + Debug>(list: Golden<T>) {
    for (value, digits) in list {
        golden(value, &digits);
    }
}

/// Every operation.
fn operations() -> Golden<Operation<'static>> {
    [
        files::operations(),
        state::operations(),
        space::operations(),
    ]
    .concat()
}

/// Every result.
fn results() -> Golden<OperationResult<'static>> {
    [files::results(), state::results(), space::results()].concat()
}

#[test]
fn every_operation_is_the_bytes_of_the_rfc() {
    check(operations());
}

#[test]
fn every_result_is_the_bytes_of_the_rfc() {
    check(results());
}

#[test]
fn every_callback_is_the_bytes_of_the_rfc() {
    check(callbacks::operations());
    check(callbacks::results());
}

#[test]
fn no_operation_is_without_golden_bytes() {
    let (arguments, results) = (operations(), results());
    for code in OpCode::ALL {
        let refused = matches!(
            code,
            OpCode::GetDeviceInfo
                | OpCode::GetDeviceList
                | OpCode::LayoutCommit
                | OpCode::LayoutGet
                | OpCode::LayoutReturn
                | OpCode::SetSsv
                | OpCode::LayoutError
                | OpCode::LayoutStats
                | OpCode::Illegal
        );
        let known = arguments
            .iter()
            .any(|(operation, _)| operation.code() == *code);
        assert_eq!(known, !refused, "{code:?}");
        let known = results.iter().any(|(result, _)| result.code() == *code);
        assert!(known, "{code:?}");
    }
}

#[test]
fn names_of_statuses() {
    assert_eq!(Status::Ok.name(), "OK");
    assert_eq!(Status::BadStateId.name(), "BAD_STATEID");
    assert_eq!(Status::Xattr2Big.code(), 10096);
    assert_eq!(Status::ALL.len(), 113);
}

#[test]
fn statuses_and_numbers_ascend() {
    assert!(Status::ALL.is_sorted());
    assert!(OpCode::ALL.is_sorted());
    assert!(Attribute::ALL.is_sorted());
}
