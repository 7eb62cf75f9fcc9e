//! The client's side: what of a call is sent and what is left in memory, and what a reply amounts to.

use std::ops::Range;

use super::credit::RequestPolicy;
use super::private_data::Terms;
use crate::wire::rpcrdma::Segments;

/// What a requester keeps to.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// What the connection's private data came to.
    pub terms: Terms,
    /// Credits that are asked for. Post `credits.max()` receives when the connection is made, and one more for each
    /// message taken.
    pub credits: RequestPolicy,
}

/// What of a call and of its reply may travel apart from the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallShape {
    /// The DDP-eligible bytes of the call, without length word and padding:
    /// [`Writer::payload_range`](crate::wire::xdr::Writer::payload_range).
    pub argument: Option<Range<usize>>,
    /// The most DDP-eligible bytes that the reply can hold.
    pub result_max: Option<u32>,
    /// The most that the rest of the reply takes, RPC header included, in bytes.
    pub reply_max: u32,
}

/// One call to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The RPC message.
    pub message: &'a [u8],
    /// What of it may travel apart.
    pub shape: &'a CallShape,
    /// It asks whether the server is alive, and may use the credit that is kept for that (RFC 8267, section 6.7.2).
    pub health_check: bool,
}

/// What memory is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedKind {
    /// The peer reads the argument from it: the bytes [`Need::parts`] of the message.
    Argument,
    /// The peer reads the call from it: the bytes [`Need::parts`] of the message.
    Call,
    /// The peer writes the DDP-eligible result to it.
    Result,
    /// The peer writes the reply to it.
    Reply,
}

/// Memory that a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What for.
    pub kind: NeedKind,
    /// Bytes. The segments given must hold exactly so many.
    pub bytes: u32,
    /// Parts of the message that it must hold, one behind the other, before the call is sent; empty for what the peer
    /// writes.
    pub parts: [Range<usize>; 2],
}

/// A call that is ready: send the header and these parts of the message as one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Of the call.
    pub xid: u32,
    /// Parts of the message behind the header; both empty when the call is read from memory.
    pub inline: [Range<usize>; 2],
}

/// Why a call cannot be made. Nothing has happened then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// All credits are in use: take replies first.
    #[error("all credits of the connection are in use")]
    NoCredit,
    /// A call with this xid is under way.
    #[error("a call with this xid is under way")]
    Duplicate,
    /// The chunks alone make the header too long, or the message is no call.
    #[error("the call does not fit the transport")]
    TooLong,
    /// Memory was needed and not given.
    #[error("no memory for the call's chunks")]
    NoMemory,
}

/// Where the XDR stream of a reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stream {
    /// In the message received.
    Inline(Range<usize>),
    /// In the memory given for the reply: its first so many bytes.
    Memory(u32),
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the call.
    pub xid: u32,
    /// The reply.
    pub stream: Stream,
    /// So many bytes of the DDP-eligible result lie in the memory given for it and are missing in the stream: hand it
    /// to [`Reader::reduced`](crate::wire::xdr::Reader::reduced).
    pub result: Option<u32>,
}

/// A reply whose chunks have to be fetched (the Read-Read design). Allocate `length` bytes of zeros, copy `inline` in,
/// RDMA-Read the `pulls`; that is the reply, whole. Then [`Requester::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Of the call.
    pub xid: u32,
    /// How the reply is put together.
    pub assembly: super::responder::Assembly,
}

/// Why a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server speaks other versions of the transport.
    #[error("the server speaks versions {low} to {high} of RPC-over-RDMA")]
    Version {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The server could not take the chunks, or the reply did not fit them.
    #[error("the server refuses the call's chunks, or the reply does not fit them")]
    Chunk,
    /// The reply makes no sense. The connection should be closed.
    #[error("malformed reply")]
    Malformed,
}

/// What a message means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The reply to a call.
    Reply(Reply),
    /// The reply to a call, to be fetched.
    Pull(Pulled),
    /// A call has failed; its memory may be reused once the peer cannot reach it.
    Failed {
        /// Of the call.
        xid: u32,
        /// Why.
        why: Failure,
    },
    /// The reply to a call that was abandoned: its memory may be reused.
    Late {
        /// Of the call.
        xid: u32,
    },
    /// An answer to no call under way: a duplicate, or to nothing that was ever asked.
    Unknown {
        /// Of the message.
        xid: u32,
    },
    /// Not a message for a requester.
    Ignored,
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
}

impl Requester {
    /// A connection without calls.
    pub fn new(config: RequesterConfig) -> Self {
        Self { config }
    }

    /// Prepares a call. `memory` is asked for what does not fit; its answer is registered memory of exactly as many
    /// bytes, in at most 16 segments, which stays as it is until the call's last event. The header replaces what
    /// `header` holds.
    ///
    /// # Errors
    /// See [`CallError`]. Memory that was given already is not used then.
    pub fn call(
        &mut self,
        call: &Call<'_>,
        memory: &mut dyn FnMut(&Need) -> Option<Segments>,
        header: &mut Vec<u8>,
    ) -> Result<Outgoing, CallError> {
        let _ = (call, memory, header, self.config);
        todo!()
    }

    /// Takes a message in.
    pub fn receive(&mut self, message: &[u8]) -> Event {
        let _ = message;
        todo!()
    }

    /// The chunks of [`Event::Pull`] have been fetched: the message to send (`RDMA_DONE`). Gives the call's credit
    /// back.
    pub fn done(&mut self, xid: u32, header: &mut Vec<u8>) {
        let _ = (xid, header);
        todo!()
    }

    /// Nobody waits for the call any more. Its credit and its memory stay in use until the answer comes
    /// ([`Event::Late`]) or the connection ends. `false` if no such call is under way.
    pub fn abandon(&mut self, xid: u32) -> bool {
        let _ = xid;
        todo!()
    }

    /// Calls under way, abandoned ones included.
    pub fn under_way(&self) -> usize {
        todo!()
    }

    /// Credits granted last.
    pub fn granted(&self) -> u32 {
        todo!()
    }

    /// Whether an ordinary call may be made now.
    pub fn may_call(&self) -> bool {
        todo!()
    }
}
