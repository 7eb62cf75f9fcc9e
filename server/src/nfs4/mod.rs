//! NFS version 4, minor versions 0 to 2 (RFC 7530, RFC 8881, RFC 7862).

pub mod state;
