//! The file server: page cache, stores, NFS and the ODAFS program.
#![deny(unsafe_code)]

pub mod access;
pub mod config;
pub mod drc;
pub mod export;
pub mod file;
pub mod metrics_http;
pub mod mount;
pub mod namespace;
pub mod nfs3;
pub mod portmap;
pub mod read;
pub mod rpc;
pub mod server;
pub mod state;
pub mod store;
pub mod tcp;
pub mod write;
