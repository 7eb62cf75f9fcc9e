//! Bytes by hand from the definitions of RFC 1813.

use crate::wire::nfs3::*;
use crate::wire::testing::{golden, hex};
use crate::wire::xdr::{Decode as _, Encode as _, XdrError};

pub const FILE: FileHandle<'static> = FileHandle(&[1, 2, 3, 4, 5]);
const FILE_BYTES: &str = "00000005 01020304 05000000";

pub const ATTRIBUTES: Attributes = Attributes {
    kind: FileType::Regular,
    mode: 0o644,
    links: 1,
    uid: 1000,
    gid: 100,
    size: 0x1_0000_1234,
    used: 0x2000,
    device: Device { major: 8, minor: 1 },
    fsid: 0xfd00,
    fileid: 0x42,
    atime: Time {
        seconds: 0x5f00_0000,
        nanoseconds: 1,
    },
    mtime: Time {
        seconds: 0x5f00_0001,
        nanoseconds: 2,
    },
    ctime: Time {
        seconds: 0x5f00_0002,
        nanoseconds: 3,
    },
};
const ATTRIBUTES_HEX: &str = "
    00000001 000001a4 00000001 000003e8 00000064 00000001 00001234 00000000 00002000
    00000008 00000001 00000000 0000fd00 00000000 00000042
    5f000000 00000001 5f000001 00000002 5f000002 00000003";

const WCC: WccData = WccData {
    before: Some(WccAttributes {
        size: 0x10,
        mtime: Time {
            seconds: 1,
            nanoseconds: 2,
        },
        ctime: Time {
            seconds: 3,
            nanoseconds: 4,
        },
    }),
    after: Some(ATTRIBUTES),
};
const WCC_BEFORE: &str = "00000001 00000000 00000010 00000001 00000002 00000003 00000004 00000001";

const PLACE: DirectoryName<'static> = DirectoryName {
    directory: FILE,
    name: b"name.c",
};
const PLACE_BYTES: &str = "00000005 01020304 05000000 00000006 6e616d65 2e630000";

const SET_MODE: SetAttributes = SetAttributes {
    mode: Some(0o600),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::ServerTime,
};
const SET_MODE_BYTES: &str = "00000001 00000180 00000000 00000000 00000000 00000000 00000001";

fn join(parts: &[&str]) -> String {
    parts.concat()
}

fn failed<F>(rest: F) -> Failed<F> {
    Failed {
        status: Status::Stale,
        rest,
    }
}

#[test]
fn data_types() {
    golden(FILE, FILE_BYTES);
    golden(ATTRIBUTES, ATTRIBUTES_HEX);
    assert_eq!(ATTRIBUTES.to_bytes().len(), ATTRIBUTES_BYTES);
    golden(WCC, &join(&[WCC_BEFORE, ATTRIBUTES_HEX]));
    golden(WccData::default(), "00000000 00000000");
    golden(PLACE, PLACE_BYTES);
    golden(SET_MODE, SET_MODE_BYTES);
    golden(
        SetAttributes {
            mode: None,
            uid: Some(5),
            gid: Some(6),
            size: Some(7),
            atime: SetTime::To(Time {
                seconds: 8,
                nanoseconds: 9,
            }),
            mtime: SetTime::Keep,
        },
        "00000000 00000001 00000005 00000001 00000006 00000001 00000000 00000007
         00000002 00000008 00000009 00000000",
    );
    assert_eq!(WccAttributes::from(&ATTRIBUTES).size, ATTRIBUTES.size);
    assert_eq!(WccAttributes::from(&ATTRIBUTES).mtime, ATTRIBUTES.mtime);
    assert_eq!(WccAttributes::from(&ATTRIBUTES).ctime, ATTRIBUTES.ctime);
}

