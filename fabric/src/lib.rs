//! Queue pairs and memory, soft or real: what a queue pair does in verbs, and nothing more.
//!
//! | module | what lives there |
//! |---|---|
//! | [`fabric`] | the traits that every fabric implements, and the types they speak of |
//! | [`iwarp`] | the fabric between hosts: iWARP over TCP. Its `protocol` is MPA, DDP and RDMAP without IO |
//! | [`memory`] | the arena that the page cache lives in, its stamps and pins, the client's view of it, the life word |
//! | [`shm`] | the fabric of one host: rings and regions in shared memory |
//! | [`sim`] | the fabric of the tests: virtual time, delays, cuts, killed servers |
//! | `tcp` | TCP sockets: what NFS over TCP and iWARP share |
//! | `verbs` | RDMA adapters, by libibverbs and librdmacm (cargo feature `verbs`) |
//! | [`sync`], [`clock`], [`entropy`] | the only primitives of concurrency, time and chance that the system's cores use, so that `--cfg shuttle` can run all of it under one seeded scheduler |

#![deny(unsafe_code)]

pub mod clock;
#[cfg(all(test, not(any(shuttle, loom))))]
mod corpus_tests;
pub mod entropy;
pub mod fabric;
pub mod iwarp;
pub mod memory;
#[cfg(not(shuttle))]
mod pause;
#[cfg(not(shuttle))]
pub mod shm;
pub mod sim;
pub mod sync;
#[cfg(not(shuttle))]
pub mod tcp;
#[cfg(all(feature = "verbs", not(shuttle)))]
pub mod verbs;
#[cfg(all(not(feature = "verbs"), not(shuttle)))]
#[path = "verbs_absent.rs"]
pub mod verbs;
pub mod wake;

pub use fabric::{
    Access, Completion, Exposed, Fault, Incoming, Listener, Local, MARKS_BYTES, NO_REPLY,
    NOT_LISTENING, Peer, PostError, Posted, QueuePair, REFUSED, ReadOrder, Region, Remote,
    RemoteInvalidation, Sink, Source, SteeringTag, gathered, mark_step,
};
