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
