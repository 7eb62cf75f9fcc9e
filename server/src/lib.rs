//! The file server: page cache, stores, NFS and the ODAFS program.
#![deny(unsafe_code)]

mod around;
mod attributes;
mod cache;
mod classes;
mod counters;
mod feedback;
mod fill;
mod handles;
mod keys;
mod pace;
mod pageout;
mod references;
mod reports;
mod sessions;
mod spare;
#[cfg(test)]
mod stress_tests;
mod syncs;
#[cfg(test)]
mod testing;

pub mod access;
pub mod assembly;
pub mod change;
pub mod config;
pub mod drc;
pub mod export;
pub mod file;
#[cfg(not(shuttle))]
pub mod memory;
pub mod metrics;
#[cfg(not(shuttle))]
pub mod metrics_http;
pub mod mount;
pub mod namespace;
pub mod nfs3;
pub mod odafs;
pub mod pool;
pub mod portmap;
pub mod read;
pub mod rpc;
#[cfg(not(shuttle))]
pub mod server;
pub mod state;
pub mod store;
#[cfg(not(shuttle))]
pub mod tcp;
pub mod write;

/// The most frames of an export: handles above belong to change counters.
pub const MAX_FRAMES: u32 = counters::COUNTER_HANDLES;
