//! The client's side: which parts of a call to send and which to leave in memory, and what a reply means.

use std::collections::HashMap;
use std::ops::Range;

use super::assembly::{Assembly, Reduced};
use super::credit::RequestPolicy;
use super::plan::{Laid, Plan};
use super::private_data::Terms;
use super::reply::Placements;
use super::reverse::{is_call, is_of};
use crate::wire::rpcrdma::{
    Body, Chunks, Few, Gaps, Header, READ_CHUNKS_MAX, Segment, Segments, TransportError, WriteList,
    capacity,
};
use crate::wire::xdr::{Encode, Reader, Writer};

/// What a requester keeps to.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// What the connection's private data came to.
    pub terms: Terms,
    /// Credits that are asked for.
    pub credits: RequestPolicy,
}

impl RequesterConfig {
    /// Receives to post when the connection is made; later one for each message taken. One more than there can be
    /// calls: a call that was sent again may be answered again.
    pub fn receives(&self) -> u32 {
        self.credits.max().saturating_add(1)
    }
}

/// What of a call and of its reply may travel apart from the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallShape {
    /// The DDP-eligible arguments of the call, in their order, none of them empty; of one it is
    /// [`Writer::payload_range`](crate::wire::xdr::Writer::payload_range).
    pub arguments: Gaps,
    /// The most bytes of each DDP-eligible result that the reply can hold. A result of 0 bytes is to come in the reply.
    pub results_max: Placements,
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
    /// Length in bytes. The segments must contain exactly this many.
    pub bytes: u32,
    /// Parts of the message that it must contain, one after the other, before the call is sent. None for memory that the
    /// peer writes.
    pub parts: Parts,
}

/// A part of a message, not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub start: u32,
    /// The first byte behind it.
    pub end: u32,
}

impl Part {
    /// Its bytes.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// What is left of a message without its arguments, in order.
pub type Parts = Few<Part, { READ_CHUNKS_MAX + 1 }>;

/// A call that is ready: send the header and these parts of the message as one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Of the call.
    pub xid: u32,
    /// Parts of the message behind the header; none when the call is read from memory.
    pub inline: Parts,
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
    /// In the memory for the reply: its first bytes, this many.
    Memory(u32),
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the call.
    pub xid: u32,
    /// The reply.
    pub stream: Stream,
    /// So many bytes of each DDP-eligible result lie in the memory given for it and are missing in the stream: hand them
    /// to [`Reader::reduced`](crate::wire::xdr::Reader::reduced).
    pub results: Placements,
}

/// A reply whose chunks have to be fetched (the Read-Read design). Allocate `length` bytes of zeros, copy `inline` in,
/// RDMA-Read the `pulls`; that is the reply, whole. Then [`Requester::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Of the call.
    pub xid: u32,
    /// How the reply is put together.
    pub assembly: Assembly,
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
    /// The reply's lists are not those that the call can have brought about. The connection should be closed.
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
    /// Not a message for a requester, or unreadable.
    Ignored,
}

/// The client's side of a connection.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
    granted: u32,
    /// Credits in use: calls under way, each as often as it was sent.
    in_use: u32,
    pending: HashMap<u32, Pending>,
}

/// A call under way.
#[derive(Debug)]
struct Pending {
    results: WriteList,
    reply: Option<Segments>,
    /// The longest reply, everything included.
    reply_max: u32,
    /// Credits: how often it was sent.
    credits: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Abandoned,
    /// The reply is being fetched.
    Pulling,
}

impl Requester {
    /// A connection without calls. It has one credit (RFC 8166, section 3.3.1).
    pub fn new(config: RequesterConfig) -> Self {
        Self {
            config,
            granted: 1,
            in_use: 0,
            pending: HashMap::new(),
        }
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
        let xid = call.message.first_chunk().ok_or(CallError::TooLong)?;
        let xid = u32::from_be_bytes(*xid);
        if self.pending.contains_key(&xid) {
            return Err(CallError::Duplicate);
        }
        let credit = self.may_call() || call.health_check && self.in_use < self.granted;
        if !credit {
            return Err(CallError::NoCredit);
        }
        let Laid { chunks, inline } = Plan::new(call, self.config.terms, memory).lay()?;
        let body = match inline {
            Some(_) => Body::Msg(chunks),
            None => Body::Nomsg(chunks),
        };
        let credits = self.config.credits.request(self.granted, self.in_use);
        header.clear();
        Header { xid, credits, body }.encode(&mut Writer::new(header));
        let pending = Pending {
            results: chunks.writes,
            reply: chunks.reply,
            reply_max: call.shape.whole_reply_max(),
            credits: 1,
            stage: Stage::Waiting,
        };
        self.in_use += 1;
        self.pending.insert(xid, pending);
        let inline = inline.unwrap_or_default();
        Ok(Outgoing { xid, inline })
    }

