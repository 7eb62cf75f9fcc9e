//! Harness for the system tests: what several of them share.
#![forbid(unsafe_code)]

pub mod compounds;
pub mod crowd;
pub mod holdings;
pub mod linear;
pub mod page;
pub mod pcap;
pub mod raw;
pub mod raw4;
#[cfg(not(shuttle))]
pub mod raw_direct;
pub mod raw_rdma;
pub mod served;
pub mod server_model;
pub mod tap;
