//! Access control lists in the form that the kernel reads (linux/posix_acl_xattr.h): a version, and entries of a tag, rights
//! and a number, all little-endian.

use crate::{attributes::errno, files::Files};
use fuser::Errno;
use odafs::fs::AclEntry;
use std::ffi::OsStr;

/// The attribute with the list that says who may use a file.
const ACCESS: &str = "system.posix_acl_access";
/// The attribute with the list that new files in a directory begin with.
const DEFAULT: &str = "system.posix_acl_default";

/// What the kernel asks about an extended attribute.
#[derive(Debug)]
pub enum Xattr {
    /// Its length in bytes.
    Length(u32),
    Value(Vec<u8>),
}

impl Files {
    /// An extended attribute, which only lists have: its length if `room` is 0, or else its value, which is `room` bytes long
    /// at most.
    pub fn getxattr(&self, number: u64, name: &OsStr, room: u32) -> Result<Xattr, Errno> {
        let value = self.value_of(number, name)?;
        let length = value.len() as u32;
        match room {
            0 => Ok(Xattr::Length(length)),
            room if room < length => Err(Errno::ERANGE),
            _ => Ok(Xattr::Value(value)),
        }
    }

    fn value_of(&self, number: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if !self.acls {
            return Err(Errno::ENOSYS);
        }
        if name != ACCESS && name != DEFAULT {
            return Err(Errno::EOPNOTSUPP);
        }
        let inode = self.inode(number)?;
        let lists = match self.fs.acls(&inode.handle) {
            Ok(lists) => lists,
            // A server without lists: modes say all.
            Err(error) if error.errno() == Errno::EOPNOTSUPP.code() => return Err(Errno::ENODATA),
            Err(error) => return Err(errno(error)),
        };
        let list = match name == ACCESS {
            true => lists.access,
            false => lists.inherited,
        };
        match list[..] {
            [] => Err(Errno::ENODATA),
            ref list => Ok(AclEntry::to_xattr(list)),
        }
    }
}
