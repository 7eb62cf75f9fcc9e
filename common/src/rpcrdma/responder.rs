//! The server's side: how a call is put together, and where each part of its reply goes.

use std::ops::Range;
use std::time::Duration;

use super::credit::GrantPolicy;
use super::private_data::Terms;
use crate::wire::rpcrdma::{Segment, Segments};

/// What a responder keeps to.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// What the connection's private data came to.
    pub terms: Terms,
    /// Credits that are granted.
    pub credits: GrantPolicy,
    /// Longest call taken, its chunks included, in bytes.
    pub message_max: u32,
    /// Limits of the Read-Read design; used if the terms have it.
    pub read_read: ReadRead,
}

/// Limits of the Read-Read design.
#[derive(Clone, Copy, Debug)]
pub struct ReadRead {
    /// Most replies that wait to be fetched.
    pub exposures_max: u32,
    /// How long a reply waits to be fetched.
    pub done_timeout: Duration,
}

impl Default for ReadRead {
    fn default() -> Self {
        Self {
            exposures_max: 64,
            done_timeout: Duration::from_secs(30),
        }
    }
}

/// A part of the received message, and where it belongs in the XDR stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the message received.
    pub from: Range<usize>,
    /// First byte in the stream.
    pub at: u32,
}

/// An RDMA Read, and where its bytes belong in the XDR stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// The peer's memory.
    pub from: Segment,
    /// First byte in the stream.
    pub at: u32,
}

/// How an XDR stream is put together: `length` bytes of zeros, the pieces copied in, the pulls read in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembly {
    /// Bytes of the whole stream: no more than the limit.
    pub length: u32,
    /// What came inline.
    pub inline: Vec<Piece>,
    /// What is to be read.
    pub pulls: Vec<Pull>,
    /// Where in the stream the DDP-eligible data lie, if they came as a chunk of their own.
    pub data: Option<Range<u32>>,
}

/// A call that arrived.
#[derive(Debug)]
pub struct Incoming {
    /// How its message is put together.
    pub assembly: Assembly,
    /// To be handed back with the reply.
    pub ticket: Ticket,
}

/// What is to be remembered of a call until it is answered.
#[derive(Debug)]
pub struct Ticket {
    xid: u32,
    requested: u32,
    write: Option<Segments>,
    reply: Option<Segments>,
    invalidate: Option<u32>,
}

impl Ticket {
    /// Of the call.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Bytes of a result that can be placed apart from the reply: those of the call's write chunk. `None`: it brought
    /// none.
    pub fn placement(&self) -> Option<u32> {
        todo!()
    }
}

/// What a message means.
#[derive(Debug)]
pub enum Step {
    /// A call.
    Call(Incoming),
    /// The peer has fetched a reply: release what was exposed for it.
    Done(ExposureId),
    /// Send this message.
    Answer(Vec<u8>),
    /// Nothing is to be done.
    Ignore(Ignored),
}

/// Why nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Too short to answer to.
    Short,
    /// `RDMA_DONE` for nothing that is exposed.
    Done,
    /// `RDMA_ERROR`
    Error,
    /// An RPC reply, where calls belong.
    Reply,
}

/// Where the DDP-eligible data of a reply are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// There are none, or they stay in the message.
    None,
    /// In the message, without length word and padding: they are taken out of it if the call brought a chunk for them.
    Within(Range<usize>),
    /// Not in the message, nor their padding: they belong at `at`. Only with a [`Ticket::placement`] of as many
    /// bytes, or in the Read-Read design.
    Apart {
        /// Offset in the message.
        at: usize,
        /// Bytes.
        length: u32,
    },
}

/// The RPC message that answers a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Its length in bytes.
    pub length: usize,
    /// Its DDP-eligible data.
    pub data: Data,
}

/// Where the bytes of an RDMA Write come from, or what is exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// These bytes of the data that are apart from the message.
    Data(Range<u32>),
    /// These bytes of the message.
    Message(Range<usize>),
}

/// One RDMA Write, to be posted before the reply is sent. The target is as long as the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// What.
    pub from: Source,
    /// Where to.
    pub to: Segment,
}

/// How a call is answered: the writes in order, then one message of the header and the inline parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What goes ahead.
    pub writes: Vec<Write>,
    /// Parts of the RPC message behind the header.
    pub inline: [Range<usize>; 2],
    /// Send With Invalidate of this steering tag.
    pub invalidate: Option<u32>,
    /// What was exposed, until [`Step::Done`] or [`Responder::expired`] gives it back.
    pub exposed: Option<ExposureId>,
    /// The reply had no room: an error is sent instead.
    pub overrun: bool,
}

/// What is to be exposed to the peer's RDMA Reads, one part behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expose {
    /// Whose memory it will be.
    pub id: ExposureId,
    /// What.
    pub parts: Vec<Source>,
}

/// Names the memory that was exposed for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExposureId(pub u64);

/// The server's side of a connection.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
}

impl Responder {
    /// A connection without calls.
    pub fn new(config: ResponderConfig) -> Self {
        Self { config }
    }

    /// What the connection's private data came to.
    pub fn terms(&self) -> &Terms {
        &self.config.terms
    }

    /// Takes a message in.
    pub fn receive(&mut self, message: &[u8]) -> Step {
        let _ = message;
        todo!()
    }

    /// Answers a call. The header replaces what `header` holds.
    pub fn reply(&mut self, ticket: Ticket, results: &Results, header: &mut Vec<u8>) -> Answer {
        let _ = (ticket, results, header);
        todo!()
    }

    /// Answers a call in the Read-Read design: what does not fit inline is exposed by `expose`, which answers with at
    /// most 16 segments of as many bytes, and the peer fetches it. `now` is the time since any fixed instant.
    pub fn reply_exposed(
        &mut self,
        ticket: Ticket,
        results: &Results,
        now: Duration,
        expose: &mut dyn FnMut(&Expose) -> Option<Segments>,
        header: &mut Vec<u8>,
    ) -> Answer {
        let _ = (ticket, results, now, expose, header);
        todo!()
    }

    /// The call will not be answered.
    pub fn dropped(&mut self, ticket: Ticket) {
        let _ = ticket;
        todo!()
    }

    /// Something whose time has passed: release it. Call again until there is none.
    pub fn expired(&mut self, now: Duration) -> Option<ExposureId> {
        let _ = now;
        todo!()
    }

    /// When [`Responder::expired`] will have something.
    pub fn deadline(&self) -> Option<Duration> {
        todo!()
    }

    /// Receives to post now, to be asked for when the connection is made, after each message taken and before each
    /// reply is sent: it keeps the promise that the credits are.
    pub fn receives_due(&mut self) -> u32 {
        todo!()
    }

    /// Another policy for grants from now on: the number of clients has changed.
    pub fn set_credits(&mut self, credits: GrantPolicy) {
        self.config.credits = credits;
    }

    /// Calls that are not answered yet.
    pub fn under_way(&self) -> u32 {
        todo!()
    }

    /// `RDMA_DONE` messages taken.
    pub fn dones(&self) -> u64 {
        todo!()
    }
}
