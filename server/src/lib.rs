//! The file server: page cache, stores, NFS and the ODAFS program.
#![deny(unsafe_code)]

pub mod config;
pub mod export;
pub mod file;
pub mod namespace;
pub mod read;
pub mod server;
pub mod state;
pub mod store;
pub mod write;
