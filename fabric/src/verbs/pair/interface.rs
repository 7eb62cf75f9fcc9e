//! The queue pair as the trait has it.

use super::{EVENTS, Event, Held, Kept, Pair, What};
use crate::clock::Nanos;
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::memory::{Arena, LifeWord, Target};
use crate::verbs::device::remote_invalidation;
use crate::verbs::domain::{SLOT_BYTES, Window};
use crate::verbs::queue::{GatherEntry, Work};
use crate::wake::WakeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

impl QueuePair for Pair {
    fn post_receives(&mut self, count: u32) {
        self.wanted = self.wanted.saturating_add(count);
        self.fill_receives();
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
        self.open()?;
        let (arena, frame, offset, length) = match from {
            Source::Bytes([]) => return Ok(Posted::Done),
            Source::Frame { length: 0, .. } => return Ok(Posted::Done),
            Source::Bytes(bytes) => return self.write_bytes(bytes, to),
            Source::Frame {
                arena,
                frame,
                offset,
                length,
            } => (arena, frame, offset, length),
        };
        self.room(1)?;
        let registration = self.arena(arena)?;
        let at = arena.place(frame, offset, length as usize);
        let work = Work::Write {
            tag: to.tag,
            address: to.offset,
        };
        let piece = GatherEntry {
            address: registration.address(at, length as usize),
            length,
            key: registration.local_key(),
        };
        let kept = Kept::Registration(registration);
        self.post(&work, Some(piece), What::Write(id), kept);
        Ok(Posted::Pending)
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.open()?;
        let (target, at, length) = Target::of_sink(into)?;
        if length == 0 {
            return Ok(Posted::Done);
        }
        if self.reads >= self.reads_max {
            self.reap();
            self.open()?;
            if self.reads >= self.reads_max {
                return Err(PostError::Full);
            }
        }
        self.room(1)?;
        let registration = match (&into, &target) {
            (Sink::Frame { arena, .. }, _) => self.arena(arena)?,
            (_, Target::Region(region)) => {
                let known = self.registered(region).ok_or(PostError::BadRange)?;
                Arc::clone(known)
            }
            (Sink::Region(_), Target::Mapping(_)) => return Err(PostError::BadRange),
        };
        let work = Work::Read {
            tag: from.tag,
            address: from.offset,
        };
        let piece = GatherEntry {
            address: registration.address(at, length),
            length: u32::try_from(length).map_err(|_| PostError::BadRange)?,
            key: registration.local_key(),
        };
        self.reads += 1;
        let kept = Kept::Registration(registration);
        self.post(&work, Some(piece), What::Read(id), kept);
        self.wakeup.read_posted();
        Ok(Posted::Pending)
    }

    fn reads_max(&self) -> u32 {
        self.reads_max
    }

    fn flush(&mut self) {
        self.ring();
    }

    fn poll(&mut self) -> Option<Completion> {
        self.message_bytes = 0;
        if self.events.is_empty() {
            self.look();
        }
        match self.events.pop_front()? {
            Event::Over(completion) => Some(completion),
            Event::Came {
                slot,
                bytes,
                invalidated,
            } => {
                let completion = self.arrived(&slot, bytes, invalidated);
                drop(slot);
                self.fill_receives();
                Some(completion)
            }
        }
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.message_bytes = 0;
        self.look();
        let over = |event: &Event| matches!(event, Event::Over(_));
        let first = self.events.iter().position(over)?;
        match self.events.remove(first)? {
            Event::Over(completion) => Some(completion),
            Event::Came { .. } => None,
        }
    }

    fn is_settled(&mut self) -> bool {
        self.ring();
        if !self.closed {
            self.reap();
        }
        self.closed || self.flights.is_empty()
    }

    fn message(&self) -> &[u8] {
        &self.message[..self.message_bytes]
    }

