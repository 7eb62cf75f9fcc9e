use super::accounts::{Accounts, Charge};
use super::ring::{Consumer, MESSAGE_MAX, Producer, Ring, Taken};
use super::socket::{Packet, Socket};
use crate::clock::{self, Nanos};
use crate::fabric::{
    self, Access, Completion, Exposed, MARKS_BYTES, Peer, PostError, Posted, QueuePair, ReadOrder,
    Remote, RemoteInvalidation, Sink, Source, SteeringTag,
};
use crate::memory::mapping::{Mapping, Protection};
use crate::memory::{Arena, ArenaView, LifeView, LifeWord, Region, memfd};
use crate::wake::{Bell, WakeSet};
use odafs_common::page::{Layout, PageSize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A message for the user of the queue pair.
const DATA: u8 = 0;

/// A client asks for a region: `{ length u64, request u32 }`.
const REGISTER: u8 = 1;

/// Registrations that one poll serves before it returns to its caller.
const REGISTER_BURST: u32 = 4;

/// Messages up to here are copied as a whole, in bytes: registrations among them.
const SHORT: usize = 64;

/// Empty polls after which one looks whether the socket is still open: a few milliseconds' worth, as it is a system call.
const POLLS_PER_LOOK: u32 = 1 << 17;

/// Packets that one look takes.
const PACKET_BURST: u32 = 64;

/// Messages that are still taken after the end of the connection: more than a ring holds.
const LAST_MESSAGES: u32 = 1024;

/// Bytes that are fetched of where the next write goes: a small page, and what a guarded read puts behind it.
const WRITE_PREPARED: usize = 4096 + 64;

/// Most steering tags of a connection: two an arena, one a region.
const TAGS_MAX: u32 = 1 << 16;

/// What only one of the ends has. The server makes all memory and gives all steering tags.
pub enum Role {
    Server {
        accounts: Arc<Accounts>,
        uid: u32,
        regions: u32,
        _charges: [Charge; 2],
    },
    Client {
        timeout: Nanos,
        requests: u32,
        views: Vec<(Exposed, ArenaView)>,
    },
}

/// What a steering tag names.
enum Memory {
    /// Read and written by both ends.
    Shared(Arc<Region>),
    /// The server's, that the client may read.
    Exposed(Arc<Mapping>),
    /// At the server: a tag of its own arena.
    Own,
}

/// Where the peer had us write lately. One that reads one thing at a time has two places for it in turn: what was
/// written to before the last is where the next goes, and can be fetched while the peer is at the last.
#[derive(Default)]
struct Writes {
    last: Option<Remote>,
    before: Option<Remote>,
    /// Since the last flush.
    count: u32,
}

impl Writes {
    #[inline]
    fn wrote(&mut self, to: Remote) {
        self.before = self.last.replace(to);
        self.count += 1;
    }

    /// Where the next write goes, if there was one, and one alone.
    #[inline]
    fn flushed(&mut self) -> Option<Remote> {
        let alone = std::mem::take(&mut self.count) == 1;
        self.before
            .filter(|before| alone && self.last != Some(*before))
    }
}

/// One end of a connection.
pub struct Pair {
    out: Producer,
    into: Consumer,
    /// The last message: the peer cannot reach it here. As long as the longest so far.
    message: Vec<u8>,
    length: usize,
    armed: bool,
    closed: bool,
    empty_polls: u32,
    last_messages: u32,
    /// By steering tag less one.
    memories: Vec<Memory>,
    writes: Writes,
    socket: Socket,
    bell: Option<Bell>,
    peer: Peer,
    private_data: Vec<u8>,
    role: Role,
}

impl Pair {
    pub fn new(
        socket: Socket,
        out: Ring,
        into: Ring,
        peer: Peer,
        private_data: Vec<u8>,
        role: Role,
    ) -> Self {
        Self {
            out: Producer::new(out),
            into: Consumer::new(into),
            message: Vec::new(),
            length: 0,
            armed: false,
            closed: false,
            empty_polls: 0,
            last_messages: LAST_MESSAGES,
            memories: Vec::new(),
            writes: Writes::default(),
            socket,
            bell: None,
            peer,
            private_data,
            role,
        }
    }

    /// Takes what came over the socket: wake-ups, and at the client descriptors.
    fn look_at_socket(&mut self) {
        for _ in 0..PACKET_BURST {
            if self.take_packet().is_none() {
                return;
            }
        }
    }

    fn arm_ring(&mut self) -> bool {
        self.armed = !self.closed && self.into.arm();
        self.armed
    }

    /// As [`Pair::look_at_socket`], but not beyond a wake-up: most come alone, and what is behind one wakes again.
    fn take_wake_up(&mut self) {
        for _ in 0..PACKET_BURST {
            if matches!(self.take_packet(), None | Some(Packet::Wake)) {
                return;
            }
        }
    }

    /// Takes what the socket has next; `None`: nothing, or the connection is over.
    fn take_packet(&mut self) -> Option<Packet> {
        let next = match self.role {
            Role::Server { .. } => self
                .socket
                .receive_plain()
                .map(|packet| packet.map(|packet| (packet, Vec::new()))),
            Role::Client { .. } => self.socket.receive(),
        };
        let (packet, descriptors) = match next {
            Ok(next) => next?,
            Err(error) => {
                self.close(&error);
                return None;
            }
        };
        let learned = match &packet {
            Packet::Wake => Ok(None),
            // The answer to a registration that has stopped waiting for it.
            Packet::Refused { .. } if matches!(self.role, Role::Client { .. }) => Ok(None),
            packet => self.learn(packet, descriptors),
        };
        match learned {
            Ok(_) => Some(packet),
            Err(error) => {
                self.close(&error);
                None
            }
        }
    }

    fn close(&mut self, why: &dyn std::fmt::Display) {
        if !self.closed {
            tracing::debug!(peer = %self.peer, %why, "connection closed");
            self.closed = true;
        }
    }

    /// The client learns of memory that the server has made.
    fn learn(
        &mut self,
        packet: &Packet,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<Option<Arc<Region>>> {
        let invalid = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sent what it should not",
            )
        };
        let Role::Client { views, .. } = &mut self.role else {
            return Err(invalid());
        };
        match (packet, descriptors.as_slice()) {
            (&Packet::Region { tag, length, .. }, [memory])
                if self.memories.len() + 1 == tag as usize =>
            {
                let memory = map(memory, length, Protection::ReadWrite)?;
                let region = Arc::new(Region::new(memory, SteeringTag(tag)));
                self.memories.push(Memory::Shared(Arc::clone(&region)));
                Ok(Some(region))
            }
            (
                &Packet::Exposed {
                    arena,
                    stamps,
                    page,
                    beside,
                    life,
                },
                [frames, marks, control],
            ) if self.memories.len() + 1 == arena as usize
                && stamps == arena + 1
                // The life word is a file, and cannot be sealed.
                && self.peer.has_power_over_us() =>
            {
                let page = PageSize::new(u64::from(page)).map_err(|_| invalid())?;
                let frames = Arc::new(map_all(frames)?);
                let marks = Arc::new(map_all(marks)?);
                let life = LifeView::map(control.as_fd(), life)?;
                let layout = match beside {
                    true => Layout::beside(page),
                    false => Layout::apart(page),
                };
                let view = ArenaView::new(Arc::clone(&frames), Arc::clone(&marks), life, layout)
                    .ok_or_else(invalid)?;
                self.memories
                    .extend([Memory::Exposed(frames), Memory::Exposed(marks)]);
                views.push((exposed(arena, stamps), view));
                Ok(None)
            }
            _ => Err(invalid()),
        }
    }

    /// The server makes a region and passes it on.
    fn make_region(&mut self, length: u64, request: u32) -> io::Result<Arc<Region>> {
        let Role::Server {
            accounts,
            uid,
            regions,
            ..
        } = &mut self.role
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let limit = accounts.limits().regions_per_connection;
        if *regions >= limit {
            let what = format!("the connection has all its {limit} regions");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
        }
        let bytes = length
            .checked_next_multiple_of(4096)
            .filter(|bytes| *bytes > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let charge = accounts.memory(*uid, bytes)?;
        let fd = memfd::create("odafs-region", bytes)?;
        memfd::settle(&fd)?;
        let memory = map(&fd, length, Protection::ReadWrite)?;
        let tag = self.memories.len() as u32 + 1;
        self.socket.send(
            &Packet::Region {
                tag,
                length,
                request,
            },
            &[fd.as_fd()],
        )?;
        *regions += 1;
        let region = Arc::new(Region::charged(memory, SteeringTag(tag), Box::new(charge)));
        self.memories.push(Memory::Shared(Arc::clone(&region)));
        Ok(region)
    }

    /// The server serves a client's registration.
    fn serve_registration(&mut self, length: usize) {
        let (Ok(wanted), Role::Server { .. }) =
            (<[u8; 12]>::try_from(&self.message[..length]), &self.role)
        else {
            return self.close(&"a malformed registration");
        };
        let [a, b, c, d, e, f, g, h, request @ ..] = wanted;
        let length = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        if let Err(error) = self.make_region(length, u32::from_ne_bytes(request)) {
            let refused = self.socket.send(
                &Packet::Refused {
                    reason: error.to_string(),
                },
                &[],
            );
            if let Err(error) = refused {
                self.close(&error);
            }
        }
    }

    /// The client asks the server for a region and waits for it.
    fn ask_for_region(&mut self, length: u64) -> io::Result<Arc<Region>> {
        let Role::Client {
            timeout, requests, ..
        } = &mut self.role
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        *requests += 1;
        let (request, deadline) = (*requests, clock::now() + *timeout);
        let words: [&[u8]; 2] = [&length.to_ne_bytes(), &request.to_ne_bytes()];
        self.out.post(REGISTER, self.into.release(), &words)?;
        self.flush();
        loop {
            match self.socket.receive_until(deadline)? {
                (Packet::Wake, _) if clock::now() < deadline => {}
                (Packet::Wake, _) => return Err(io::ErrorKind::TimedOut.into()),
                (Packet::Refused { reason }, _) => {
                    return Err(io::Error::new(io::ErrorKind::QuotaExceeded, reason));
                }
                (packet, descriptors) => {
                    let region = self.learn(&packet, descriptors)?;
                    if matches!(packet, Packet::Region { request: answered, .. } if answered == request)
                    {
                        return region.ok_or_else(|| io::ErrorKind::InvalidData.into());
                    }
                }
            }
        }
    }

    #[inline]
    fn memory(&mut self, tag: SteeringTag) -> Result<&Memory, PostError> {
        let index = (tag.0 as usize).wrapping_sub(1);
        if index >= self.memories.len() {
            // The server may have told of it, and nobody has looked.
            self.look_at_socket();
        }
        self.memories.get(index).ok_or(PostError::BadRange)
    }

    /// What became of a message for the ring.
    #[inline]
    fn posted(&mut self, posted: Result<(), PostError>) -> Result<Posted, PostError> {
        match posted {
            Ok(()) => Ok(Posted::Done),
            Err(PostError::Full) => {
                // Nobody would wake the peer for what fills the ring.
                self.flush();
                Err(PostError::Full)
            }
            Err(PostError::Closed) => {
                self.close(&"the peer told of messages that were never sent");
                Err(PostError::Closed)
            }
            Err(error) => Err(error),
        }
    }

    fn open(&self) -> Result<(), PostError> {
        if self.closed {
            Err(PostError::Closed)
        } else {
            Ok(())
        }
    }
}

fn map(fd: &OwnedFd, length: u64, access: Protection) -> io::Result<Mapping> {
    if memfd::sealed_length(fd.as_fd())? < length {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the memory is shorter than was said",
        ));
    }
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    Mapping::of(fd.as_fd(), length, access)
}

