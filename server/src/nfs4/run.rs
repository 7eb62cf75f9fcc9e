//! How a compound is run: SEQUENCE, and then one operation after the other until one fails (RFC 7530, section 15.2; RFC 8881,
//! section 16.2). At an operation that would block, the compound is suspended with all that it has and holds. A thread that
//! may block goes on with that operation. So each operation runs once, and the slot stays taken until there is a reply.

use std::ops::Deref;

use odafs_common::wire::nfs4::{
    OpCode, Opaque, Operation, Operations, OperationsMark, ResultWriter, ResultsMark, SequenceOk,
    SessionId, Status,
};
use odafs_common::wire::xdr::Writer;
use odafs_fabric::clock;
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::Placed;

use super::acting::Acting;
use super::compound::{Compound, CurrentObject, Stop};
use super::object::Object;
use super::state::{Origin, Sender, Sequenced, Slot};
use super::{Nfs4, OPERATIONS_MAX, clients, recalls, sessions};
use crate::rpc::{Answer, Call, Resumed, Suspended};
use crate::vfs::read::Effort;
use crate::vfs::{ids, promises};

/// What is in a reply besides the results, in bytes: the header of an RPC reply, and something to spare.
pub(super) const REPLY_OVERHEAD_BYTES: usize = 64;

/// Runs a compound.
pub(super) fn run(server: &Arc<Nfs4>, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
    let bytes = call.arguments.rest().len() + call.apart.as_ref().map_or(0, Gather::len);
    let mut operations = match Operations::begin(call.arguments) {
        Ok(operations) => operations,
        Err(error) => return Answer::Garbage(error),
    };
    let header = *operations.header();
    if !server.minors.has(header.minor_version) {
        ResultWriter::begin(results, header.tag).finish(Status::MinorVersMismatch);
        return Answer::Replied;
    }
    let room = call.caller.reply_bytes_max as usize;
    let mut compound = Compound {
        server,
        export: &server.export,
        acting: Acting::new(call.rights, &call.who),
        who: call.who,
        effort: call.effort,
        minor: header.minor_version,
        connection: call.caller.connection,
        back: call.caller.back.clone(),
        session: None,
        origin: None,
        now: clock::now(),
        sender: Sender::Named,
        renewed: None,
        placement: call.caller.placement,
        placed: None,
        apart: call.apart,
        current: CurrentObject::default(),
        saved: CurrentObject::default(),
        room: room.saturating_sub(REPLY_OVERHEAD_BYTES),
        kept: None,
    };
    let mut w = ResultWriter::begin(results, header.tag);
    let slot = match compound.enter(&mut operations, bytes, &mut w) {
        Ok(Entered::With(slot)) => slot,
        Ok(Entered::Replayed(reply)) => {
            let start = w.mark().start();
            results.truncate(start);
            results.opaque_fixed(&reply);
            return Answer::Replied;
        }
        Err(status) => {
            w.finish(status);
            return Answer::Replied;
        }
    };
    let so_far = w.mark();
    let held = Held {
        server: &**server,
        slot,
        first: None,
        has_begun: false,
    };
    compound.go_on(held, operations, so_far, results)
}

/// The slot of a compound under way, unless the compound has come to its end.
struct Held<S: Deref<Target = Nfs4>> {
    server: S,
    slot: Option<Slot>,
    /// The first operation behind SEQUENCE.
    first: Option<OpCode>,
    /// Whether an operation was begun on a thread that may block, where operations take effect.
    has_begun: bool,
}

impl<S: Deref<Target = Nfs4>> Drop for Held<S> {
    /// The slot of a compound that has done nothing is given back, as if never used. Of one that panicked nobody knows what it has
    /// done: it never runs again, and its repetitions hear of a fault in its first operation.
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let mut state = self.server.state.lock();
        let first = self.first.filter(|_| self.has_begun);
        match first.and_then(|code| Some((code, state.sequence_ok(&slot)?))) {
            Some((code, ok)) => state.finish(clock::now(), &slot, &fault(code, ok), true),
            None => state.abandon(&slot),
        }
    }
}

/// The reply of a compound whose first operation met a fault of the server.
fn fault(code: OpCode, ok: SequenceOk) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut w = Writer::new(&mut reply);
    let mut w = ResultWriter::begin(&mut w, Opaque(b""));
    w.push(OpCode::Sequence, &Ok::<_, Status>(ok));
    w.fail(code, Status::ServerFault);
    w.finish(Status::ServerFault);
    reply
}

/// How the first operation of a compound was taken.
enum Entered {
    /// With a slot, or without a session.
    With(Option<Slot>),
    /// The compound was executed before, with this reply.
    Replayed(Arc<[u8]>),
}

