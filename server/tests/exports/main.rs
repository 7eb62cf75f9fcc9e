//! Exports with rules of their own, as callers at different addresses see them by every protocol.

mod acting;
mod harness;
mod reaching;
mod references;
