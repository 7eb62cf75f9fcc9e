//! ONC RPC (RFC 5531): takes a call to the procedure that it names, whichever transport it came over.
//!
//! Every call is first tried on the thread that polls. There the procedure either replies from what is in memory, or says
//! that it would block. A procedure that has done nothing yet says [`Answer::Blocks`], and runs from its start on the pool.
//! One that has done something hands over its state ([`Answer::Suspended`]), and the pool goes on from there. Either way
//! the pool's part is the job of an [`Outcome::Deferred`](odafs_nic::calls::Outcome). Calls whose repetition would do harm
//! go to the pool at once, by way of the duplicate request cache.
//!
//! `program.rs` is what a program owes this, `service.rs` what is done with it.

pub mod access;
mod arguments;
mod counts;
pub mod drc;
pub mod pool;
mod program;
pub mod seen;
mod service;
#[cfg(not(shuttle))]
pub mod tcp;
#[cfg(test)]
mod tests;

pub use arguments::{ApartPayloads, Lengths};
pub use counts::CallCounts;
pub(crate) use program::reply;
pub use program::{Admission, Answer, Call, Program, Resumed, Suspended};
pub use service::Service;
