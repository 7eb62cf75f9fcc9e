use super::Limits;
use crate::fabric::{self, Incoming};
use crate::wake::WakeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Takes connections at an address of a device.
pub struct Listener {
    address: SocketAddr,
}

impl Listener {
    /// Listens at `address`; port 0 takes a free one.
    pub fn bind(_address: SocketAddr, _limits: Limits) -> io::Result<Listener> {
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
