//! The library that programs import to read files from an ODAFS server.
#![forbid(unsafe_code)]

mod budget;
mod cache;
mod client;
mod directory;
mod error;
mod file;
mod metadata;
mod options;
mod policy;
mod statistics;
#[cfg(all(feature = "tokio", not(shuttle)))]
pub mod tokio;
mod trace;
mod url;

pub use client::{Client, FileReferences, Granted, PageReference, ReadDir, ServerFacts};
pub use error::{CallError, ConnectError, PathError, ReadError, Status, UrlError, WriteError};
pub use file::{File, ReadRequest};
pub use metadata::{Changes, CreateOptions, DirEntry, FileKind, Metadata, Space, When};
pub use odafs_common::exception::Exception;
pub use options::{Cache, Credential, Eager, MacPreference, Options, Route, Transfer, Wait};
pub use statistics::{Statistics, Terms};
pub use trace::{Step, Taken, Traced, Why};
pub use url::{Host, ServerAddress, Url};
