//! One connection: the posts under way in two directions, and what has arrived.

use super::{NetworkConfig, Random};
use crate::clock::{self, Nanos};
use crate::fabric::{Access, Completion, Exposed, Fault, Remote, SteeringTag};
use crate::memory::mapping::Mapping;
use crate::memory::{Arena, ArenaView, FrameNumber, Region, Target};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};
use crate::wake::WakeSet;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Index of the connecting end.
pub const CLIENT: usize = 0;

/// Index of the accepting end.
pub const SERVER: usize = 1;

/// The most RDMA Reads that every connecting end accepts at a time.
const CLIENT_INBOUND_READS: u32 = 128;

/// A connection.
pub struct SimLink {
    config: NetworkConfig,
    client: u32,
    /// Number of bytes that the server's connections have registered.
    locked: Arc<AtomicUsize>,
    state: Mutex<LinkState>,
    changed: Condvar,
}

/// Memory that counts as locked until it is dropped.
pub struct Locked {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Both ends under one lock.
pub struct LinkState {
    pub cut: bool,
    random: Random,
    pub ends: [End; 2],
}

/// One end.
#[derive(Default)]
pub struct End {
    /// Posts of this end that are not flushed.
    pub posted: VecDeque<Post>,
    /// Posts of this end that are under way.
    wire: VecDeque<(Nanos, Post)>,
    /// Messages that have arrived at this end.
    pub inbox: VecDeque<Message>,
    pub completions: VecDeque<Completion>,
    pub receives: u32,
    /// The most RDMA Reads that the peer accepts at a time.
    pub reads_max: u32,
    /// The memory that the peer may name, by steering tag.
    pub memories: BTreeMap<u32, SimMemory>,
    /// Number of steering tags given so far.
    pub tags: u32,
    pub views: Vec<(Exposed, ArenaView)>,
    pub watch: Option<Arc<WakeSet>>,
}

/// What a steering tag names.
#[derive(Clone)]
pub enum SimMemory {
    Region {
        region: Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    },
    Exposed(Arc<Mapping>),
}

/// A message that has arrived.
pub struct Message {
    pub bytes: Vec<u8>,
    pub invalidated: Option<SteeringTag>,
}

impl SimMemory {
    /// The place of the bytes at `offset`, if the peer has this access to them.
    fn find(&self, at: u64, bytes: usize, wanted: Access) -> Option<(Target, usize)> {
        let at = usize::try_from(at).ok()?;
        match self {
            SimMemory::Region {
                region,
                offset,
                length,
                access,
            } => {
                let granted = (access.remote_read || !wanted.remote_read)
                    && (access.remote_write || !wanted.remote_write);
                let fits = at.checked_add(bytes).is_some_and(|end| end <= *length);
                (granted && fits).then(|| (Target::Region(Arc::clone(region)), offset + at))
            }
            SimMemory::Exposed(mapping) => {
                (!wanted.remote_write).then(|| (Target::Mapping(Arc::clone(mapping)), at))
            }
        }
    }
}

/// A post.
pub enum Post {
    Send(Message),
    Write {
        id: u64,
        from: Bytes,
        to: Remote,
    },
    Read {
        id: u64,
        into: Target,
        offset: usize,
        length: usize,
        from: Remote,
    },
}

/// The source of a Write.
pub enum Bytes {
    Taken(Vec<u8>),
    Frame {
        arena: Arc<Arena>,
        frame: FrameNumber,
        offset: u32,
        length: u32,
    },
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Bytes::Taken(bytes) => bytes.len(),
            Bytes::Frame { length, .. } => *length as usize,
        }
    }
}

