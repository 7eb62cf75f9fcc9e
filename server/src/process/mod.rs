//! The process: options, listeners, threads, and everything wired together. Nothing below knows
//! of it.

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
