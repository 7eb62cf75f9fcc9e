use super::*;
use crate::wire::testing::golden;

const NFS: Mapping = Mapping {
    program: 100_003,
    version: 3,
    protocol: TCP,
    port: 2049,
};
const MOUNT: Mapping = Mapping {
    program: 100_005,
    version: 3,
    protocol: UDP,
    port: 0,
};

#[test]
fn mappings() {
    golden(NFS, "000186a3 00000003 00000006 00000801");
    golden(
        Mappings(vec![NFS, MOUNT]),
        "00000001 000186a3 00000003 00000006 00000801
         00000001 000186a5 00000003 00000011 00000000
         00000000",
    );
    golden(Mappings(vec![]), "00000000");
}

#[test]
fn a_list_has_an_end() {
    let many = Mappings(vec![NFS; MAX_MAPPINGS as usize + 1]).to_bytes();
    assert!(matches!(
        Mappings::from_bytes(&many),
        Err(XdrError::TooLong { .. })
    ));
}

#[test]
fn procedures() {
    assert_eq!(Procedure::from_code(3), Some(Procedure::GetPort));
    assert_eq!(Procedure::from_code(4), Some(Procedure::Dump));
    assert_eq!(Procedure::from_code(1), None);
}

#[test]
fn addresses() {
    golden(
        Binding {
            program: 100_021,
            version: 4,
            transport: b"tcp6",
            address: b"",
            owner: b"x",
        },
        "000186b5 00000004 00000004 74637036 00000000 00000001 78000000",
    );
    golden(Address(b"::.8.1"), "00000006 3a3a2e38 2e310000");
    for (text, port) in [
        ("::.8.1", Some(2049)),
        ("10.0.0.1.0.111", Some(111)),
        ("", None),
        ("8.1", None),
        ("::.256.1", None),
        ("::.-1.1", None),
        ("::.1.", None),
    ] {
        assert_eq!(Address(text.as_bytes()).port(), port, "{text}");
    }
    assert_eq!(Address(b"\xff.1.1").port(), None);
    let long = Address(&[b'1'; MAX_TEXT as usize + 1]).to_bytes();
    assert!(matches!(
        Address::from_bytes(&long),
        Err(XdrError::TooLong { max: MAX_TEXT, .. })
    ));
}
