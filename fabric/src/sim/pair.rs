use super::link::{Bytes, LinkState, Message, Post, SERVER, SimLink, SimMemory};
use crate::clock::{self, Nanos};
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::memory::mapping::Mapping;
use crate::memory::{Arena, ArenaView, LifeWord, Region, Target};
use crate::sync::{Arc, MutexGuard};
use crate::wake::WakeSet;
use std::io;
use std::os::fd::BorrowedFd;

/// As on shm.
const MESSAGE_MAX: usize = 68 << 10;

/// The default limit for posts and messages of a direction.
const DEPTH: usize = 1024;

/// One end of a link.
pub struct Pair {
    link: Arc<SimLink>,
    end: usize,
    peer: Peer,
    private_data: Vec<u8>,
    reads_max: u32,
    message: Vec<u8>,
}

impl Pair {
    pub fn new(link: Arc<SimLink>, end: usize, peer: Peer, private_data: Vec<u8>) -> Self {
        let reads_max = link.lock().ends[end].reads_max;
        Self {
            link,
            end,
            peer,
            reads_max,
            private_data,
            message: Vec::new(),
        }
    }

    /// The state, if something may be posted.
    fn open(&self) -> Result<MutexGuard<'_, LinkState>, PostError> {
        let state = self.link.lock();
        let depth = match self.link.config().depth {
            0 => DEPTH,
            depth => depth as usize,
        };
        if state.cut {
            Err(PostError::Closed)
        } else if state.in_flight(self.end) >= depth {
            Err(PostError::Full)
        } else {
            Ok(state)
        }
    }

    /// Posts an RDMA operation, or does it at once.
    fn post(&self, post: Post) -> Result<Posted, PostError> {
        let mut state = self.open()?;
        if self.link.config().slow || self.link.config().bare {
            state.ends[self.end].posted.push_back(post);
            return Ok(Posted::Pending);
        }
        if state.execute(self.end, &post) {
            Ok(Posted::Done)
        } else {
            Err(PostError::BadRange)
        }
    }

    /// Ends the connection.
    pub fn cut(&self) {
        self.link.cut();
    }

    fn enter(&self, memories: impl IntoIterator<Item = SimMemory>) -> io::Result<u32> {
        let mut state = self.open()?;
        let end = &mut state.ends[self.end];
        let first = end.tags + 1;
        for memory in memories {
            end.tags += 1;
            end.memories.insert(end.tags, memory);
        }
        Ok(first)
    }

    fn send(&self, parts: &[&[u8]], invalidated: Option<SteeringTag>) -> Result<Posted, PostError> {
        let bytes = parts.concat();
        if bytes.len() > MESSAGE_MAX {
            return Err(PostError::TooLong);
        }
        let message = Message { bytes, invalidated };
        self.open()?.ends[self.end]
            .posted
            .push_back(Post::Send(message));
        Ok(Posted::Done)
    }
}

impl QueuePair for Pair {
    fn post_receives(&mut self, count: u32) {
        let mut state = self.link.lock();
        let receives = &mut state.ends[self.end].receives;
        *receives = receives.saturating_add(count);
        drop(state);
        // A message may have waited for this.
        drop(self.link.lock());
    }

    fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.send(parts, None)
    }

    fn post_send_invalidate(
        &mut self,
        _id: u64,
        parts: &[&[u8]],
        invalidate: SteeringTag,
    ) -> Result<Posted, PostError> {
        self.send(parts, Some(invalidate))
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        let from = match from {
            Source::Bytes(bytes) => Bytes::Taken(bytes.to_vec()),
            Source::Frame {
                arena,
                frame,
                offset,
                length,
            } => {
                arena.place(frame, offset, length as usize);
                Bytes::Frame {
                    arena: Arc::clone(arena),
                    frame,
                    offset,
                    length,
                }
            }
        };
        self.post(Post::Write { id, from, to })
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        let (into, offset, length) = Target::of_sink(into)?;
        if self.open()?.reads(self.end) >= self.reads_max() as usize {
            return Err(PostError::Full);
        }
        self.post(Post::Read {
            id,
            into,
            offset,
            length,
            from,
        })
    }

    fn reads_max(&self) -> u32 {
        self.reads_max
    }

    fn flush(&mut self) {
        self.link.flush(self.end);
    }

    fn poll(&mut self) -> Option<Completion> {
        self.message.clear();
        let mut state = self.link.lock();
        let end = &mut state.ends[self.end];
        if let Some(completion) = end.completions.pop_front() {
            return Some(completion);
        }
        let Message { bytes, invalidated } = end.inbox.pop_front()?;
        self.message = bytes;
        Some(Completion::Recv {
            bytes: self.message.len() as u32,
            invalidated,
        })
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.message.clear();
        self.link.lock().ends[self.end].completions.pop_front()
    }

    fn is_quiet(&mut self) -> bool {
        let state = self.link.lock();
        let end = &state.ends[self.end];
        !state.cut && end.completions.is_empty() && end.inbox.is_empty()
    }

    fn is_settled(&mut self) -> bool {
        let state = self.link.lock();
        state.cut || state.has_left(self.end)
    }

    fn message(&self) -> &[u8] {
        &self.message
    }

    fn arm(&mut self) -> bool {
        let state = self.link.lock();
        if state.is_ready(self.end) {
            return false;
        }
        if let Some(set) = &state.ends[self.end].watch {
            set.wake_at(state.next_due(self.link.config()));
        }
        true
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.link.lock().ends[self.end].watch = Some(Arc::clone(set));
        set.wake();
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.link.flush(self.end);
        let until = timeout.map_or(Nanos(u64::MAX), |span| clock::now() + span);
        loop {
            let state = self.link.lock();
            if state.is_ready(self.end) {
                let end = &state.ends[self.end];
                let over = state.cut && end.inbox.is_empty() && end.completions.is_empty();
                return if over { Err(PostError::Closed) } else { Ok(()) };
            }
            if clock::now() >= until {
                return Ok(());
            }
            self.link.wait(state, until);
        }
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        if length == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an empty region",
            ));
        }
        let mut state = self.open()?;
        let end = &mut state.ends[self.end];
        end.tags += 1;
        let (memory, tag) = (Mapping::new(length)?, SteeringTag(end.tags));
        let region = Arc::new(match self.end {
            SERVER => Region::charged(memory, tag, Box::new(self.link.lock_memory(length)?)),
            _ => Region::new(memory, tag),
        });
        let memory = SimMemory::Region {
            region: Arc::clone(&region),
            offset: 0,
            length,
            access,
        };
        end.memories.insert(end.tags, memory);
        Ok(region)
    }

    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        if self.link.config().bare {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if !region.memory().holds(offset, length) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "beyond the region",
            ));
        }
        let memory = SimMemory::Region {
            region: Arc::clone(region),
            offset,
            length,
            access,
        };
        Ok(Remote {
            tag: SteeringTag(self.enter([memory])?),
            offset: 0,
        })
    }

    fn invalidate(&mut self, tag: SteeringTag) {
        self.link.lock().ends[self.end].memories.remove(&tag.0);
    }

    /// As on a device, where tags are bound after the posts that the peer has not accepted yet.
    fn ends_at_once(&mut self, _tag: SteeringTag) -> bool {
        !self.link.config().receives || self.link.lock().in_flight(self.end) == 0
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        match self.link.config().bare {
            true => RemoteInvalidation::Never,
            false => RemoteInvalidation::Any,
        }
    }

    fn read_order(&self) -> ReadOrder {
        let config = self.link.config();
        match (config.bare, config.rising) {
            (false, _) => ReadOrder::Ordered,
            (true, true) => ReadOrder::Rising,
            (true, false) => ReadOrder::Fence,
        }
    }

    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed> {
        let view = ArenaView::of(arena, life)?;
        let memories =
            [arena.data(), arena.stamps()].map(|mapping| SimMemory::Exposed(Arc::clone(mapping)));
        let tag = self.enter(memories)?;
        let [arena, stamps] = [tag, tag + 1].map(|tag| Remote {
            tag: SteeringTag(tag),
            offset: 0,
        });
        let exposed = Exposed { arena, stamps };
        self.link.lock().ends[self.end].views.push((exposed, view));
        Ok(exposed)
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        if !self.link.config().loads {
            return Ok(None);
        }
        let state = self.link.lock();
        let view = state.ends[1 - self.end]
            .views
            .iter()
            .find(|(tags, _)| tags == exposed);
        let view = view.map(|(_, view)| view.clone());
        view.map(Some).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the server exposed no such arena")
        })
    }

    fn max_message(&self) -> usize {
        MESSAGE_MAX
    }

    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn is_closed(&self) -> bool {
        self.link.lock().cut
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.link.cut();
        // Nobody can know what was registered here any more.
        let memories = std::mem::take(&mut self.link.lock().ends[self.end].memories);
        drop(memories);
    }
}