#[test]
fn statuses_and_procedures_have_the_numbers_of_the_rfc() {
    let codes: Vec<u32> = Status::ALL.iter().map(|status| status.code()).collect();
    assert_eq!(
        codes,
        [
            0, 1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70, 71, 10001,
            10002, 10003, 10004, 10005, 10006, 10007, 10008
        ]
    );
    assert_eq!(Status::from_code(3), None);
    let codes: Vec<u32> = Procedure::ALL
        .iter()
        .map(|procedure| procedure.code())
        .collect();
    assert_eq!(codes, (0..22).collect::<Vec<_>>());
    assert_eq!(Procedure::from_code(22), None);
    assert_eq!(
        Status::from_bytes(&hex("00000003")),
        Err(XdrError::BadValue {
            what: "nfsstat3",
            value: 3
        })
    );
}

#[test]
fn arguments() {
    golden(
        SetAttributesArgs {
            file: FILE,
            attributes: SET_MODE,
            guard: Some(Time {
                seconds: 5,
                nanoseconds: 6,
            }),
        },
        &join(&[FILE_BYTES, SET_MODE_BYTES, "00000001 00000005 00000006"]),
    );
    golden(
        AccessArgs {
            file: FILE,
            access: access::READ | access::DELETE,
        },
        &join(&[FILE_BYTES, "00000011"]),
    );
    golden(
        ReadArgs {
            file: FILE,
            offset: 0x1_0000_0000,
            count: 4096,
        },
        &join(&[FILE_BYTES, "00000001 00000000 00001000"]),
    );
    golden(
        WriteArgs {
            file: FILE,
            offset: 9,
            count: 5,
            stable: Stable::FileSync,
            data: Payload(b"hello"),
        },
        &join(&[
            FILE_BYTES,
            "00000000 00000009 00000005 00000002 00000005 68656c6c 6f000000",
        ]),
    );
    golden(
        CreateArgs {
            place: PLACE,
            how: CreateHow::Unchecked(SET_MODE),
        },
        &join(&[PLACE_BYTES, "00000000", SET_MODE_BYTES]),
    );
    golden(
        CreateArgs {
            place: PLACE,
            how: CreateHow::Guarded(SET_MODE),
        },
        &join(&[PLACE_BYTES, "00000001", SET_MODE_BYTES]),
    );
    golden(
        CreateArgs {
            place: PLACE,
            how: CreateHow::Exclusive([1, 2, 3, 4, 5, 6, 7, 8]),
        },
        &join(&[PLACE_BYTES, "00000002 01020304 05060708"]),
    );
    golden(
        MakeDirectoryArgs {
            place: PLACE,
            attributes: SET_MODE,
        },
        &join(&[PLACE_BYTES, SET_MODE_BYTES]),
    );
    golden(
        SymlinkArgs {
            place: PLACE,
            attributes: SET_MODE,
            target: Payload(b"../x"),
        },
        &join(&[PLACE_BYTES, SET_MODE_BYTES, "00000004 2e2e2f78"]),
    );
    golden(
        RenameArgs {
            from: PLACE,
            to: DirectoryName {
                directory: FileHandle(b""),
                name: b"b",
            },
        },
        &join(&[PLACE_BYTES, "00000000 00000001 62000000"]),
    );
    golden(
        LinkArgs {
            file: FILE,
            place: PLACE,
        },
        &join(&[FILE_BYTES, PLACE_BYTES]),
    );
    golden(
        ReadDirArgs {
            directory: FILE,
            cookie: 7,
            verifier: [9; 8],
            count: 1024,
        },
        &join(&[FILE_BYTES, "00000000 00000007 09090909 09090909 00000400"]),
    );
    golden(
        ReadDirPlusArgs {
            directory: FILE,
            cookie: 7,
            verifier: [9; 8],
            directory_count: 512,
            max_count: 8192,
        },
        &join(&[
            FILE_BYTES,
            "00000000 00000007 09090909 09090909 00000200 00002000",
        ]),
    );
    golden(
        CommitArgs {
            file: FILE,
            offset: 1,
            count: 0,
        },
        &join(&[FILE_BYTES, "00000000 00000001 00000000"]),
    );
}