    fn arm(&mut self) -> bool {
        if self.events.is_empty() && !self.closed {
            self.heed(self.waiting.ready(), EVENTS);
        }
        self.ask_to_be_woken()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waiting.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        set.add(self.waiting.as_fd())?;
        self.set = Some(Arc::clone(set));
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.flush();
        let wakeup = self.wakeup();
        if self.ask_to_be_woken() {
            let timeout = timeout.into_iter().chain(wakeup).min();
            let ready = self.waiting.wait(timeout);
            self.heed(ready, 1);
        }
        match self.closed && self.events.is_empty() {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.open()?;
        if length == 0 {
            return Err(invalid("an empty region"));
        }
        self.queue.open(access)?;
        let (registration, region) = self.domain.region(length, access)?;
        self.table
            .insert(region.tag().0, Held::Region(registration));
        Ok(region)
    }

    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        if !region.memory().holds(offset, length) || length == 0 {
            return Err(invalid("beyond the region"));
        }
        self.room(1)?;
        let windows = self.domain.context().has_windows();
        let registration = match region.is_own() {
            // Known for this use alone: its owner has it back when the tag has ended.
            true if windows => self.registered_for(region, offset, length, Access::LOCAL)?,
            true => self.registered_for(region, offset, length, access)?,
            false => {
                let known = self.registered(region).cloned();
                known.ok_or_else(|| invalid("a region of another connection"))?
            }
        };
        self.queue.open(access)?;
        let address = registration.address(offset, length);
        let (tag, held) = if windows {
            let spare = self.spare.pop();
            let mut window = spare.map_or_else(|| Window::new(self.domain.pd()), Ok)?;
            window.prepare(&registration);
            let work = Work::Bind {
                window: &window,
                address,
                length: length as u64,
                access,
            };
            let number = self.next;
            let kept = Kept::Registration(registration);
            self.post(&work, None, What::Quiet, kept);
            (window.tag(), Held::Window(window, number))
        } else {
            let own = match region.is_own() {
                true => registration,
                false => self.registered_for(region, offset, length, access)?,
            };
            (own.tag(), Held::Region(own))
        };
        self.table.insert(tag.0, held);
        Ok(Remote {
            tag,
            offset: address,
        })
    }

    fn invalidate(&mut self, tag: SteeringTag) {
        match self.table.remove(&tag.0) {
            None => {}
            Some(Held::Window(window, bound)) => self.end_window(window, bound),
            Some(Held::Region(registration)) => {
                // Windows first: a region does not go while there are some.
                let of_it = |held: &Held| matches!(held, Held::Window(window, _) if window.is_of(&registration));
                let windows: Vec<u32> = self
                    .table
                    .iter()
                    .filter(|(_, held)| of_it(held))
                    .map(|(tag, _)| *tag)
                    .collect();
                for window in windows {
                    self.invalidate(SteeringTag(window));
                }
                if !registration.end() {
                    self.close_failed(&"the peer could go on using memory");
                }
            }
        }
    }

    fn ends_at_once(&mut self, tag: SteeringTag) -> bool {
        match self.table.get(&tag.0) {
            Some(&Held::Window(_, bound)) => {
                self.ring();
                self.is_over(bound) || self.closed
            }
            _ => true,
        }
    }

    fn receives_max(&self) -> u32 {
        self.queue.receives_max()
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        remote_invalidation(self.domain.context())
    }

    fn read_order(&self) -> ReadOrder {
        self.domain.read_order()
    }

    /// The life word is no part of it: a connection belongs to this boot instance.
    fn expose(&mut self, arena: &Arc<Arena>, _life: &LifeWord) -> io::Result<Exposed> {
        self.open()?;
        if !self.exposes {
            // In this domain others could reach it who may not.
            let why = "the peer was offered no RDMA Reads";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let [arena, stamps] = self.domain.exposed(arena)?;
        self.queue.open(Access::READ)?;
        Ok(Exposed { arena, stamps })
    }

    fn max_message(&self) -> usize {
        SLOT_BYTES
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

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
