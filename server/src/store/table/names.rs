//! The directories of a table: the root, and one for each component of an export's name except the last.

use std::collections::BTreeMap;

use super::{Entry, FSID, GENERATION_MAX};
use crate::store::names::NAME_MAX;
use crate::store::{Attributes, Device, FileType, ObjectId, Time};

/// Why stores cannot form a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A name does not begin with a slash, is empty, or has a component that no client can ask for.
    #[error(
        "{0:?} is no name for one export of several: name it as in /data or /srv/data (the root / lists them)"
    )]
    Name(String),
    /// Two exports have one name.
    #[error("two exports have the name {0}: give each a name of its own")]
    Twice(String),
    /// One name lies below the other.
    #[error("the exports {0} and {1}: one name lies below the other; give each a place of its own")]
    Overlap(String, String),
    /// A tag is 0 or used twice.
    #[error("the export {0} has the tag 0, or that of another export")]
    Tag(String),
    /// The root's generation is beyond [`GENERATION_MAX`].
    #[error(
        "the store of the export {0} cannot stand beside others: its generations are too large"
    )]
    Generation(String),
    /// The system can give no more threads.
    #[error("cannot wait for events of the stores: {0}")]
    Threads(std::io::Error),
}

/// The number of the root directory.
pub(super) const ROOT: usize = 0;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    /// A directory of the table.
    Directory(usize),
    /// The root of an entry's store.
    Entry(usize),
}

/// The directories by number.
pub(super) struct Tree {
    directories: Vec<Directory>,
    /// The directory that contains the export with this tag.
    above: BTreeMap<u16, usize>,
    started: Time,
}

struct Directory {
    parent: usize,
    children: BTreeMap<Vec<u8>, Child>,
}

impl Directory {
    fn below(parent: usize) -> Self {
        Self {
            parent,
            children: BTreeMap::new(),
        }
    }
}

impl Tree {
    pub fn new(entries: &[Entry], started: Time) -> Result<Self, TableError> {
        let mut tree = Self {
            directories: vec![Directory::below(ROOT)],
            above: BTreeMap::new(),
            started,
        };
        check_names(entries.iter().map(|entry| entry.name.as_str()))?;
        for (at, entry) in entries.iter().enumerate() {
            tree.add(at, entry)?;
        }
        Ok(tree)
    }

    /// Adds an entry. The names do not overlap.
    fn add(&mut self, at: usize, entry: &Entry) -> Result<(), TableError> {
        let name = || entry.name.clone();
        if entry.store.root().generation > GENERATION_MAX {
            return Err(TableError::Generation(name()));
        }
        let components: Vec<&[u8]> = components(&entry.name).collect();
        let (last, on_the_way) = components
            .split_last()
            .ok_or_else(|| TableError::Name(name()))?;
        let mut directory = ROOT;
        for component in on_the_way {
            directory = match self.child(directory, component) {
                Some(Child::Directory(next)) => next,
                _ => self.make(directory, component),
            };
        }
        let children = &mut self.directories[directory].children;
        children.insert(last.to_vec(), Child::Entry(at));
        if entry.tag == 0 || self.above.insert(entry.tag, directory).is_some() {
            return Err(TableError::Tag(name()));
        }
        Ok(())
    }

    fn make(&mut self, parent: usize, name: &[u8]) -> usize {
        let number = self.directories.len();
        self.directories.push(Directory::below(parent));
        let children = &mut self.directories[parent].children;
        children.insert(name.to_vec(), Child::Directory(number));
        number
    }

    /// The number of directories.
    pub fn len(&self) -> usize {
        self.directories.len()
    }

    pub fn id(number: usize) -> ObjectId {
        ObjectId {
            ino: number as u64 + 1,
            generation: 0,
        }
    }

    pub fn find(&self, object: ObjectId) -> Option<usize> {
        let number = usize::try_from(object.ino.checked_sub(1)?).ok()?;
        (object == Self::id(number) && number < self.len()).then_some(number)
    }

    /// The directory above. The root is its own parent.
    pub fn parent(&self, number: usize) -> usize {
        self.directories[number].parent
    }

    /// The directory that contains the export.
    pub fn above(&self, tag: u16) -> usize {
        self.above.get(&tag).copied().unwrap_or(ROOT)
    }

    pub fn child(&self, number: usize, name: &[u8]) -> Option<Child> {
        self.directories[number].children.get(name).copied()
    }

    /// The names in a directory, in their order.
    pub fn children(&self, number: usize) -> impl Iterator<Item = (&[u8], Child)> {
        let children = self.directories[number].children.iter();
        children.map(|(name, child)| (&**name, *child))
    }

    pub fn attributes(&self, number: usize) -> Attributes {
        let children = self.directories[number].children.len();
        Attributes {
            kind: FileType::Directory,
            mode: 0o555,
            links: 2 + children as u32,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: FSID,
            fileid: Self::id(number).ino,
            atime: self.started,
            mtime: self.started,
            ctime: self.started,
        }
    }
}

/// The canonical form of a name, such as `/srv/data` for `//srv/data/`.
///
/// # Errors
/// No client can ask for the name, or it is that of the root.
pub fn normalized(name: &str) -> Result<String, TableError> {
    let refused = || TableError::Name(name.to_owned());
    let proper = |part: &[u8]| {
        !matches!(part, b"." | b"..")
            && part.len() <= NAME_MAX
            && !part.iter().any(u8::is_ascii_control)
    };
    if !name.starts_with('/') || !components(name).all(proper) {
        return Err(refused());
    }
    let parts = name.split('/').filter(|part| !part.is_empty());
    let whole: String = parts.flat_map(|part| ["/", part]).collect();
    if whole.is_empty() {
        Err(refused())
    } else {
        Ok(whole)
    }
}

/// Checks that each export has a place of its own below the root.
///
/// # Errors
/// A name is invalid, or lies at or below another.
pub fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), TableError> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        let normal = normalized(name)?;
        for other in &seen {
            if normalized(other)? == normal {
                return Err(TableError::Twice(normal));
            }
            let mut pairs = components(name).zip(components(other));
            if pairs.all(|(one, other)| one == other) {
                return Err(TableError::Overlap((*other).to_owned(), name.to_owned()));
            }
        }
        seen.push(name);
    }
    Ok(())
}

fn components(name: &str) -> impl Iterator<Item = &[u8]> {
    let parts = name.split('/').filter(|part| !part.is_empty());
    parts.map(str::as_bytes)
}
