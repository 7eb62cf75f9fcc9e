//! RDMA adapters, hardware or soft (`rdma_rxe`, `siw`), by libibverbs and librdmacm.

mod device;
mod error;
mod listener;
mod types;

pub use device::devices;
pub use error::VerbsError;
pub use listener::Listener;
pub use types::{ConnectOptions, Device, Limits, NOT_BUILT_IN, Port, PortState, Transport};

use crate::fabric::{QueuePair, RemoteInvalidation};
use std::io;
use std::net::SocketAddr;

/// Whether this program has the fabric.
pub const BUILT_IN: bool = true;

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
