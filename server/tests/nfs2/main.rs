//! NFS version 2 and MOUNT versions 1 and 2 as a client sees them, message by message, on a store in memory.

#[path = "../common/bare.rs"]
mod bare;
mod data;
mod exports;
mod harness;
mod mounting;
mod names;
mod placement;
mod rpc;
mod walk;
