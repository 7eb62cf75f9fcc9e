//! The library that programs import to read files from an ODAFS server.
#![forbid(unsafe_code)]

mod budget;
mod cache;
mod calls;
mod client;
mod direct;
mod directory;
mod error;
mod file;
mod handle;
mod lane;
mod link;
mod metadata;
mod mount;
mod nfs;
mod options;
mod path;
mod pipeline;
mod policy;
mod pool;
mod read;
mod read_rpc;
mod references;
mod session;
mod shared;
mod state;
mod statistics;
mod tcp;
#[cfg(all(feature = "tokio", not(shuttle)))]
pub mod tokio;
mod trace;
mod transport;
mod url;
mod write;

pub use client::{Client, FileReferences, Granted, PageReference, ReadDir, ServerFacts};
pub use error::{CallError, ConnectError, PathError, ReadError, Status, UrlError, WriteError};
pub use file::{File, ReadRequest};
pub use link::Dial;
pub use metadata::{Changes, CreateOptions, DirEntry, FileKind, Metadata, Space, When};
pub use odafs_common::exception::Exception;
pub use options::{Cache, Credential, Eager, MacPreference, Options, Route, Transfer, Wait};
pub use statistics::{Statistics, Terms};
pub use trace::{Step, Taken, Traced, Why};
pub use url::{Host, ServerAddress, Url};