impl SimLink {
    pub fn new(
        config: NetworkConfig,
        client: u32,
        seed: u64,
        inbound_reads: u32,
        locked: Arc<AtomicUsize>,
    ) -> Self {
        let [mut connecting, mut accepting] = [End::default(), End::default()];
        connecting.reads_max = inbound_reads;
        accepting.reads_max = CLIENT_INBOUND_READS;
        let state = LinkState {
            cut: false,
            random: Random(seed),
            ends: [connecting, accepting],
        };
        Self {
            config,
            client,
            locked,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    pub fn client(&self) -> u32 {
        self.client
    }

    /// Room for a region of the server, if its limit allows that.
    pub fn lock_memory(&self, bytes: usize) -> io::Result<Locked> {
        let before = self.locked.fetch_add(bytes, Ordering::Relaxed);
        let locked = Locked {
            all: Arc::clone(&self.locked),
            bytes,
        };
        match self.config.locked_max {
            max if max > 0 && before + bytes > max => {
                let why = "memory for RDMA may not be locked";
                Err(io::Error::new(io::ErrorKind::OutOfMemory, why))
            }
            _ => Ok(locked),
        }
    }

    pub fn is_cut(&self) -> bool {
        self.state.lock().cut
    }

    /// Ends the connection. What has not arrived never will.
    pub fn cut(&self) {
        self.end(&mut self.state.lock());
    }

    fn end(&self, state: &mut LinkState) {
        if std::mem::replace(&mut state.cut, true) {
            return;
        }
        for end in &mut state.ends {
            let lost = end
                .wire
                .drain(..)
                .map(|(_, post)| post)
                .chain(end.posted.drain(..));
            end.completions
                .extend(lost.filter_map(|post| post.completion(Err(Fault::Flushed))));
        }
        self.tell(state);
    }

    fn tell(&self, state: &LinkState) {
        self.changed.notify_all();
        state
            .ends
            .iter()
            .filter_map(|end| end.watch.as_ref())
            .for_each(|set| set.wake());
    }

    /// The state, after everything that is due by now.
    pub fn lock(&self) -> MutexGuard<'_, LinkState> {
        let mut state = self.state.lock();
        let now = clock::now();
        let mut moved = false;
        for from in [CLIENT, SERVER] {
            while let Some(post) = state.due(from, now, &self.config) {
                moved = true;
                if !state.arrive(from, post, self.config.bare) {
                    self.end(&mut state);
                }
            }
        }
        if moved {
            self.tell(&state);
        }
        state
    }

    /// Sends an end's posts, and may cut the connection there.
    pub fn flush(&self, from: usize) {
        let mut state = self.state.lock();
        if state.ends[from].posted.is_empty() {
            return;
        }
        if self.config.bare {
            state.ends[from].turn_reads();
        }
        let now = clock::now();
        while let Some(post) = state.ends[from].posted.pop_front() {
            let fate = state.random.next();
            if self.config.cut_one_in > 0 && fate.is_multiple_of(u64::from(self.config.cut_one_in))
            {
                state.ends[from].posted.push_front(post);
                return self.end(&mut state);
            }
            let delay = match self.config.delay_max.0 {
                0 => 0,
                max => state.random.next() % (max + 1),
            };
            let wire = &mut state.ends[from].wire;
            let before = wire.back().map_or(Nanos(0), |(due, _)| *due);
            wire.push_back(((now + Nanos(delay)).max(before), post));
        }
        drop(state);
        // What is due at once happens at once.
        let state = self.lock();
        self.tell(&state);
    }

    /// Unlocks until something has changed, the next post is due or `until` has come.
    pub fn wait(&self, state: MutexGuard<'_, LinkState>, until: Nanos) {
        let until = until.min(state.next_due(&self.config));
        if until == Nanos(u64::MAX) {
            drop(self.changed.wait(state));
        } else {
            let span = until.since(clock::now());
            drop(self.changed.wait_timeout(state, span));
        }
    }
}

impl End {
    /// Makes RDMA Reads that were posted one after the other see memory in the reverse order.
    fn turn_reads(&mut self) {
        let reads =
            |a: &Post, b: &Post| [a, b].iter().all(|post| matches!(post, Post::Read { .. }));
        for run in self.posted.make_contiguous().chunk_by_mut(reads) {
            run.reverse();
        }
    }
}

impl LinkState {
    /// When the next post arrives, if it only waits for time.
    pub fn next_due(&self, config: &NetworkConfig) -> Nanos {
        let fronts = [CLIENT, SERVER].map(|from| match self.ends[from].wire.front() {
            Some((due, post)) if !self.waits(from, post, config) => *due,
            _ => Nanos(u64::MAX),
        });
        fronts[CLIENT].min(fronts[SERVER])
    }

