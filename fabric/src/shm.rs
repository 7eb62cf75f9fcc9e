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

/// What the clients of a listener may hold at once. An error names the cap that was met, and the option of `odafs serve`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one uid. Each costs the server one descriptor.
    pub connections_per_uid: u32,
    /// Connections of all.
    pub connections: u32,
    /// Bytes of rings and regions of one uid. What nobody has touched of them takes no memory yet.
    pub memory_per_uid: u64,
    /// Registered regions of one connection.
    pub regions_per_connection: u32,
}

/// Bytes that a connection counts for: rings of 1.2 MiB, and the region of a client's direct reads.
const MEMORY_PER_CONNECTION: u64 = 2 << 20;

impl Limits {
    /// For so many connections of one uid; two users can have them at a time.
    pub fn of_connections(per_uid: u32) -> Self {
        Self {
            connections_per_uid: per_uid,
            connections: per_uid.saturating_mul(2),
            memory_per_uid: u64::from(per_uid) * MEMORY_PER_CONNECTION,
            regions_per_connection: 64,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_connections(8192)
    }
}
