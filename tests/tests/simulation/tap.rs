//! A client's connections as an attacker on the way sees them, who reads messages and sends them again.

use crate::world::below;
use odafs::{Dial, RpcOver};
use odafs_common::connect::{PrivateData, Role};
use odafs_common::direct::{Completion, opcode};
use odafs_common::exception::Exception;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, ArenaView, LifeWord, Region};
use odafs_fabric::sync::{Arc, Mutex};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion as Event, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

/// The latest messages to NICs that the attacker has overheard.
#[derive(Default)]
pub struct Captured {
    messages: Mutex<Vec<Vec<u8>>>,
    replayed: Mutex<u64>,
}

impl Captured {
    const KEPT: usize = 16;

    fn keep(&self, message: &[u8]) {
        let mut messages = self.messages.lock();
        if messages.len() == Self::KEPT {
            messages.remove(0);
        }
        messages.push(message.to_vec());
    }

    /// One of them.
    pub fn any(&self) -> Option<Vec<u8>> {
        let messages = self.messages.lock();
        let count = messages.len() as u64;
        (count > 0).then(|| messages[below(count) as usize].clone())
    }

    /// Requests that were sent twice on their own connection, and refused the second time.
    pub fn replayed(&self) -> u64 {
        *self.replayed.lock()
    }
}

/// Dials, and taps the connection.
pub struct Tapped<D> {
    pub dial: D,
    pub captured: Arc<Captured>,
}

impl<D: Dial> Dial for Tapped<D> {
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        let pair = self.dial.dial(private_data, deadline)?;
        let said = PrivateData::decode(private_data);
        if !said.is_some_and(|said| said.role == Role::Direct) {
            return Ok(pair);
        }
        Ok(Box::new(Tap {
            pair,
            captured: Arc::clone(&self.captured),
            waiting: None,
            again: BTreeSet::new(),
            served: BTreeSet::new(),
        }))
    }

    /// Dials for RPC-over-RDMA, which it does not tap.
    fn dial_with(
        &self,
        private_data: &dyn Fn(RemoteInvalidation) -> Vec<u8>,
        deadline: Nanos,
    ) -> io::Result<Box<dyn QueuePair>> {
        self.dial.dial_with(private_data, deadline)
    }

    fn fabric(&self) -> &'static str {
        self.dial.fabric()
    }

    fn rpc_over(&self) -> RpcOver {
        self.dial.rpc_over()
    }

    fn address(&self) -> String {
        self.dial.address()
    }
}

/// A tapped connection. It sends a read twice now and then, and keeps the second answer from the client.
struct Tap {
    pair: Box<dyn QueuePair>,
    captured: Arc<Captured>,
    /// A message to send again behind the original.
    waiting: Option<Vec<u8>>,
    /// Sequence numbers sent twice.
    again: BTreeSet<u64>,
    /// Those of these that the server answered with data.
    served: BTreeSet<u64>,
}

impl Tap {
    fn see(&mut self, message: &[u8]) {
        match message.get(1) {
            Some(&opcode::READ) => {
                self.captured.keep(message);
                if below(2) == 0 {
                    self.waiting = Some(message.to_vec());
                }
            }
            Some(&opcode::ATTACH) => self.captured.keep(message),
            _ => {}
        }
    }

    /// Whether a message answers a repetition.
    fn is_ours(&mut self) -> bool {
        let Some((answer, data)) = Completion::parse(self.pair.message()) else {
            return false;
        };
        if !self.again.contains(&answer.sequence) {
            return false;
        }
        match answer.result {
            Err(Exception::Replayed) => {
                assert!(data.is_empty(), "bytes for a replayed request");
                self.again.remove(&answer.sequence);
                *self.captured.replayed.lock() += 1;
                true
            }
            Err(_) => false,
            Ok(_) => {
                let new = self.served.insert(answer.sequence);
                assert!(new, "request {} was served twice", answer.sequence);
                false
            }
        }
    }
}

impl QueuePair for Tap {
    fn post_send(&mut self, id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        let posted = self.pair.post_send(id, parts)?;
        self.see(&parts.concat());
        Ok(posted)
    }

    fn flush(&mut self) {
        if let Some(message) = self.waiting.take() {
            let sequence = u64::from_le_bytes(message[16..24].try_into().expect("eight bytes"));
            self.pair.post_receives(1);
            if self.pair.post_send(0, &[&message]).is_ok() {
                self.again.insert(sequence);
            }
        }
        self.pair.flush();
    }

    fn poll(&mut self) -> Option<Event> {
        loop {
            match self.pair.poll() {
                Some(Event::Recv { .. }) if self.is_ours() => {}
                event => return event,
            }
        }
    }

    fn poll_send_queue(&mut self) -> Option<Event> {
        self.pair.poll_send_queue()
    }

    fn is_settled(&mut self) -> bool {
        self.pair.is_settled()
    }

    fn post_receives(&mut self, count: u32) {
        self.pair.post_receives(count);
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.pair.post_write(id, from, to)
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.pair.post_read(id, into, from)
    }

    fn reads_max(&self) -> u32 {
        self.pair.reads_max()
    }

    fn message(&self) -> &[u8] {
        self.pair.message()
    }

    fn arm(&mut self) -> bool {
        self.pair.arm()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pair.wake_fd()
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.pair.watch(set)
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.pair.wait(timeout)
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.pair.register(length, access)
    }

    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        self.pair.bind(region, offset, length, access)
    }

    fn invalidate(&mut self, tag: SteeringTag) {
        self.pair.invalidate(tag);
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        self.pair.remote_invalidation()
    }

    fn read_order(&self) -> ReadOrder {
        self.pair.read_order()
    }

    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed> {
        self.pair.expose(arena, life)
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        self.pair.map_exposed(exposed)
    }

    fn max_message(&self) -> usize {
        self.pair.max_message()
    }

    fn private_data(&self) -> &[u8] {
        self.pair.private_data()
    }

    fn peer(&self) -> &Peer {
        self.pair.peer()
    }

    fn is_closed(&self) -> bool {
        self.pair.is_closed()
    }
}
