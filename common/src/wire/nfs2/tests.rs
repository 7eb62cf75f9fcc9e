//! Bytes by hand from the definitions of RFC 1094, and properties.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use crate::wire::nfs2::*;
use crate::wire::testing::{bytes, golden, hex, round_trip};
use crate::wire::xdr::{Decode as _, Encode as _, Writer, XdrError};

const FILE: FileHandle<'static> = FileHandle(&[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
    27, 28, 29, 30, 31, 32,
]);
const FILE_HEX: &str = "01020304 05060708 090a0b0c 0d0e0f10 11121314 15161718 191a1b1c 1d1e1f20 ";

const ATTRIBUTES: Attributes = Attributes {
    kind: FileType::Regular,
    mode: mode::REGULAR | 0o644,
    links: 1,
    uid: 1000,
    gid: 100,
    size: 0x1234,
    block_bytes: 4096,
    device: 0,
    blocks: 16,
    fsid: 0xfd00,
    fileid: 0x42,
    atime: Time {
        seconds: 0x5f00_0000,
        microseconds: 1,
    },
    mtime: Time {
        seconds: 0x5f00_0001,
        microseconds: 2,
    },
    ctime: Time {
        seconds: 0x5f00_0002,
        microseconds: 3,
    },
};
const ATTRIBUTES_HEX: &str = "
    00000001 000081a4 00000001 000003e8 00000064 00001234 00001000 00000000 00000010
    0000fd00 00000042 5f000000 00000001 5f000001 00000002 5f000002 00000003 ";

const PLACE: DirectoryName<'static> = DirectoryName {
    directory: FILE,
    name: b"name.c",
};
const NAME_HEX: &str = "00000006 6e616d65 2e630000 ";

const SET: SetAttributes = SetAttributes {
    mode: Some(0o600),
    uid: None,
    gid: Some(7),
    size: Some(0),
    atime: SetTime::Keep,
    mtime: SetTime::To(Time {
        seconds: 8,
        microseconds: 9,
    }),
};
const SET_HEX: &str = "00000180 ffffffff 00000007 00000000 ffffffff ffffffff 00000008 00000009 ";

#[track_caller]
fn same<T>(value: T, parts: &[&str])
where
    T: crate::wire::xdr::Encode + crate::wire::xdr::Decode<'static> + PartialEq + std::fmt::Debug,
{
    golden(value, &parts.concat());
}

