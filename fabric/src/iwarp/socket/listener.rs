use super::pair::Pair;
use super::readiness::Readiness;
use super::{Crc, Limits, prepare, sys};
use crate::clock::{self, Nanos};
use crate::fabric::{self, PRIVATE_DATA_MAX, Peer, QueuePair};
use crate::iwarp::protocol::handshake::{self, Wishes};
use crate::iwarp::protocol::mpa::{
    Frame, FrameKind, FrameReader, HEAD_BYTES, MpaError, PRIVATE_MAX,
};
use crate::pause::Pause;
use crate::wake::{Bell, EDGES, WakeSet};
use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Number of the listening socket among the events.
const DOOR: u64 = 0;

/// The most connections that are accepted from the kernel at a time.
const ACCEPT_BURST: u32 = 16;

/// The most events of one look.
const EVENTS: usize = 64;

/// Time between two looks that no event asks for, for a caller that polls and never waits.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// Number of RDMA Reads that a server wants to have under way on a connection.
const OUTBOUND_READS: u32 = 128;

/// A connection whose request is incomplete.
struct Pending {
    socket: TcpStream,
    peer: SocketAddr,
    reader: FrameReader,
    deadline: Nanos,
}

/// The result of a look at a pending connection.
enum HandshakeStep {
    Waits,
    Asks(Frame),
    Over,
}

