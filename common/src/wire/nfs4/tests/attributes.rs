use super::*;
use crate::wire::testing::hex;
use crate::wire::xdr::Writer;

const ACE: Ace<'_> = Ace {
    kind: ace_type::DENY,
    flags: ace_flag::IDENTIFIER_GROUP,
    access: ace_mask::WRITE_DATA,
    who: Opaque(b"GROUP@"),
};
const ACE_HEX: &str = "00000001 00000040 00000002 00000006 47524f55 50400000";

/// An object that knows everything.
pub fn full() -> Attributes<'static> {
    let time = |seconds| {
        Some(Time {
            seconds,
            nanoseconds: 7,
        })
    };
    Attributes {
        supported: Some(READABLE.or(&SETTABLE)),
        kind: Some(FileType::Regular),
        fh_expire_type: Some(0),
        change: Some(0x1122_3344_5566_7788),
        size: Some(0x1_0000_1234),
        link_support: Some(true),
        symlink_support: Some(true),
        named_attributes: Some(false),
        fsid: Some(FsId { major: 1, minor: 2 }),
        unique_handles: Some(true),
        lease_time: Some(90),
        read_error: Some(Status::Ok),
        acl: Some(List(vec![ACE])),
        acl_support: Some(acl_support::ALLOW | acl_support::DENY),
        can_set_time: Some(true),
        case_insensitive: Some(false),
        case_preserving: Some(true),
        chown_restricted: Some(true),
        file: Some(FileHandle(b"handle")),
        fileid: Some(42),
        files_available: Some(1),
        files_free: Some(2),
        files_total: Some(3),
        homogeneous: Some(true),
        max_file_size: Some(u64::MAX),
        max_link: Some(255),
        max_name: Some(255),
        max_read: Some(1 << 20),
        max_write: Some(1 << 20),
        mode: Some(0o644),
        no_trunc: Some(true),
        links: Some(1),
        owner: Some(Opaque(b"1000")),
        group: Some(Opaque(b"staff@a.org")),
        quota_available_hard: Some(4),
        quota_available_soft: Some(5),
        quota_used: Some(6),
        device: Some(Device { major: 8, minor: 1 }),
        space_available: Some(7),
        space_free: Some(8),
        space_total: Some(9),
        space_used: Some(10),
        time_access: time(-1),
        time_create: time(1),
        time_delta: time(0),
        time_metadata: time(2),
        time_modify: time(3),
        mounted_on_fileid: Some(43),
        dacl: Some(Acl41 {
            flags: 1,
            aces: List(vec![ACE]),
        }),
        fs_layout_types: Some(List(Vec::new())),
        supported_exclusive_create: Some(SETTABLE),
        fs_charset_capabilities: Some(1),
        clone_block_size: Some(4096),
        space_freed: Some(11),
        change_type: Some(ChangeType::VersionCounter),
        xattr_support: Some(true),
        open_arguments: Some(OpenArguments {
            share_access: Bitmap::EMPTY.with(1),
            share_deny: Bitmap::EMPTY.with(0).with(3),
            wants: Bitmap::EMPTY.with(3).with(21),
            claims: Bitmap::EMPTY.with(6),
            creations: Bitmap::EMPTY,
        }),
    }
}

fn encoded(attributes: &Attributes<'_>, asked: &Bitmap) -> Vec<u8> {
    let mut bytes = Vec::new();
    attributes.encode_asked(asked, &mut Writer::new(&mut bytes));
    bytes
}

fn raw(bytes: &[u8]) -> RawAttributes<'_> {
    RawAttributes::from_bytes(bytes).expect("a fattr4")
}

