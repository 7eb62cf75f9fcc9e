//! What a client keeps about a file, open or not: the version of its cached pages, its references, its policy.

use crate::{
    ahead::Ahead,
    delegation::Delegation,
    directory::Tree,
    handle::FileHandle,
    route::{Orders, Record},
    shard::{SHARDS, Tick},
    types::{Attributes, Changed},
};
use odafs_common::reference::Reference;
use odafs_fabric::sync::{
    Arc, Mutex, RwLock,
    atomic::{AtomicU64, Ordering::*},
};

/// The state of one file.
pub struct FileState {
    /// Its number in this client, for the data cache.
    pub number: u64,
    /// The server's handle.
    pub handle: FileHandle,
    /// Its references.
    pub tree: Arc<Tree>,
    /// Which references to fetch ahead.
    pub ahead: Ahead,
    /// The server's promise that nobody changes the file.
    pub delegation: Delegation,
    /// The policy's record of the file.
    pub record: Mutex<Record>,
    /// The orders of reads that need not ask the policy.
    pub orders: Orders,
    /// Reads that the policy has not heard of yet, by shard.
    pub ticks: [Tick; SHARDS],
    /// Number of this client's writes that have begun, and that are under way.
    pub unstable: Mutex<Unstable>,
    /// Held by the thread that commits or sets the size. Another thread waits, because its own writes may be among those
    /// under way.
    pub syncing: Mutex<()>,
    /// Shared by writes, and held alone while lost writes are sent again or the size is set, so that none overwrites a
    /// later one. Taken after `syncing`.
    pub order: RwLock<()>,
    generation: AtomicU64,
    writes: AtomicU64,
    version: Mutex<Version>,
}

/// The version of the cached pages. All of it dates from before any of them was read.
#[derive(Debug, Default)]
struct Version {
    attributes: Option<Attributes>,
    change: Option<u64>,
    /// The change counter, as it was read directly before any of the pages. It belongs to this file if a reply agrees.
    unconfirmed: Option<u64>,
    /// Whether attributes and counter are known to be of the same version.
    tagged: bool,
    counter: Option<(u64, Reference)>,
}

/// Writes that the server may still lose, and the later ones. A lost write is sent again where the later ones did not
/// write.
#[derive(Debug, Default)]
pub struct Unstable {
    /// The writes, in the order of their replies.
    pub writes: Vec<KeptWrite>,
    /// Memory that they take, in bytes.
    pub bytes: u64,
    /// Whether others are being committed and may turn out to be lost.
    pub committing: bool,
    /// The memory for all files of the client, of which this is a part.
    of_all: Arc<AtomicU64>,
}

/// A write that is kept until it and all earlier ones are stable.
#[derive(Debug)]
pub struct KeptWrite {
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// The bytes, to send them again. `None` if the write is stable.
    pub data: Box<[u8]>,
    /// The server's answer.
    pub fate: Fate,
}

/// The server's answer to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The server may lose the write while its verifier differs from this (RFC 1813 section 3.3.7).
    Unstable([u8; 8]),
    /// It is never lost.
    Stable,
    /// No answer, or only that the write failed. It may have been done or not.
    Unanswered,
    /// The write was lost and replaces older lost data. It is sent again until that succeeds.
    Lost,
}

impl KeptWrite {
    /// Whether a server with this verifier has lost a write that it had answered.
    pub fn was_lost(&self, verifier: [u8; 8]) -> bool {
        match self.fate {
            Fate::Unstable(then) => then != verifier,
            Fate::Lost => true,
            Fate::Stable | Fate::Unanswered => false,
        }
    }

    /// Whether to send the write again to a server with this verifier that has lost some.
    pub fn is_lost(&self, verifier: [u8; 8]) -> bool {
        self.fate == Fate::Unanswered || self.was_lost(verifier)
    }

    /// Keeps the part below this offset in the file. Returns false if there is none.
    fn cut(&mut self, end: u64) -> bool {
        let length = end.saturating_sub(self.offset);
        if length < self.length {
            self.length = length;
            if let Some(data) = self.data.get(..length as usize) {
                self.data = data.into();
            }
        }
        self.length > 0
    }
}

impl Unstable {
    /// Nothing yet. What is kept also counts in `of_all`.
    fn counted(of_all: Arc<AtomicU64>) -> Mutex<Self> {
        Mutex::new(Self {
            of_all,
            ..Self::default()
        })
    }

    fn set_bytes(&mut self, bytes: u64) {
        // In this order the sum of all files never wraps.
        self.of_all.fetch_add(bytes, Relaxed);
        self.of_all.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }

    /// Keeps a write if the server may lose it or an earlier one. In the latter case the earlier one is sent again, and
    /// must not hide this one.
    pub fn keep(&mut self, offset: u64, data: &[u8], fate: Fate) {
        if matches!(fate, Fate::Unstable(_)) || self.committing || !self.writes.is_empty() {
            let kept = if fate == Fate::Stable { &[] } else { data };
            self.writes.push(KeptWrite {
                offset,
                length: data.len() as u64,
                data: kept.into(),
                fate,
            });
            self.set_bytes(self.bytes + (kept.len() + size_of::<KeptWrite>()) as u64);
        }
    }

    /// Puts writes before those that came meanwhile, to keep the order.
    pub fn put_back(&mut self, mut writes: Vec<KeptWrite>) {
        writes.append(&mut self.writes);
        let bytes = |write: &KeptWrite| (write.data.len() + size_of::<KeptWrite>()) as u64;
        self.set_bytes(writes.iter().map(bytes).sum());
        self.writes = writes;
    }

