//! NFSACL, version 3: POSIX access control lists for clients of NFS version 3. No RFC has it; it is Sun's, and this is as
//! Solaris and Linux speak it.

use super::nfs3::{Attributes, Failed, FileHandle};
use super::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// Program number.
pub const PROGRAM: u32 = 100_227;
/// The version spoken here: that of NFS version 3.
pub const VERSION: u32 = 3;
/// The most entries of a list (`NFS_ACL_MAX_ENTRIES`).
pub const MAX_ENTRIES: u32 = 1024;

enumeration! {
    /// The procedures.
    pub enum Procedure ("NFSACL procedure") {
        /// Does nothing.
        Null = 0,
        /// [`GetAclArgs`] to [`GetAclResult`].
        GetAcl = 1,
        /// [`SetAclArgs`] to [`SetAclResult`].
        SetAcl = 2,
    }
}

/// Bits of [`Acls::mask`]: what is asked for, told or set.
pub mod mask {
    /// The access list.
    pub const ACCESS: u32 = 1;
    /// The number of its entries.
    pub const ACCESS_COUNT: u32 = 2;
    /// The default list.
    pub const DEFAULT: u32 = 4;
    /// The number of its entries.
    pub const DEFAULT_COUNT: u32 = 8;
    /// All of them.
    pub const ALL: u32 = 15;
}

/// Values of [`Entry::tag`]. Those of a default list have [`tag::DEFAULT`] beside.
pub mod tag {
    /// The owner (`NA_USER_OBJ`).
    pub const OWNER: u32 = 0x1;
    /// A user (`NA_USER`).
    pub const USER: u32 = 0x2;
    /// The owning group (`NA_GROUP_OBJ`).
    pub const OWNING_GROUP: u32 = 0x4;
    /// A group (`NA_GROUP`).
    pub const GROUP: u32 = 0x8;
    /// The most that users and groups have (`NA_CLASS_OBJ`).
    pub const MASK: u32 = 0x10;
    /// Everyone else (`NA_OTHER_OBJ`).
    pub const OTHER: u32 = 0x20;
    /// The entry is of a default list (`NA_DEFAULT`).
    pub const DEFAULT: u32 = 0x1000;
}

record! {
    /// `aclent`: an entry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Entry {
        /// One of [`tag`].
        pub tag: u32,
        /// The user or group; that of the object for the owner and the owning group.
        pub id: u32,
        /// 4 reading, 2 writing, 1 executing or searching.
        pub permissions: u32,
    }
}

/// `secattr`: lists of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acls {
    /// Bits of [`mask`].
    pub mask: u32,
    /// The number of entries of the access list, also where they are not here.
    pub access_count: u32,
    /// Its entries, in any order.
    pub access: Vec<Entry>,
    /// The number of entries of the default list, also where they are not here.
    pub default_count: u32,
    /// Its entries, in any order.
    pub default: Vec<Entry>,
}

impl Encode for Acls {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.mask);
        w.u32(self.access_count);
        w.array(&self.access);
        w.u32(self.default_count);
        w.array(&self.default);
    }
}

impl Decode<'_> for Acls {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            mask: r.u32()?,
            access_count: r.length("count of entries", MAX_ENTRIES)?,
            access: r.array("access list", MAX_ENTRIES)?,
            default_count: r.length("count of entries", MAX_ENTRIES)?,
            default: r.array("default list", MAX_ENTRIES)?,
        })
    }
}

record! {
    /// Arguments of GETACL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetAclArgs<'a> {
        /// Of what.
        pub file: FileHandle<'a>,
        /// Bits of [`mask`]: what is wanted.
        pub mask: u32,
    }
}

record! {
    /// A successful GETACL.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GetAclOk {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// What was wanted.
        pub acls: Acls,
    }
}

/// Result of GETACL.
pub type GetAclResult = Result<GetAclOk, Failed<Option<Attributes>>>;

record! {
    /// Arguments of SETACL.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SetAclArgs<'a> {
        /// Of what.
        pub file: FileHandle<'a>,
        /// What is set. A list that the mask does not name stays as it is.
        pub acls: Acls,
    }
}

/// Result of SETACL: attributes of the object afterwards.
pub type SetAclResult = Result<Option<Attributes>, Failed<Option<Attributes>>>;

#[cfg(test)]
mod tests;
