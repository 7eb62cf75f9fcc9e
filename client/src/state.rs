//! What a client keeps about a file, open or not: which version its cached pages are of, its references, its policy.

use crate::{
    ahead::Ahead,
    directory::Tree,
    handle::Handle,
    route::{Orders, Record},
    shard::{SHARDS, Tick},
    types::{Attributes, Changed},
};
use odafs_common::reference::Reference;
use odafs_fabric::sync::{
    Arc, Mutex, RwLock,
    atomic::{AtomicU64, Ordering::*},
};

/// One file.
pub struct FileState {
    /// Its number in this client, for the data cache.
    pub number: u64,
    /// What the server calls it.
    pub handle: Handle,
    /// Its references.
    pub tree: Arc<Tree>,
    /// Which of them are worth asking for ahead.
    pub ahead: Ahead,
    /// What the policy keeps for it.
    pub record: Mutex<Record>,
    /// What its reads do without asking the policy.
    pub orders: Orders,
    /// Reads that the policy was not told of yet, by shard.
    pub ticks: [Tick; SHARDS],
    /// Writes of our own that are under way or were.
    pub unstable: Mutex<Unstable>,
    /// Held by the thread that commits. A thread that comes meanwhile waits, for its own writes may be among those under way.
    pub syncing: Mutex<()>,
    /// Shared by writes, held alone while lost ones are sent again, so that none lands on top of a later one.
    pub order: RwLock<()>,
    generation: AtomicU64,
    writes: AtomicU64,
    version: Mutex<Version>,
}

/// Which version of the file the cached pages are of; all of it is from before any of them was read.
#[derive(Debug, Default)]
struct Version {
    attributes: Option<Attributes>,
    change: Option<u64>,
    /// What was read where the counter lay, before any of the pages: of this file if a reply says so too.
    unconfirmed: Option<u64>,
    /// Attributes and counter are known to be of one version.
    tagged: bool,
    counter: Option<(u64, Reference)>,
}

/// Writes that the server may still lose, and those since: should one be lost, it is sent again where they did not write.
#[derive(Debug, Default)]
pub struct Unstable {
    /// In the order of their replies.
    pub writes: Vec<KeptWrite>,
    /// Memory that they take, in bytes.
    pub bytes: u64,
    /// Others are being committed, and may turn out lost.
    pub committing: bool,
    /// What all files of the client take, of which this is a part.
    of_all: Arc<AtomicU64>,
}

/// A write that is kept until it, and all before it, are stable.
#[derive(Debug)]
pub struct KeptWrite {
    /// First byte.
    pub offset: u64,
    /// How many bytes were written.
    pub length: u64,
    /// The bytes, to be sent again; none if it is stable.
    pub data: Box<[u8]>,
    /// What the server said of it.
    pub fate: Fate,
}

/// What the server said of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It may be lost while the verifier is another than this (RFC 1813 section 3.3.7).
    Unstable([u8; 8]),
    /// It is never lost.
    Stable,
    /// Nothing, or no more than that it failed: it may have been done or not.
    Unanswered,
    /// It was lost, and takes the place of what was lost under it: it is sent again until that succeeds.
    Lost,
}

impl KeptWrite {
    /// Whether a server with this verifier has lost what it had answered.
    pub fn was_lost(&self, verifier: [u8; 8]) -> bool {
        match self.fate {
            Fate::Unstable(then) => then != verifier,
            Fate::Lost => true,
            Fate::Stable | Fate::Unanswered => false,
        }
    }

    /// Whether it is sent again to a server with this verifier that has lost some.
    pub fn is_lost(&self, verifier: [u8; 8]) -> bool {
        self.fate == Fate::Unanswered || self.was_lost(verifier)
    }
}

impl Unstable {
    /// Nothing yet; what is kept counts in `of_all` too.
    fn counted(of_all: Arc<AtomicU64>) -> Mutex<Self> {
        Mutex::new(Self {
            of_all,
            ..Self::default()
        })
    }

