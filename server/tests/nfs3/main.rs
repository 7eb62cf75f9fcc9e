//! NFS version 3, MOUNT, the portmapper and RPC as a client sees them, message by message, on a store in
//! memory.

#[path = "../common/bare.rs"]
mod bare;
mod data;
mod directories;
mod harness;
mod mounting;
mod names;
mod placement;
mod rpc;
