use super::*;
use crate::wire::nfs2::{FileHandle, Status};
use crate::wire::testing::golden;
use crate::wire::xdr::{Decode as _, XdrError};

#[test]
fn mounting() {
    golden(
        MountResult::Ok(FileHandle(&[7; 32])),
        "00000000 07070707 07070707 07070707 07070707 07070707 07070707 07070707 07070707",
    );
    golden(MountResult::Err(Status::Access), "0000000d");
    let unknown = MountResult::from_bytes(&[0, 0, 0, 3]);
    assert!(matches!(unknown, Err(XdrError::BadValue { value: 3, .. })));
}

#[test]
fn path_conf() {
    golden(
        PathConf {
            link_max: 1,
            canonical_max: 2,
            input_max: 3,
            name_max: 255,
            path_max: 1024,
            pipe_bytes: 4,
            disable: 5,
            reserved: 0,
            mask: mask::NO_TRUNCATE | mask::CHOWN_RESTRICTED,
            mask_beyond: 0,
        },
        "00000001 00000002 00000003 000000ff 00000400 00000004 00000005 00000000 00000280 00000000",
    );
}