#[test]
fn data_types() {
    same(FILE, &[FILE_HEX]);
    same(ATTRIBUTES, &[ATTRIBUTES_HEX]);
    assert_eq!(ATTRIBUTES.to_bytes().len(), ATTRIBUTES_BYTES);
    same(PLACE, &[FILE_HEX, NAME_HEX]);
    same(SET, &[SET_HEX]);
    let now = SetAttributes {
        atime: SetTime::ServerTime,
        mtime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    same(
        now,
        &["ffffffff ffffffff ffffffff ffffffff 00000000 000f4240 00000000 000f4240"],
    );
}

#[test]
fn statuses_and_procedures_have_the_numbers_of_the_rfc() {
    let codes: Vec<u32> = Status::ALL.iter().map(|status| status.code()).collect();
    assert_eq!(
        codes,
        [
            0, 1, 2, 5, 6, 13, 17, 19, 20, 21, 27, 28, 30, 63, 66, 69, 70, 99
        ]
    );
    let codes: Vec<u32> = (Procedure::ALL.iter())
        .map(|procedure| procedure.code())
        .collect();
    assert_eq!(codes, (0..18).collect::<Vec<_>>());
    assert_eq!(Procedure::from_code(18), None);
    let codes: Vec<u32> = FileType::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(codes, (0..6).collect::<Vec<_>>());
}

#[test]
fn arguments() {
    let (file, place, attributes) = (FILE, PLACE, SET);
    same(SetAttributesArgs { file, attributes }, &[FILE_HEX, SET_HEX]);
    let read = ReadArgs {
        file,
        offset: 0x2000,
        count: 0x1000,
        total_count: 3,
    };
    same(read, &[FILE_HEX, "00002000 00001000 00000003"]);
    let write = WriteArgs {
        file,
        begin_offset: 1,
        offset: 0x2000,
        total_count: 2,
        data: Payload(b"hello"),
    };
    let data = "00000001 00002000 00000002 00000005 68656c6c 6f000000";
    same(write, &[FILE_HEX, data]);
    let create = CreateArgs { place, attributes };
    same(create, &[FILE_HEX, NAME_HEX, SET_HEX]);
    let rename = RenameArgs {
        from: place,
        to: DirectoryName {
            name: b"x",
            ..place
        },
    };
    let to = "00000001 78000000";
    same(rename, &[FILE_HEX, NAME_HEX, FILE_HEX, to]);
    let link = LinkArgs { file, place };
    same(link, &[FILE_HEX, FILE_HEX, NAME_HEX]);
    let symlink = SymlinkArgs {
        place,
        target: Payload(b"a/b/c"),
        attributes,
    };
    let target = "00000005 612f622f 63000000 ";
    same(symlink, &[FILE_HEX, NAME_HEX, target, SET_HEX]);
    let list = ReadDirArgs {
        directory: file,
        cookie: 5,
        count: 512,
    };
    same(list, &[FILE_HEX, "00000005 00000200"]);
}

#[test]
fn results() {
    same(
        AttributesResult::Ok(ATTRIBUTES),
        &["00000000 ", ATTRIBUTES_HEX],
    );
    same(AttributesResult::Err(Status::Stale), &["00000046"]);
    let found = ObjectOk {
        file: FILE,
        attributes: ATTRIBUTES,
    };
    let found_hex = ["00000000 ", FILE_HEX, ATTRIBUTES_HEX];
    same(ObjectResult::Ok(found), &found_hex);
    same(
        ReadLinkResult::Ok(Payload(b"a/b/c")),
        &["00000000 00000005 612f622f 63000000"],
    );
    let read = ReadOk {
        attributes: ATTRIBUTES,
        data: Payload(b"hello"),
    };
    let data = "00000005 68656c6c 6f000000";
    same(ReadResult::Ok(read), &["00000000 ", ATTRIBUTES_HEX, data]);
    same(ChangeResult::Ok(()), &["00000000"]);
    same(ChangeResult::Err(Status::NotEmpty), &["00000042"]);
    let entry = |fileid, name, cookie| Entry {
        fileid,
        name,
        cookie,
    };
    let list = ReadDirOk {
        entries: vec![entry(7, b".", 1), entry(8, b"name.c", 9)],
        eof: true,
    };
    same(
        ReadDirResult::Ok(list),
        &[
            "00000000 00000001 00000007 00000001 2e000000 00000001 ",
            "00000001 00000008 00000006 6e616d65 2e630000 00000009 00000000 00000001",
        ],
    );
    let space = StatFsOk {
        transfer_bytes: 8192,
        block_bytes: 4096,
        blocks: 1000,
        free_blocks: 500,
        available_blocks: 400,
    };
    same(
        StatFsResult::Ok(space),
        &["00000000 00002000 00001000 000003e8 000001f4 00000190"],
    );
}

#[test]
fn an_entry_and_a_list_take_as_many_bytes_as_they_say() {
    let empty = ReadDirOk {
        entries: vec![],
        eof: true,
    };
    assert_eq!(empty.to_bytes().len(), ReadDirOk::EMPTY_BYTES);
    for length in 0..9 {
        let entry = Entry {
            fileid: 1,
            name: &[b'n'; 8][..length.min(8)],
            cookie: 2,
        };
        let list = ReadDirOk {
            entries: vec![entry],
            eof: true,
        };
        let bytes = ReadDirOk::EMPTY_BYTES + Entry::bytes(length.min(8));
        assert_eq!(list.to_bytes().len(), bytes);
    }
}

#[test]
fn a_read_is_written_in_place() {
    for length in [0, 1, 4, 5, 8] {
        let mut made = b"head".to_vec();
        let mut w = Writer::new(&mut made);
        let mut reply = ReadReply::begin(&mut w, 8);
        reply.data()[..length].fill(7);
        reply.finish(length as u32, &ATTRIBUTES);
        let whole = ReadResult::Ok(ReadOk {
            attributes: ATTRIBUTES,
            data: Payload(&[7; 8][..length]),
        });
        assert_eq!(made[4..], whole.to_bytes());

        let mut placed = Vec::new();
        let at = ReadReply::placed(&mut Writer::new(&mut placed), length as u32, &ATTRIBUTES);
        assert_eq!((at, &placed[..]), (76, &whole.to_bytes()[..76]));
    }
    let mut made = b"head".to_vec();
    ReadReply::begin(&mut Writer::new(&mut made), 8).cancel();
    assert_eq!(made, b"head");
}

#[test]
fn what_clients_of_16_bits_mean_is_understood() {
    let words = "0000ffff ffffffff ffffffff ffffffff 00000005 ffffffff ffffffff 00000005";
    let decoded = SetAttributes::from_bytes(&hex(words));
    assert_eq!(decoded, Ok(SetAttributes::default()));
}

#[test]
fn what_peers_may_not_send() {
    let too_long = |what, len, max| Some(XdrError::TooLong { what, len, max });
    let name = [&FILE.to_bytes()[..], &hex("00000401")].concat();
    let error = DirectoryName::from_bytes(&name).err();
    assert_eq!(error, too_long("name", 1025, 1024));
    for length in [0x2001, u32::MAX] {
        let head = hex("00000000 00000000 00000000");
        let data = [&FILE.to_bytes()[..], &head, &length.to_be_bytes()].concat();
        let error = WriteArgs::from_bytes(&data).err();
        assert_eq!(error, too_long("data", length, MAX_DATA));
    }
    let entry = hex("00000000 00000001 00000001 00000100");
    let error = ReadDirResult::from_bytes(&entry).err();
    assert_eq!(error, too_long("name", 256, MAX_NAME));
    for (status, what) in [("00000003", "stat"), ("00000016", "stat")] {
        let value = u32::from_be_bytes(hex(status).try_into().unwrap());
        let error = ChangeResult::from_bytes(&hex(status)).err();
        assert_eq!(error, Some(XdrError::BadValue { what, value }));
    }
    let mut kind = ATTRIBUTES.to_bytes();
    kind[3] = 6;
    let error = Attributes::from_bytes(&kind).err();
    assert_eq!(
        error,
        Some(XdrError::BadValue {
            what: "ftype",
            value: 6
        })
    );
}

fn file_handle() -> impl Strategy<Value = FileHandle<'static>> {
    any::<[u8; FILE_HANDLE_BYTES]>().prop_map(|bytes| FileHandle(Box::leak(Box::new(bytes))))
}

