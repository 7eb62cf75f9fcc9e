//! What is left of the fabric of RDMA devices in a program that was built without it: nothing connects, and the errors
//! tell how to build one that has it.

use crate::fabric::{self, QueuePair, RemoteInvalidation};
use crate::memory::Arena;
use crate::wake::WakeSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

#[path = "verbs/error.rs"]
mod error;
#[path = "verbs/types.rs"]
mod types;

pub use error::VerbsError;
pub use types::{ConnectOptions, Device, DeviceTransport, Limits, NOT_BUILT_IN, Port, PortState};

/// Whether this program has the fabric.
pub const BUILT_IN: bool = false;

fn absent() -> io::Error {
    VerbsError::NotBuiltIn.into()
}

/// Never one.
pub struct Listener(Infallible);

impl Listener {
    /// There is no fabric to listen by.
    pub fn bind(_: SocketAddr, _: Limits) -> io::Result<Listener> {
        Err(absent())
    }

    /// Nothing is registered.
    pub fn prepare(&self, _: &Arc<Arena>, _: bool) -> io::Result<Option<bool>> {
        match self.0 {}
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        match self.0 {}
    }
}

impl fabric::Listener for Listener {
    fn poll_accept(&mut self) -> io::Result<Option<Box<dyn fabric::Incoming>>> {
        match self.0 {}
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.0 {}
    }

    fn watch(&mut self, _: &Arc<WakeSet>) -> io::Result<()> {
        match self.0 {}
    }

    fn name(&self) -> String {
        match self.0 {}
    }
}

/// There is no fabric to connect by.
pub fn connect(_: SocketAddr, _: &[u8], _: &ConnectOptions) -> io::Result<Box<dyn QueuePair>> {
    Err(absent())
}

/// There is no fabric to connect by.
pub fn connect_with(
    _: SocketAddr,
    _: impl FnOnce(RemoteInvalidation) -> Vec<u8>,
    _: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    Err(absent())
}

/// There is no fabric that would know devices.
pub fn devices() -> Result<Vec<Device>, VerbsError> {
    Err(VerbsError::NotBuiltIn)
}
