//! The work of the server's network adapter: it verifies direct reads, translates, checks and pins, and moves the data;
//! and it passes calls to the procedures. Only the engine's loop does IO.
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub mod calls;
#[cfg(not(loom))]
pub mod capability;
#[cfg(not(loom))]
pub mod connection;
#[cfg(not(loom))]
pub mod counters;
#[cfg(not(loom))]
pub mod engine;
#[cfg(not(loom))]
pub mod host_vm;
#[cfg(not(loom))]
pub mod nic;
#[cfg(not(loom))]
pub mod registration;
#[cfg(not(loom))]
pub mod tpt;

#[cfg(loom)]
#[path = "tpt/slot.rs"]
mod slot;