fn place() -> impl Strategy<Value = DirectoryName<'static>> {
    (file_handle(), bytes(40)).prop_map(|(directory, name)| DirectoryName { directory, name })
}

fn payload() -> impl Strategy<Value = Payload<'static>> {
    bytes(99).prop_map(Payload)
}

fn time() -> impl Strategy<Value = Time> {
    (0..u32::MAX, 0..SetTime::SERVER_TIME).prop_map(|(seconds, microseconds)| Time {
        seconds,
        microseconds,
    })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::Keep),
        Just(SetTime::ServerTime),
        time().prop_map(SetTime::To)
    ]
}

fn set_attributes() -> impl Strategy<Value = SetAttributes> {
    let words = (
        of(0..0xFFFF_u32),
        of(0..u32::MAX),
        of(0..u32::MAX),
        of(0..u32::MAX),
    );
    (words, set_time(), set_time()).prop_map(|((mode, uid, gid, size), atime, mtime)| {
        SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        }
    })
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let times = [time(), time(), time()];
    (select(FileType::ALL), any::<[u32; 10]>(), times).prop_map(|(kind, words, times)| {
        let [
            mode,
            links,
            uid,
            gid,
            size,
            block_bytes,
            device,
            blocks,
            fsid,
            fileid,
        ] = words;
        Attributes {
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            block_bytes,
            device,
            blocks,
            fsid,
            fileid,
            atime: times[0],
            mtime: times[1],
            ctime: times[2],
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arguments_make_the_round_trip(
        file in file_handle(),
        place in place(),
        other in place(),
        attributes in set_attributes(),
        words: [u32; 3],
        data in payload(),
    ) {
        let [offset, count, total_count] = words;
        round_trip(file);
        round_trip(SetAttributesArgs { file, attributes });
        round_trip(place);
        round_trip(ReadArgs { file, offset, count, total_count });
        round_trip(WriteArgs { file, begin_offset: count, offset, total_count, data });
        round_trip(CreateArgs { place, attributes });
        round_trip(RenameArgs { from: place, to: other });
        round_trip(LinkArgs { file, place });
        round_trip(SymlinkArgs { place, target: data, attributes });
        round_trip(ReadDirArgs { directory: file, cookie: offset, count });
    }

    #[test]
    fn results_make_the_round_trip(
        file in file_handle(),
        attributes in attributes(),
        data in payload(),
        status in select(&Status::ALL[1..]),
        listed in vec((any::<[u32; 2]>(), bytes(20)), 0..4),
        eof: bool,
        words: [u32; 5],
    ) {
        round_trip(AttributesResult::Ok(attributes));
        round_trip(AttributesResult::Err(status));
        round_trip(ObjectResult::Ok(ObjectOk { file, attributes }));
        round_trip(ReadLinkResult::Ok(data));
        round_trip(ReadResult::Ok(ReadOk { attributes, data }));
        round_trip(ReadResult::Err(status));
        let entries = listed.into_iter().map(|([fileid, cookie], name)| Entry { fileid, name, cookie });
        round_trip(ReadDirResult::Ok(ReadDirOk { entries: entries.collect(), eof }));
        let [transfer_bytes, block_bytes, blocks, free_blocks, available_blocks] = words;
        round_trip(StatFsResult::Ok(StatFsOk { transfer_bytes, block_bytes, blocks, free_blocks, available_blocks }));
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..300), procedure in 0_u8..18) {
        let input = [&[procedure], &bytes[..]].concat();
        crate::fuzz::run("nfs2_args", &input);
        crate::fuzz::run("nfs2_results", &input);
    }
}
