//! The duplicate request cache: a call that is sent again is not served again.
//!
//! A client that gets no reply in time sends its call again, often over another connection. That is harmless for a READ.
//! But a second REMOVE would answer "no such file" for a file that the first one removed. So the server keeps the replies
//! to such calls for a while. The cache knows messages and no transport: what it keeps has no record marks.
//!
//! Each client has replies of its own, and the replies to WRITEs are apart from the others. So a flood of one client costs
//! no other client its replies, and a client's data do not cost it the replies to its REMOVEs. A reply is forgotten after
//! two minutes, as with other servers. It is also forgotten when its client changes a name that it is about, on the same
//! connection: a client that removes a directory has had the answer to its MKDIR, and a call that looks like that MKDIR is
//! a new one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use lru::LruCache;
use odafs_common::wire::rpc::{self, Auth, CallHeader};
use odafs_fabric::Peer;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::{Arc, Mutex};
use odafs_nic::calls::Back;

use crate::vfs::sessions::PeerKey;

/// What tells a repeated call from a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    peer: PeerKey,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    /// Of the credential and the arguments. It tells a repeated call from one of a client that starts its xids anew.
    checksum: u64,
    length: usize,
}

/// What the cache knows of a call.
#[derive(Debug)]
pub enum Seen {
    /// Nothing: serve it, and give the reply to the [`InProgress`].
    New(InProgress),
    /// It is being served: do not reply. [`InProgress::served`] tells where the reply goes too.
    InProgress,
    /// It was served, with this reply.
    Served(Arc<[u8]>),
}

/// Whoever makes a call.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The peer.
    pub peer: &'a Peer,
    /// The way back over its connection, if a reply can go there that comes later than its call.
    pub back: Option<&'a Arc<dyn Back>>,
}

impl<'a> From<&'a Peer> for Asker<'a> {
    fn from(peer: &'a Peer) -> Self {
        Self { peer, back: None }
    }
}

/// What a repetition of a call would do. The replies to `Write` and `Change` are kept in this cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats<'a> {
    /// No harm: the call is idempotent.
    Harmless,
    /// No harm: its program remembers the reply itself, as the slots of a session do (RFC 8881, section 2.10.6).
    Remembered,
    /// It would write data again, over what others wrote since.
    Write,
    /// It would change something again, or fail because it is done. The results begin with a status, 0 for success.
    Change {
        /// The names that it is about: handle of the directory, and name.
        names: [Option<(&'a [u8], &'a [u8])>; 2],
    },
}

/// How many replies the cache keeps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// To changes, for each client.
    pub changes: usize,
    /// To WRITEs, for each client.
    pub writes: usize,
    /// In all. Beyond that, the client that has been silent for longest loses its replies.
    pub total: usize,
    /// How long. Clients repeat a call after a minute, or after they have connected again.
    pub age: Nanos,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            changes: 1024,
            writes: 256,
            total: 32 << 10,
            age: Nanos::from_secs(120),
        }
    }
}

/// The cache. Holds a bounded number of replies, and none above a bounded size.
#[derive(Debug)]
pub struct DuplicateCache {
    calls: Arc<Mutex<Calls>>,
    seed: RandomState,
}

#[derive(Debug)]
struct Calls {
    bounds: Bounds,
    /// Apart from the replies, so that no call under way is forgotten. The transports bound how many there are. With the way
    /// back to whoever repeated the call last.
    in_progress: HashMap<Key, Option<Arc<dyn Back>>>,
    clients: LruCache<PeerKey, Client>,
    /// Replies in all.
    kept: usize,
}

/// The replies to one client.
#[derive(Debug)]
struct Client {
    changes: LruCache<Key, Served>,
    /// Of `changes`, the keys of those that are about a name.
    about: HashMap<(u64, Option<u16>), HashSet<Key>>,
    writes: LruCache<Key, Served>,
}

#[derive(Debug)]
struct Served {
    reply: Arc<[u8]>,
    at: Nanos,
    names: Names,
    port: Option<u16>,
}

impl Served {
    /// The names that it is about, with its port.
    fn of_port(&self) -> impl Iterator<Item = (u64, Option<u16>)> + use<> {
        let port = self.port;
        self.names
            .into_iter()
            .flatten()
            .map(move |name| (name, port))
    }
}

