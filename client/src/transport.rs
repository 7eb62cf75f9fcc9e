//! The carriers of RPC messages: a queue pair of a fabric with a message each, or a TCP stream with record marks.

use crate::{
    options::Wait,
    waiting::{Awaited, Waits},
};
use odafs_common::rpcrdma::CallShape;
use odafs_fabric::{
    Completion, PostError, QueuePair, Region,
    clock::{self, Nanos},
    sync::Arc,
};
use thiserror::Error;

/// The transport is useless, for this reason.
#[derive(Debug, Clone, Error)]
#[error("{reason}")]
pub struct Broken {
    reason: String,
    /// The peer ended the connection.
    pub by_peer: bool,
}

impl Broken {
    /// For a reason on this side, or because the peer misbehaved.
    pub fn new(reason: impl ToString) -> Self {
        Self {
            reason: reason.to_string(),
            by_peer: false,
        }
    }

    /// The peer ended the connection.
    pub fn by_peer(reason: impl ToString) -> Self {
        Self {
            reason: reason.to_string(),
            by_peer: true,
        }
    }

    /// A message could not be posted.
    pub fn posting(error: PostError) -> Self {
        Self {
            reason: error.to_string(),
            by_peer: matches!(error, PostError::Closed),
        }
    }
}

/// Data in registered memory that came apart from its message. The server no longer writes to it.
#[derive(Clone, Copy)]
pub struct PlacedData<'a> {
    /// The memory.
    pub region: &'a Region,
    /// Where the data begins in the region.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: u32,
}

impl PlacedData<'_> {
    /// A copy.
    pub fn load(&self) -> Vec<u8> {
        let mut data = vec![0; self.bytes as usize];
        // The region is long enough. That was checked when the data came.
        let _ = self.region.load(self.offset, &mut data);
        data
    }
}

/// The caller's memory for the data of a reply, if the transport supports that. The data may end up in the transport's
/// own memory nevertheless.
#[derive(Clone)]
pub struct ReplyBuffer {
    /// The memory.
    pub region: Arc<Region>,
    /// First byte, as an offset in the memory.
    pub offset: usize,
}

/// Carries messages in both directions.
pub trait RpcTransport: Send {
    /// Queues a call. [`flush`](Self::flush) sends it. `shape` says which parts of the call and of its reply may travel
    /// apart.
    fn send(
        &mut self,
        message: &[u8],
        shape: &CallShape,
        place: Option<&ReplyBuffer>,
        deadline: Nanos,
    ) -> Result<(), Broken>;

    /// Sends a call that fits a message, as does its reply, without waiting. Returns false, and sends nothing, if that
    /// is not possible at once.
    fn send_at_once(&mut self, message: &[u8]) -> Result<bool, Broken> {
        let _ = message;
        Ok(false)
    }

    /// The next answers are of this kind. It only matters for how long a wait polls.
    fn expect(&mut self, awaited: Awaited) {
        let _ = awaited;
    }

    /// Sends what is queued.
    fn flush(&mut self, deadline: Nanos) -> Result<(), Broken>;

    /// Waits for a message. Returns false if the deadline has passed.
    fn receive(&mut self, deadline: Nanos) -> Result<bool, Broken>;

    /// As [`receive`](Self::receive), for callers that copy most of a long message elsewhere. Only its first `front`
    /// bytes need be in [`message`](Self::message); all of it is available through [`load`](Self::load) until the next
    /// use of the transport.
    fn receive_front(&mut self, front: usize, deadline: Nanos) -> Result<bool, Broken> {
        let _ = front;
        self.receive(deadline)
    }

    /// Copies from the last message, from `offset` on. Returns false if the message is shorter.
    fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        let part = (self.message().get(offset..)).and_then(|rest| rest.get(..into.len()));
        part.is_some_and(|part| {
            into.copy_from_slice(part);
            true
        })
    }

    /// The last message.
    fn message(&self) -> &[u8];

    /// Where data lies that came apart from the last message.
    fn placed(&self) -> Option<PlacedData<'_>> {
        None
    }

    /// The caller is done with the last message. Memory of a caller is released.
    fn let_go(&mut self) {}

    /// The longest message in either direction, in bytes.
    fn message_max(&self) -> usize;

    /// The queue pair, if there is one, for memory that the server may write.
    fn queue_pair(&mut self) -> Option<&mut dyn QueuePair>;

    /// Whether the server has ended the connection, as far as is known without waiting. For connections on which nobody
    /// waits: it may drop answers.
    fn is_over(&mut self) -> bool;
}

