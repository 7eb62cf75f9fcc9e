//! Access control lists, in the terms of POSIX 1003.1e draft 17, as Linux has them (acl(5)).

pub use odafs_common::acl::{AclEntry, AclTag};

/// The access control lists of a file, each in the order of its tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Acls {
    /// Who may do what with the file. Empty if that is what its mode says.
    pub access: Vec<AclEntry>,
    /// The list with which begins what is made in a directory. Empty if there is none.
    pub inherited: Vec<AclEntry>,
}
