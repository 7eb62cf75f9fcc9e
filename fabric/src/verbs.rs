//! RDMA adapters, hardware or soft (`rdma_rxe`, `siw`), by libibverbs and librdmacm.

mod device;
mod error;
mod listener;

pub use device::{Device, Port, PortState, Transport, devices};
pub use error::VerbsError;
pub use listener::Listener;

use crate::clock::Nanos;
use crate::fabric::{QueuePair, RemoteInvalidation};
use std::io;
use std::net::SocketAddr;

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: u32,
    /// Connection requests at a time that have not become connections.
    pub handshakes: u32,
    /// How long it may take from a request to a connection.
    pub handshake_deadline: Nanos,
    /// Whether the arena is registered for on-demand paging where the device offers it: its pages are not pinned then.
    pub odp: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshakes: 256,
            handshake_deadline: Nanos::from_secs(5),
            odp: false,
        }
    }
}

/// What a client wants of its connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// RDMA Reads of our registered memory that the peer may have under way.
    pub inbound_reads: u32,
    /// RDMA Reads that we want to have under way.
    pub outbound_reads: u32,
    /// How long the connect may take.
    pub deadline: Nanos,
    /// Whether memory is registered for on-demand paging where the device offers it.
    pub odp: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            inbound_reads: 128,
            outbound_reads: 128,
            deadline: Nanos::from_secs(10),
            odp: false,
        }
    }
}

/// Connects to a listener, or to any other peer that RDMA-CM reaches. Blocks until the connection is there.
pub fn connect(
    address: SocketAddr,
    private_data: &[u8],
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    connect_with(address, |_| private_data.to_vec(), options)
}

/// The same, with private data that depends on what the device on the way to the peer can do.
pub fn connect_with(
    _address: SocketAddr,
    _private_data: impl FnOnce(RemoteInvalidation) -> Vec<u8>,
    _options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    Err(io::ErrorKind::Unsupported.into())
}
