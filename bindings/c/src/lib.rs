//! `libodafs`: the client of ODAFS for C and C++. `include/odafs.h` is generated from these comments.
//!
//! Each function is a thin wrapper of the crate `odafs`: it checks its arguments, calls, and turns an error into -1 or
//! NULL, `errno` and a text ([`error`]). No panic leaves it.
#![allow(non_camel_case_types)]

mod buffer;
mod client;
mod dir;
mod error;
mod file;
mod gather;
mod paths;
mod ring;

pub use buffer::*;
pub use client::*;
pub use dir::*;
pub use error::odafs_last_error;
pub use file::*;
pub use gather::*;
pub use paths::*;
pub use ring::*;
