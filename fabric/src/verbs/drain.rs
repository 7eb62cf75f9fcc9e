//! Lets the last messages of a server be sent before its connection is destroyed. A thread of its own waits for that: a
//! peer that takes nothing must not delay the thread that serves the others.

use super::pair::Pair;
use crate::clock::{self, Nanos};
use crate::fabric::{
    Access, Completion, Exposed, Peer, PostError, Posted, QueuePair, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::memory::{Arena, ArenaView, LifeWord};
use crate::sync::Mutex;
use crate::wake::WakeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long a connection stays for its last messages.
pub const PATIENCE: Nanos = Nanos::from_millis(100);

/// Pause between two looks.
const REST: Duration = Duration::from_millis(5);

/// A connection of a server.
pub struct Draining(Option<Box<Pair>>);

impl Draining {
    pub fn new(pair: Pair) -> Draining {
        Draining(Some(Box::new(pair)))
    }

    fn pair(&self) -> &Pair {
        self.0.as_ref().expect("there until the drop")
    }

    fn pair_mut(&mut self) -> &mut Pair {
        self.0.as_mut().expect("there until the drop")
    }
}

impl Drop for Draining {
    /// After the drop, the caller's memory belongs to the caller again. So a connection whose device still uses some is
    /// destroyed at once.
    fn drop(&mut self) {
        if let Some(mut pair) = self.0.take()
            && !pair.is_settled()
            && !pair.borrows()
        {
            pair.unwatch();
            drain(pair);
        }
    }
}

struct Undrained {
    pair: Box<Pair>,
    until: Nanos,
}

fn drain(pair: Box<Pair>) {
    static DOOR: Mutex<Option<Sender<Undrained>>> = Mutex::new(None);
    let mut door = DOOR.lock();
    let leaving = Undrained {
        pair,
        until: clock::now() + PATIENCE,
    };
    if door.is_none() {
        let (sender, receiver) = channel::<Undrained>();
        let thread = std::thread::Builder::new().name("verbs-drain".into());
        let usher = move || {
            let mut waiting: Vec<Undrained> = Vec::new();
            loop {
                let next = match waiting.is_empty() {
                    true => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    false => receiver.recv_timeout(REST),
                };
                match next {
                    Ok(leaving) => waiting.push(leaving),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let now = clock::now();
                waiting.retain_mut(|leaving| leaving.until > now && !leaving.pair.is_settled());
            }
        };
        if thread.spawn(usher).is_ok() {
            *door = Some(sender);
        }
    }
    if let Some(sender) = &*door {
        // The thread lives as long as the sender.
        let _ = sender.send(leaving);
    }
}

impl QueuePair for Draining {
    fn post_receives(&mut self, count: u32) {
        self.pair_mut().post_receives(count);
    }

    fn post_send(&mut self, id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.pair_mut().post_send(id, parts)
    }

    fn post_send_invalidate(
        &mut self,
        id: u64,
        parts: &[&[u8]],
        invalidate: SteeringTag,
    ) -> Result<Posted, PostError> {
        self.pair_mut().post_send_invalidate(id, parts, invalidate)
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.pair_mut().post_write(id, from, to)
    }

    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        self.pair_mut().post_read(id, into, from)
    }

    fn reads_max(&self) -> u32 {
        self.pair().reads_max()
    }

    fn flush(&mut self) {
        self.pair_mut().flush();
    }

    fn poll(&mut self) -> Option<Completion> {
        self.pair_mut().poll()
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.pair_mut().poll_send_queue()
    }

    fn is_settled(&mut self) -> bool {
        self.pair_mut().is_settled()
    }

    fn message(&self) -> &[u8] {
        self.pair().message()
    }

    fn arm(&mut self) -> bool {
        self.pair_mut().arm()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pair().wake_fd()
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.pair_mut().watch(set)
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.pair_mut().wait(timeout)
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.pair_mut().register(length, access)
    }

    fn bind(
        &mut self,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Remote> {
        self.pair_mut().bind(region, offset, length, access)
    }

    fn invalidate(&mut self, tag: SteeringTag) {
        self.pair_mut().invalidate(tag);
    }

    fn ends_at_once(&mut self, tag: SteeringTag) -> bool {
        self.pair_mut().ends_at_once(tag)
    }

    fn receives_max(&self) -> u32 {
        self.pair().receives_max()
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        self.pair().remote_invalidation()
    }

    fn read_order(&self) -> ReadOrder {
        self.pair().read_order()
    }

    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed> {
        self.pair_mut().expose(arena, life)
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        self.pair_mut().map_exposed(exposed)
    }

    fn max_message(&self) -> usize {
        self.pair().max_message()
    }

    fn private_data(&self) -> &[u8] {
        self.pair().private_data()
    }

    fn peer(&self) -> &Peer {
        self.pair().peer()
    }

    fn is_closed(&self) -> bool {
        self.pair().is_closed()
    }
}
