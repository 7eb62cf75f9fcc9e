//! Harness for the system tests: what several of them share.
#![forbid(unsafe_code)]

pub mod linear;
pub mod page;
pub mod raw;
pub mod served;
pub mod server_model;
