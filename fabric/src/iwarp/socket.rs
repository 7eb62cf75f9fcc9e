//! Queue pairs of [`protocol`](super::protocol) on TCP sockets.

mod listener;
mod pair;
mod readiness;
mod sys;

pub use listener::Listener;

use super::protocol::handshake::{self, HandshakeError, Wishes};
use super::protocol::mpa::{Frame, FrameKind, FrameReader, HEAD_BYTES, PRIVATE_MAX};
use crate::clock::{self, Nanos};
use crate::fabric::{self, NO_REPLY, Peer, QueuePair};
use crate::tcp::{dial, settle_pacing};
use pair::Pair;
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// Silence after which the kernel asks whether the peer is there, how often, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 3;

/// How long a peer may leave bytes unacknowledged, in milliseconds.
const USER_TIMEOUT_MS: u32 = 60_000;

/// When FPDUs carry a checksum (RFC 5044 section 4.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crc {
    /// When the peer asks for it.
    #[default]
    WhenAsked,
    /// On every connection.
    Always,
}

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: u32,
    /// Connections at a time that have not finished their handshake.
    pub handshakes: u32,
    /// How long a handshake may take.
    pub handshake_deadline: Nanos,
    /// When FPDUs carry a checksum.
    pub crc: Crc,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshakes: 256,
            handshake_deadline: Nanos::from_secs(5),
            crc: Crc::WhenAsked,
        }
    }
}

/// What a client wants of its connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// Whether to ask for checksums.
    pub crc: bool,
    /// RDMA Reads of our registered memory that the peer may have under way (our IRD).
    pub inbound_reads: u32,
    /// RDMA Reads that we want to have under way (our ORD).
    pub outbound_reads: u32,
    /// How long the connect and the handshake may take together.
    pub deadline: Nanos,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            crc: false,
            inbound_reads: 128,
            outbound_reads: 128,
            deadline: Nanos::from_secs(10),
        }
    }
}

/// Connects to a listener, or to any other iWARP peer. Blocks until the handshake is over.
pub fn connect(
    address: SocketAddr,
    private_data: &[u8],
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    fabric::check_private_data(private_data)?;
    let until = clock::now() + options.deadline;
    let mut socket = dial(address, left(until)?)?;
    prepare(&socket)?;
    socket.set_nonblocking(false)?;
    let wishes = Wishes {
        crc: options.crc,
        inbound_reads: options.inbound_reads,
        outbound_reads: options.outbound_reads,
        frame_max: sys::segment_max(socket.as_fd())?,
    };
    socket.set_write_timeout(Some(left(until)?))?;
    socket.write_all(&handshake::request(&wishes, private_data).encode())?;
    let reply = read_reply(&mut socket, until)?;
    let agreed = handshake::agree(&wishes, &reply).map_err(|error| {
        let kind = match error {
            HandshakeError::Refused(_) => io::ErrorKind::ConnectionRefused,
            HandshakeError::Mismatch => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    })?;
    socket.set_nonblocking(true)?;
    let peer = Peer::Address(address);
    let mut pair = Pair::new(socket, &agreed, peer, reply.private_data, None);
    // With a peer-to-peer handshake that tells the responder that it may send.
    pair.flush();
    Ok(Box::new(pair))
}

fn read_reply(socket: &mut TcpStream, until: Nanos) -> io::Result<Frame> {
    let mut reader = FrameReader::new(FrameKind::Reply);
    let mut bytes = [0; HEAD_BYTES + PRIVATE_MAX];
    loop {
        socket.set_read_timeout(Some(left(until)?))?;
        let missing = reader.missing();
        match socket.read(&mut bytes[..missing]) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, NO_REPLY));
            }
            Ok(came) => {
                let fed = reader.feed(&bytes[..came]);
                let fed = fed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
                if let (_, Some(reply)) = fed? {
                    return Ok(reply);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Time until a deadline that has not passed.
fn left(until: Nanos) -> io::Result<Duration> {
    match until.since(clock::now()).0 {
        0 => Err(io::ErrorKind::TimedOut.into()),
        nanos => Ok(Duration::from_nanos(nanos)),
    }
}

/// What every socket of ours is: quick, not blocking, and noticed when its peer is gone.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    settle_pacing(socket);
    Ok(())
}
