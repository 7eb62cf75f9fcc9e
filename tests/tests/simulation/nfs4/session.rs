//! The protocol of a client of versions 4.1 and 4.2, without IO (RFC 8881): compounds in the slots of a session, which the
//! client repeats until it gets an answer, and the one slot of callbacks.

use std::cmp::Ordering;

use crate::world::below;
use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::clock::Nanos;
pub use odafs_tests::compounds::compound;
pub use odafs_tests::raw4::results;

/// Compounds that are under way at a time, at most.
const UNDER_WAY: usize = 3;
/// The slots that a client asks for.
const SLOTS: u32 = 32;
/// The slots that the server gives at most.
const SLOTS_MOST: u32 = 1024;
/// The program of callbacks.
const CALLBACKS: u32 = 0x4000_0000;

/// The limits that the client asks for.
const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 64 << 10,
    max_response: 64 << 10,
    max_response_cached: 2048,
    max_operations: 16,
    max_requests: SLOTS,
    rdma_reads: AtMostOne(None),
};

/// A compound under way. Each repetition has the same bytes.
pub struct Sent {
    /// Its bytes, from the tag on.
    pub body: Vec<u8>,
    /// Whether the client asked the server to keep the reply.
    pub kept: bool,
    /// When it was first sent.
    pub first: Nanos,
}

/// What a callback asks for.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// A delegation is to be returned.
    Delegation(StateId),
    /// No slot above this one is to be used.
    Slots(u32),
}

/// A session, with all that it needs to go on over other connections.
#[derive(Default)]
pub struct Session {
    pub minor: u32,
    pub id: SessionId,
    /// The number of the last compound of each slot.
    slots: Vec<u32>,
    /// The highest slot that the server wants to be used.
    target: u32,
    /// The last callback: its number, what it asked behind its xid, and the answer to it.
    called: (u32, Vec<u8>, Vec<u8>),
}

/// A call with this body.
pub fn call(xid: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    let procedure = Procedure::Compound.code();
    rpc::call(&mut w, xid, PROGRAM, VERSION, procedure, &Auth::None);
    message.extend_from_slice(body);
    message
}

pub fn exchange_id(name: &[u8], verifier: u64) -> Vec<u8> {
    let exchange = Operation::ExchangeId(ExchangeIdArgs {
        client: ClientOwner {
            verifier: verifier.to_be_bytes(),
            id: Opaque(name),
        },
        flags: 0,
        protection: StateProtection::None,
        implementation: AtMostOne(None),
    });
    compound(1, &[exchange])
}

pub fn create_session(minor: u32, client_id: u64, sequence: u32) -> Vec<u8> {
    let create = Operation::CreateSession(CreateSessionArgs {
        client_id,
        sequence,
        flags: create_session_flag::BACK_CHANNEL,
        fore: CHANNEL,
        back: CHANNEL,
        callback_program: CALLBACKS,
        callback_security: List(vec![CallbackSecurity::None]),
    });
    compound(minor, &[create])
}

pub fn destroy_client(client_id: u64) -> Vec<u8> {
    compound(1, &[Operation::DestroyClientId(client_id)])
}

impl Session {
    pub fn new(minor: u32, made: &CreateSessionOk) -> Self {
        Self {
            minor,
            id: made.session,
            slots: vec![0; made.fore.max_requests as usize],
            target: made.fore.max_requests - 1,
            called: (0, Vec::new(), Vec::new()),
        }
    }

    /// None, in minor version 0.
    pub fn none() -> Self {
        Self {
            slots: vec![0],
            ..Self::default()
        }
    }

    /// The number of compounds that may be under way.
    pub fn slots(&self) -> usize {
        UNDER_WAY.min(self.target as usize + 1)
    }

