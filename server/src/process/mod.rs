//! The process: options, listeners and threads. It wires the other wings together, and none of them names it.

pub mod assembly;
pub mod config;
#[cfg(not(shuttle))]
mod datagrams;
#[cfg(not(shuttle))]
mod exports;
#[cfg(not(shuttle))]
pub mod memory;
#[cfg(not(shuttle))]
mod metrics_http;
#[cfg(not(shuttle))]
mod names;
#[cfg(not(shuttle))]
pub mod peers;
#[cfg(not(shuttle))]
pub mod server;
#[cfg(not(shuttle))]
mod watch;
