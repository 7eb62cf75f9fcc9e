//! Locks of NFS version 3 (NLM and NSM), in bare calls, beside those of version 4.2.

#![cfg(not(shuttle))]

#[path = "../common/bare.rs"]
mod bare;
mod both;
mod harness;
mod hostile;
mod nlm;
mod portmap;
mod restart;