    /// So many slots for compounds that are sent together, none above the target. That is often one of them, as for a client that
    /// uses all of its slots.
    pub fn choose(&self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..=self.target as usize).collect();
        let next = |all: &[usize]| match below(4) {
            0 => all.len() - 1,
            _ => below(all.len() as u64) as usize,
        };
        (0..count).map(|_| all.swap_remove(next(&all))).collect()
    }

    /// Notes the highest slot that the server wants to be used, which may be a new one. Returns how it compares with that of before.
    ///
    /// # Panics
    /// No server has so many slots.
    pub fn aim(&mut self, target: u32) -> Ordering {
        assert!(target < SLOTS_MOST, "a target beyond");
        let slots = self.slots.len().max(target as usize + 1);
        self.slots.resize(slots, 0);
        target.cmp(&std::mem::replace(&mut self.target, target))
    }

    /// The next compound of a slot, beside others up to slot `highest`.
    pub fn next(
        &mut self,
        slot: usize,
        highest: usize,
        operations: &[Operation<'_>],
        kept: bool,
        now: Nanos,
    ) -> Sent {
        if self.minor == 0 {
            return Sent {
                body: compound(0, operations),
                kept,
                first: now,
            };
        }
        self.slots[slot] += 1;
        let sequence = Operation::Sequence(SequenceArgs {
            session: self.id,
            sequence: self.slots[slot],
            slot: slot as u32,
            highest_slot: highest as u32,
            cache: kept,
        });
        Sent {
            body: compound(self.minor, &[&[sequence], operations].concat()),
            kept,
            first: now,
        }
    }

    /// Binds another connection for both directions.
    pub fn bind(&self) -> Vec<u8> {
        let bind = Operation::BindConnection(BindConnectionArgs {
            session: self.id,
            channel: WantedChannel::ForeOrBoth,
            rdma: false,
        });
        compound(self.minor, &[bind])
    }

    pub fn destroy(&self) -> Vec<u8> {
        compound(self.minor, &[Operation::DestroySession(self.id)])
    }

    /// Answers a callback. A repetition gets the same answer. Returns the answer, and what is asked for if it is new. `tell` gives the
    /// change attribute and the size of a file, by its handle, if the client is to tell them.
    ///
    /// # Panics
    /// No server may send such a callback.
    pub fn called(
        &mut self,
        message: &[u8],
        tell: impl FnOnce(&[u8]) -> Option<(u64, u64)>,
    ) -> (Vec<u8>, Option<Asked>) {
        let (header, mut r) = rpc::parse_call(message).expect("a call");
        assert_eq!((header.program, header.version), (CALLBACKS, 1));
        let head = CallbackHeader::decode(&mut r).expect("a callback");
        let mut next = || CallbackOperation::decode(&mut r).expect("an operation");
        let CallbackOperation::Sequence(sequence) = next() else {
            panic!("a callback without CB_SEQUENCE");
        };
        if sequence.session != self.id {
            // A callback of a session that has ended.
            let result = CallbackResult::Sequence(Err(Status::BadSession));
            return (answer(header.xid, Status::BadSession, &[result]), None);
        }
        assert_eq!((sequence.slot, head.operations), (0, 2));
        let (last, asked, answered) = &self.called;
        if sequence.sequence == *last {
            assert_eq!(asked, &message[4..], "one number for two callbacks");
            return ([&header.xid.to_be_bytes(), &answered[4..]].concat(), None);
        }
        assert_eq!(sequence.sequence, last + 1, "a callback out of order");
        let taken = CallbackResult::Sequence(Ok(CallbackSequenceOk {
            session: self.id,
            sequence: sequence.sequence,
            slot: 0,
            highest_slot: 0,
            target_highest_slot: 0,
        }));
        let mut status = Status::Ok;
        let values;
        let (recalled, result) = match next() {
            CallbackOperation::Recall(recall) => {
                let asked = Asked::Delegation(recall.state);
                (Some(asked), CallbackResult::Recall(Ok(())))
            }
            CallbackOperation::GetAttributes(ask) => {
                let asked = Bitmap::of(&[Attribute::Change, Attribute::Size]);
                assert_eq!(ask.asked, asked, "attributes that nobody can tell");
                let result = match tell(ask.file.0) {
                    Some((change, size)) => {
                        values = [change.to_be_bytes(), size.to_be_bytes()].concat();
                        Ok(RawAttributes {
                            mask: asked,
                            values: AttributeValues(&values),
                        })
                    }
                    // The delegation is to be recalled.
                    None => {
                        status = Status::BadHandle;
                        Err(status)
                    }
                };
                (None, CallbackResult::GetAttributes(result))
            }
            CallbackOperation::RecallSlot(recall) => {
                let asked = Asked::Slots(recall.target_highest_slot);
                (Some(asked), CallbackResult::RecallSlot(Ok(())))
            }
            CallbackOperation::NotifyLock(_) => (None, CallbackResult::NotifyLock(Ok(()))),
            CallbackOperation::RecallAny(_) => (None, CallbackResult::RecallAny(Ok(()))),
            other => panic!("a callback that was not asked for: {other:?}"),
        };
        let bytes = answer(header.xid, status, &[taken, result]);
        self.called = (sequence.sequence, message[4..].to_vec(), bytes.clone());
        (bytes, recalled)
    }
}

fn answer(xid: u32, status: Status, results: &[CallbackResult<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    rpc::reply_success(&mut w, xid);
    status.encode(&mut w);
    w.opaque(b"");
    w.u32(results.len() as u32);
    for result in results {
        result.encode(&mut w);
    }
    bytes
}

/// That of the last operation.
pub fn status(message: &[u8]) -> Status {
    let reply = rpc::parse_reply(message).expect("a reply");
    let results = Results::begin(reply.body.expect("results")).expect("results");
    results.header().status
}

/// The result of SEQUENCE, with which a reply begins.
pub fn sequenced(message: &[u8]) -> Result<SequenceOk, Status> {
    let reply = rpc::parse_reply(message).expect("a reply");
    let body: Reader<'_> = reply.body.expect("results");
    let mut results = Results::begin(body).expect("results");
    match results.next() {
        Some(Ok(OperationResult::Sequence(result))) => result,
        other => panic!("no result of SEQUENCE: {other:?}"),
    }
}
