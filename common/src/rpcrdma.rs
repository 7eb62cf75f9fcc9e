//! RPC-over-RDMA version 1 (RFC 8166), without IO: what a client (the requester) and a server (the responder) send,
//! place in memory and fetch from it, for each call and reply. The owner of the queue pair carries it out.
//!
//! Neither side knows the meaning of an RPC message. The type of an argument or result says which bytes may travel
//! apart (DDP-eligibility): [`Payload`](crate::wire::nfs3::Payload) tells its place to the
//! [`Writer`](crate::wire::xdr::Writer), and the [`Reader`](crate::wire::xdr::Reader) of a reply knows how many bytes
//! came apart.

mod assembly;
pub mod binding;
mod credit;
mod plan;
mod private_data;
mod reply;
mod requester;
mod responder;
mod reverse;

pub use assembly::{Assembly, InlinePart, Pull};
pub use credit::{AdaptiveGrants, AdaptiveRequests, GrantPolicy, RequestPolicy};
pub use private_data::{INLINE_BYTES, INLINE_BYTES_DEFAULT, Inline, PrivateData, Terms};
pub use reply::{PlacedResult, PlacedResults, Placements, Results, Source, Write};
pub use requester::{
    Call, CallError, CallShape, Event, Failure, Need, NeedKind, Outgoing, Part, Parts, Pulled,
    Reply, Requester, RequesterConfig, Stream,
};
pub use responder::{
    Expose, ExposureId, Ignored, IncomingCall, ReadRead, Received, ReplyPlan, Responder,
    ResponderConfig, SPARE_RECEIVES, Ticket,
};
pub use reverse::ReverseError;

#[cfg(test)]
mod tests;
