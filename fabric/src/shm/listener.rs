use super::Limits;
use super::accounts::{Accounts, Charge};
use super::pair::{EndRole, Pair};
use super::ring::{RING_BYTES, Ring};
use super::socket::{Packet, Socket};
use crate::clock::{self, Nanos};
use crate::fabric::{self, Peer, QueuePair};
use crate::memory::mapping::{Mapping, Protection};
use crate::memory::memfd;
use crate::pause::Pause;
use crate::wake::{Bell, WakeSet};
use rustix::event::epoll;
use rustix::fs::{Mode, OFlags, chmod, open, stat};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, listen};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How long a client may take for its first packet.
const HELLO_WITHIN: Nanos = Nanos::from_secs(5);

/// Time between two looks that no event asks for, for a caller that polls and never waits.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// The most new connections that one look accepts.
const ACCEPT_BURST: usize = 16;

/// Accepts connections on a Unix socket.
pub struct Listener {
    socket: Socket,
    path: PathBuf,
    /// Device and inode of the socket, so that only this listener's own is removed at the end.
    identity: (u64, u64),
    /// All events after which [`fabric::Listener::poll_accept`] may find something.
    epoll: OwnedFd,
    accounts: Arc<Accounts>,
    waiting: Vec<Waiting>,
    /// Given up for a moment when descriptors run out, to accept a connection and refuse it. Left unaccepted, it would
    /// wake this thread for ever.
    spare: Option<OwnedFd>,
    looked: Option<Nanos>,
    /// During a pause, `epoll` reports no new connections.
    pause: Pause,
    /// Whether descriptors had run out at the last accept.
    wants_descriptors: bool,
    /// The set that waits for this listener, and the bell that `epoll` rings.
    set: Option<(Arc<WakeSet>, Bell)>,
}

/// A client that has connected and not yet sent a packet.
struct Waiting {
    socket: Socket,
    peer: Peer,
    charge: Charge,
    since: Nanos,
}

impl Listener {
    /// Listens at `path`. Replaces a socket that a dead server left there; the socket of a live one is an error. Anyone
    /// who can open `path` may connect; the kernel reports the peer's ids.
    pub fn bind(path: &Path, limits: Limits) -> io::Result<Listener> {
        let context = |error: Errno| {
            io::Error::new(
                io::Error::from(error).kind(),
                format!("{}: {error}", path.display()),
            )
        };
        let address = Socket::address(path)?;
        let socket = Socket::new()?;
        if !socket.refuse_descriptors() {
            tracing::debug!("this kernel takes descriptors for us that clients send");
        }
        match bind(socket.as_fd(), &address) {
            Err(Errno::ADDRINUSE) => {
                remove_dead(path)?;
                bind(socket.as_fd(), &address).map_err(context)?;
            }
            bound => bound.map_err(context)?,
        }
        chmod(path, Mode::from_raw_mode(0o666)).map_err(context)?;
        let status = stat(path).map_err(context)?;
        listen(socket.as_fd(), 128).map_err(context)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            socket.as_fd(),
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        Ok(Listener {
            socket,
            path: path.to_owned(),
            identity: (status.st_dev, status.st_ino),
            epoll,
            accounts: Accounts::new(limits),
            waiting: Vec::new(),
            spare: spare(),
            looked: None,
            pause: Pause::default(),
            wants_descriptors: false,
            set: None,
        })
    }

