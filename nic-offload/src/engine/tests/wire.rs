//! A queue pair whose room and completions the test decides.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, LifeWord, Region};
use odafs_fabric::sync::{Arc, Mutex, mpsc};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion, Exposed, Incoming, Listener, Peer, PostError, Posted, QueuePair, ReadOrder,
    Remote, RemoteInvalidation, Sink, Source, SteeringTag,
};

/// Both ends of a connection: the engine holds the queue pair, the test the wire.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) to_server: VecDeque<Vec<u8>>,
    pub(super) to_client: Vec<Vec<u8>>,
    pub(super) written: Vec<(Remote, usize)>,
    pub(super) completions: VecDeque<Completion>,
    pub(super) pending: VecDeque<u64>,
    pub(super) private: Vec<u8>,
    /// Posts that still find room.
    pub(super) room: usize,
    pub(super) slow_writes: bool,
    pub(super) closed: bool,
    pub(super) receives: u32,
    /// The most of those, if it is bounded.
    pub(super) receives_max: Option<u32>,
    pub(super) rejected: Option<String>,
}

pub(super) type Shared = Arc<Mutex<Wire>>;

pub(super) struct Pair {
    pub(super) wire: Shared,
    pub(super) message: Vec<u8>,
    pub(super) peer: Peer,
}

/// Sinks end here.
pub(super) const SINK_BYTES: u64 = 1 << 20;
pub(super) const MAX_MESSAGE: usize = 8192;

impl Pair {
    pub(super) fn take_room(wire: &mut Wire) -> Result<(), PostError> {
        if wire.closed {
            return Err(PostError::Closed);
        }
        wire.room = wire.room.checked_sub(1).ok_or(PostError::Full)?;
        Ok(())
    }
}

impl QueuePair for Pair {
    fn post_receives(&mut self, count: u32) {
        self.wire.lock().receives += count;
    }

    fn receives_max(&self) -> u32 {
        self.wire.lock().receives_max.unwrap_or(u32::MAX)
    }

    fn post_send(&mut self, _id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        let message = parts.concat();
        if message.len() > MAX_MESSAGE {
            return Err(PostError::TooLong);
        }
        let mut wire = self.wire.lock();
        Pair::take_room(&mut wire)?;
        wire.to_client.push(message);
        Ok(Posted::Done)
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        let length = match from {
            Source::Frame { length, .. } => length as usize,
            Source::Bytes(bytes) => bytes.len(),
        };
        if to.offset.saturating_add(length as u64) > SINK_BYTES {
            return Err(PostError::BadRange);
        }
        let mut wire = self.wire.lock();
        Pair::take_room(&mut wire)?;
        wire.written.push((to, length));
        if !wire.slow_writes {
            return Ok(Posted::Done);
        }
        wire.pending.push_back(id);
        Ok(Posted::Pending)
    }

    fn post_read(&mut self, _id: u64, _into: Sink<'_>, _from: Remote) -> Result<Posted, PostError> {
        Err(PostError::BadRange)
    }

    fn reads_max(&self) -> u32 {
        0
    }

    fn flush(&mut self) {}

    fn poll(&mut self) -> Option<Completion> {
        let mut wire = self.wire.lock();
        self.message.clear();
        if let Some(completion) = wire.completions.pop_front() {
            return Some(completion);
        }
        let receives = wire.receives.checked_sub(1)?;
        self.message = wire.to_server.pop_front()?;
        wire.receives = receives;
        Some(Completion::Recv {
            bytes: self.message.len() as u32,
            invalidated: None,
        })
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.message.clear();
        self.wire.lock().completions.pop_front()
    }

    fn is_settled(&mut self) -> bool {
        true
    }

    fn message(&self) -> &[u8] {
        &self.message
    }

    fn arm(&mut self) -> bool {
        let wire = self.wire.lock();
        wire.to_server.is_empty() && wire.completions.is_empty() && !wire.closed
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, _set: &Arc<WakeSet>) -> io::Result<()> {
        Ok(())
    }

    fn wait(&mut self, _timeout: Option<Nanos>) -> Result<(), PostError> {
        Ok(())
    }

    fn register(&mut self, _length: usize, _access: Access) -> io::Result<Arc<Region>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        RemoteInvalidation::Never
    }

    fn read_order(&self) -> ReadOrder {
        ReadOrder::Ordered
    }

    fn expose(&mut self, _arena: &Arc<Arena>, _life: &LifeWord) -> io::Result<Exposed> {
        let [arena, stamps] = [(11, 1 << 40), (12, 1 << 41)].map(|(tag, offset)| Remote {
            tag: SteeringTag(tag),
            offset,
        });
        Ok(Exposed { arena, stamps })
    }

    fn max_message(&self) -> usize {
        MAX_MESSAGE
    }

    fn private_data(&self) -> &[u8] {
        &[]
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn is_closed(&self) -> bool {
        self.wire.lock().closed
    }
}

pub(super) struct Door(pub(super) mpsc::Receiver<Shared>);

pub(super) struct Guest {
    pub(super) wire: Shared,
    pub(super) private: Vec<u8>,
}

impl Listener for Door {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn Incoming>>> {
        Ok(self.0.try_recv().ok().map(|wire| {
            let private = wire.lock().private.clone();
            Box::new(Guest { wire, private }) as Box<dyn Incoming>
        }))
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, _set: &Arc<WakeSet>) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "door".into()
    }
}

impl Incoming for Guest {
    fn private_data(&self) -> &[u8] {
        &self.private
    }

    fn peer(&self) -> &Peer {
        &Peer::Simulated(1)
    }

    fn accept(
        self: Box<Self>,
        private_data: &[u8],
        _inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>> {
        self.wire.lock().private = private_data.to_vec();
        Ok(Box::new(Pair {
            wire: self.wire,
            message: Vec::new(),
            peer: Peer::Simulated(1),
        }))
    }

    fn reject(self: Box<Self>, reason: &str) {
        self.wire.lock().rejected = Some(reason.into());
    }
}
