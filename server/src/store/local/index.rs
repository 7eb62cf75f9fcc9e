//! The handle index: where objects are, for a server that cannot open them by file handle.
//!
//! The index remembers each object that a client was shown, by inode number, generation, parent and name. It is in memory
//! and in an append-only log in the state directory. To open a file handle, the server walks the names from the root, and
//! compares inode number and generation at the end. An object that others have renamed is therefore stale until someone
//! looks it up again. The server's own renames are followed.
//!
//! The index takes about 120 bytes and the name for each object ever shown. When most of the log is out of date, the server
//! rewrites it. The log is not synced: a crash of the system may lose the latest entries, a crash of the server loses none.
//!
//! A record consists of these fields, in little-endian order: the length of what follows the checksum (32 bits), the
//! checksum (32 bits of the SHA-256 of that), inode number, generation and inode number of the parent (64 bits each), and
//! the name. An empty name means that the object is gone.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use odafs_fabric::sync::Mutex;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use crate::store::ObjectId;

const MAGIC: &[u8; 8] = b"odafsix1";
const HEAD_BYTES: usize = 8;
const FIXED_BYTES: usize = 24;
/// The most names that the index remembers of one object. Beyond it, the oldest is forgotten.
const PLACES_MAX: usize = 8;
/// A path of more names is a circle.
const DEPTH_MAX: usize = 100_000;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    /// Inode number of the directory.
    pub parent: u64,
    pub name: Box<[u8]>,
}

struct Known {
    generation: u64,
    /// The names, latest first. Never empty.
    places: Vec<DirectoryEntry>,
}

/// The index of one export.
pub(super) struct Index {
    root: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    known: HashMap<u64, Known>,
    log: Log,
}

struct Log {
    path: PathBuf,
    export: u64,
    file: File,
    records: usize,
}

impl Index {
    /// Reads the log, or begins one. If the log belongs to another export, or its head is damaged, this begins a new one,
    /// and file handles of before are stale. A damaged tail is cut off.
    pub fn open(path: &Path, export: u64, root: u64) -> io::Result<Self> {
        let mut known = HashMap::new();
        let (bytes, readable) = match read(path) {
            Ok(bytes) => {
                let readable = replay(&bytes, export, &mut known);
                (bytes.len(), readable)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => (0, None),
            Err(e) => return Err(e),
        };
        let (records, end) = readable.unwrap_or((0, 0));
        if end < bytes {
            tracing::warn!(path = %path.display(), bytes, readable = end, "the handle index was damaged");
        }
        let log = Log {
            path: path.to_owned(),
            export,
            file: append(path)?,
            records,
        };
        let mut inner = Inner { known, log };
        if end < bytes || readable.is_none() || inner.is_mostly_dead() {
            inner.compact()?;
        }
        Ok(Self {
            root,
            inner: Mutex::new(inner),
        })
    }

    /// Remembers where an object was found.
    pub fn remember(&self, object: ObjectId, parent: u64, name: &[u8]) {
        let mut inner = self.inner.lock();
        if inner.knows(object, parent, name) {
            return;
        }
        learn(&mut inner.known, object, parent, name);
        inner.write(object, parent, name);
    }

    /// Whether [`Index::remember`] has nothing to do. False if it would have to wait to find out.
    pub fn knows(&self, object: ObjectId, parent: u64, name: &[u8]) -> bool {
        self.inner
            .try_lock()
            .is_some_and(|inner| inner.knows(object, parent, name))
    }

    /// Notes that a name no longer stands for that object.
    pub fn forget_place(&self, object: ObjectId, parent: u64, name: &[u8]) {
        let mut inner = self.inner.lock();
        let Some(known) = inner.known.get_mut(&object.ino) else {
            return;
        };
        if known.generation != object.generation || known.places.len() < 2 {
            return;
        }
        known.places.retain(|place| !place.is(parent, name));
        // The log has no record for that. A restart knows what the log repeats, latest last.
        let places: Vec<DirectoryEntry> = known.places.iter().rev().cloned().collect();
        inner.write(object, 0, b"");
        for place in places {
            inner.write(object, place.parent, &place.name);
        }
    }

    /// Notes that the object is gone.
    pub fn forget(&self, object: ObjectId) {
        let mut inner = self.inner.lock();
        let gone = inner.known.get(&object.ino);
        if gone.is_some_and(|known| known.generation == object.generation) {
            inner.known.remove(&object.ino);
            inner.write(object, 0, b"");
        }
    }

    /// The paths that may lead to an object, as names from the root, with the likeliest first.
    pub fn paths(&self, object: ObjectId) -> Vec<Vec<Box<[u8]>>> {
        let inner = self.inner.lock();
        let Some(known) = inner.known.get(&object.ino) else {
            return Vec::new();
        };
        if known.generation != object.generation {
            return Vec::new();
        }
        known
            .places
            .iter()
            .filter_map(|place| self.path(&inner.known, place))
            .collect()
    }

    fn path(&self, known: &HashMap<u64, Known>, last: &DirectoryEntry) -> Option<Vec<Box<[u8]>>> {
        let mut names = vec![last.name.clone()];
        let mut at = last.parent;
        while at != self.root {
            let place = known.get(&at)?.places.first()?;
            names.push(place.name.clone());
            at = place.parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names)
    }
}

impl DirectoryEntry {
    fn is(&self, parent: u64, name: &[u8]) -> bool {
        self.parent == parent && *self.name == *name
    }
}

impl Inner {
    /// Whether the object was last seen there.
    fn knows(&self, object: ObjectId, parent: u64, name: &[u8]) -> bool {
        self.known.get(&object.ino).is_some_and(|known| {
            let first = known.places.first();
            known.generation == object.generation
                && first.is_some_and(|place| place.is(parent, name))
        })
    }