/// The names that a call is about, hashed.
type Names = [Option<u64>; 2];

/// The longest reply that is kept, in bytes. Replies to calls that change something are short.
const REPLY_BYTES_MAX: usize = 512;

impl DuplicateCache {
    /// Keeps so many replies.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            calls: Arc::new(Mutex::new(Calls {
                bounds,
                in_progress: HashMap::new(),
                clients: LruCache::unbounded(),
                kept: 0,
            })),
            seed: RandomState::new(),
        }
    }

    /// Looks a call up, and remembers it as in progress if it is new. `arguments` are the bytes on the wire.
    pub fn begin<'a, 'p>(
        &self,
        from: impl Into<Asker<'p>>,
        header: &CallHeader<'_>,
        arguments: impl Into<Gather<'a>>,
        repeats: Repeats<'_>,
    ) -> Seen {
        let (arguments, Asker { peer, back }) = (arguments.into(), from.into());
        let key = Key {
            peer: peer.into(),
            xid: header.xid,
            program: header.program,
            version: header.version,
            procedure: header.procedure,
            checksum: checksum(self.credential(header), &arguments),
            length: arguments.len(),
        };
        let names = match repeats {
            Repeats::Change { names } => names.map(|name| Some(self.seed.hash_one(name?))),
            Repeats::Write | Repeats::Harmless | Repeats::Remembered => Names::default(),
        };
        let writes = repeats == Repeats::Write;
        let mut calls = self.calls.lock();
        if let Some(reply) = calls.reply(&key, writes) {
            return Seen::Served(reply);
        }
        match calls.in_progress.entry(key) {
            Entry::Occupied(mut asked) => {
                if let Some(back) = back {
                    *asked.get_mut() = Some(Arc::clone(back));
                }
                return Seen::InProgress;
            }
            Entry::Vacant(new) => drop(new.insert(None)),
        }
        Seen::New(InProgress {
            calls: self.calls.clone(),
            key,
            writes,
            names,
            port: match peer {
                Peer::Address(address) => Some(address.port()),
                Peer::Uid { .. } | Peer::Simulated(_) => None,
            },
        })
    }

    /// Of the ids alone, because a repeated call may have another stamp.
    fn credential(&self, header: &CallHeader<'_>) -> u64 {
        match &header.credential {
            Auth::None => self.seed.hash_one(0_u32),
            Auth::Sys(sys) => self
                .seed
                .hash_one((1_u32, sys.uid, sys.gid, sys.gids.as_slice())),
            Auth::Other { flavor, body } => self.seed.hash_one((flavor, body)),
        }
    }
}

impl Calls {
    fn reply(&mut self, key: &Key, writes: bool) -> Option<Arc<[u8]>> {
        let bounds = self.bounds;
        let served = self.clients.get_mut(&key.peer)?.replies(writes).get(key)?;
        let young = clock::now().since(served.at) <= bounds.age;
        young.then(|| served.reply.clone())
    }

    /// Keeps a reply, and forgets the replies that are obsolete since the call.
    fn keep(&mut self, key: Key, writes: bool, served: Served, changed: bool) {
        let bounds = self.bounds;
        let client = self.clients.get_or_insert_mut(key.peer, || Client {
            changes: LruCache::unbounded(),
            about: HashMap::new(),
            writes: LruCache::unbounded(),
        });
        let before = client.len();
        if changed {
            client.forget(&served.names, served.port);
        }
        if served.reply.len() <= REPLY_BYTES_MAX {
            client.put(key, writes, served);
        }
        while client.changes.len() > bounds.changes
            && let Some((key, oldest)) = client.changes.pop_lru()
        {
            client.is_gone(key, &oldest);
        }
        while client.writes.len() > bounds.writes {
            client.writes.pop_lru();
        }
        self.kept = self.kept - before + client.len();
        while self.kept > bounds.total
            && let Some((_, silent)) = self.clients.pop_lru()
        {
            self.kept -= silent.len();
        }
    }
}

impl Client {
    fn replies(&mut self, writes: bool) -> &mut LruCache<Key, Served> {
        match writes {
            true => &mut self.writes,
            false => &mut self.changes,
        }
    }

    fn len(&self) -> usize {
        self.changes.len() + self.writes.len()
    }