#[test]
fn making_nodes() {
    let device = Device {
        major: 4,
        minor: 64,
    };
    let make = |what| MakeNodeArgs { place: PLACE, what };
    golden(
        make(MakeNode::Character(SET_MODE, device)),
        &join(&[PLACE_BYTES, "00000004", SET_MODE_BYTES, "00000004 00000040"]),
    );
    golden(
        make(MakeNode::Block(SET_MODE, device)),
        &join(&[PLACE_BYTES, "00000003", SET_MODE_BYTES, "00000004 00000040"]),
    );
    golden(
        make(MakeNode::Socket(SET_MODE)),
        &join(&[PLACE_BYTES, "00000006", SET_MODE_BYTES]),
    );
    golden(
        make(MakeNode::Fifo(SET_MODE)),
        &join(&[PLACE_BYTES, "00000007", SET_MODE_BYTES]),
    );
    golden(
        make(MakeNode::Other(FileType::Regular)),
        &join(&[PLACE_BYTES, "00000001"]),
    );
}

#[test]
fn results_that_carry_attributes_on_failure() {
    let attributes = Some(ATTRIBUTES);
    let some = join(&["00000001", ATTRIBUTES_HEX]);
    let stale = join(&["00000046", &some]);
    golden(
        GetAttributesResult::Ok(ATTRIBUTES),
        &join(&["00000000", ATTRIBUTES_HEX]),
    );
    golden(GetAttributesResult::Err(failed(())), "00000046");
    golden(
        LookupResult::Ok(LookupOk {
            file: FILE,
            attributes: None,
            directory: attributes,
        }),
        &join(&["00000000", FILE_BYTES, "00000000", &some]),
    );
    golden(LookupResult::Err(failed(attributes)), &stale);
    golden(
        AccessResult::Ok(AccessOk {
            attributes,
            access: 0x1f,
        }),
        &join(&["00000000", &some, "0000001f"]),
    );
    golden(AccessResult::Err(failed(attributes)), &stale);
    golden(
        ReadLinkResult::Ok(ReadLinkOk {
            attributes,
            target: Payload(b"a/b/c"),
        }),
        &join(&["00000000", &some, "00000005 612f622f 63000000"]),
    );
    golden(
        ReadResult::Ok(ReadOk {
            attributes,
            count: 3,
            eof: true,
            data: Payload(b"xyz"),
        }),
        &join(&["00000000", &some, "00000003 00000001 00000003 78797a00"]),
    );
    golden(ReadResult::Err(failed(None)), "00000046 00000000");
}

#[test]
fn results_that_carry_weak_cache_consistency_data() {
    let wcc = join(&[WCC_BEFORE, ATTRIBUTES_HEX]);
    let stale = join(&["00000046", &wcc]);
    let ok = join(&["00000000", &wcc]);
    golden(SetAttributesResult::Ok(WCC), &ok);
    golden(SetAttributesResult::Err(failed(WCC)), &stale);
    golden(RemoveResult::Ok(WCC), &ok);
    golden(RemoveResult::Err(failed(WCC)), &stale);
    let verifier = [1, 2, 3, 4, 5, 6, 7, 8];
    golden(
        WriteResult::Ok(WriteOk {
            wcc: WCC,
            count: 512,
            committed: Stable::DataSync,
            verifier,
        }),
        &join(&[&ok, "00000200 00000001 01020304 05060708"]),
    );
    golden(
        CommitResult::Ok(CommitOk { wcc: WCC, verifier }),
        &join(&[&ok, "01020304 05060708"]),
    );
    golden(
        CreateResult::Ok(CreateOk {
            file: Some(FILE),
            attributes: None,
            directory: WCC,
        }),
        &join(&["00000000 00000001", FILE_BYTES, "00000000", &wcc]),
    );
    golden(
        CreateResult::Ok(CreateOk {
            file: None,
            attributes: Some(ATTRIBUTES),
            directory: WccData::default(),
        }),
        &join(&[
            "00000000 00000000 00000001",
            ATTRIBUTES_HEX,
            "00000000 00000000",
        ]),
    );
    let both = RenameData {
        from: WCC,
        to: WccData::default(),
    };
    golden(RenameResult::Ok(both), &join(&[&ok, "00000000 00000000"]));
    golden(
        RenameResult::Err(failed(both)),
        &join(&[&stale, "00000000 00000000"]),
    );
    golden(
        LinkResult::Ok(LinkData {
            attributes: None,
            directory: WCC,
        }),
        &join(&["00000000 00000000", &wcc]),
    );
}