    fn is_mostly_dead(&self) -> bool {
        self.log.records > 2 * self.known.len() + 10_000
    }

    fn write(&mut self, object: ObjectId, parent: u64, name: &[u8]) {
        let written = self
            .log
            .file
            .write_all(&record(object, parent, name))
            .and_then(|()| {
                self.log.records += 1;
                if self.is_mostly_dead() {
                    self.compact()
                } else {
                    Ok(())
                }
            });
        if let Err(error) = written {
            tracing::warn!(%error, "the handle index cannot be written: handles may be stale after a restart");
        }
    }

    /// Writes the index to a new log, which replaces the old one.
    fn compact(&mut self) -> io::Result<()> {
        let beside = self.log.path.with_extension("new");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let mut file = BufWriter::new(open(&beside, flags)?);
        file.write_all(MAGIC)?;
        file.write_all(&self.log.export.to_le_bytes())?;
        let mut records = 0;
        for (ino, known) in &self.known {
            let object = ObjectId {
                ino: *ino,
                generation: known.generation,
            };
            for place in known.places.iter().rev() {
                file.write_all(&record(object, place.parent, &place.name))?;
                records += 1;
            }
        }
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        std::fs::rename(&beside, &self.log.path)?;
        self.log.file = append(&self.log.path)?;
        self.log.records = records;
        if let Some(parent) = self.log.path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }
}

fn learn(known: &mut HashMap<u64, Known>, object: ObjectId, parent: u64, name: &[u8]) {
    let entry = known.entry(object.ino).or_insert_with(|| Known {
        generation: object.generation,
        places: Vec::with_capacity(1),
    });
    if entry.generation != object.generation {
        entry.generation = object.generation;
        entry.places.clear();
    }
    entry.places.retain(|place| !place.is(parent, name));
    entry.places.insert(
        0,
        DirectoryEntry {
            parent,
            name: name.into(),
        },
    );
    entry.places.truncate(PLACES_MAX);
}

fn record(object: ObjectId, parent: u64, name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    for number in [object.ino, object.generation, parent] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(name);
    let (head, body) = bytes.split_at_mut(HEAD_BYTES);
    head[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&checksum(body));
    bytes
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let digest = Sha256::digest(body);
    [digest[0], digest[1], digest[2], digest[3]]
}

/// Reads a log. Returns the number of records, and how many bytes are sound. `None` if it is not a log of this export.
fn replay(bytes: &[u8], export: u64, known: &mut HashMap<u64, Known>) -> Option<(usize, usize)> {
    let head = [&MAGIC[..], &export.to_le_bytes()].concat();
    let mut rest = bytes.strip_prefix(&head[..])?;
    let mut records = 0;
    while let Some((body, after)) = split_record(rest) {
        let (fixed, name) = body.split_at(FIXED_BYTES);
        let (numbers, _) = fixed.as_chunks::<8>();
        let [ino, generation, parent] = [0, 1, 2].map(|at: usize| u64::from_le_bytes(numbers[at]));
        let object = ObjectId { ino, generation };
        if name.is_empty() {
            known.remove(&ino);
        } else {
            learn(known, object, parent, name);
        }
        records += 1;
        rest = after;
    }
    Some((records, bytes.len() - rest.len()))
}

fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let (body, after) = rest.split_at_checked(length)?;
    (length >= FIXED_BYTES && checksum(body) == head[4..]).then_some((body, after))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OFlags::RDONLY)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn append(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map(File::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u64 = 2;

    fn object(ino: u64, generation: u64) -> ObjectId {
        ObjectId { ino, generation }
    }

    fn paths(index: &Index, object: ObjectId) -> Vec<String> {
        let text = |names: Vec<Box<[u8]>>| String::from_utf8(names.join(&b'/')).unwrap();
        index.paths(object).into_iter().map(text).collect()
    }

    #[test]
    fn places_survive_a_restart_and_follow_renames() {
        let directory = tempfile::tempdir_in(super::super::tests::directory_in_memory()).unwrap();
        let path = directory.path().join("handles");
        let index = Index::open(&path, 9, ROOT).unwrap();
        let (d, f) = (object(10, 1), object(11, 5));
        index.remember(d, ROOT, b"d");
        index.remember(f, 10, b"f");
        assert_eq!(paths(&index, f), ["d/f"]);
        index.remember(d, ROOT, b"e");
        index.forget_place(d, ROOT, b"d");
        index.remember(f, ROOT, b"link");
        let expected = ["link", "e/f"];
        assert_eq!(paths(&index, f), expected);
        drop(index);
        let index = Index::open(&path, 9, ROOT).unwrap();
        assert_eq!(paths(&index, f), expected);
        assert!(paths(&index, object(11, 6)).is_empty());
        index.remember(object(11, 6), ROOT, b"next");
        assert!(paths(&index, f).is_empty());
        assert_eq!(paths(&index, object(11, 6)), ["next"]);
        index.forget(object(11, 6));
        drop(index);
        let index = Index::open(&path, 9, ROOT).unwrap();
        assert!(paths(&index, object(11, 6)).is_empty());
        assert_eq!(paths(&index, d), ["e"]);
        drop(index);
        // A log of another export.
        let index = Index::open(&path, 10, ROOT).unwrap();
        assert!(paths(&index, d).is_empty());
    }

    #[test]
    fn a_torn_tail_costs_the_tail_alone() {
        let directory = tempfile::tempdir_in(super::super::tests::directory_in_memory()).unwrap();
        let path = directory.path().join("handles");
        let whole = {
            let index = Index::open(&path, 9, ROOT).unwrap();
            for ino in 10..20 {
                index.remember(object(ino, 1), ROOT, format!("n{ino}").as_bytes());
            }
            drop(index);
            std::fs::read(&path).unwrap()
        };
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let index = Index::open(&path, 9, ROOT).unwrap();
            let found = (10..20)
                .take_while(|ino| !paths(&index, object(*ino, 1)).is_empty())
                .count();
            assert_eq!(found, cut.saturating_sub(16) / 35, "{cut}");
            index.remember(object(50, 1), ROOT, b"after");
            drop(index);
            let index = Index::open(&path, 9, ROOT).unwrap();
            assert_eq!(paths(&index, object(50, 1)), ["after"]);
        }
    }

    #[test]
    fn the_log_does_not_grow_without_end() {
        let directory = tempfile::tempdir_in(super::super::tests::directory_in_memory()).unwrap();
        let path = directory.path().join("handles");
        let index = Index::open(&path, 9, ROOT).unwrap();
        let f = object(11, 5);
        for round in 0..40_000 {
            let (new, old): (&[u8], &[u8]) = if round % 2 == 0 {
                (b"a", b"b")
            } else {
                (b"b", b"a")
            };
            index.remember(f, ROOT, new);
            index.forget_place(f, ROOT, old);
        }
        assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
        assert_eq!(paths(&index, f), ["b"]);
        let circle = object(12, 1);
        index.remember(circle, 12, b"c");
        assert!(paths(&index, circle).is_empty());
    }
}
