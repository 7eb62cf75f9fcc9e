//! The file server: page cache, stores, NFS and the ODAFS program.
//!
//! | wing | what lives there | what it may use |
//! |---|---|---|
//! | `process` | options, listeners, threads; everything wired together | all the others |
//! | [`nfs2`], [`nfs3`], [`nfs4`], [`nfsacl3`], [`nlm4`], [`mount3`], [`odafs`], [`portmap`] | a protocol each: from the wire to the [`vfs`] and back, no more | [`rpc`], [`vfs`] |
//! | [`rpc`] | calls: who may call and as whom, repetitions, the pool, TCP | of [`vfs`] the caller and its effort, and counters |
//! | [`vfs`] | the page cache, references, reads, writes and names; the order of a change | [`store`] |
//! | [`store`] | what holds the files, and the state directory; the types that files are told in | nothing |
//!
//! Arrows point down and never back: `tests/wings.rs` reads the sources for it. The types of NFS version 3 are known to its
//! own wing and to those whose messages carry them (`mount3`, `nfsacl3`, `nlm4` and `odafs`).
#![deny(unsafe_code)]

pub mod mount3;
pub mod nfs2;
pub mod nfs3;
pub mod nfs4;
pub mod nfsacl3;
pub mod nlm4;
pub mod odafs;
pub mod portmap;
mod process;
pub mod rpc;
pub mod store;
pub mod vfs;

pub use process::{assembly, config};
#[cfg(not(shuttle))]
pub use process::{memory, peers, server};
#[cfg(not(shuttle))]
pub use rpc::tcp;
pub use rpc::{access, drc};
pub use store::state;
pub use vfs::{MAX_FRAMES, change, export, file, read};