#[test]
fn results_about_the_file_system() {
    golden(
        FsStatResult::Ok(FsStatOk {
            attributes: None,
            total_bytes: 1,
            free_bytes: 2,
            available_bytes: 3,
            total_files: 4,
            free_files: 5,
            available_files: 6,
            invariant_seconds: 7,
        }),
        "00000000 00000000 00000000 00000001 00000000 00000002 00000000 00000003
         00000000 00000004 00000000 00000005 00000000 00000006 00000007",
    );
    golden(
        FsInfoResult::Ok(FsInfoOk {
            attributes: None,
            read_max: 1,
            read_preferred: 2,
            read_multiple: 3,
            write_max: 4,
            write_preferred: 5,
            write_multiple: 6,
            directory_preferred: 7,
            file_max: 8,
            time_delta: Time {
                seconds: 9,
                nanoseconds: 10,
            },
            properties: properties::LINK
                | properties::SYMLINK
                | properties::HOMOGENEOUS
                | properties::CAN_SET_TIME,
        }),
        "00000000 00000000 00000001 00000002 00000003 00000004 00000005 00000006 00000007
         00000000 00000008 00000009 0000000a 0000001b",
    );
    golden(
        PathConfResult::Ok(PathConfOk {
            attributes: None,
            link_max: 32000,
            name_max: 255,
            no_truncate: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }),
        "00000000 00000000 00007d00 000000ff 00000001 00000001 00000000 00000001",
    );
    golden(PathConfResult::Err(failed(None)), "00000046 00000000");
}

#[test]
fn what_peers_may_not_send() {
    let bad = |bytes: &str, what, value| {
        let bytes = hex(bytes);
        let error = XdrError::BadValue { what, value };
        (bytes, error)
    };
    let (bytes, error) = bad("00000000", "ftype3", 0);
    assert_eq!(FileType::from_bytes(&bytes), Err(error));
    let (bytes, error) = bad("00000003", "time_how", 3);
    assert_eq!(SetTime::from_bytes(&bytes), Err(error));
    let (bytes, error) = bad("00000003", "createmode3", 3);
    assert_eq!(CreateHow::from_bytes(&bytes), Err(error));
    let (bytes, error) = bad("00000003", "stable_how", 3);
    assert_eq!(Stable::from_bytes(&bytes), Err(error));

    let long = [0x41; 4100];
    assert!(FileHandle::from_bytes(&FileHandle(&long[..64]).to_bytes()).is_ok());
    assert!(matches!(
        FileHandle::from_bytes(&FileHandle(&long[..65]).to_bytes()),
        Err(XdrError::TooLong { max: 64, .. })
    ));
    let named = |name| DirectoryName {
        directory: FILE,
        name,
    };
    assert!(DirectoryName::from_bytes(&named(&long[..4096]).to_bytes()).is_ok());
    assert!(matches!(
        DirectoryName::from_bytes(&named(&long[..4097]).to_bytes()),
        Err(XdrError::TooLong { max: MAX_NAME, .. })
    ));
}
