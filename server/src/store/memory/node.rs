//! The objects of a memory store.

use std::collections::BTreeMap;

use crate::store::{Acl, Attributes, FileType, ObjectId, Result, Status, Time};

/// The largest file, in bytes. Sparse files take their whole size here.
pub(super) const SIZE_MAX: u64 = 1 << 30;
/// The unit, in bytes, that a crash keeps or loses.
pub(super) const PAGE_BYTES: u64 = 4096;

/// One object.
pub(super) struct Node {
    pub generation: u64,
    pub attributes: Attributes,
    /// When it was made.
    pub birth: Time,
    pub body: Body,
    /// The access list, if it says more than the mode, which shows its part of it.
    pub access_list: Option<Acl>,
    /// The list that what is made in the directory begins with.
    pub default_list: Option<Acl>,
    /// Extended attributes, by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The content of an object, by its type.
pub(super) enum Body {
    File(Content),
    Directory(Names),
    Symlink(Vec<u8>),
    Special,
}

impl Node {
    pub fn id(&self) -> ObjectId {
        ObjectId {
            ino: self.attributes.fileid,
            generation: self.generation,
        }
    }

    /// Notes a change of the data at that time.
    pub fn touch_data(&mut self, now: Time) {
        self.attributes.mtime = now;
        self.attributes.ctime = now;
    }

    /// Sets size and use to those of the content.
    pub fn measure(&mut self) {
        let bytes = match &self.body {
            Body::File(content) => content.data.len() as u64,
            Body::Directory(_) => PAGE_BYTES,
            Body::Symlink(target) => target.len() as u64,
            Body::Special => 0,
        };
        self.attributes.size = bytes;
        self.attributes.used = bytes.next_multiple_of(512);
    }

    /// What it takes of the store's capacity, in bytes.
    pub fn kept_bytes(&self) -> u64 {
        let content = match &self.body {
            Body::File(content) => content.data.len() as u64,
            _ => 0,
        };
        content + self.xattr_bytes()
    }

    pub fn file(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Status::IsDir.into()),
            _ => Err(Status::Inval.into()),
        }
    }

    pub fn names(&self) -> Result<&Names> {
        match &self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Status::NotDir.into()),
        }
    }

    pub fn names_mut(&mut self) -> Result<&mut Names> {
        match &mut self.body {
            Body::Directory(names) => Ok(names),
            _ => Err(Status::NotDir.into()),
        }
    }

    pub fn is_directory(&self) -> bool {
        self.attributes.kind == FileType::Directory
    }
}

/// A seeded source of coin flips (splitmix64).
pub(super) struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn flip(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

/// The bytes of a file, as they are and as the disk has them.
#[derive(Default)]
pub(super) struct Content {
    pub data: Vec<u8>,
    durable: Vec<u8>,
    /// The writes since the last sync, in order. None crosses a page.
    unsynced: Vec<(u64, Vec<u8>)>,
    /// Whether bytes were lost and nobody has been told.
    lost: bool,
}

impl Content {
    /// Writes bytes. The caller has bounded `offset` and the length.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        put(&mut self.data, offset, bytes);
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let room = PAGE_BYTES - at % PAGE_BYTES;
            let (piece, after) = rest.split_at(rest.len().min(room as usize));
            self.unsynced.push((at, piece.to_vec()));
            at += piece.len() as u64;
            rest = after;
        }
    }

    /// Brings the remaining writes to the disk. Returns once whether bytes were lost before.
    pub fn sync(&mut self) -> bool {
        for (offset, bytes) in self.unsynced.drain(..) {
            put(&mut self.durable, offset, &bytes);
        }
        !std::mem::take(&mut self.lost)
    }

    /// As [`Content::sync_badly`], when nobody has asked for a sync. The next sync reports it. Returns whether there will be
    /// anything to report.
    pub fn write_back_badly(&mut self, chance: &mut Chance) -> bool {
        self.lost |= !self.unsynced.is_empty();
        self.sync_badly(chance);
        self.lost
    }

    /// A sync that fails. Some pages reach the disk. The others count as written and never get there.
    pub fn sync_badly(&mut self, chance: &mut Chance) {
        for (offset, bytes) in self.unsynced.drain(..) {
            if chance.flip() {
                put(&mut self.durable, offset, &bytes);
            }
        }
    }

    pub fn resize(&mut self, size: u64) {
        let lost = !self.sync();
        self.lost = lost;
        self.data.resize(size as usize, 0);
        self.durable.resize(size as usize, 0);
    }

    /// Returns whether bytes were lost.
    pub fn crash(&mut self, chance: &mut Chance) -> bool {
        self.sync_badly(chance);
        self.lost = false;
        let lost = self.data != self.durable;
        self.data.clone_from(&self.durable);
        lost
    }
}

fn put(data: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[start..end].copy_from_slice(bytes);
}

/// The entries of a directory, by name and in the order of listing.
pub(super) struct Names {
    pub parent: u64,
    by_name: BTreeMap<Vec<u8>, Entry>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    ino: u64,
    cookie: u64,
}

impl Names {
    pub fn new(parent: u64) -> Self {
        // Cookies 1 and 2 follow `.` and `..`.
        Self {
            parent,
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: 3,
        }
    }

    pub fn find(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|entry| entry.ino)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn insert(&mut self, name: &[u8], ino: u64) {
        self.remove(name);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_name.insert(name.to_vec(), Entry { ino, cookie });
        self.by_cookie.insert(cookie, name.to_vec());
    }

    pub fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.by_name.remove(name) {
            self.by_cookie.remove(&entry.cookie);
        }
    }

    /// Removes every name of an object. Returns whether there was one.
    pub fn remove_object(&mut self, ino: u64) -> bool {
        let names: Vec<_> = self
            .by_name
            .iter()
            .filter(|(_, entry)| entry.ino == ino)
            .map(|(name, _)| name.clone())
            .collect();
        names.iter().for_each(|name| self.remove(name));
        !names.is_empty()
    }

    /// Cookie, name and inode number of the entries behind `cookie`.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        let from = cookie.saturating_add(1);
        self.by_cookie
            .range(from..)
            .map(|(cookie, name)| (*cookie, name.as_slice(), self.by_name[name].ino))
    }
}