    /// Forgets the replies that are about one of the names and went to the same port. Several clients may share an
    /// address, and a change by one of them does not say what another has received.
    fn forget(&mut self, names: &Names, port: Option<u16>) {
        for name in names.iter().flatten() {
            for key in self.about.remove(&(*name, port)).unwrap_or_default() {
                if let Some(overtaken) = self.changes.pop(&key) {
                    self.is_gone(key, &overtaken);
                }
            }
        }
    }

    fn put(&mut self, key: Key, writes: bool, served: Served) {
        let names = served.of_port();
        if let Some(earlier) = self.replies(writes).put(key, served) {
            self.is_gone(key, &earlier);
        }
        for name in names {
            self.about.entry(name).or_default().insert(key);
        }
    }

    /// A reply is kept no longer.
    fn is_gone(&mut self, key: Key, served: &Served) {
        for name in served.of_port() {
            if let Entry::Occupied(mut about) = self.about.entry(name) {
                about.get_mut().remove(&key);
                if about.get().is_empty() {
                    about.remove();
                }
            }
        }
    }
}

/// A call that is being served. If it is dropped without [`InProgress::served`], the cache forgets the call.
#[derive(Debug)]
pub struct InProgress {
    calls: Arc<Mutex<Calls>>,
    key: Key,
    writes: bool,
    names: Names,
    port: Option<u16>,
}

impl InProgress {
    /// The call has been served with this reply. Returns the way back to whoever has repeated it last: the reply goes there too,
    /// because the connection of the first call may be gone.
    pub fn served(self, reply: &[u8]) -> Option<Arc<dyn Back>> {
        let results = rpc::parse_reply(reply)
            .ok()
            .and_then(|reply| reply.body.ok());
        let changed = results.is_some_and(|mut results| results.u32() == Ok(0));
        let served = Served {
            reply: reply.into(),
            at: clock::now(),
            names: self.names,
            port: self.port,
        };
        let mut calls = self.calls.lock();
        calls.keep(self.key, self.writes, served, changed);
        calls.in_progress.get_mut(&self.key)?.take()
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.calls.lock().in_progress.remove(&self.key);
    }
}

/// A checksum that runs at the speed of memory (a WRITE brings a mebibyte): four lanes of multiply and rotate. It guards
/// against accidents. A client that forges one deceives only itself.
fn checksum(seed: u64, bytes: &Gather<'_>) -> u64 {
    let mut sum = Checksum {
        lanes: [seed, !seed, seed.rotate_left(32), seed ^ Checksum::FACTOR],
        begun: [0; Checksum::BLOCK],
        held: 0,
    };
    bytes.look(|piece| sum.add(piece));
    sum.finish(bytes.len())
}

/// A checksum of bytes that come piece by piece.
struct Checksum {
    lanes: [u64; 4],
    /// The block that is not complete yet.
    begun: [u8; Self::BLOCK],
    /// Bytes of it.
    held: usize,
}

impl Checksum {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    /// A word for each lane.
    const BLOCK: usize = 32;

    fn add(&mut self, mut bytes: &[u8]) {
        if self.held > 0 {
            let (more, rest) = bytes.split_at(bytes.len().min(Self::BLOCK - self.held));
            self.begun[self.held..][..more.len()].copy_from_slice(more);
            self.held += more.len();
            bytes = rest;
            if self.held < Self::BLOCK {
                return;
            }
            let block = self.begun;
            self.mix(&block);
        }
        let (blocks, rest) = bytes.as_chunks::<{ Self::BLOCK }>();
        blocks.iter().for_each(|block| self.mix(block));
        self.begun[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }

    fn mix(&mut self, block: &[u8; Self::BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = Self::mixed(*lane, u64::from_le_bytes(*word));
        }
    }

    fn mixed(state: u64, word: u64) -> u64 {
        (state ^ word).wrapping_mul(Self::FACTOR).rotate_left(29)
    }

    /// The checksum, of `length` bytes in all.
    fn finish(mut self, length: usize) -> u64 {
        let rest = self.begun[..self.held].chunks(8);
        for (lane, word) in self.lanes.iter_mut().zip(rest) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            *lane = Self::mixed(*lane, u64::from_le_bytes(padded));
        }
        self.lanes.into_iter().fold(length as u64, Self::mixed)
    }
}

#[cfg(test)]
mod tests;
