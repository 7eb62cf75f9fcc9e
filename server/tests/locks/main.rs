//! Locks of NFS version 3 (NLM and NSM), in bare calls, beside those of version 4.2.

mod both;
mod harness;
mod hostile;
mod nlm;
mod restart;