/// The most messages that the server may send before the client has looked.
const RECEIVES: u32 = 64;

/// RPC over a fabric.
pub struct FabricTransport {
    pair: Box<dyn QueuePair>,
    waits: Waits,
}

impl FabricTransport {
    /// Over a new connection.
    pub fn new(mut pair: Box<dyn QueuePair>, wait: Wait) -> Self {
        pair.post_receives(RECEIVES);
        Self {
            pair,
            waits: Waits::new(wait),
        }
    }
}

impl RpcTransport for FabricTransport {
    fn send(
        &mut self,
        message: &[u8],
        _: &CallShape,
        _: Option<&ReplyBuffer>,
        deadline: Nanos,
    ) -> Result<(), Broken> {
        send_when_room(&mut *self.pair, &[message], deadline)
    }

    fn send_at_once(&mut self, message: &[u8]) -> Result<bool, Broken> {
        match self.pair.post_send(0, &[message]) {
            Ok(_) => {
                self.pair.flush();
                Ok(true)
            }
            Err(PostError::Full | PostError::TooLong) => Ok(false),
            Err(error) => Err(Broken::posting(error)),
        }
    }

    fn expect(&mut self, awaited: Awaited) {
        self.waits.expect(awaited);
    }

    fn flush(&mut self, _: Nanos) -> Result<(), Broken> {
        self.pair.flush();
        Ok(())
    }

    fn receive(&mut self, deadline: Nanos) -> Result<bool, Broken> {
        self.receive_front(usize::MAX, deadline)
    }

    fn receive_front(&mut self, front: usize, deadline: Nanos) -> Result<bool, Broken> {
        let received = next_front(&mut *self.pair, front, &mut self.waits, deadline)?;
        if received {
            self.pair.post_receives(1);
        }
        Ok(received)
    }

    fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        self.pair.load_message(offset, into)
    }

    fn message(&self) -> &[u8] {
        self.pair.message()
    }

    fn message_max(&self) -> usize {
        self.pair.max_message()
    }

    fn queue_pair(&mut self) -> Option<&mut dyn QueuePair> {
        Some(&mut *self.pair)
    }

    fn is_over(&mut self) -> bool {
        // Only answers to calls that had timed out can be here.
        while let Some(event) = self.pair.poll() {
            if let Completion::Recv { .. } = event {
                self.pair.post_receives(1);
            }
        }
        self.pair.is_closed()
    }
}

/// Posts a message. Waits for room if there is none.
pub fn send_when_room(
    pair: &mut dyn QueuePair,
    parts: &[&[u8]],
    deadline: Nanos,
) -> Result<(), Broken> {
    loop {
        match pair.post_send(0, parts) {
            Ok(_) => return Ok(()),
            // The peer makes room as it takes messages, for which it needs the doorbell.
            Err(PostError::Full) if clock::now() < deadline => {
                pair.flush();
                odafs_fabric::sync::hint::spin_loop();
            }
            Err(PostError::Full) => return Err(Broken::new("the server takes no more messages")),
            Err(PostError::TooLong) => {
                return Err(Broken::new("the message is too long for the fabric"));
            }
            Err(error) => return Err(Broken::posting(error)),
        }
    }
}

/// Polls for a message, then sleeps as `wait` says. Returns false if the deadline has passed.
pub fn next_message(pair: &mut dyn QueuePair, wait: Wait, deadline: Nanos) -> Result<bool, Broken> {
    next_front(pair, usize::MAX, &mut Waits::new(wait), deadline)
}

/// As [`next_message`]; see [`QueuePair::poll_front`].
fn next_front(
    pair: &mut dyn QueuePair,
    front: usize,
    waits: &mut Waits,
    deadline: Nanos,
) -> Result<bool, Broken> {
    let mut patience = waits.begin(deadline);
    loop {
        match pair.poll_front(front) {
            Some(Completion::Recv { .. }) => {
                waits.ended(&patience);
                return Ok(true);
            }
            Some(_) => {}
            None if pair.is_closed() => {
                return Err(Broken::by_peer("the server closed the connection"));
            }
            None => {
                if !patience.rest(pair)? {
                    return Ok(false);
                }
            }
        }
    }
}