impl Compound<'_> {
    /// Runs SEQUENCE, with which compounds of 4.1 and later begin, and writes its result, also if it fails.
    fn enter(
        &mut self,
        operations: &mut Operations<'_>,
        bytes: usize,
        w: &mut ResultWriter<'_, '_>,
    ) -> Result<Entered, Status> {
        if self.minor == 0 || operations.left() == 0 {
            return Ok(Entered::With(None));
        }
        let mut ahead = operations.clone();
        let first = match ahead.next() {
            Some(Ok(operation)) => operation,
            // It fails by itself.
            _ => return Ok(Entered::With(None)),
        };
        let code = first.code();
        let count = operations.header().operations;
        let Operation::Sequence(arguments) = first else {
            let refusal = match (sessions::need_none(code), count) {
                (true, 1) => return Ok(Entered::With(None)),
                (true, _) => Status::NotOnlyOp,
                (false, _) => Status::OpNotInSession,
            };
            w.fail(code, refusal);
            return Err(refusal);
        };
        *operations = ahead;
        let mut state = self.server.state.lock();
        let taken = state.sequence(self.now, self.connection, &arguments, bytes, count);
        drop(state);
        match taken {
            Ok(Sequenced::Execute(slot, ok)) => {
                self.sender = Sender::Client(slot.client);
                self.session = Some(slot.session);
                self.origin = Some(Origin {
                    session: slot.session,
                    slot: slot.number,
                    sequence: arguments.sequence,
                });
                let room = slot.reply_bytes as usize;
                self.room = self.room.min(room.saturating_sub(REPLY_OVERHEAD_BYTES));
                let kept = slot.cache.then_some(slot.cached_bytes as usize);
                self.kept = kept.map(|kept| kept.saturating_sub(REPLY_OVERHEAD_BYTES));
                w.push(code, &Ok::<_, Status>(ok));
                Ok(Entered::With(Some(slot)))
            }
            Ok(Sequenced::Replay(reply)) => Ok(Entered::Replayed(reply)),
            Err(status) => {
                w.fail(code, status);
                Err(status)
            }
        }
    }

    /// Runs what is left. `so_far` are the results that have been written.
    fn go_on(
        mut self,
        mut held: Held<&Nfs4>,
        operations: Operations<'_>,
        so_far: ResultsMark,
        results: &mut Writer<'_>,
    ) -> Answer {
        let _acting = promises::changing_for(recalls::party(self.sender));
        let mut w = ResultWriter::resume(results, so_far);
        let status = match self.all(operations, &mut held, &mut w) {
            Ok(status) => status,
            Err(next) => {
                let held = Held {
                    server: Arc::clone(self.server),
                    slot: held.slot.take(),
                    first: held.first,
                    has_begun: held.has_begun,
                };
                return Answer::Suspended(Box::new(self.suspend(held, next, w.mark())));
            }
        };
        w.finish(status);
        if self.effort == Effort::MayBlock {
            self.server.settle();
            self.now = clock::now();
        }
        if let Some(slot) = held.slot.take() {
            let reply = &*results.written(so_far.start());
            let mut state = self.server.state.lock();
            state.finish(self.now, &slot, reply, self.placed.is_none());
        } else if let Some(client) = self.renewed.filter(|_| self.effort == Effort::MayBlock) {
            // It may have been expelled meanwhile, and hears of that.
            let _ = self.server.state.lock().renew(self.now, client);
        }
        self.placed.map_or(Answer::Replied, Answer::Placed)
    }

    /// Runs what is left: the status of the last operation, or the place of the one that would block.
    fn all(
        &mut self,
        mut operations: Operations<'_>,
        held: &mut Held<&Nfs4>,
        w: &mut ResultWriter<'_, '_>,
    ) -> Result<Status, OperationsMark> {
        let mut last = Status::Ok;
        while last == Status::Ok {
            let next = operations.mark();
            last = match operations.next() {
                Some(Ok(operation)) => {
                    held.first.get_or_insert(operation.code());
                    held.has_begun |= self.effort == Effort::MayBlock;
                    self.step(operation, w).ok_or(next)?
                }
                Some(Err(bad)) => {
                    w.fail(bad.code(), bad.status());
                    bad.status()
                }
                None => break,
            };
        }
        Ok(last)
    }

    /// Runs the next operation and writes its result. The status, or `None`: the operation would block, and nothing has happened.
    fn step(&mut self, operation: Operation<'_>, w: &mut ResultWriter<'_, '_>) -> Option<Status> {
        let code = operation.code();
        let renewed = clients::renewed(&operation).filter(|_| self.minor == 0);
        if w.count() >= OPERATIONS_MAX {
            w.fail(code, Status::Resource);
            return Some(Status::Resource);
        }
        let (results, current, placed) = (w.count(), self.current, self.placed.is_some());
        let done = self.one(operation, w);
        // The store had to act for the caller, and this thread may not: what it was refused is no answer.
        let missed = self.effort == Effort::ResidentOnly && ids::were_missed();
        let status = match done {
            Ok(status) if !missed => status,
            Err(Stop::Status(status)) if !missed => {
                w.fail(code, status);
                status
            }
            // There is no further effort: the client asks again.
            Err(Stop::Blocks) if self.effort == Effort::MayBlock => {
                w.fail(code, Status::Delay);
                Status::Delay
            }
            _ => {
                if w.count() > results {
                    w.take_back();
                }
                self.current = current;
                self.act_where_it_is();
                self.placed.take_if(|_| !placed);
                return None;
            }
        };
        let too_big = match self.kept {
            Some(kept) if w.bytes() > kept => Some(Status::RepTooBigToCache),
            _ if w.bytes() > self.room && self.minor == 0 => Some(Status::Resource),
            _ if w.bytes() > self.room => Some(Status::RepTooBig),
            _ => None,
        };
        if let Some(status) = too_big {
            w.take_back();
            w.fail(code, status);
            self.placed.take_if(|_| !placed);
        }
        if status == Status::Ok && renewed.is_some() {
            self.renewed = renewed;
        }
        Some(too_big.unwrap_or(status))
    }

    /// Acts with the credential of the export in which the current object lies.
    fn act_where_it_is(&mut self) {
        if let Some(object) = self.current.object {
            self.acting.go(object.tag(self.export), &mut self.who);
        }
    }

    /// Drops the file handles of exports that the caller may not reach any more, since the rules have changed meanwhile.
    /// What the client holds of the current file it may still give back.
    fn forget_what_is_out_of_reach(&mut self) {
        let reached = |kept: &CurrentObject| {
            let tag = kept.object.map(|object| object.tag(self.export));
            tag.is_none_or(|tag| self.acting.check(tag).is_ok())
        };
        let (current, saved) = (reached(&self.current), reached(&self.saved));
        if !current {
            self.current = match self.current.object {
                Some(Object::Real(object)) => self.held_still(object).unwrap_or_default(),
                _ => CurrentObject::default(),
            };
        }
        if !saved {
            self.saved = CurrentObject::default();
        }
    }

    /// Everything that another thread needs to go on.
    fn suspend(self, held: Held<Arc<Nfs4>>, next: OperationsMark, so_far: ResultsMark) -> Waiting {
        Waiting {
            held,
            next,
            so_far,
            minor: self.minor,
            session: self.session,
            origin: self.origin,
            sender: self.sender,
            renewed: self.renewed,
            placed: self.placed,
            apart: self.apart.is_some(),
            current: self.current,
            saved: self.saved,
            room: self.room,
            kept: self.kept,
        }
    }
}