/// Accepts connections on a TCP port.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    limits: Limits,
    /// The listening socket and the pending connections.
    door: OwnedFd,
    /// Whether the listening socket may have a connection.
    knocked: bool,
    pause: Pause,
    /// In the order of their arrival, which is also that of their deadlines.
    pending: BTreeMap<u64, Pending>,
    next: u64,
    asking: VecDeque<Incoming>,
    readiness: Arc<Readiness>,
    /// Counts the connections: each holds a reference.
    places: Arc<()>,
    /// The set that waits for this listener, and the bell that `door` rings. The set is woken as long as there are
    /// events at which nobody has looked.
    set: Option<(Arc<WakeSet>, Bell)>,
    look_next: Nanos,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr, limits: Limits) -> io::Result<Listener> {
        let socket = TcpListener::bind(address)?;
        crate::tcp::hold_pacing(&socket);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let door = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&door, &socket, epoll::EventData::new_u64(DOOR), EDGES)?;
        Ok(Listener {
            socket,
            address,
            limits,
            door,
            knocked: true,
            pause: Pause::default(),
            pending: BTreeMap::new(),
            next: DOOR + 1,
            asking: VecDeque::new(),
            readiness: Readiness::new()?,
            places: Arc::new(()),
            set: None,
            look_next: Nanos(0),
        })
    }

    /// The address on which it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts new connections from the kernel.
    fn accept(&mut self, now: Nanos) -> io::Result<()> {
        self.pause.end(now);
        if !self.knocked || self.pause.until().is_some() {
            return Ok(());
        }
        for _ in 0..ACCEPT_BURST {
            match self.socket.accept() {
                Ok((socket, peer)) => {
                    self.pause.succeeded();
                    self.admit(socket, peer, now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.knocked = false;
                    return Ok(());
                }
                // The peer of a connection may be gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.pause.failed(now);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Begins a handshake. If there are too many, the oldest ends: a serious one completes within a round trip.
    fn admit(&mut self, socket: TcpStream, peer: SocketAddr, now: Nanos) {
        if Arc::strong_count(&self.places) > self.limits.connections as usize {
            tracing::debug!(%peer, "refused: there are too many connections");
            return;
        }
        if self.pending.len() >= self.limits.handshakes.max(1) as usize {
            self.pending.pop_first();
        }
        let number = self.next;
        self.next += 1;
        let pending = Pending {
            socket,
            peer,
            reader: FrameReader::new(FrameKind::Request),
            deadline: now + self.limits.handshake_deadline,
        };
        let data = epoll::EventData::new_u64(number);
        let ready = prepare(&pending.socket)
            .and_then(|()| Ok(epoll::add(&self.door, &pending.socket, data, EDGES)?));
        if let Err(error) = ready {
            tracing::debug!(%peer, %error, "connection not taken");
            return;
        }
        self.pending.insert(number, pending);
        self.step(number);
    }

    /// Reads the available part of a request.
    fn step(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let step = pending.step();
        if matches!(step, HandshakeStep::Waits) {
            return;
        }
        let Some(pending) = self.pending.remove(&number) else {
            return;
        };
        // From now on its events belong to the queue pair.
        let _ = epoll::delete(&self.door, &pending.socket);
        if let HandshakeStep::Asks(request) = step {
            self.asking.push_back(Incoming {
                request,
                peer: Peer::Address(pending.peer),
                parts: Some(Parts {
                    socket: pending.socket,
                    readiness: Arc::clone(&self.readiness),
                    place: Arc::clone(&self.places),
                }),
                crc: self.limits.crc,
            });
        }
    }

    /// Looks at what has happened since the last time.
    fn look(&mut self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let found = epoll::wait(&self.door, &mut events, Some(&now)).unwrap_or(0);
        for event in &events[..found] {
            let number = event.data;
            match number.u64() {
                DOOR => self.knocked = true,
                number => self.step(number),
            }
        }
    }

    /// Ends handshakes that take too long.
    fn expire(&mut self, now: Nanos) {
        while let Some(first) = self.pending.first_entry()
            && first.get().deadline <= now
        {
            tracing::debug!(peer = %first.get().peer, "no request in time");
            first.remove();
        }
        let deadline = self.pending.first_key_value().map(|(_, p)| p.deadline);
        let pause = self.pause.until();
        // There may be more connections than were accepted, and no event tells of them again.
        let more = (self.knocked && pause.is_none()).then_some(now);
        if let Some(at) = deadline.into_iter().chain(pause).chain(more).min()
            && let Some((set, _)) = &self.set
        {
            set.wake_at(at);
        }
    }
}

impl fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn fabric::Incoming>>> {
        if self.asking.is_empty() {
            let now = clock::now();
            let rung = self.set.as_ref().is_none_or(|(_, bell)| bell.take());
            if rung || now >= self.look_next {
                self.look_next = now + LOOK_EVERY;
                self.look();
            }
            let accepted = self.accept(now);
            self.expire(now);
            accepted?;
        }
        let asking = self.asking.pop_front();
        Ok(asking.map(|incoming| Box::new(incoming) as Box<dyn fabric::Incoming>))
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.door.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        let bell = set.add(self.door.as_fd())?;
        self.set = Some((Arc::clone(set), bell));
        Ok(())
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

impl Pending {
    fn step(&mut self) -> HandshakeStep {
        loop {
            let mut bytes = [0; HEAD_BYTES + PRIVATE_MAX];
            let missing = self.reader.missing();
            let came = match recv(&self.socket, &mut bytes[..missing], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return HandshakeStep::Over,
                Ok((_, came)) => came,
                Err(rustix::io::Errno::AGAIN) => return HandshakeStep::Waits,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return HandshakeStep::Over,
            };
            match self.reader.feed(&bytes[..came]) {
                Ok((_, None)) => {}
                Ok((_, Some(request))) => return HandshakeStep::Asks(request),
                Err(error) => {
                    tracing::debug!(peer = %self.peer, %error, "no handshake");
                    self.refuse(error);
                    return HandshakeStep::Over;
                }
            }
        }
    }

    /// Tells a peer that speaks MPA that this end does not speak its variant.
    fn refuse(&self, error: MpaError) {
        if matches!(error, MpaError::Markers | MpaError::Revision(_)) {
            let reply = Frame {
                kind: FrameKind::Reply,
                revision: 1,
                crc: false,
                reject: true,
                enhanced: None,
                private_data: Vec::new(),
            };
            answer(&self.socket, &reply);
        }
    }
}

/// Sends a reply, which fits the buffer of a fresh socket. Returns `false` if the peer is gone.
fn answer(socket: &TcpStream, reply: &Frame) -> bool {
    let bytes = reply.encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    send(socket, &bytes, flags).is_ok_and(|sent| sent == bytes.len())
}

struct Parts {
    socket: TcpStream,
    readiness: Arc<Readiness>,
    place: Arc<()>,
}

/// A connection request.
struct Incoming {
    request: Frame,
    peer: Peer,
    /// Held until the request is answered.
    parts: Option<Parts>,
    crc: Crc,
}

impl Incoming {
    fn refuse(&mut self, reason: &str) {
        if let Some(parts) = self.parts.take() {
            let reason = reason.as_bytes();
            let reason = &reason[..reason.len().min(PRIVATE_DATA_MAX)];
            answer(&parts.socket, &handshake::refuse(&self.request, reason));
        }
    }
}

impl fabric::Incoming for Incoming {
    fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn accept(
        mut self: Box<Self>,
        private_data: &[u8],
        inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>> {
        fabric::check_private_data(private_data)?;
        let Some(parts) = self.parts.take() else {
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        let wishes = Wishes {
            crc: self.crc == Crc::Always,
            inbound_reads,
            outbound_reads: OUTBOUND_READS,
            frame_max: sys::segment_max(parts.socket.as_fd())?,
        };
        let (reply, agreed) = handshake::accept(&wishes, &self.request, private_data);
        if !answer(&parts.socket, &reply) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(Box::new(Pair::new(
            parts.socket,
            &agreed,
            self.peer.clone(),
            std::mem::take(&mut self.request.private_data),
            Some((parts.readiness, parts.place)),
        )))
    }

    fn reject(mut self: Box<Self>, reason: &str) {
        self.refuse(reason);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.refuse("");
    }
}

#[cfg(all(test, not(any(shuttle, loom, miri))))]
mod tests {
    use super::*;
    use crate::fabric::Listener as _;
    use rustix::net::{Shutdown, shutdown};

    /// A failure is reported once, and then the listener rests for a while.
    #[test]
    fn an_accept_that_fails_is_not_tried_again_at_once() {
        let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), Limits::default()).unwrap();
        shutdown(&listener.socket, Shutdown::Both).unwrap();
        assert!(listener.poll_accept().is_err());
        for _ in 0..100 {
            assert!(listener.poll_accept().unwrap().is_none());
        }
    }
}