    /// Whether a post waits for a receive.
    fn waits(&self, from: usize, post: &Post, config: &NetworkConfig) -> bool {
        config.receives && matches!(post, Post::Send(_)) && self.ends[1 - from].receives == 0
    }

    /// Number of an end's RDMA Reads under way.
    pub fn reads(&self, from: usize) -> usize {
        let end = &self.ends[from];
        let posts = end
            .posted
            .iter()
            .chain(end.wire.iter().map(|(_, post)| post));
        posts
            .filter(|post| matches!(post, Post::Read { .. }))
            .count()
    }

    /// Whether there is something to poll.
    pub fn is_ready(&self, end: usize) -> bool {
        self.cut || !self.ends[end].completions.is_empty() || !self.ends[end].inbox.is_empty()
    }

    /// Number of posts and messages of an end that are under way, or have arrived and not been polled.
    pub fn in_flight(&self, from: usize) -> usize {
        let end = &self.ends[from];
        end.posted.len() + end.wire.len() + self.ends[1 - from].inbox.len()
    }

    /// Whether everything that an end has posted has arrived.
    pub fn has_left(&self, from: usize) -> bool {
        let end = &self.ends[from];
        end.posted.is_empty() && end.wire.is_empty()
    }

    fn due(&mut self, from: usize, now: Nanos, config: &NetworkConfig) -> Option<Post> {
        let (due, post) = self.ends[from].wire.front()?;
        if *due > now || self.waits(from, post, config) {
            return None;
        }
        self.ends[from].wire.pop_front().map(|(_, post)| post)
    }

    /// Returns `false` if what arrived ends the connection.
    fn arrive(&mut self, from: usize, post: Post, bare: bool) -> bool {
        if let Post::Send(message) = post {
            let to = &mut self.ends[1 - from];
            to.receives = to.receives.saturating_sub(1);
            if let Some(tag) = message.invalidated
                && (bare || !matches!(to.memories.remove(&tag.0), Some(SimMemory::Region { .. })))
            {
                return false;
            }
            to.inbox.push_back(message);
            return true;
        }
        let result = if self.execute(from, &post) {
            Ok(())
        } else {
            Err(Fault::RemoteAccess)
        };
        self.ends[from].completions.extend(post.completion(result));
        true
    }

    /// Does an RDMA operation of an end on the other's memory. Returns `false` if it may not.
    pub fn execute(&self, from: usize, post: &Post) -> bool {
        let find = |remote: &Remote, bytes: usize, access: Access| {
            let memory = self.ends[1 - from].memories.get(&remote.tag.0)?;
            memory.find(remote.offset, bytes, access)
        };
        match post {
            Post::Send(_) => true,
            Post::Write { from, to, .. } => match (find(to, from.len(), Access::WRITE), from) {
                (Some((Target::Region(region), at)), Bytes::Taken(bytes)) => {
                    region.store(at, bytes)
                }
                (
                    Some((Target::Region(region), at)),
                    Bytes::Frame {
                        arena,
                        frame,
                        offset,
                        length,
                    },
                ) => {
                    let length = *length as usize;
                    region.copy_from(
                        at,
                        arena.data(),
                        arena.place(*frame, *offset, length),
                        length,
                    )
                }
                _ => false,
            },
            Post::Read {
                into,
                offset,
                length,
                from,
                ..
            } => find(from, *length, Access::READ).is_some_and(|(source, at)| {
                into.memory()
                    .try_read(*offset, source.memory(), at, *length)
            }),
        }
    }
}

impl Post {
    fn completion(&self, result: Result<(), Fault>) -> Option<Completion> {
        match *self {
            Post::Send(_) => None,
            Post::Write { id, .. } => Some(Completion::Write { id, result }),
            Post::Read { id, .. } => Some(Completion::Read { id, result }),
        }
    }
}
