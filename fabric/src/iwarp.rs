//! The fabric between hosts: iWARP over TCP, in user space, without RDMA hardware.
//!
//! It is real iWARP on the wire (MPA, RFC 5044 and 6581; DDP, RFC 5041; RDMAP, RFC 5040), so the peer may also be Linux's
//! `siw` or an adapter.
//!
//! [`protocol`] is iWARP without IO; the simulator runs it too. The listener and the queue pair put it on TCP sockets.

pub(crate) mod by_endpoint;
pub mod protocol;
#[cfg(not(shuttle))]
mod socket;

#[cfg(not(shuttle))]
pub use socket::{ConnectOptions, Crc, Limits, Listener, connect};
