//! The fabric between hosts: iWARP over TCP, without RDMA hardware.
//!
//! Real iWARP on the wire (MPA, RFC 5044 and 6581; DDP, RFC 5041; RDMAP, RFC 5040), so that the
//! peer may as well be Linux's `siw` or a card.

use crate::clock::Nanos;
use crate::fabric::{self, Incoming, QueuePair};
use crate::sync::Arc;
use crate::wake::WakeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

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

/// Takes connections on a TCP port.
pub struct Listener {
    address: SocketAddr,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub fn bind(address: SocketAddr, limits: Limits) -> io::Result<Listener> {
        let _ = (address, limits);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn Incoming>>> {
        Ok(None)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn watch(&mut self, _set: &Arc<WakeSet>) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

/// Connects to a listener, or to any other iWARP peer.
pub fn connect(
    address: SocketAddr,
    private_data: &[u8],
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    let _ = (address, private_data, options);
    Err(io::ErrorKind::Unsupported.into())
}