/// All of them, by hand.
#[test]
fn attributes_are_the_bytes_of_the_rfc() {
    let values = format!(
        "00000001 00000000 11223344 55667788 00000001 00001234 00000001 00000001 00000000
         00000000 00000001 00000000 00000002 00000001 0000005a 00000000
         00000001 {ACE_HEX} 00000003 00000001 00000000 00000001 00000001
         00000006 68616e64 6c650000 00000000 0000002a 00000000 00000001 00000000 00000002
         00000000 00000003 00000001 ffffffff ffffffff 000000ff 000000ff 00000000 00100000
         00000000 00100000 000001a4 00000001 00000001 00000004 31303030
         0000000b 73746166 6640612e 6f726700 00000000 00000004 00000000 00000005
         00000000 00000006 00000008 00000001 00000000 00000007 00000000 00000008
         00000000 00000009 00000000 0000000a ffffffff ffffffff 00000007
         00000000 00000001 00000007 00000000 00000000 00000007 00000000 00000002 00000007
         00000000 00000003 00000007 00000000 0000002b 00000001 00000001 {ACE_HEX}
         00000000 00000001 00001000 00000000 0000000b 00000001 00000001"
    );
    let values = hex(&values);
    // 1 to 31 without 14 (archive), 24 (fs_locations) and 25 (hidden); 33 to 55 without 46 (system), 48 (set), 49
    // (backup) and 54 (set), 58, 62; 76 to 79 and 82.
    let mask = hex("00000003 fcffbffe 44bcbffe 0004f000");
    let sets = Bitmap::of(&[
        Attribute::SupportedAttributes,
        Attribute::SupportedExclusiveCreate,
        Attribute::OpenArguments,
    ]);
    let length = (values.len() as u32).to_be_bytes();
    let bytes = [&mask[..], &length, &values].concat();
    assert_eq!(encoded(&full(), &READABLE.without(&sets)), bytes);
}

#[test]
fn sets_of_attributes_are_attributes() {
    let attributes = Attributes {
        supported: Some(Bitmap::of(&[Attribute::Size])),
        supported_exclusive_create: Some(Bitmap::of(&[Attribute::Mode])),
        ..Attributes::default()
    };
    let digits = "00000003 00000001 00000000 00000800 00000014
                  00000001 00000010 00000002 00000000 00000002";
    assert_eq!(attributes.to_bytes(), hex(digits));
}

#[test]
fn what_is_written_is_read() {
    let bytes = full().to_bytes();
    assert_eq!(Attributes::parse(&raw(&bytes)), Ok(full()));
}

#[test]
fn only_what_is_asked_for_and_there_is_written() {
    let asked = Bitmap::of(&[
        Attribute::Size,
        Attribute::Hidden,
        Attribute::Mode,
        Attribute::SecurityLabel,
    ])
    .with(200);
    let some = Attributes {
        size: Some(4096),
        change: Some(5),
        ..Attributes::default()
    };
    let digits = "00000001 00000010 00000008 00000000 00001000";
    assert_eq!(encoded(&some, &asked), hex(digits));
    assert_eq!(encoded(&some, &Bitmap::EMPTY), hex("00000000 00000000"));
}

#[test]
fn write_only_attributes_are_not_asked_for() {
    assert_eq!(check_asked(&READABLE.with(200)), Ok(()));
    for number in WRITE_ONLY.iter() {
        let asked = Bitmap::EMPTY.with(number);
        assert_eq!(check_asked(&asked), Err(Status::Inval), "{number}");
        assert!(!READABLE.has(number));
    }
}

#[test]
fn minor_versions_know_their_attributes() {
    assert!(known_in(0).contains(Attribute::MountedOnFileId));
    assert!(!known_in(0).contains(Attribute::SupportedExclusiveCreate));
    assert!(known_in(1).contains(Attribute::FsCharsetCapabilities));
    assert!(!known_in(1).contains(Attribute::ChangeAttributeType));
    assert_eq!(known_in(2).iter().count(), 84);
}

/// Worked out by hand from RFC 9754.
#[test]
fn what_open_takes_are_sets_of_numbers() {
    let asked = Bitmap::of(&[Attribute::OpenArguments]);
    let words: [u32; 14] = [
        3,
        0,
        0,
        1 << 22,
        36,
        1,
        1 << 1,
        1,
        1 << 3 | 1,
        1,
        1 << 21 | 1 << 3,
        1,
        1 << 6,
        0,
    ];
    let bytes = words.map(u32::to_be_bytes).concat();
    assert_eq!(encoded(&full(), &asked), bytes);
}

#[test]
fn verify_compares() {
    let ours = full();
    let asked = Bitmap::of(&[Attribute::Size, Attribute::Owner]);
    let same = encoded(&ours, &asked);
    assert_eq!(ours.matches(&raw(&same)), Ok(true));
    let other = Attributes {
        size: Some(1),
        ..full()
    };
    assert_eq!(other.matches(&raw(&same)), Ok(false));
    let less = Attributes {
        owner: None,
        ..full()
    };
    assert_eq!(less.matches(&raw(&same)), Err(Status::AttrNotSupp));
    let mask = |attribute| RawAttributes {
        mask: Bitmap::of(&[attribute]),
        values: AttributeValues(&[]),
    };
    let cases = [
        (Attribute::ReadAttributeError, Err(Status::Inval)),
        (Attribute::TimeModifySet, Err(Status::Inval)),
        (Attribute::Hidden, Err(Status::AttrNotSupp)),
        (Attribute::Size, Ok(false)),
    ];
    for (attribute, expected) in cases {
        assert_eq!(ours.matches(&mask(attribute)), expected, "{attribute:?}");
    }
}

