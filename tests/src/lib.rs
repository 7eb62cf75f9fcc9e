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

/// Says that a test is left out, for the lack of this.
///
/// # Panics
/// `ODAFS_REQUIRED`, a list of words, has it: nobody sees what a test that passes has said.
pub fn skipped(what: &str, why: &str) {
    let required = std::env::var("ODAFS_REQUIRED").unwrap_or_default();
    let is_required = required.split_whitespace().any(|word| word == what);
    assert!(!is_required, "{what} is required: {why}");
    eprintln!("SKIPPED: {why}");
}
