//! The fabric of one host: rings and regions in memory that the server makes, seals and passes
//! over a Unix socket.
//!
//! Neither end trusts what it reads in shared memory: indices are worked out, not read; lengths
//! are copied and checked; message bytes are copied to private memory before anyone parses them.
//! The memory is sealed, so no end can take it from under the other. The end of the socket is
//! the end of the connection, and then all that the connection held is given back.

#![allow(unsafe_code)]

mod accounts;
mod connect;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzz;
mod hangup;
mod listener;
mod pair;
mod protocol;
mod ring;
mod socket;

pub use connect::{ConnectOptions, connect};
pub use listener::Listener;

/// The atomics of the rings: they live in shared memory.
mod atomic {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[cfg(all(test, loom))]
mod explored;

/// What the clients of a listener may hold at once. An error names the cap that was met.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one uid. Each costs the server one descriptor.
    pub connections_per_uid: u32,
    /// Connections of all.
    pub connections: u32,
    /// Bytes of rings and regions of one uid.
    pub memory_per_uid: u64,
    /// Registered regions of one connection.
    pub regions_per_connection: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_per_uid: 128,
            connections: 768,
            memory_per_uid: 1 << 30,
            regions_per_connection: 64,
        }
    }
}