    fn take_new(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPT_BURST {
            match accept_with(
                self.socket.as_fd(),
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            ) {
                Ok(fd) => {
                    self.pause.succeeded();
                    self.wants_descriptors = false;
                    self.admit(Socket::from_fd(fd));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE) if self.refuse_for_want_of_descriptors() => {}
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // Otherwise it would wake this thread as long as it fails.
                    let _ = epoll::delete(&self.epoll, self.socket.as_fd());
                    self.pause.failed(clock::now());
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn admit(&mut self, socket: Socket) {
        let Ok(peer) = socket.peer() else { return };
        let Peer::Uid { uid, .. } = peer else { return };
        match self.accounts.connection(uid) {
            Ok(charge) => {
                let data = epoll::EventData::new_u64(0);
                if epoll::add(&self.epoll, socket.as_fd(), data, epoll::EventFlags::IN).is_ok() {
                    self.waiting.push(Waiting {
                        socket,
                        peer,
                        charge,
                        since: clock::now(),
                    });
                }
            }
            Err(error) => {
                tracing::warn!(%peer, %error, "connection refused");
                let _ = socket.send(
                    &Packet::Refused {
                        reason: error.to_string(),
                    },
                    &[],
                );
            }
        }
    }

    /// Whether new connections are ignored for now.
    fn pauses(&mut self, now: Nanos) -> bool {
        if self.pause.end(now) {
            let data = epoll::EventData::new_u64(0);
            let flags = epoll::EventFlags::IN;
            if epoll::add(&self.epoll, self.socket.as_fd(), data, flags).is_err() {
                self.pause.failed(now);
            }
            self.looked = None;
        }
        let until = self.pause.until();
        if let (Some(until), Some((set, _))) = (until, &self.set) {
            set.wake_at(until);
        }
        until.is_some()
    }

    /// Whether anybody was refused.
    fn refuse_for_want_of_descriptors(&mut self) -> bool {
        if !std::mem::replace(&mut self.wants_descriptors, true) {
            tracing::warn!("out of descriptors: raise the limit on open files");
        }
        if self.spare.take().is_none() {
            self.spare = spare();
            return false;
        }
        let mut refused = false;
        if let Ok(fd) = accept_with(
            self.socket.as_fd(),
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        ) {
            let reason = "the server is out of descriptors".to_owned();
            let _ = Socket::from_fd(fd).send(&Packet::Refused { reason }, &[]);
            refused = true;
        }
        self.spare = spare();
        refused
    }

    /// The first client whose first packet has come. Clients that sent garbage, left or took too long are dropped.
    fn next_hello(&mut self) -> Option<Incoming> {
        let now = clock::now();
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index) {
            match waiting.socket.receive_plain() {
                Ok(None) if now.since(waiting.since) < HELLO_WITHIN => index += 1,
                Ok(Some(Packet::Hello { private_data })) => {
                    let Waiting {
                        socket,
                        peer,
                        charge,
                        ..
                    } = self.waiting.swap_remove(index);
                    // It is there: it was added in `admit`.
                    let _ = epoll::delete(&self.epoll, socket.as_fd());
                    let accounts = Arc::clone(&self.accounts);
                    return Some(Incoming {
                        socket,
                        peer,
                        private_data,
                        charge,
                        accounts,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let _ = waiting.socket.send(
                        &Packet::Refused {
                            reason: error.to_string(),
                        },
                        &[],
                    );
                    self.waiting.swap_remove(index);
                }
                _ => {
                    self.waiting.swap_remove(index);
                }
            }
        }
        None
    }
}

/// Removes the socket of a server that does not listen any more.
fn remove_dead(path: &Path) -> io::Result<()> {
    let in_use = || {
        io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "{}: another server listens there, or it is not a socket",
                path.display()
            ),
        )
    };
    // A connect to any other file is refused in the same way as one to a dead socket.
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(in_use());
    }
    let probe = Socket::new()?;
    match rustix::net::connect(probe.as_fd(), &Socket::address(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        _ => Err(in_use()),
    }
}

fn spare() -> Option<OwnedFd> {
    open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

impl fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn fabric::Incoming>>> {
        let now = clock::now();
        let pauses = self.pauses(now);
        let rung = self.set.as_ref().is_none_or(|(_, bell)| bell.take());
        if !rung
            && self
                .looked
                .is_some_and(|looked| now.since(looked) < LOOK_EVERY)
        {
            return Ok(None);
        }
        // Clients that have been silent for too long give way to new ones.
        let mut incoming = self.next_hello();
        if incoming.is_none() && !pauses {
            self.take_new()?;
            incoming = self.next_hello();
        }
        // After a hit the next look comes at once.
        self.looked = incoming.is_none().then_some(now);
        Ok(incoming.map(|incoming| Box::new(incoming) as _))
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        let bell = set.add(self.epoll.as_fd())?;
        self.set = Some((Arc::clone(set), bell));
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if stat(&self.path).is_ok_and(|status| (status.st_dev, status.st_ino) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A client whose first packet has come.
struct Incoming {
    socket: Socket,
    peer: Peer,
    private_data: Vec<u8>,
    charge: Charge,
    accounts: Arc<Accounts>,
}

impl fabric::Incoming for Incoming {
    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn accept(
        self: Box<Self>,
        private_data: &[u8],
        _inbound_reads: u32,
    ) -> io::Result<Box<dyn QueuePair>> {
        fabric::check_private_data(private_data)?;
        let made = self.make_rings();
        if let Err(error) = &made {
            let _ = self.socket.send(
                &Packet::Refused {
                    reason: error.to_string(),
                },
                &[],
            );
        }
        let (fd, memory, rings) = made?;
        self.socket.send(
            &Packet::Welcome {
                private_data: private_data.to_vec(),
            },
            &[fd.as_fd()],
        )?;
        let (into, out) = (
            Ring::new(Arc::clone(&memory), 0),
            Ring::new(memory, RING_BYTES),
        );
        let uid = self.uid();
        let Incoming {
            socket,
            peer,
            private_data,
            charge,
            accounts,
        } = *self;
        let role = EndRole::Server {
            accounts,
            uid,
            regions: 0,
            _charges: [charge, rings],
        };
        Ok(Box::new(Pair::new(
            socket,
            out,
            into,
            peer,
            private_data,
            role,
        )))
    }

    fn reject(self: Box<Self>, reason: &str) {
        let _ = self.socket.send(
            &Packet::Refused {
                reason: reason.to_owned(),
            },
            &[],
        );
    }
}

impl Incoming {
    fn uid(&self) -> u32 {
        match self.peer {
            Peer::Uid { uid, .. } => uid,
            Peer::Address(_) | Peer::Simulated(_) => u32::MAX,
        }
    }

    fn make_rings(&self) -> io::Result<(OwnedFd, Arc<Mapping>, Charge)> {
        let charge = self.accounts.memory(self.uid(), 2 * RING_BYTES as u64)?;
        let fd = memfd::create("odafs-rings", 2 * RING_BYTES as u64)?;
        memfd::settle(&fd)?;
        let memory = Arc::new(Mapping::of(
            fd.as_fd(),
            2 * RING_BYTES,
            Protection::ReadWrite,
        )?);
        Ok((fd, memory, charge))
    }
}

#[cfg(all(test, not(any(shuttle, loom, miri))))]
mod tests {
    use super::*;
    use crate::fabric::Listener as _;
    use rustix::event::{PollFd, PollFlags, poll};

    /// A failure is reported once, and then the listener rests for a while and nobody is woken for it.
    #[test]
    fn an_accept_that_fails_is_not_tried_again_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut listener = Listener::bind(&dir.path().join("s"), Limits::default()).unwrap();
        // Nobody listens on this one.
        listener.socket = Socket::new().unwrap();
        let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&listener.epoll, listener.socket.as_fd(), data, flags).unwrap();
        assert!(listener.poll_accept().is_err());
        for _ in 0..100 {
            assert!(listener.poll_accept().unwrap().is_none());
        }
        let none = rustix::event::Timespec::default();
        let fd = PollFd::new(&listener.epoll, PollFlags::IN);
        assert_eq!(poll(&mut [fd], Some(&none)), Ok(0));
    }
}
