//! What both ends of ODAFS must agree on: wire formats, references, sessions. No IO, no clock, no unsafe.
#![forbid(unsafe_code)]

pub mod acl;
pub mod connect;
pub mod direct;
pub mod exception;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod mac;
pub mod page;
pub mod reference;
pub mod rpcrdma;
pub mod secret;
pub mod session;
pub mod wire;
