//! The queue pair as the trait has it.

use super::regions::exposed;
use super::{
    DATA, EndRole, Pair, REGISTER, REGISTER_BURST, SHORT, SLEEP_MAX, TAGS_MAX, TaggedMemory,
    WRITE_PREPARED,
};
use crate::clock::Nanos;
use crate::fabric::{
    self, Access, Completion, Exposed, MARKS_BYTES, Peer, PostError, Posted, QueuePair, ReadOrder,
    Remote, RemoteInvalidation, Sink, Source,
};
use crate::memory::{Arena, ArenaView, LifeWord, Region};
use crate::shm::protocol::Sleeper;
use crate::shm::ring::{MESSAGE_MAX, Taken};
use crate::shm::socket::Packet;
use crate::wake::{Bell, WakeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

impl QueuePair for Pair {
    /// The flow control is the room in the ring.
    fn post_receives(&mut self, _count: u32) {}

    #[inline]
    fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.open()?;
        let posted = self.out.post(DATA, self.into.release(), parts);
        self.posted(posted)
    }

    fn post_gather(&mut self, _id: u64, parts: &[Source<'_>]) -> Result<Posted, PostError> {
        self.open()?;
        let posted = self.out.post_gather(DATA, self.into.release(), parts);
        self.posted(posted)
    }

    #[inline]
    fn post_write(&mut self, _id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.open()?;
        let TaggedMemory::Shared(region) = self.memory(to.tag)? else {
            return Err(PostError::BadRange);
        };
        let offset = usize::try_from(to.offset).map_err(|_| PostError::BadRange)?;
        let written = match from {
            Source::Bytes(bytes) => region.store(offset, bytes),
            Source::Frame {
                arena,
                frame,
                offset: at,
                length,
            } => {
                let at = arena.place(frame, at, length as usize);
                region.copy_from(offset, arena.data(), at, length as usize)
            }
        };
        if written {
            self.writes.wrote(to);
            Ok(Posted::Done)
        } else {
            Err(PostError::BadRange)
        }
    }

    fn post_write_marked(
        &mut self,
        id: u64,
        from: Source<'_>,
        to: Remote,
        mark: u64,
    ) -> Result<Posted, PostError> {
        let Source::Frame {
            arena,
            frame,
            offset: at,
            length,
        } = from
        else {
            return self.post_write(id, from, to);
        };
        self.open()?;
        let TaggedMemory::Shared(region) = self.memory(to.tag)? else {
            return Err(PostError::BadRange);
        };
        let offset = usize::try_from(to.offset).map_err(|_| PostError::BadRange)?;
        let length = length as usize;
        let at = arena.place(frame, at, length);
        let step = fabric::mark_step(length);
        let marks = if step < length { MARKS_BYTES } else { 0 };
        let mut written = region.memory().holds(offset, length + marks);
        if !written {
            return Err(PostError::BadRange);
        }
        for (n, start) in (0..length).step_by(step.max(1)).enumerate() {
            written &= region.copy_from(offset + start, arena.data(), at + start, step);
            if start + step < length {
                written &= region.mark(offset + length + n * 64, mark);
            }
        }
        if written {
            self.writes.wrote(to);
            Ok(Posted::Done)
        } else {
            Err(PostError::BadRange)
        }
    }

    #[inline]
    fn post_read(&mut self, _id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.open()?;
        let memory = match self.memory(from.tag)? {
            TaggedMemory::Shared(region) => region.memory(),
            TaggedMemory::Exposed(memory) => memory,
            TaggedMemory::Own => return Err(PostError::BadRange),
        };
        let at = usize::try_from(from.offset).map_err(|_| PostError::BadRange)?;
        let read = match into {
            Sink::Region(into) => {
                let region = into.region.memory();
                region.try_read(into.offset, memory, at, into.length)
            }
            Sink::Frame {
                arena,
                frame,
                offset,
                length,
            } => {
                let place = arena.place(frame, offset, length as usize);
                arena.data().try_read(place, memory, at, length as usize)
            }
        };
        if read {
            Ok(Posted::Done)
        } else {
            Err(PostError::BadRange)
        }
    }

    /// These end at once.
    fn reads_max(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn flush(&mut self) {
        if let Some(sleeper) = self.out.flush() {
            self.wake(sleeper);
        }
        if let Some(next) = self.writes.flushed()
            && let Ok(TaggedMemory::Shared(region)) = self.memory(next.tag)
        {
            region
                .memory()
                .prefetch_to_write(next.offset as usize, WRITE_PREPARED);
        }
    }

    #[inline]
    fn poll(&mut self) -> Option<Completion> {
        self.poll_front(usize::MAX)
    }

    #[inline]
    fn load_message(&self, offset: usize, into: &mut [u8]) -> bool {
        let message = self.message();
        match message
            .get(offset..)
            .and_then(|rest| rest.get(..into.len()))
        {
            Some(part) => into.copy_from_slice(part),
            None => return self.into.load(offset, into),
        }
        true
    }

    #[inline]
    fn poll_front(&mut self, front: usize) -> Option<Completion> {
        self.length = 0;
        if std::mem::take(&mut self.armed) {
            self.into.disarm();
        }
        for _ in 0..REGISTER_BURST {
            if self.closed {
                self.last_messages = self.last_messages.checked_sub(1)?;
            }
            match self.into.take(&mut self.message, front.max(SHORT)) {
                Taken::Message {
                    kind,
                    length,
                    heard,
                } => {
                    if !self.out.hear(heard) {
                        self.close(&"the peer told of messages that were never sent");
                        self.last_messages = 0;
                        return None;
                    }
                    if self.into.tell() {
                        // It may wait for room where it waits for messages.
                        self.wake(self.out.sleeper().unwrap_or(Sleeper::Socket));
                    }
                    self.empty_polls = 0;
                    let copied = length.min(front.max(SHORT));
                    match kind {
                        DATA => {
                            self.length = copied;
                            return Some(Completion::Recv {
                                bytes: length as u32,
                                invalidated: None,
                            });
                        }
                        REGISTER => self.serve_registration(copied),
                        _ => self.close(&"a message of an unknown kind"),
                    }
                }
                Taken::Nothing => {
                    if self.is_due() {
                        self.look_at_socket();
                    }
                    return None;
                }
                Taken::Nonsense => {
                    self.close(&"a message of an impossible length");
                    self.last_messages = 0;
                    return None;
                }
            }
        }
        None
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.length = 0;
        let rung = self.bell.as_ref().is_none_or(Bell::take);
        if rung || self.is_due() {
            self.look_at_socket();
        }
        None
    }

    /// Posted messages lie in the ring, where the peer finds them even after this end is gone.
    fn is_settled(&mut self) -> bool {
        true
    }

    #[inline]
    fn message(&self) -> &[u8] {
        &self.message[..self.length]
    }

    #[inline]
    fn is_quiet(&mut self) -> bool {
        if self.is_due() {
            self.look_at_socket();
        }
        !self.closed && !self.armed && !self.into.is_ready()
    }

    fn arm(&mut self) -> bool {
        // A pair in no wake set learns only here that its peer has ended.
        if self.bell.as_ref().is_none_or(Bell::take) {
            self.take_wake_up();
        }
        self.arm_ring(Sleeper::Socket)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.bell = Some(set.add(self.socket.as_fd())?);
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.flush();
        if self.arm_ring(Sleeper::Word) {
            if self.into.is_ended() {
                // The peer found nobody asleep whom it could wake.
                self.look_at_socket();
            }
            if !self.closed {
                self.into
                    .sleep(timeout.map_or(SLEEP_MAX, |timeout| timeout.min(SLEEP_MAX)));
            }
            // No message has come, so it is the peer's end, a packet, or nothing.
            if !self.into.is_ready() {
                self.look_at_socket();
            }
        }
        if self.closed && !self.into.is_ready() {
            Err(PostError::Closed)
        } else {
            Ok(())
        }
    }

    fn register(&mut self, length: usize, _access: Access) -> io::Result<Arc<Region>> {
        self.open()?;
        match self.role {
            EndRole::Server { .. } => self.make_region(length as u64, 0),
            EndRole::Client { .. } => self.ask_for_region(length as u64),
        }
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        RemoteInvalidation::Never
    }

    fn read_order(&self) -> ReadOrder {
        ReadOrder::Ordered
    }

    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed> {
        self.open()?;
        let tag = self.memories.len() as u32 + 1;
        if tag >= TAGS_MAX || matches!(self.role, EndRole::Client { .. }) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "only a server exposes, and not that often",
            ));
        }
        let (shared, layout) = (arena.shared(), arena.layout());
        let packet = Packet::Exposed {
            arena: tag,
            stamps: tag + 1,
            page: layout.page().bytes() as u32,
            beside: layout.is_beside(),
            life: life.life(),
        };
        self.socket.send(
            &packet,
            &[shared.data.as_fd(), shared.stamps.as_fd(), life.shared()],
        )?;
        self.memories.extend([TaggedMemory::Own, TaggedMemory::Own]);
        Ok(exposed(tag, tag + 1))
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        self.look_at_socket();
        let EndRole::Client { views, .. } = &self.role else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match views.iter().find(|(tags, ..)| tags == exposed) {
            Some((_, view, _)) => Ok(Some(view.clone())),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the server exposed no such arena",
            )),
        }
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
        self.closed
    }
}
