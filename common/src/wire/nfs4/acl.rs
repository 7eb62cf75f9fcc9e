//! Access control lists (RFC 7530, section 6.2; RFC 8881, section 6.2).

use super::types::{List, Opaque};

/// The most entries that decoders take in one list.
pub const MAX_ACES: u32 = 1024;

/// Values of [`Ace::kind`].
pub mod ace_type {
    /// Grants.
    pub const ALLOW: u32 = 0;
    /// Denies.
    pub const DENY: u32 = 1;
    /// Logs.
    pub const AUDIT: u32 = 2;
    /// Alarms.
    pub const ALARM: u32 = 3;
}

/// Bits of [`Ace::flags`].
pub mod ace_flag {
    /// New files inherit the entry.
    pub const FILE_INHERIT: u32 = 0x01;
    /// New directories inherit the entry.
    pub const DIRECTORY_INHERIT: u32 = 0x02;
    /// What inherits the entry does not hand it on.
    pub const NO_PROPAGATE: u32 = 0x04;
    /// The entry is there to be inherited only.
    pub const INHERIT_ONLY: u32 = 0x08;
    /// Log or alarm where access is granted.
    pub const SUCCESSFUL_ACCESS: u32 = 0x10;
    /// Log or alarm where access is denied.
    pub const FAILED_ACCESS: u32 = 0x20;
    /// `who` is a group.
    pub const IDENTIFIER_GROUP: u32 = 0x40;
    /// The entry was inherited (4.1).
    pub const INHERITED: u32 = 0x80;
}

/// Bits of [`Ace::access`]; some have another meaning for directories.
pub mod ace_mask {
    /// Read data; list a directory.
    pub const READ_DATA: u32 = 0x01;
    /// Write data; add files to a directory.
    pub const WRITE_DATA: u32 = 0x02;
    /// Append data; add directories to a directory.
    pub const APPEND_DATA: u32 = 0x04;
    /// Read named attributes.
    pub const READ_NAMED_ATTRIBUTES: u32 = 0x08;
    /// Write named attributes.
    pub const WRITE_NAMED_ATTRIBUTES: u32 = 0x10;
    /// Execute; search a directory.
    pub const EXECUTE: u32 = 0x20;
    /// Delete an entry of a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// Read attributes.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// Write attributes.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// Delete the object.
    pub const DELETE: u32 = 0x1_0000;
    /// Read the list.
    pub const READ_ACL: u32 = 0x2_0000;
    /// Write the list and the mode.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// Write the owner and the group.
    pub const WRITE_OWNER: u32 = 0x8_0000;
    /// Use the object locally and synchronously.
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}

/// Bits of the attribute `aclsupport`.
pub mod acl_support {
    /// Entries that grant.
    pub const ALLOW: u32 = 0x1;
    /// Entries that deny.
    pub const DENY: u32 = 0x2;
    /// Entries that log.
    pub const AUDIT: u32 = 0x4;
    /// Entries that alarm.
    pub const ALARM: u32 = 0x8;
}

record! {
    /// `nfsace4`: an entry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Ace<'a> {
        /// One of [`ace_type`].
        pub kind: u32,
        /// Bits of [`ace_flag`].
        pub flags: u32,
        /// Bits of [`ace_mask`].
        pub access: u32,
        /// Whom the entry concerns: `user@domain`, a number, or `OWNER@`, `GROUP@`, `EVERYONE@` and others.
        pub who: Opaque<'a>,
    }
}

/// `fattr4_acl`
pub type Acl<'a> = List<Ace<'a>, MAX_ACES>;

record! {
    /// `nfsacl41`: a list with flags of its own (4.1).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct Acl41<'a> {
        /// 1: inherits automatically, 2: protected from that, 4: made by default.
        pub flags: u32,
        /// The entries.
        pub aces: Acl<'a>,
    }
}
