use super::*;
use crate::wire::testing::{both, bytes, file_handle, golden};
use nfs3_types::mount as theirs;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn mounting() {
    golden(DirPath(b"/data"), "00000005 2f646174 61000000");
    golden(
        MountResult::Ok(MountOk {
            file: FileHandle(&[1, 2, 3, 4, 5]),
            flavors: vec![1, 0],
        }),
        "00000000 00000005 01020304 05000000 00000002 00000001 00000000",
    );
    golden(MountResult::Err(Status::NotSupp), "00002714");
    golden(MountResult::Err(Status::NameTooLong), "0000003f");
}

#[test]
fn lists() {
    golden(
        Mounts(vec![Mount {
            host: Name(b"h"),
            directory: DirPath(b"/"),
        }]),
        "00000001 00000001 68000000 00000001 2f000000 00000000",
    );
    golden(
        Exports(vec![
            Export {
                directory: DirPath(b"/"),
                groups: vec![],
            },
            Export {
                directory: DirPath(b"/a"),
                groups: vec![Name(b"10.0.0.0/8"), Name(b"*")],
            },
        ]),
        "00000001 00000001 2f000000 00000000
         00000001 00000002 2f610000
             00000001 0000000a 31302e30 2e302e30 2f380000
             00000001 00000001 2a000000 00000000
         00000000",
    );
}

#[test]
fn limits() {
    let longest = DirPath(&[b'a'; MAX_PATH as usize]);
    assert!(DirPath::from_bytes(&longest.to_bytes()).is_ok());
    let longer = DirPath(&[b'a'; MAX_PATH as usize + 1]).to_bytes();
    assert!(matches!(
        DirPath::from_bytes(&longer),
        Err(XdrError::TooLong { max: MAX_PATH, .. })
    ));
    let handle = MountResult::Ok(MountOk {
        file: FileHandle(&[0; 65]),
        flavors: vec![],
    })
    .to_bytes();
    assert!(matches!(
        MountResult::from_bytes(&handle),
        Err(XdrError::TooLong { max: 64, .. })
    ));
    assert!(matches!(
        MountResult::from_bytes(&[0, 0, 0, 3]),
        Err(XdrError::BadValue { value: 3, .. })
    ));
}

proptest! {
    #[test]
    fn round_trips(
        path in bytes(40),
        names in vec(bytes(20), 0..5),
        file in file_handle(),
        flavors in vec(any::<u32>(), 0..5),
        status in proptest::sample::select(&Status::ALL[1..]),
    ) {
        both::<theirs::mountres3<'_>, _>(MountResult::Ok(MountOk { file, flavors }));
        both::<theirs::mountres3<'_>, _>(MountResult::Err(status));
        let directory = DirPath(path);
        both::<theirs::mountlist<'_, '_>, _>(Mounts(names.iter().map(|host| Mount { host: Name(host), directory }).collect()));
        let groups: Vec<_> = names.iter().map(|name| Name(name)).collect();
        both::<theirs::exports<'_, '_>, _>(Exports(vec![Export { directory, groups }; names.len()]));
    }
}
