//! What the machine itself can do: the rows that every other row stands beside.
//!
//! [`local`] is a file read without any server, [`shm`] the least that two
//! threads can do that hand a page from one to the other.

pub mod local;
pub mod memory;
pub mod shm;
