//! What the machine itself can do: the rows that every other row stands beside.
//!
//! [`local`] is a file read without any server; [`shm`] and [`tcp`] are the
//! least that two threads can do that hand a page from one to the other.

pub mod local;
pub mod memory;
pub mod shm;
pub mod tcp;

use std::io;

/// How a side waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Looks again and again.
    Spin,
    /// Sleeps in the kernel.
    Block,
}

/// The other of two threads: it hands over pages of a set.
pub trait Peer {
    /// Has it hand over the bytes at `offset` of the set, and takes them.
    ///
    /// # Errors
    /// The connection was lost.
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Its CPU time so far, in nanoseconds.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn cpu_ns(&mut self) -> io::Result<u64>;
}
