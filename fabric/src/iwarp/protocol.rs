//! iWARP without IO: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040).
//!
//! [`Endpoint`] is one end of a stream after its handshake. The peer's bytes go in, and the bytes to send come out. It
//! owns no socket, no thread and no clock. [`mpa`] has the handshake.
//!
//! Everything that a peer sends is checked before it has an effect. What the RFCs forbid ends
//! the stream with the Terminate message that they ask for.

mod ddp;
mod endpoint;
#[cfg(all(any(test, fuzzing), not(any(shuttle, loom))))]
pub mod fuzz;
pub mod handshake;
pub mod mpa;
mod out;
mod rdmap;
mod receive;
mod tags;

pub use endpoint::{Agreed, Endpoint, MESSAGE_MAX};
pub use rdmap::Fatal;

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests;
