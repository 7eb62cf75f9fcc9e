//! Access control lists: the attributes `system.posix_acl_access` and `system.posix_acl_default` of Linux, in the format of
//! `linux/posix_acl_xattr.h`.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{XattrFlags, fgetxattr, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::LocalStore;
use super::descriptors::Descriptor;
use super::identity::Judge;
use crate::store::{
    ACL_ENTRIES_MAX, Acl, AclEntry, AclKind, Attributes, Credential, FileType, ObjectId, Result,
    Status,
};

fn name(kind: AclKind) -> &'static CStr {
    match kind {
        AclKind::Access => c"system.posix_acl_access",
        AclKind::Default => c"system.posix_acl_default",
    }
}

/// Whether the file system of this directory has lists: one that has none says so.
pub(super) fn are_there(directory: BorrowedFd<'_>) -> bool {
    let found = fgetxattr(directory, name(AclKind::Access), &mut [0; 0][..]);
    !matches!(found, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// The list of a value; IO for what is none.
fn decode(value: &[u8]) -> Result<Acl> {
    let list = AclEntry::from_xattr(value).and_then(|entries| Acl::new(entries).ok());
    list.ok_or_else(|| Status::Io.into())
}

/// A list of an open object. `None`: it has none, or its file system has no lists.
pub(super) fn read(object: &Descriptor, kind: AclKind) -> Result<Option<Acl>> {
    let has = match (object.kind, kind) {
        (FileType::Symlink, _) => false,
        (FileType::Directory, _) | (_, AclKind::Access) => true,
        (_, AclKind::Default) => false,
    };
    if !has {
        return Ok(None);
    }
    // Most have no list, and few entries where they have one.
    let mut few = [0; AclEntry::XATTR_HEADER_BYTES + 32 * AclEntry::XATTR_BYTES];
    let found = match getxattr(object.magic_path(), name(kind), &mut few[..]) {
        Err(Errno::RANGE) => {
            let mut all =
                vec![0; AclEntry::XATTR_HEADER_BYTES + ACL_ENTRIES_MAX * AclEntry::XATTR_BYTES];
            let length = getxattr(object.magic_path(), name(kind), &mut all[..])?;
            decode(&all[..length])
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
        Err(errno) => return Err(errno.into()),
        Ok(length) => decode(&few[..length]),
    };
    found.map(Some)
}

impl LocalStore {
    pub(super) fn list_of(&self, object: ObjectId, kind: AclKind) -> Result<Option<Acl>> {
        let found = self.reach(object)?;
        Ok(read(&found, kind)?.filter(|list| kind == AclKind::Default || !list.is_minimal()))
    }

    /// Attributes by whose mode this caller may do what he may do, for a judge without a kernel.
    pub(super) fn judged(&self, object: &Descriptor, who: &Credential) -> Result<Attributes> {
        let attributes = self.translate(&rustix::fs::fstat(object)?);
        Ok(match read(object, AclKind::Access)? {
            Some(list) => list.judged(&attributes, who),
            None => attributes,
        })
    }

    pub(super) fn set_list(
        &self,
        who: &Credential,
        object: ObjectId,
        kind: AclKind,
        list: Option<&Acl>,
    ) -> Result<()> {
        let found = self.reach(object)?;
        if found.kind == FileType::Symlink {
            return Err(Status::NotSupp.into());
        }
        // Only owners set lists: a caller whose ids we cannot take is none, as far as we can act.
        let _judge = match self.identity.judge(who)? {
            Judge::Ourselves => return Err(Status::Perm.into()),
            judge => judge,
        };
        let path = found.magic_path();
        let set = match list {
            Some(list) => setxattr(
                path,
                name(kind),
                &AclEntry::to_xattr(list.entries()),
                XattrFlags::empty(),
            ),
            None => removexattr(path, name(kind)),
        };
        match set {
            // It had none before.
            Err(Errno::NODATA) => Ok(()),
            Err(Errno::OPNOTSUPP) if list.is_none() => Ok(()),
            // A list that is longer than the file system takes.
            Err(Errno::RANGE | Errno::TOOBIG) => Err(Status::NoSpc.into()),
            set => Ok(set?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::AclTag;

    #[test]
    fn lists_are_written_as_linux_writes_them() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let list = Acl::new(vec![
            entry(AclTag::Owner, 6),
            entry(AclTag::User(4001), 4),
            entry(AclTag::OwningGroup, 0),
            entry(AclTag::Group(7), 2),
            entry(AclTag::Mask, 7),
            entry(AclTag::Other, 1),
        ])
        .unwrap();
        // Worked out from linux/posix_acl_xattr.h.
        let bytes = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
            &[2, 0, 4, 0, 0xa1, 0x0f, 0, 0],
            &[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &[8, 0, 2, 0, 7, 0, 0, 0],
            &[0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x20, 0, 1, 0, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(AclEntry::to_xattr(list.entries()), bytes);
        assert_eq!(decode(&bytes), Ok(list));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
        for (at, value) in [(0, 3), (4, 3), (7, 1), (6, 8), (13, 1)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(decode(&wrong).is_err(), "{at}");
        }
    }
}
