//! Entries of access control lists, in the terms of POSIX 1003.1e draft 17, section 23, as Linux has them (acl(5)).

/// Whom an entry concerns. The order is that of a list's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The owner (`ACL_USER_OBJ`).
    Owner,
    /// The user with this id (`ACL_USER`).
    User(u32),
    /// The owning group (`ACL_GROUP_OBJ`).
    OwningGroup,
    /// The group with this id (`ACL_GROUP`).
    Group(u32),
    /// The most that named users and all groups have (`ACL_MASK`).
    Mask,
    /// Everyone else (`ACL_OTHER`).
    Other,
}

impl AclTag {
    /// Whether a user or group is named by its id.
    pub fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }
}

/// An entry of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclEntry {
    /// Whom it concerns.
    pub tag: AclTag,
    /// What it grants: 4 reading, 2 writing, 1 executing or searching.
    pub permissions: u8,
}

/// `POSIX_ACL_XATTR_VERSION`
const VERSION: u32 = 2;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;

/// Tags as the kernel numbers them.
mod tag {
    pub const USER_OBJ: u16 = 0x01;
    pub const USER: u16 = 0x02;
    pub const GROUP_OBJ: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

impl AclEntry {
    /// Bytes before the entries in the value of an extended attribute.
    pub const XATTR_HEADER_BYTES: usize = 4;
    /// Bytes of an entry there: tag and permissions, 16 bits each, and an id of 32; all are little-endian.
    pub const XATTR_BYTES: usize = 8;

    /// The value of the extended attribute for a list, in the format of `linux/posix_acl_xattr.h`.
    pub fn to_xattr(list: &[Self]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in list {
            let (tag, id) = match entry.tag {
                AclTag::Owner => (tag::USER_OBJ, NO_ID),
                AclTag::User(uid) => (tag::USER, uid),
                AclTag::OwningGroup => (tag::GROUP_OBJ, NO_ID),
                AclTag::Group(gid) => (tag::GROUP, gid),
                AclTag::Mask => (tag::MASK, NO_ID),
                AclTag::Other => (tag::OTHER, NO_ID),
            };
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(entry.permissions).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// The list of such a value. `None`: it is none.
    pub fn from_xattr(value: &[u8]) -> Option<Vec<Self>> {
        let (version, rest) = value.split_first_chunk()?;
        let (entries, over) = rest.as_chunks::<{ Self::XATTR_BYTES }>();
        if u32::from_le_bytes(*version) != VERSION || !over.is_empty() {
            return None;
        }
        let entry = |[t0, t1, p0, p1, id @ ..]: &[u8; Self::XATTR_BYTES]| {
            let id = u32::from_le_bytes(*id);
            let tag = match u16::from_le_bytes([*t0, *t1]) {
                tag::USER_OBJ => AclTag::Owner,
                tag::USER => AclTag::User(id),
                tag::GROUP_OBJ => AclTag::OwningGroup,
                tag::GROUP => AclTag::Group(id),
                tag::MASK => AclTag::Mask,
                tag::OTHER => AclTag::Other,
                _ => return None,
            };
            let permissions = u8::try_from(u16::from_le_bytes([*p0, *p1])).ok()?;
            Some(Self { tag, permissions })
        };
        entries.iter().map(entry).collect()
    }
}
