//! Access control lists, in the terms of POSIX 1003.1e draft 17, as Linux has them (acl(5)).

/// Whom an entry of an access control list concerns. The order is that of a list's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The owner.
    Owner,
    /// The user with this number.
    User(u32),
    /// The group that owns the file.
    OwningGroup,
    /// The group with this number.
    Group(u32),
    /// The most that named users and all groups have.
    Mask,
    /// Everyone else.
    Other,
}

/// An entry of an access control list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclEntry {
    /// Whom it concerns.
    pub tag: AclTag,
    /// What it grants: 4 reading, 2 writing, 1 executing or searching.
    pub permissions: u8,
}

/// The access control lists of a file, each in the order of its tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Acls {
    /// Who may do what with the file. Empty if that is what its mode says.
    pub access: Vec<AclEntry>,
    /// The list with which begins what is made in a directory. Empty if there is none.
    pub inherited: Vec<AclEntry>,
}