    /// Takes a message in.
    pub fn receive(&mut self, message: &[u8]) -> Event {
        let mut r = Reader::new(message);
        let header = match Header::decode(&mut r) {
            Ok(header) => header,
            // What cannot be read is dropped (RFC 8166, section 4.5), and whatever it was to answer still waits.
            Err(_) => return Event::Ignored,
        };
        let inline = message.len() - r.rest().len()..message.len();
        match &header.body {
            Body::Done => Event::Ignored,
            Body::Msg(_) if is_call(r.rest()) => Event::Ignored,
            // Of another xid than its header: that is no header either (RFC 8166, section 4.5.2).
            Body::Msg(_) if !is_of(r.rest(), header.xid) => Event::Ignored,
            Body::Msg(chunks) => self.reply(&header, chunks, &Reduced::Inline(inline)),
            Body::Nomsg(chunks) => self.reply(&header, chunks, &Reduced::Chunk),
            Body::Error(error) => {
                let why = match *error {
                    TransportError::Version { low, high } => Failure::Version { low, high },
                    TransportError::Chunk => Failure::Chunk,
                };
                self.failed(&header, why)
            }
        }
    }

    fn failed(&mut self, header: &Header, why: Failure) -> Event {
        let xid = header.xid;
        match self.end(xid) {
            Err(event) => event,
            Ok(_) => {
                self.grant(header.credits);
                Event::Failed { xid, why }
            }
        }
    }

    /// Removes the call whose answer has come from the list, or says what else the answer is.
    fn end(&mut self, xid: u32) -> Result<Pending, Event> {
        let pulling = |call: &Pending| call.stage == Stage::Pulling;
        if self.pending.get(&xid).is_some_and(pulling) {
            return Err(Event::Unknown { xid });
        }
        let call = self.pending.remove(&xid).ok_or(Event::Unknown { xid })?;
        self.in_use -= call.credits;
        match call.stage {
            Stage::Abandoned => Err(Event::Late { xid }),
            Stage::Waiting | Stage::Pulling => Ok(call),
        }
    }

    /// A grant of 0 counts as 1, and one of more than there are receives counts as that many.
    fn grant(&mut self, credits: u32) {
        self.granted = credits.clamp(1, self.config.credits.max());
    }

    fn reply(&mut self, header: &Header, chunks: &Chunks, reduced: &Reduced) -> Event {
        let xid = header.xid;
        let event = match self.end(xid) {
            Ok(mut call) => {
                let event = self.answered(xid, &call, chunks, reduced);
                if matches!(event, Event::Pull(_)) {
                    call.stage = Stage::Pulling;
                    call.credits = 1;
                    self.in_use += 1;
                    self.pending.insert(xid, call);
                }
                event
            }
            Err(event) => event,
        };
        if !matches!(event, Event::Unknown { .. }) {
            self.grant(header.credits);
        }
        event
    }

    fn answered(&self, xid: u32, call: &Pending, chunks: &Chunks, reduced: &Reduced) -> Event {
        let used = (
            used_of_each(&call.results, &chunks.writes),
            used(call.reply.as_deref(), chunks.reply.as_deref()),
        );
        let whole = match (used, reduced) {
            ((Some(results), Some(0)), Reduced::Inline(range)) if chunks.reads.is_empty() => {
                Some((results, Stream::Inline(range.clone())))
            }
            ((Some(results), Some(long @ 1..)), Reduced::Chunk) if chunks.reads.is_empty() => {
                Some((results, Stream::Memory(long)))
            }
            // Nothing was offered in that design.
            ((Some(_), Some(0)), _) if self.config.terms.read_read && !chunks.reads.is_empty() => {
                return match Assembly::new(reduced, &chunks.reads, call.reply_max) {
                    Ok(assembly) => Event::Pull(Pulled { xid, assembly }),
                    Err(_) => Event::Failed {
                        xid,
                        why: Failure::Malformed,
                    },
                };
            }
            _ => None,
        };
        match whole {
            Some((results, stream)) => Event::Reply(Reply {
                xid,
                stream,
                results,
            }),
            None => Event::Failed {
                xid,
                why: Failure::Malformed,
            },
        }
    }

