//! NFS version 3, MOUNT, the portmapper and RPC as a client sees them, message by message, on a store in
//! memory.

mod data;
mod directories;
mod harness;
mod mounting;
mod names;
mod placement;
mod rpc;
