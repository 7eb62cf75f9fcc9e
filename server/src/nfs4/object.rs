//! What a file handle of version 4 stands for: an object of the export, or a directory above the export. Those directories are
//! the pseudo file system (RFC 8881, section 7): a client starts at its root and looks up the export's name.

use std::ops::Deref;

use odafs_common::wire::nfs4::Status;

use super::compound::{Compound, Done};
use crate::vfs::attributes::attributes;
use crate::vfs::export::Exports;
use crate::vfs::{FileType, HandleBytes, ObjectId};

/// What a file handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// A directory of the pseudo file system, by its depth. The root has depth 0.
    Pseudo(u8),
    /// An object of the export.
    Real(ObjectId),
}

impl Object {
    /// The tag of its export. 0 for the pseudo file system, and in a server with one export.
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

/// The bytes of a file handle.
pub(super) enum FileHandleBytes {
    Pseudo([u8; PSEUDO_BYTES]),
    Real(HandleBytes),
}

/// Length of a file handle of the pseudo file system. Those of the export are longer. It is no secret and needs no MAC.
const PSEUDO_BYTES: usize = 8;
const PSEUDO_MARK: [u8; PSEUDO_BYTES - 1] = *b"pseudo\0";

impl Deref for FileHandleBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pseudo(bytes) => bytes,
            Self::Real(bytes) => bytes,
        }
    }
}

impl Tree {
    /// The directories above an export with this name (such as `/` or `/srv/data`) and this root.
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

    /// The object at this depth below the root.
    fn at(&self, depth: usize) -> Object {
        if depth < self.names.len() {
            Object::Pseudo(depth as u8)
        } else {
            Object::Real(self.root)
        }
    }

    /// The only entry of the directory at `depth`: its name and its object.
    pub fn below(&self, depth: u8) -> Option<(&[u8], Object)> {
        let name = self.names.get(usize::from(depth))?;
        Some((name, self.at(usize::from(depth) + 1)))
    }

    /// The directory above an object of the pseudo file system or the export's root. `None` for any other object, and for the
    /// root of all.
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

    /// The file number that the directory above the export has for its root (`mounted_on_fileid`), if there is one.
    pub fn mounted_on(&self) -> Option<u64> {
        (!self.names.is_empty()).then(|| fileid(self.names.len()))
    }

    /// The file handle of the directory at `depth`.
    pub fn file_handle(depth: u8) -> FileHandleBytes {
        let mut bytes = [depth; PSEUDO_BYTES];
        bytes[..PSEUDO_BYTES - 1].copy_from_slice(&PSEUDO_MARK);
        FileHandleBytes::Pseudo(bytes)
    }

    /// The directory whose file handle [`Tree::file_handle`] made.
    pub fn find(&self, handle: &[u8]) -> Option<Object> {
        let depth = *handle.strip_prefix(&PSEUDO_MARK)?.first()?;
        let known = handle.len() == PSEUDO_BYTES && usize::from(depth) < self.names.len();
        known.then_some(Object::Pseudo(depth))
    }
}

/// The file number of the directory of the pseudo file system at `depth`.
pub(super) fn fileid(depth: usize) -> u64 {
    depth as u64 + 1
}

impl Compound<'_> {
    /// The status of an operation that takes regular files only.
    pub fn not_a_file(&self, kind: FileType) -> Status {
        match kind {
            FileType::Directory => Status::IsDir,
            FileType::Symlink => Status::Symlink,
            _ if self.minor > 0 => Status::WrongType,
            _ => Status::Inval,
        }
    }

    /// Refuses with NOTDIR an object that is no directory. May block.
    pub fn check_directory(&self, object: ObjectId) -> Done<()> {
        match attributes(self.export, object) {
            Ok(known) if known.kind != FileType::Directory => Err(Status::NotDir.into()),
            // If its attributes cannot be read, the operation itself fails with the reason.
            _ => Ok(()),
        }
    }
}

/// The status of LOOKUP and LOOKUPP in an object that is no directory: they tell symbolic links apart.
pub(super) fn not_a_directory(kind: FileType) -> Status {
    match kind {
        FileType::Symlink => Status::Symlink,
        _ => Status::NotDir,
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
        assert_eq!(tree.find(&Tree::file_handle(0)), None);
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
        assert_eq!(tree.find(&Tree::file_handle(1)), Some(Object::Pseudo(1)));
        assert_eq!(tree.find(&Tree::file_handle(2)), None);
        assert_eq!(tree.find(b"pseudo\0"), None);
    }
}
