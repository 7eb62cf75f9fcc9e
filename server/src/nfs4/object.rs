//! What file handles of version 4 stand for: an object of the export, or one of the directories above it. These make up the
//! pseudo file system (RFC 8881, section 7): a client starts at its root and finds the export by its name.

use std::ops::Deref;

use odafs_common::wire::nfs4::Status;

use super::compound::Compound;
use crate::vfs::attributes::attributes;
use crate::vfs::export::Exports;
use crate::vfs::{FileType, HandleBytes, ObjectId};

/// What a file handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The directory so many names below the root of the pseudo file system.
    Pseudo(u8),
    /// An object of the export.
    Real(ObjectId),
}

impl Object {
    /// The tag of its export: 0 above all exports, and in a server without a table.
    pub fn tag(self, export: &Exports) -> u16 {
        match self {
            Self::Real(object) => export.tag_of(object),
            Self::Pseudo(_) => 0,
        }
    }
}

/// The pseudo file system: one directory for each component of the export's name.
pub(super) struct Tree {
    names: Vec<Vec<u8>>,
    root: ObjectId,
}

/// A handle's bytes.
pub(super) enum Handle {
    Pseudo([u8; PSEUDO_BYTES]),
    Real(HandleBytes),
}

/// Shorter than any handle of the export, so that the two cannot be confused. It is no secret and needs no MAC.
const PSEUDO_BYTES: usize = 8;
const PSEUDO_MARK: [u8; PSEUDO_BYTES - 1] = *b"pseudo\0";

impl Deref for Handle {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pseudo(bytes) => bytes,
            Self::Real(bytes) => bytes,
        }
    }
}

impl Tree {
    /// For an export of this name, such as `/` or `/srv/data`, with this root.
    pub fn new(name: &str, root: ObjectId) -> Self {
        let names = name.split('/').filter(|name| !name.is_empty());
        Self {
            names: names
                .map(|name| name.as_bytes().to_vec())
                .take(u8::MAX.into())
                .collect(),
            root,
        }
    }

    /// Where clients start.
    pub fn root(&self) -> Object {
        self.at(0)
    }

    /// So many names below the root.
    fn at(&self, depth: usize) -> Object {
        if depth < self.names.len() {
            Object::Pseudo(depth as u8)
        } else {
            Object::Real(self.root)
        }
    }

    /// The one name in the directory at `depth`, and what it stands for.
    pub fn below(&self, depth: u8) -> Option<(&[u8], Object)> {
        let name = self.names.get(usize::from(depth))?;
        Some((name, self.at(usize::from(depth) + 1)))
    }

    /// What is above: `None` for the root of all.
    pub fn above(&self, object: Object) -> Option<Object> {
        let depth = match object {
            Object::Pseudo(depth) => usize::from(depth),
            Object::Real(object) if object == self.root => self.names.len(),
            Object::Real(_) => return None,
        };
        Some(self.at(depth.checked_sub(1)?))
    }

    /// Whether the object is the root of the export.
    pub fn is_export_root(&self, object: ObjectId) -> bool {
        object == self.root
    }

    /// The number that the directory above says for the root of the export, where there is one.
    pub fn mounted_on(&self) -> Option<u64> {
        (!self.names.is_empty()).then(|| fileid(self.names.len()))
    }

    /// The handle of a directory of the pseudo file system.
    pub fn handle(depth: u8) -> Handle {
        let mut bytes = [depth; PSEUDO_BYTES];
        bytes[..PSEUDO_BYTES - 1].copy_from_slice(&PSEUDO_MARK);
        Handle::Pseudo(bytes)
    }

    /// The directory that a handle of [`Tree::handle`] stands for.
    pub fn find(&self, handle: &[u8]) -> Option<Object> {
        let depth = *handle.strip_prefix(&PSEUDO_MARK)?.first()?;
        let known = handle.len() == PSEUDO_BYTES && usize::from(depth) < self.names.len();
        known.then_some(Object::Pseudo(depth))
    }
}

/// The number of the directory so many names below the root of the pseudo file system.
pub(super) fn fileid(depth: usize) -> u64 {
    depth as u64 + 1
}

impl Compound<'_> {
    /// The status for what takes regular files alone.
    pub fn not_a_file(&self, kind: FileType) -> Status {
        match kind {
            FileType::Directory => Status::IsDir,
            FileType::Symlink => Status::Symlink,
            _ if self.minor > 0 => Status::WrongType,
            _ => Status::Inval,
        }
    }

    /// The status for what takes directories alone; `None` for a directory.
    pub fn not_a_directory(&self, object: ObjectId) -> Option<Status> {
        match attributes(self.export, object).ok()?.kind {
            FileType::Directory => None,
            FileType::Symlink => Some(Status::Symlink),
            _ => Some(Status::NotDir),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ObjectId = ObjectId {
        ino: 7,
        generation: 1,
    };

    #[test]
    fn the_root_of_an_export_without_a_name_is_the_root_of_all() {
        let tree = Tree::new("/", ROOT);
        assert_eq!(tree.root(), Object::Real(ROOT));
        assert_eq!(tree.above(Object::Real(ROOT)), None);
        assert_eq!(tree.mounted_on(), None);
        assert_eq!(tree.find(&Tree::handle(0)), None);
    }

    #[test]
    fn an_export_with_a_name_is_found_by_it() {
        let tree = Tree::new("/srv/data", ROOT);
        let Object::Pseudo(0) = tree.root() else {
            panic!("{:?}", tree.root());
        };
        assert_eq!(tree.below(0), Some((&b"srv"[..], Object::Pseudo(1))));
        assert_eq!(tree.below(1), Some((&b"data"[..], Object::Real(ROOT))));
        assert_eq!(tree.below(2), None);
        assert_eq!(tree.above(Object::Real(ROOT)), Some(Object::Pseudo(1)));
        assert_eq!(tree.above(Object::Pseudo(0)), None);
        assert_eq!(tree.find(&Tree::handle(1)), Some(Object::Pseudo(1)));
        assert_eq!(tree.find(&Tree::handle(2)), None);
        assert_eq!(tree.find(b"pseudo\0"), None);
    }
}
