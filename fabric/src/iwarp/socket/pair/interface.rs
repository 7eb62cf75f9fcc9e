//! The queue pair as the trait has it.

use super::{BATCH_BYTES, BATCH_TIME, Input, Output, Pair, Watching};
use crate::clock::Nanos;
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::iwarp::protocol::MESSAGE_MAX;
use crate::iwarp::socket::sys;
use crate::memory::{Arena, ArenaView, LifeWord};
use crate::wake::WakeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

impl QueuePair for Pair {
    fn post_receives(&mut self, count: u32) {
        self.endpoint.post_receives(count);
    }

    fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.open()?;
        let posted = self.endpoint.post_send(parts, None);
        self.posted(posted)
    }

    fn post_send_invalidate(
        &mut self,
        _id: u64,
        parts: &[&[u8]],
        invalidate: SteeringTag,
    ) -> Result<Posted, PostError> {
        self.open()?;
        let posted = self.endpoint.post_send(parts, Some(invalidate));
        self.posted(posted)
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.open()?;
        let posted = self.endpoint.post_write(id, from, to);
        self.posted(posted)
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.open()?;
        let posted = self.endpoint.post_read(id, into, from);
        self.posted(posted.map(|()| Posted::Pending))
    }

    fn reads_max(&self) -> u32 {
        self.endpoint.reads_max()
    }

    fn flush(&mut self) {
        if self.closed || self.endpoint.queued() == 0 {
            return;
        }
        if self.endpoint.is_mute() && self.taken == self.filled {
            // The peer's first frame lets us speak. If it comes later, what is queued leaves then.
            self.fill();
            self.take();
        }
        self.transmit();
    }

    fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.endpoint.poll() {
            return Some(completion);
        }
        self.advance();
        self.endpoint.poll()
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        if let Some(completion) = self.endpoint.poll_send_queue() {
            return Some(completion);
        }
        self.advance();
        self.endpoint.poll_send_queue()
    }

    fn is_quiet(&mut self) -> bool {
        if self.input != Input::Empty || self.output != Output::Clear || self.is_ready() {
            return false;
        }
        self.listen();
        self.input == Input::Empty
    }

    fn is_settled(&mut self) -> bool {
        let socket = self.socket.as_fd();
        self.closed || self.endpoint.queued() == 0 && sys::unacknowledged(socket) == 0
    }

    fn message(&self) -> &[u8] {
        self.endpoint.message()
    }

    fn arm(&mut self) -> bool {
        self.set_low_water(1);
        let armed = self.is_quiet_before_wait();
        if armed {
            self.rest();
        }
        armed
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        let socket = self.socket.as_fd();
        let shared = match &self.readiness {
            Some(readiness) => readiness.join(socket, set)?,
            None => None,
        };
        self.watching = match shared {
            Some(member) => Watching::Shared(member),
            None => {
                set.add_edges(socket)?;
                Watching::Alone
            }
        };
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.flush();
        if self.is_quiet_before_wait() {
            self.rest();
            let due = self.endpoint.under_way();
            let batch = if due > BATCH_BYTES / 2 {
                due.min(BATCH_BYTES)
            } else {
                1
            };
            self.set_low_water(batch);
            let short = timeout.map_or(BATCH_TIME, |span| span.min(BATCH_TIME));
            if batch == 1 || !self.sleep(Some(short)) {
                self.set_low_water(1);
                self.sleep(timeout);
            }
            self.told();
            if self.owes() {
                self.transmit();
            }
            self.fill();
        }
        let over = self.ended && self.taken == self.filled && !self.endpoint.has_completion();
        match over && self.endpoint.is_over() {
            true => Err(PostError::Closed),
            false => Ok(()),
        }
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.open()?;
        self.endpoint.register(length, access)
    }

    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        self.open()?;
        self.endpoint.bind(region, offset, length, access)
    }

    fn invalidate(&mut self, tag: SteeringTag) {
        self.endpoint.invalidate(tag);
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        RemoteInvalidation::Any
    }

    fn read_order(&self) -> ReadOrder {
        ReadOrder::Ordered
    }

    /// The life word is no part of it: a connection belongs to this boot instance.
    fn expose(&mut self, arena: &Arc<Arena>, _life: &LifeWord) -> io::Result<Exposed> {
        self.open()?;
        self.endpoint.expose(arena)
    }

    fn map_exposed(&mut self, _exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        Ok(None)
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
