//! The Unix socket beside the rings. It carries descriptors and wake-ups, and the connection ends with it. Each packet
//! is one record (`SOCK_SEQPACKET`).
//!
//! The socket wakes the peer instead of an eventfd. Both ends could change an eventfd's flags, so a hostile client
//! could make a server's write to it block.

use crate::clock::{self, Nanos};
use crate::fabric::{PRIVATE_DATA_MAX, Peer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, recv,
    recvmsg, send, sendmsg, shutdown, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The longest packet, in bytes.
pub(super) const PACKET_MAX: usize = 512;

/// The longest reason of a refusal that is sent, in bytes.
pub(super) const REASON_MAX: usize = 400;

/// The most descriptors of a packet.
const DESCRIPTORS_MAX: usize = 3;

/// The first word of every packet except a wake-up.
const MAGIC: u32 = 0x4f44_4653;

/// Version of the packets and of the rings' layout.
const VERSION: u32 = 4;

/// The contents of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Look at the rings.
    Wake,
    /// A client's first packet: it wants a connection.
    Hello { private_data: Vec<u8> },
    /// The server's first packet, with the memory of the rings.
    Welcome { private_data: Vec<u8> },
    /// The server refuses a connection, for this reason.
    Refused { reason: String },
    /// The server refuses the region that the client asked for with this number, for this reason.
    NoRegion { request: u32, reason: String },
    /// A region with its memory. `request` is the client's number for it, or 0 for the server's own.
    Region { tag: u32, length: u64, request: u32 },
    /// An arena, with the memory of frames, stamps and life word.
    Exposed {
        arena: u32,
        stamps: u32,
        page: u32,
        /// Whether the stamps are beside the frames.
        beside: bool,
        life: u64,
    },
}

impl Packet {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, words, tail): (u32, &[u64], &[u8]) = match self {
            Packet::Wake => return vec![0],
            Packet::Hello { private_data } => (1, &[], private_data),
            Packet::Welcome { private_data } => (2, &[], private_data),
            Packet::Refused { reason } => (3, &[], cut(reason)),
            Packet::NoRegion { request, reason } => (6, &[u64::from(*request)], cut(reason)),
            Packet::Region {
                tag,
                length,
                request,
            } => (4, &[u64::from(*tag), *length, u64::from(*request)], &[]),
            Packet::Exposed {
                arena,
                stamps,
                page,
                beside,
                life,
            } => (
                5,
                &[
                    u64::from(*arena),
                    u64::from(*stamps),
                    u64::from(*page),
                    u64::from(*beside),
                    *life,
                ],
                &[],
            ),
        };
        let mut bytes = Vec::with_capacity(16 + words.len() * 8 + tail.len());
        bytes.extend(
            [MAGIC, VERSION, kind, 0]
                .map(u32::to_ne_bytes)
                .as_flattened(),
        );
        words
            .iter()
            .for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(tail);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Packet> {
        if bytes.len() < 16 {
            return Ok(Packet::Wake);
        }
        let (head, tail) = bytes.split_at(16);
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(0) != MAGIC {
            return Err(invalid("the peer does not speak this protocol"));
        }
        if word(4) != VERSION {
            return Err(invalid("client and server are of different versions"));
        }
        let (words, _) = tail.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let private_data = || match tail.len() {
            0..=PRIVATE_DATA_MAX => Ok(tail.to_vec()),
            _ => Err(invalid("too much private data")),
        };
        match (word(8), words.as_slice()) {
            (1, _) => Ok(Packet::Hello {
                private_data: private_data()?,
            }),
            (2, _) => Ok(Packet::Welcome {
                private_data: private_data()?,
            }),
            (3, _) => Ok(Packet::Refused {
                reason: String::from_utf8_lossy(tail).into_owned(),
            }),
            (4, &[tag, length, request]) => Ok(Packet::Region {
                tag: tag as u32,
                length,
                request: request as u32,
            }),
            (5, &[arena, stamps, page, beside @ 0..=1, life]) => Ok(Packet::Exposed {
                arena: arena as u32,
                stamps: stamps as u32,
                page: page as u32,
                beside: beside == 1,
                life,
            }),
            (6, &[request, ..]) => Ok(Packet::NoRegion {
                request: request as u32,
                reason: String::from_utf8_lossy(&tail[8..]).into_owned(),
            }),
            _ => Err(invalid("a packet of an unknown kind")),
        }
    }
}