pub fn set() -> SetAttributes<'static> {
    SetAttributes {
        size: Some(4096),
        acl: Some(List(vec![ACE])),
        mode: Some(0o644),
        owner: Some(Opaque(b"1000")),
        group: Some(Opaque(b"100")),
        time_access: Some(SetTime::ServerTime),
        time_create: Some(Time {
            seconds: 1,
            nanoseconds: 2,
        }),
        time_modify: Some(SetTime::To(Time {
            seconds: -3,
            nanoseconds: 999_999_999,
        })),
        dacl: Some(Acl41 {
            flags: 2,
            aces: List(vec![ACE]),
        }),
        mode_masked: None,
        mode_umask: None,
    }
}

#[test]
fn settable_attributes_are_the_bytes_of_the_rfc() {
    let digits = format!(
        "00000002 00001010 04450032 00000078
         00000000 00001000 00000001 {ACE_HEX} 000001a4 00000004 31303030 00000003 31303000
         00000000 00000000 00000001 00000002 00000001 ffffffff fffffffd 3b9ac9ff
         00000002 00000001 {ACE_HEX}"
    );
    let bytes = hex(&digits);
    assert_eq!(set().to_bytes(), bytes);
    assert_eq!(SetAttributes::parse(&raw(&bytes), &SETTABLE), Ok(set()));
}

#[test]
fn modes_with_masks_are_the_bytes_of_the_rfc() {
    let masked = SetAttributes {
        mode_masked: Some(ModeMasked {
            value: 0o4000,
            mask: 0o6000,
        }),
        ..SetAttributes::default()
    };
    let bytes = hex("00000003 00000000 00000000 00000400 00000008 00000800 00000c00");
    assert_eq!(masked.to_bytes(), bytes);
    let umask = SetAttributes {
        mode_umask: Some(ModeUmask {
            mode: 0o666,
            umask: 0o022,
        }),
        ..SetAttributes::default()
    };
    let bytes = hex("00000003 00000000 00000000 00020000 00000008 000001b6 00000012");
    assert_eq!(umask.to_bytes(), bytes);
    assert_eq!(SetAttributes::parse(&raw(&bytes), &SETTABLE), Ok(umask));
}

#[test]
fn what_cannot_be_set_is_refused() {
    let supported = READABLE.or(&SETTABLE);
    let parse = |digits: &str| {
        let bytes = hex(digits);
        SetAttributes::parse(&raw(&bytes), &supported).map(|_| ())
    };
    // Unsupported: hidden, sec_label, a number that no version has.
    for mask in [
        "00000001 02000000",
        "00000003 00000000 00000000 00010000",
        "00000004 00000000 00000000 00000000 00000001",
    ] {
        assert_eq!(parse(&format!("{mask} 00000000")), Err(Status::AttrNotSupp));
    }
    // Readable only: type.
    assert_eq!(
        parse("00000001 00000002 00000004 00000001"),
        Err(Status::Inval)
    );
    // Too short, too long, no choice of `settime4`.
    for values in [
        "00000001 00000010 00000004 00000000",
        "00000001 00000010 0000000c 00000000 00000000 00000000",
        "00000002 00000000 00010000 00000004 00000002",
    ] {
        assert_eq!(parse(values), Err(Status::BadXdr), "{values}");
    }
    // A second has no more nanoseconds.
    assert_eq!(
        parse("00000002 00000000 00010000 00000010 00000001 00000000 00000000 3b9aca00"),
        Err(Status::Inval)
    );
    // Two modes.
    let both = SetAttributes {
        mode: Some(0),
        mode_umask: Some(ModeUmask { mode: 0, umask: 0 }),
        ..SetAttributes::default()
    };
    let bytes = both.to_bytes();
    assert_eq!(
        SetAttributes::parse(&raw(&bytes), &supported),
        Err(Status::Inval)
    );
}