    fn set_bytes(&mut self, bytes: u64) {
        // In this order the sum of all never wraps.
        self.of_all.fetch_add(bytes, Relaxed);
        self.of_all.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
    }

    /// Keeps a write, if the server may lose it or an earlier one: that would be sent again, and must not hide this one.
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

    /// Puts writes in front of those that came meanwhile, so that the order is kept.
    pub fn put_back(&mut self, mut writes: Vec<KeptWrite>) {
        writes.append(&mut self.writes);
        let bytes = |write: &KeptWrite| (write.data.len() + size_of::<KeptWrite>()) as u64;
        self.set_bytes(writes.iter().map(bytes).sum());
        self.writes = writes;
    }

    /// All that is kept; nothing is, after that.
    pub fn take(&mut self) -> Vec<KeptWrite> {
        self.set_bytes(0);
        std::mem::take(&mut self.writes)
    }
}

/// The state of a file when a read began; what it read may be cached if that still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Generation of the cached pages.
    pub generation: u64,
    writes: u64,
}

impl FileState {
    /// A file of which nothing is known yet. What its writes take until they are stable counts in `unstable` too.
    pub fn new(
        number: u64,
        handle: Handle,
        record: Record,
        orders: Orders,
        unstable: Arc<AtomicU64>,
    ) -> Self {
        Self {
            number,
            handle,
            tree: Arc::new(Tree::default()),
            ahead: Ahead::default(),
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

    /// To be taken before a read is sent.
    pub fn moment(&self) -> Moment {
        Moment {
            generation: self.generation.load(Acquire),
            writes: self.writes.load(Acquire),
        }
    }

    /// The generation of the cached pages: those of others are of another version.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Is what was read since `moment` still the version that is cached? To be asked under the cache's lock.
    pub fn still(&self, moment: Moment) -> bool {
        self.moment() == moment
    }

    /// All cached pages are of an older version.
    pub fn drop_pages(&self) {
        self.generation.fetch_add(1, AcqRel);
    }

    /// A write of our own begins, or is over: what is read meanwhile is not cached.
    pub fn mark_write(&self) {
        self.writes.fetch_add(1, AcqRel);
    }

    /// Attributes as the server just told them on an open: are the cached pages of that version? Else they are dropped. What
    /// is cached from then on is of these attributes for as long as it is [`still`](Self::still) the moment returned.
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
        // Under the lock: whoever learns of another version drops the pages under it too.
        self.moment()
    }

    /// The change counter as it was just read.
    pub fn revalidate_change(&self, change: u64) -> bool {
        let mut version = self.version.lock();
        let same = version.change == Some(change);
        if !same {
            // What lies there may be another file's by now: the next reply says.
            version.change = None;
            version.unconfirmed = Some(change);
            version.tagged = false;
            self.drop_pages();
        }
        same
    }

    /// What the reply of a read says about the file: the change counter from before the read and the attributes from
    /// after it.
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
            // The file may have changed between the read and the look at its attributes: they are of a later version.
            version.tagged = false;
        }
        version.change = change.or(if same { version.change } else { None });
        if let Some(attributes) = attributes {
            version.attributes = Some(*attributes);
        }
    }

    /// A write of our own took the file from one version to the next. Returns its sizes before and after, if it did so
    /// alone; else all pages are dropped.
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
        // Pages that are not from before this are at least of these attributes; the others are dropped.
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

    /// Where the change counter can be read directly, in this session.
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

    /// Keeps where the change counter lies; `None`: nowhere any more, and its old place may be another file's.
    pub fn set_counter(&self, session: u64, reference: Option<Reference>) {
        let mut version = self.version.lock();
        match reference {
            Some(reference) => version.counter = Some((session, reference)),
            None => version.counter = version.counter.filter(|(of, _)| *of != session),
        }
    }

    /// The attributes as last told.
    pub fn attributes(&self) -> Option<Attributes> {
        self.version.lock().attributes
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