/// As much of a reason as is sent.
fn cut(reason: &str) -> &[u8] {
    &reason.as_bytes()[..reason.floor_char_boundary(REASON_MAX)]
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// One end of the connection.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// A socket that is neither bound nor connected.
    pub fn new() -> io::Result<Socket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Socket(socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            flags,
            None,
        )?))
    }

    /// The address of `path`, for a bind or connect.
    pub fn address(path: &Path) -> io::Result<SocketAddrUnix> {
        SocketAddrUnix::new(path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "{}: a socket's path takes at most 107 bytes",
                    path.display()
                ),
            )
        })
    }

    /// Makes the kernel refuse descriptors that others send (Linux 6.16; returns `false` before). The last close of a
    /// descriptor can block (a TCP socket that lingers), and it would be this process's. Accepted sockets inherit this.
    pub fn refuse_descriptors(&self) -> bool {
        const SO_PASSRIGHTS: libc::c_int = 83;
        let (fd, none) = (self.0.as_raw_fd(), 0 as libc::c_int);
        let length = size_of_val(&none) as libc::socklen_t;
        let value = (&raw const none).cast();
        // SAFETY: the value has `length` bytes, which the kernel only reads.
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, value, length) == 0 }
    }

    pub fn from_fd(fd: OwnedFd) -> Socket {
        Socket(fd)
    }

    /// Sends a packet without blocking. `WouldBlock` means that the peer does not read.
    pub fn send(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = packet.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(invalid("too many descriptors"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Wakes the peer.
    pub fn wake(&self) {
        // If the socket is full, the peer has enough wake-ups. If it is closed, polls will notice.
        let _ = send(&self.0, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Ends the connection for all who have a descriptor of either end. The peer's next look finds that out.
    pub fn shut_down(&self) {
        // Fails only where nothing is left to end.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// The next packet with its descriptors, or `None` if there is none. The end of the connection is `UnexpectedEof`.
    pub fn receive(&self) -> io::Result<Option<(Packet, Vec<OwnedFd>)>> {
        let mut bytes = [0; PACKET_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let length = match recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        ) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        match length {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => Packet::decode(&bytes[..length]).map(|packet| Some((packet, descriptors))),
        }
    }

    /// As [`Socket::receive`], but the kernel drops descriptors that a client sends.
    pub fn receive_plain(&self) -> io::Result<Option<Packet>> {
        let mut bytes = [0; PACKET_MAX];
        match recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => Packet::decode(&bytes[..length]).map(Some),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks until a packet is there or `timeout` has passed.
    pub fn wait(&self, timeout: Option<Nanos>) -> io::Result<()> {
        let span = timeout.map(|span| Timespec {
            tv_sec: (span.0 / 1_000_000_000) as i64,
            tv_nsec: (span.0 % 1_000_000_000) as _,
        });
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], span.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next packet. Blocks until `deadline`.
    pub fn receive_until(&self, deadline: Nanos) -> io::Result<(Packet, Vec<OwnedFd>)> {
        loop {
            if let Some(packet) = self.receive()? {
                return Ok(packet);
            }
            let left = deadline.since(clock::now());
            if left == Nanos(0) {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the server does not answer",
                ));
            }
            self.wait(Some(left))?;
        }
    }

    /// The process at the other end.
    pub fn peer(&self) -> io::Result<Peer> {
        let mut credentials = [0u32; 3];
        option(&self.0, libc::SO_PEERCRED, &mut credentials)?;
        // NGROUPS_MAX of Linux.
        let mut groups = vec![0u32; 65_536];
        let count = option(&self.0, libc::SO_PEERGROUPS, &mut groups)?;
        groups.truncate(count);
        let [pid, uid, gid] = credentials;
        Ok(Peer::Uid {
            uid,
            gid,
            groups: groups.into(),
            pid: pid.cast_signed(),
        })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket option that is an array of 32-bit words. Returns how many came.
fn option(fd: &OwnedFd, name: libc::c_int, words: &mut [u32]) -> io::Result<usize> {
    let mut length = size_of_val(words) as libc::socklen_t;
    let (fd, value) = (fd.as_raw_fd(), words.as_mut_ptr().cast());
    // SAFETY: the buffer has `length` bytes, and the kernel writes at most that many and the length.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, value, &raw mut length) };
    if result == 0 {
        Ok(length as usize / 4)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_round_trip() {
        let packets = [
            Packet::Wake,
            Packet::Hello {
                private_data: vec![7; PRIVATE_DATA_MAX],
            },
            Packet::Welcome {
                private_data: vec![],
            },
            Packet::Refused {
                reason: "no".into(),
            },
            Packet::NoRegion {
                request: 8,
                reason: "too long".into(),
            },
            Packet::Region {
                tag: 3,
                length: 1 << 40,
                request: 8,
            },
            Packet::Exposed {
                arena: 1,
                stamps: 2,
                page: 4096,
                beside: true,
                life: u64::MAX,
            },
        ];
        for packet in packets {
            assert_eq!(Packet::decode(&packet.encode()).unwrap(), packet);
        }
        let mut long = Packet::Hello {
            private_data: vec![0; PRIVATE_DATA_MAX + 1],
        }
        .encode();
        assert!(Packet::decode(&long).is_err());
        long[4] ^= 1;
        assert!(
            Packet::decode(&long)
                .unwrap_err()
                .to_string()
                .contains("version")
        );
        long[0] ^= 1;
        assert!(Packet::decode(&long).is_err());
    }

    #[test]
    fn who_takes_no_descriptors_is_sent_none() {
        let directory = tempfile::tempdir().unwrap();
        let address = Socket::address(&directory.path().join("socket")).unwrap();
        let (listener, client) = (Socket::new().unwrap(), Socket::new().unwrap());
        let refuses = listener.refuse_descriptors();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        rustix::net::connect(&client, &address).unwrap();
        // Even before the connection is accepted.
        let sent = client.send(&Packet::Wake, &[client.as_fd()]);
        assert_eq!(sent.is_err(), refuses, "{sent:?}");
        client.send(&Packet::Wake, &[]).unwrap();
        let server = Socket::from_fd(rustix::net::accept(&listener).unwrap());
        // The other way they pass.
        server.send(&Packet::Wake, &[server.as_fd()]).unwrap();
        assert_eq!(client.receive().unwrap().unwrap().1.len(), 1);
    }
}