    /// The chunks of [`Event::Pull`] have been fetched, or will not be. Returns the message to send (`RDMA_DONE`), and
    /// releases the call's credit. Returns `false`, with nothing to send, if no such call is being fetched.
    pub fn done(&mut self, xid: u32, header: &mut Vec<u8>) -> bool {
        let pulling = self
            .pending
            .get(&xid)
            .is_some_and(|call| call.stage == Stage::Pulling);
        if pulling {
            self.pending.remove(&xid);
            self.in_use -= 1;
            header.clear();
            let credits = self.config.credits.request(self.granted, self.in_use);
            let body = Body::Done;
            Header { xid, credits, body }.encode(&mut Writer::new(header));
        }
        pulling
    }

    /// Sends a call that waits for its reply again, byte for byte and with the same memory. A server that is still
    /// processing a call drops its repetitions, and may answer any of them. Each takes a credit until the answer comes.
    /// Returns `false` if no credit is free, or there is no such call.
    pub fn send_again(&mut self, xid: u32) -> bool {
        let free = self.may_call();
        match self.pending.get_mut(&xid) {
            Some(call) if free && call.stage == Stage::Waiting => {
                call.credits += 1;
                self.in_use += 1;
                true
            }
            _ => false,
        }
    }

    /// Nobody waits for the call any more. Its credit and its memory stay in use until the answer comes
    /// ([`Event::Late`]) or the connection ends. Returns `false` if no such call waits for its reply.
    pub fn abandon(&mut self, xid: u32) -> bool {
        match self.pending.get_mut(&xid) {
            Some(call) if call.stage == Stage::Waiting => {
                call.stage = Stage::Abandoned;
                true
            }
            _ => false,
        }
    }

    /// Credits in use: calls under way, abandoned ones included, each as often as it was sent.
    pub fn under_way(&self) -> u32 {
        self.in_use
    }

    /// Credits granted last.
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Whether an ordinary call may be made now: one credit is kept for a health check (RFC 8267, section 6.7.2),
    /// where there is more than one.
    pub fn may_call(&self) -> bool {
        self.in_use < (self.granted - 1).max(1)
    }
}

/// How many bytes of each chunk that was offered were written. `None`: these are not those chunks. Ones that were not used may
/// be missing at the end.
fn used_of_each(offered: &WriteList, returned: &WriteList) -> Option<Placements> {
    let mut all = Placements::default();
    for at in 0..offered.len().max(returned.len()) {
        let bytes = used(offered.chunk(at), returned.chunk(at))?;
        // More were not offered.
        let _ = all.push(bytes);
    }
    Some(all)
}

/// How many bytes of a chunk that was offered were written, going by the chunk that was returned: each segment full
/// before the next one is begun. `None`: it is not that chunk. One that was not used may be missing.
fn used(offered: Option<&[Segment]>, returned: Option<&[Segment]>) -> Option<u32> {
    let bytes = returned.map_or(0, capacity);
    match (offered, returned) {
        (_, None) => Some(0),
        (None, Some(_)) => (bytes == 0).then_some(0),
        (Some(offered), Some(returned)) if bytes == 0 => {
            (returned.is_empty() || returned.len() == offered.len()).then_some(0)
        }
        (Some(offered), Some(returned)) => {
            let (mut filled, _) = Segments::new(offered);
            filled = filled.returned(bytes);
            let same = filled.len() == returned.len()
                && (filled.iter().zip(returned.iter())).all(|(a, b)| a.length == b.length);
            (same && filled.capacity() == bytes).then_some(bytes as u32)
        }
    }
}