    /// The file has this size in bytes now. What was written beyond is not to be sent again.
    pub fn cut(&mut self, size: u64) {
        let mut writes = self.take();
        writes.retain_mut(|write| write.cut(size));
        self.put_back(writes);
    }

    /// Takes everything that is kept.
    pub fn take(&mut self) -> Vec<KeptWrite> {
        self.set_bytes(0);
        std::mem::take(&mut self.writes)
    }
}

/// The state of a file when a read began. The result of the read may be cached if that state still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// Generation of the cached pages.
    pub generation: u64,
    writes: u64,
}

impl FileState {
    /// A file of which nothing is known yet. Its unstable writes also count in `unstable`.
    pub fn new(
        number: u64,
        handle: FileHandle,
        record: Record,
        orders: Orders,
        unstable: Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            handle,
            tree: Arc::new(Tree::default()),
            ahead: Ahead::default(),
            delegation: Delegation::default(),
            record: Mutex::new(record),
            orders,
            ticks: Default::default(),
            unstable: Unstable::counted(unstable),
            syncing: Mutex::new(()),
            order: RwLock::new(()),
            generation: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            version: Mutex::default(),
        }
    }

    /// The present state. Take it before sending a read.
    pub fn moment(&self) -> Moment {
        Moment {
            generation: self.generation.load(Acquire),
            writes: self.writes.load(Acquire),
        }
    }

    /// The generation of the cached pages. Pages of another generation are of another version.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Whether what was read since `moment` is still of the cached version. Ask with the cache's lock held.
    pub fn still(&self, moment: Moment) -> bool {
        self.moment() == moment
    }

    /// Marks all cached pages as outdated.
    pub fn drop_pages(&self) {
        self.generation.fetch_add(1, AcqRel);
    }

    /// A write of this client begins or ends. What is read meanwhile is not cached.
    pub fn mark_write(&self) {
        self.writes.fetch_add(1, AcqRel);
    }

    /// Compares the attributes from an open with the version of the cached pages, and drops the pages if it differs.
    /// What is cached from then on has these attributes, as long as the returned moment is [`still`](Self::still)
    /// valid.
    pub fn revalidate(&self, attributes: &Attributes) -> Moment {
        let mut version = self.version.lock();
        let same = version.tagged
            && version
                .attributes
                .as_ref()
                .is_some_and(|known| known.version() == attributes.version());
        if !same {
            version.change = None;
            version.unconfirmed = None;
            self.drop_pages();
        }
        version.attributes = Some(*attributes);
        version.tagged = true;
        // With the lock held: whoever learns of another version drops the pages with it held too.
        self.moment()
    }

    /// The change counter as it was read just now.
    pub fn revalidate_change(&self, change: u64) -> bool {
        let mut version = self.version.lock();
        let same = version.change == Some(change);
        if !same {
            // The memory may belong to another file by now. The next reply tells.
            version.change = None;
            version.unconfirmed = Some(change);
            version.tagged = false;
            self.drop_pages();
        }
        same
    }

    /// What the reply of a read says about the file: the change counter before the read, and the attributes after it.
    pub fn observe(&self, change: Option<u64>, attributes: Option<&Attributes>) {
        let mut version = self.version.lock();
        let known_tag = version
            .attributes
            .as_ref()
            .filter(|_| version.tagged)
            .map(Attributes::version);
        let same_tag = known_tag
            .zip(attributes.map(Attributes::version))
            .map(|(known, now)| known == now);
        let known = version.change.or(version.unconfirmed.take());
        let same = match (change, known) {
            (Some(now), Some(known)) => now == known,
            // Without either, the version of the pages is unknown.
            _ => same_tag.unwrap_or(change.is_none()),
        };
        if !same {
            self.drop_pages();
            version.tagged = attributes.is_some();
        } else if same_tag == Some(false) {
            // The file may have changed between the read and the look at its attributes, which then are of a later
            // version.
            version.tagged = false;
        }
        version.change = change.or(if same { version.change } else { None });
        if let Some(attributes) = attributes {
            version.attributes = Some(*attributes);
        }
    }

    /// A write of this client took the file from one version to the next. Returns the sizes before and after if nobody
    /// else wrote meanwhile. Otherwise drops all pages.
    pub fn wrote(&self, changed: &Changed) -> Option<(u64, u64)> {
        let mut version = self.version.lock();
        let known = version
            .attributes
            .as_ref()
            .filter(|_| version.tagged)
            .map(Attributes::version);
        let alone = known.is_some() && changed.before == known;
        version.change = None;
        version.unconfirmed = None;
        // Pages that are not older than this have at least these attributes. The others are dropped.
        version.tagged = changed.after.is_some();
        if let Some(after) = changed.after {
            version.attributes = Some(after);
        }
        match (alone, changed.before, changed.after) {
            (true, Some(before), Some(after)) => Some((before.size, after.size)),
            _ => {
                self.drop_pages();
                None
            }
        }
    }

    /// Where the change counter can be read directly in this session.
    pub fn counter(&self, session: u64) -> Option<Reference> {
        self.version
            .lock()
            .counter
            .filter(|(of, _)| *of == session)
            .map(|(_, reference)| reference)
    }

    /// The change counter that is known.
    pub fn change(&self) -> Option<u64> {
        self.version.lock().change
    }

    /// Keeps where the change counter lies. `None`: nowhere any more, and its old place may belong to another file.
    pub fn set_counter(&self, session: u64, reference: Option<Reference>) {
        let mut version = self.version.lock();
        match reference {
            Some(reference) => version.counter = Some((session, reference)),
            None => version.counter = version.counter.filter(|(of, _)| *of != session),
        }
    }

    /// The last attributes from the server.
    pub fn attributes(&self) -> Option<Attributes> {
        self.version.lock().attributes
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