fn map_all(fd: &OwnedFd) -> io::Result<Mapping> {
    map(fd, memfd::sealed_length(fd.as_fd())?, Protection::ReadOnly)
}

/// What has these tags begins at address 0.
fn exposed(arena: u32, stamps: u32) -> Exposed {
    let [arena, stamps] = [arena, stamps].map(|tag| Remote {
        tag: SteeringTag(tag),
        offset: 0,
    });
    Exposed { arena, stamps }
}

impl QueuePair for Pair {
    /// The room in the ring is the flow control.
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
        let Memory::Shared(region) = self.memory(to.tag)? else {
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
        let Memory::Shared(region) = self.memory(to.tag)? else {
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
            Memory::Shared(region) => region.memory(),
            Memory::Exposed(memory) => memory,
            Memory::Own => return Err(PostError::BadRange),
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

    /// They are over at once.
    fn reads_max(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn flush(&mut self) {
        if self.out.flush() {
            self.socket.wake();
        }
        if let Some(next) = self.writes.flushed()
            && let Ok(Memory::Shared(region)) = self.memory(next.tag)
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
                        self.socket.wake();
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
                    self.empty_polls += 1;
                    if self.empty_polls >= POLLS_PER_LOOK {
                        self.empty_polls = 0;
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
        self.empty_polls += 1;
        let rung = self.bell.as_ref().is_none_or(Bell::take);
        if rung || self.empty_polls >= POLLS_PER_LOOK {
            self.empty_polls = 0;
            self.look_at_socket();
        }
        None
    }

    /// What was posted lies in the ring, where the peer finds it after our end too.
    fn is_settled(&mut self) -> bool {
        true
    }

    #[inline]
    fn message(&self) -> &[u8] {
        &self.message[..self.length]
    }

    #[inline]
    fn is_quiet(&mut self) -> bool {
        self.empty_polls += 1;
        !self.closed && !self.armed && self.empty_polls < POLLS_PER_LOOK && !self.into.is_ready()
    }

    fn arm(&mut self) -> bool {
        // Nobody else tells who is in no set that the peer has gone.
        if self.bell.as_ref().is_none_or(Bell::take) {
            self.take_wake_up();
        }
        self.arm_ring()
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
        // The socket itself ends this, as long as a packet is there or the peer has gone.
        if self.arm_ring() {
            let waited = self.socket.wait(timeout);
            self.take_wake_up();
            if let Err(error) = waited {
                self.close(&error);
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
            Role::Server { .. } => self.make_region(length as u64, 0),
            Role::Client { .. } => self.ask_for_region(length as u64),
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
        if tag >= TAGS_MAX || matches!(self.role, Role::Client { .. }) {
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
        self.memories.extend([Memory::Own, Memory::Own]);
        Ok(exposed(tag, tag + 1))
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        self.look_at_socket();
        let Role::Client { views, .. } = &self.role else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match views.iter().find(|(tags, _)| tags == exposed) {
            Some((_, view)) => Ok(Some(view.clone())),
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
