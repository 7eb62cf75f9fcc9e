//! The upper-layer binding (RFC 8267): how long replies may be. What of them may travel apart is said by the types:
//! whatever is a [`Payload`](crate::wire::nfs3::Payload).

use crate::wire::nfs3;

/// What a reply takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyBound {
    /// DDP-eligible bytes, where the procedure has such a result.
    pub result_max: Option<u32>,
    /// All the rest, RPC header included, in bytes.
    pub reply_max: u32,
}

/// The bound for a procedure of NFS version 3. `count` is READ's and READDIR's `count` and READDIRPLUS's `maxcount`; the
/// others do not look at it.
pub fn nfs3(procedure: nfs3::Procedure, count: u32) -> ReplyBound {
    let _ = (procedure, count);
    todo!()
}