/// A compound that is suspended. It holds its slot. It holds no turn of an owner (4.0): an operation takes one only where it
/// may block, and gives it back before it ends.
struct Waiting {
    held: Held<Arc<Nfs4>>,
    /// The place of the operation that would have blocked.
    next: OperationsMark,
    /// How far the results are written: those of the operations before it.
    so_far: ResultsMark,
    /// Whether a payload that came apart is still to be used.
    apart: bool,
    // The other fields are those of `Compound`.
    minor: u32,
    session: Option<SessionId>,
    origin: Option<Origin>,
    sender: Sender,
    renewed: Option<u64>,
    placed: Option<Placed>,
    current: CurrentObject,
    saved: CurrentObject,
    room: usize,
    kept: Option<usize>,
}

impl Suspended for Waiting {
    fn resume(self: Box<Self>, call: Resumed<'_>, results: &mut Writer<'_>) -> Answer {
        let mut waiting = *self;
        let operations = match Operations::resume(call.arguments, waiting.next) {
            Ok(operations) => operations,
            // It is another message.
            Err(error) => return Answer::Garbage(error),
        };
        let server = &waiting.held.server;
        let mut compound = Compound {
            server,
            export: &server.export,
            acting: Acting::new(call.rights, &call.who),
            who: call.who,
            effort: Effort::MayBlock,
            minor: waiting.minor,
            connection: call.caller.connection,
            back: call.caller.back.clone(),
            session: waiting.session,
            origin: waiting.origin,
            now: clock::now(),
            sender: waiting.sender,
            renewed: waiting.renewed,
            placement: call.caller.placement,
            placed: waiting.placed,
            apart: call.apart.filter(|_| waiting.apart),
            current: waiting.current,
            saved: waiting.saved,
            room: waiting.room,
            kept: waiting.kept,
        };
        let held = Held {
            server: &**server,
            slot: waiting.held.slot.take(),
            first: waiting.held.first,
            has_begun: waiting.held.has_begun,
        };
        compound.forget_what_is_out_of_reach();
        compound.act_where_it_is();
        compound.go_on(held, operations, waiting.so_far, results)
    }
}
