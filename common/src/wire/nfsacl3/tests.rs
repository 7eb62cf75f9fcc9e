use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::wire::nfs3::Status;
use crate::wire::testing::{file_handle, golden, post_attributes, round_trip};

const ENTRIES: [Entry; 4] = [
    Entry {
        tag: tag::OWNER,
        id: 1000,
        permissions: 6,
    },
    Entry {
        tag: tag::OWNING_GROUP,
        id: 100,
        permissions: 4,
    },
    Entry {
        tag: tag::MASK,
        id: 0,
        permissions: 4,
    },
    Entry {
        tag: tag::OTHER,
        id: 0,
        permissions: 0,
    },
];
const ENTRIES_BYTES: &str = "00000004
    00000001 000003e8 00000006
    00000004 00000064 00000004
    00000010 00000000 00000004
    00000020 00000000 00000000";
const INHERITED: Entry = Entry {
    tag: tag::USER | tag::DEFAULT,
    id: 7,
    permissions: 7,
};
const FILE: FileHandle<'static> = FileHandle(&[1, 2, 3, 4, 5]);
const FILE_BYTES: &str = "00000005 01020304 05000000";

fn acls() -> Acls {
    Acls {
        mask: mask::ALL,
        access_count: 4,
        access: ENTRIES.to_vec(),
        default_count: 1,
        default: vec![INHERITED],
    }
}

#[test]
fn lists() {
    let bytes =
        format!("0000000f 00000004 {ENTRIES_BYTES} 00000001 00000001 00001002 00000007 00000007");
    golden(acls(), &bytes);
    golden(
        SetAclArgs {
            file: FILE,
            acls: acls(),
        },
        &format!("{FILE_BYTES} {bytes}"),
    );
    golden(
        GetAclResult::Ok(GetAclOk {
            attributes: None,
            acls: acls(),
        }),
        &format!("00000000 00000000 {bytes}"),
    );
    // The numbers alone.
    golden(
        Acls {
            mask: mask::ACCESS_COUNT | mask::DEFAULT_COUNT,
            access_count: 4,
            ..Acls::default()
        },
        "0000000a 00000004 00000000 00000000 00000000",
    );
}

#[test]
fn what_is_asked_and_refused() {
    golden(
        GetAclArgs {
            file: FILE,
            mask: mask::ACCESS,
        },
        &format!("{FILE_BYTES} 00000001"),
    );
    golden(
        GetAclResult::Err(Failed {
            status: Status::NotSupp,
            rest: None,
        }),
        "00002714 00000000",
    );
    golden(SetAclResult::Ok(None), "00000000 00000000");
    golden(
        SetAclResult::Err(Failed {
            status: Status::Perm,
            rest: None,
        }),
        "00000001 00000000",
    );
}

#[test]
fn lists_are_bounded_before_they_are_allocated() {
    let long = |count: u32| {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        for word in [0, count, 0, 0, 0] {
            w.u32(word);
        }
        bytes
    };
    assert!(Acls::from_bytes(&long(MAX_ENTRIES)).is_ok());
    assert!(matches!(
        Acls::from_bytes(&long(MAX_ENTRIES + 1)),
        Err(XdrError::TooLong { .. })
    ));
    let array = [0_u32, 0, u32::MAX, 0, 0].map(u32::to_be_bytes).concat();
    assert!(matches!(
        Acls::from_bytes(&array),
        Err(XdrError::TooLong { .. })
    ));
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = any::<[u32; 3]>().prop_map(|[tag, id, permissions]| Entry {
        tag,
        id,
        permissions,
    });
    vec(entry, 0..9)
}

fn any_acls() -> impl Strategy<Value = Acls> {
    let counts = [0..=MAX_ENTRIES, 0..=MAX_ENTRIES];
    (any::<u32>(), counts, entries(), entries()).prop_map(
        |(mask, [access_count, default_count], access, default)| Acls {
            mask,
            access_count,
            access,
            default_count,
            default,
        },
    )
}

proptest! {
    #[test]
    fn round_trips(
        file in file_handle(),
        mask in any::<u32>(),
        acls in any_acls(),
        attributes in post_attributes(),
    ) {
        round_trip(GetAclArgs { file, mask });
        round_trip(SetAclArgs { file, acls: acls.clone() });
        round_trip(GetAclResult::Ok(GetAclOk { attributes, acls }));
        round_trip(SetAclResult::Ok(attributes));
    }
}
