//! Exports with rules of their own, as callers at different addresses see them by every protocol.

mod acting;
#[path = "../common/bare.rs"]
mod bare;
mod harness;
mod reaching;
mod references;
