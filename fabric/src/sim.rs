//! The fabric of the tests: a network in memory, with delays, cuts and killed servers.
//!
//! It is built on [`crate::sync`]: under `--cfg shuttle` both ends run as tasks of one seeded
//! scheduler and time is virtual; otherwise they are ordinary threads.

#[cfg(shuttle)]
pub mod clock;
#[cfg(shuttle)]
pub mod once;

use crate::clock::Nanos;
use crate::fabric::{Listener, QueuePair};
use std::io;

/// What the network does to its traffic.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkConfig {
    /// Each post takes a random time from 0 to this, in order within its queue pair. 0: at once.
    pub delay_max: Nanos,
    /// One post in so many cuts its connection. 0: none.
    pub cut_one_in: u32,
    /// Whether clients may map what servers expose, as on shm.
    pub loads: bool,
    /// Whether RDMA Writes complete later (their frames stay pinned), as on a network.
    pub slow_writes: bool,
    /// Messages that a queue pair holds. 0: 1024.
    pub depth: u32,
}

/// A network of simulated nodes.
#[derive(Clone)]
pub struct Network {}

impl Network {
    /// An empty network. The chance in it comes from `seed`.
    pub fn new(seed: u64, config: NetworkConfig) -> Network {
        todo!("{seed} {config:?}")
    }

    /// Takes connections under `name`, as a new server life: after [`Network::kill`] the name is free again.
    pub fn listen(&self, name: &str) -> io::Result<Box<dyn Listener>> {
        todo!("{name}")
    }

    /// Connects to `name`. Blocks until the server has accepted or refused.
    pub fn connect(&self, name: &str, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        todo!("{name} {private_data:?}")
    }

    /// Kills the server life that listens under `name`: its connections end, and nothing that its
    /// threads still do reaches anybody.
    pub fn kill(&self, name: &str) {
        todo!("{name}")
    }

    /// Cuts the connection of the client that has [`crate::Peer::Simulated`] number `client`.
    pub fn cut(&self, client: u32) {
        todo!("{client}")
    }

    /// Numbers of the clients that are connected.
    pub fn clients(&self) -> Vec<u32> {
        todo!()
    }
}

#[cfg(shuttle)]
pub use explore::explore;
#[cfg(shuttle)]
mod explore;
