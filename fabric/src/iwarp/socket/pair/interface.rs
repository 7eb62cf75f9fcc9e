//! The queue pair as the trait has it.

use super::{BATCH_BYTES, BATCH_TIME, Input, Output, Pair, Watching};
use crate::clock::Nanos;
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::iwarp::by_endpoint::by_endpoint;
use crate::iwarp::protocol::MESSAGE_MAX;
use crate::iwarp::socket::sys;
use crate::memory::{Arena, LifeWord};
use crate::wake::WakeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

impl QueuePair for Pair {
    by_endpoint!();

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
