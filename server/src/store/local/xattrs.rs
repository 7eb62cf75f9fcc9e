//! Extended attributes of users, which Linux calls `user.NAME`. Only files and directories have any.

use std::ffi::CString;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::LocalStore;
use super::descriptors::Descriptor;
use super::identity::Judge;
use crate::store::permission::attributes_permit;
use crate::store::{Credential, FileType, ObjectId, Result, Status, StoreError, XattrHow, access};

const PREFIX: &[u8] = b"user.";
/// The most bytes of a value, and of all names of an object together (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const LENGTH_MAX: usize = 1 << 16;

fn spelt(name: &[u8]) -> Result<CString> {
    if name.is_empty() {
        return Err(Status::Inval.into());
    }
    CString::new([PREFIX, name].concat()).map_err(|_| Status::Inval.into())
}

fn status(errno: Errno) -> StoreError {
    match errno {
        Errno::NODATA => Status::NoEnt.into(),
        // The limits of the name and of the value.
        Errno::RANGE => Status::NameTooLong.into(),
        Errno::TOOBIG => Status::FBig.into(),
        errno => errno.into(),
    }
}

impl LocalStore {
    /// Calls a function that needs this right, while the kernel or the server judges the caller.
    fn with_xattrs<T>(
        &self,
        who: &Credential,
        object: ObjectId,
        right: u32,
        call: impl FnOnce(&Descriptor) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let found = self.reach(object)?;
        if !matches!(found.kind, FileType::Regular | FileType::Directory) {
            return Err(Status::NotSupp.into());
        }
        let judge = self.identity.judge(who)?;
        if matches!(judge, Judge::Ourselves) {
            let attributes = self.judged(&found, who)?;
            if attributes_permit(&attributes, who, right) == 0 {
                return Err(Status::Access.into());
            }
        }
        call(&found).map_err(status)
    }

    pub(super) fn read_xattr(
        &self,
        who: &Credential,
        object: ObjectId,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let name = spelt(name)?;
        self.with_xattrs(who, object, access::READ, |found| {
            let mut value = vec![0; LENGTH_MAX];
            let length = getxattr(found.magic_path(), &*name, &mut value[..])?;
            value.truncate(length);
            Ok(value)
        })
    }

    pub(super) fn write_xattr(
        &self,
        who: &Credential,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        let name = spelt(name)?;
        let flags = match how {
            XattrHow::Either => XattrFlags::empty(),
            XattrHow::Create => XattrFlags::CREATE,
            XattrHow::Replace => XattrFlags::REPLACE,
        };
        self.with_xattrs(who, object, access::MODIFY, |found| {
            setxattr(found.magic_path(), &*name, value, flags)
        })
    }

    pub(super) fn drop_xattr(&self, who: &Credential, object: ObjectId, name: &[u8]) -> Result<()> {
        let name = spelt(name)?;
        self.with_xattrs(who, object, access::MODIFY, |found| {
            removexattr(found.magic_path(), &*name)
        })
    }

    pub(super) fn xattr_names(&self, who: &Credential, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        let list = self.with_xattrs(who, object, access::READ, |found| {
            let mut list = vec![0; LENGTH_MAX];
            let length = listxattr(found.magic_path(), &mut list[..])?;
            list.truncate(length);
            Ok(list)
        })?;
        let names = list.split(|byte| *byte == 0);
        let mut names: Vec<Vec<u8>> = names
            .filter_map(|name| name.strip_prefix(PREFIX))
            .map(<[u8]>::to_vec)
            .collect();
        names.sort();
        Ok(names)
    }
}
