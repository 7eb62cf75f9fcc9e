//! The file server: page cache, stores, NFS and the ODAFS program.
#![deny(unsafe_code)]

pub mod state;
pub mod store;
