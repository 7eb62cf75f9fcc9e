//! The fabric of one host: rings and regions in memory that the server creates, seals and passes over a Unix socket.
//!
//! Neither end trusts what it reads in shared memory. Indices are computed, not read; lengths are copied and checked;
//! message bytes are copied to private memory before they are parsed. The memory is sealed, so neither end can take it
//! away from the other. The connection ends with its socket, and everything that it held is then released.

#![allow(unsafe_code)]

mod accounts;
mod connect;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzz;
mod hangup;
mod listener;
mod mapped;
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

/// Limits on what the clients of a listener may hold. Errors name the limit that was met, and the option of `odafs
/// serve`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one uid. Each costs the server one descriptor.
    pub connections_per_uid: u32,
    /// Connections of all uids.
    pub connections: u32,
    /// Bytes of rings and regions of one uid. Memory that nobody has touched is counted, but not taken yet.
    pub memory_per_uid: u64,
    /// Registered regions of one connection.
    pub regions_per_connection: u32,
}

/// Bytes that a connection counts for: rings of 1.2 MiB, and the region of a client's direct reads.
const MEMORY_PER_CONNECTION: u64 = 2 << 20;

impl Limits {
    /// Limits for this many connections of one uid. Two users can have that many at a time.
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
