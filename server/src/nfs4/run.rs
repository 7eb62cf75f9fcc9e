//! Runs a compound: SEQUENCE, and then one operation after the other until one fails (RFC 7530, section 15.2; RFC 8881, section
//! 16.2). At an operation that would block, the compound is suspended, and a thread that may block goes on with that operation.
//! So each operation runs once. The compound holds its slot until there is a reply.

use std::borrow::Cow;
use std::ops::Deref;

use odafs_common::wire::nfs4::{
    OpCode, Opaque, Operation, Operations, OperationsMark, ResultWriter, ResultsMark, SequenceOk,
    Status,
};
use odafs_common::wire::xdr::Writer;
use odafs_fabric::clock;
use odafs_fabric::sync::Arc;

use super::acting::Acting;
use super::compound::{Compound, CurrentObject, Stop};
use super::kept;
use super::object::Object;
use super::placing::Placing;
use super::state::{Origin, Principal, Sender, Sequenced, Slot};
use super::{Nfs4, OPERATIONS_MAX, clients, recalls, sessions};
use crate::rpc::{Answer, Call, Resumed, Suspended};
use crate::vfs::read::Effort;
use crate::vfs::{ids, promises};

/// Bytes of a reply besides the compound's results: the header of an RPC reply, and some to spare.
pub(super) const REPLY_OVERHEAD_BYTES: usize = 64;

/// Runs a compound.
pub(super) fn run(server: &Arc<Nfs4>, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
    let bytes = call.arguments.rest().len() + call.apart.bytes();
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
    let placements = call.caller.placements;
    let mut compound = Compound {
        server,
        export: &server.export,
        acting: Acting::new(call.rights, &call.who),
        who: call.who,
        effort: call.effort,
        minor: header.minor_version,
        connection: call.caller.connection,
        back: call.caller.back.clone(),
        origin: None,
        now: clock::awake(),
        sender: Sender::Named,
        renewed: None,
        placements,
        placing: Placing::default(),
        has_filled: false,
        apart: call.apart,
        came: None,
        current: CurrentObject::default(),
        saved: CurrentObject::default(),
        reply_max: room.saturating_sub(REPLY_OVERHEAD_BYTES),
        session_reply_max: usize::MAX,
        kept_max: None,
    };
    let mut w = ResultWriter::begin(results, header.tag);
    let slot = match compound.begin(&mut operations, bytes, &mut w) {
        Ok(Begun::Execute(slot)) => slot,
        Ok(Begun::Replay(reply)) => {
            let start = w.mark().start();
            results.truncate(start);
            return kept::replay(&reply, &placements, results);
        }
        Ok(Begun::Over(status)) | Err(status) => {
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
        cut_short: None,
    };
    compound.run_rest(held, operations, so_far, results)
}

/// The slot that a compound holds until it ends.
struct Held<S: Deref<Target = Nfs4>> {
    server: S,
    slot: Option<Slot>,
    /// The first operation after SEQUENCE.
    first: Option<OpCode>,
    /// Whether an operation has begun that may have changed something: any on a thread that may block, and a WRITE.
    has_begun: bool,
    /// What the slot keeps if nobody goes on where the compound was suspended. Otherwise `None`.
    cut_short: Option<CutShort>,
}

impl<S: Deref<Target = Nfs4>> Drop for Held<S> {
    /// Gives back the slot of a compound that has changed nothing, as if it had never been used. Any other was not finished, and must
    /// not run again, because what it has changed may be less than all. If its connection broke before the pool had room for the rest,
    /// a repetition hears what was done, and asks for the rest anew. If it has panicked, nobody knows that: a repetition gets a fault of
    /// its first operation.
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let mut state = self.server.state.lock();
        if let Some(CutShort { kept }) = self.cut_short.take() {
            state.finish(clock::awake(), &slot, kept.as_deref());
            return;
        }
        let first = self.first.filter(|_| self.has_begun);
        match first.and_then(|code| Some((code, state.sequence_ok(&slot)?))) {
            Some((code, ok)) => state.finish(clock::awake(), &slot, Some(&fault(code, ok))),
            None => state.abandon(&slot),
        }
    }
}

/// A compound that has changed something and is cut short.
struct CutShort {
    /// The reply, unless it is too long to be kept.
    kept: Option<Vec<u8>>,
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

/// How a compound begins.
enum Begun {
    /// It is new, and holds this slot if it is in a session.
    Execute(Option<Slot>),
    /// It was executed before, with this reply.
    Replay(Arc<[u8]>),
    /// Its only result is written.
    Over(Status),
}

impl Compound<'_> {
    /// Runs SEQUENCE, with which compounds of 4.1 and later begin, and writes its result even if it fails.
    fn begin(
        &mut self,
        operations: &mut Operations<'_>,
        bytes: usize,
        w: &mut ResultWriter<'_, '_>,
    ) -> Result<Begun, Status> {
        if self.minor == 0 || operations.left() == 0 {
            return Ok(Begun::Execute(None));
        }
        let mut ahead = operations.clone();
        let first = match ahead.next() {
            Some(Ok(operation)) => operation,
            // An operation that cannot be read fails when it is its turn.
            _ => return Ok(Begun::Execute(None)),
        };
        let code = first.code();
        let count = operations.header().operations;
        let Operation::Sequence(arguments) = first else {
            let refusal = match (sessions::needs_none(code), count) {
                (true, 1) => return Ok(Begun::Execute(None)),
                (true, _) => Status::NotOnlyOp,
                (false, _) => Status::OpNotInSession,
            };
            w.fail(code, refusal);
            return Err(refusal);
        };
        *operations = ahead;
        let who = Principal(self.acting.uid());
        let mut state = self.server.state.lock();
        let taken = state.sequence(self.now, who, self.connection, &arguments, bytes, count);
        drop(state);
        match taken {
            Ok(Sequenced::Execute(slot, ok)) => {
                self.sender = Sender::Client(slot.client);
                self.origin = Some(Origin {
                    session: slot.session,
                    slot: slot.number,
                    sequence: arguments.sequence,
                });
                let room = slot.reply_bytes as usize;
                self.session_reply_max = room.saturating_sub(REPLY_OVERHEAD_BYTES);
                let kept = slot.cache.then_some(slot.cached_bytes as usize);
                self.kept_max = kept.map(|kept| kept.saturating_sub(REPLY_OVERHEAD_BYTES));
                w.push(code, &Ok::<_, Status>(ok));
                Ok(Begun::Execute(Some(slot)))
            }
            Ok(Sequenced::Replay(reply)) => Ok(Begun::Replay(reply)),
            Ok(Sequenced::NotKept(ok)) => {
                // SEQUENCE itself must not fail so where it comes first (RFC 8881, section 2.10.6.1.3).
                w.push(code, &Ok::<_, Status>(ok));
                let (next, status) = match operations.next() {
                    Some(Ok(next)) => (next.code(), Status::RetryUncachedRep),
                    Some(Err(bad)) => (bad.code(), bad.status()),
                    None => return Ok(Begun::Over(Status::Ok)),
                };
                w.fail(next, status);
                Err(status)
            }
            Err(status) => {
                w.fail(code, status);
                Err(status)
            }
        }
    }

    /// Runs the operations that are left, and ends the compound or suspends it. `so_far` is how far results are written.
    fn run_rest(
        mut self,
        mut held: Held<&Nfs4>,
        operations: Operations<'_>,
        so_far: ResultsMark,
        results: &mut Writer<'_>,
    ) -> Answer {
        let _acting = promises::changing_for(recalls::party(self.sender));
        let mut w = ResultWriter::resume(results, so_far);
        let status = match self.run_operations(operations, &mut held, &mut w) {
            Ok(status) => status,
            Err((next, code)) => {
                let so_far = w.mark();
                let begun = held.slot.as_ref().filter(|_| held.has_begun);
                let cut_short = begun.map(|slot| self.cut_short(code, so_far, results, slot));
                let held = Held {
                    server: Arc::clone(self.server),
                    slot: held.slot.take(),
                    first: held.first,
                    has_begun: held.has_begun,
                    cut_short,
                };
                return Answer::Suspended(Box::new(self.suspend(held, next, so_far)));
            }
        };
        w.finish(status);
        if self.effort == Effort::MayBlock {
            self.server.messenger.settle();
            self.now = clock::awake();
        }
        if let Some(slot) = &held.slot {
            let start = so_far.start();
            let kept = self.kept(results.written(start), start, slot);
            let mut state = self.server.state.lock();
            state.finish(self.now, slot, kept.as_deref());
            held.slot = None;
        } else if let Some(client) = self.renewed.filter(|_| self.effort == Effort::MayBlock) {
            // This fails if the client was expelled meanwhile. Its next operation says so.
            let _ = self.server.state.lock().renew(self.now, client);
        }
        let placed = self.placing.into_placed();
        placed.map_or(Answer::Replied, Answer::Placed)
    }

    /// Runs the operations that are left. Returns the status of the last one, or the place and the code of the one that would block.
    fn run_operations(
        &mut self,
        mut operations: Operations<'_>,
        held: &mut Held<&Nfs4>,
        w: &mut ResultWriter<'_, '_>,
    ) -> Result<Status, (OperationsMark, OpCode)> {
        let mut last = Status::Ok;
        while last == Status::Ok {
            let next = operations.mark();
            let apart = operations.apart_left();
            last = match operations.next() {
                Some(Ok(operation)) => {
                    let came = operations.apart_left() < apart;
                    self.came = came.then(|| self.apart.count() - apart);
                    let (code, had_begun) = (operation.code(), held.has_begun);
                    held.first.get_or_insert(code);
                    // Of the operations that change something, only WRITE is made by a thread that may not block.
                    held.has_begun |= self.effort == Effort::MayBlock || code == OpCode::Write;
                    self.run_operation(operation, w).ok_or_else(|| {
                        held.has_begun = had_begun;
                        (next, code)
                    })?
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

    /// Runs an operation and writes its result. Returns its status; or `None` if it would block, and then nothing has changed.
    fn run_operation(
        &mut self,
        operation: Operation<'_>,
        w: &mut ResultWriter<'_, '_>,
    ) -> Option<Status> {
        let code = operation.code();
        let renewed = clients::renewed(&operation).filter(|_| self.minor == 0);
        if w.count() >= OPERATIONS_MAX {
            w.fail(code, Status::Resource);
            return Some(Status::Resource);
        }
        let (results, current, placing) = (w.count(), self.current, self.placing.mark());
        let done = self.execute(operation, w);
        // This thread cannot act as the caller in the store. What the store refused to it may be allowed to the caller.
        let missed = self.effort == Effort::ResidentOnly && ids::were_missed();
        // What an operation wrote before it failed is not its result.
        if (missed || done.is_err()) && w.count() > results {
            w.take_back();
        }
        let status = match done {
            Ok(status) if !missed => status,
            Err(Stop::Status(status)) if !missed => {
                w.fail(code, status);
                status
            }
            // Something is still to be waited for although this thread may block: the client asks again.
            Err(Stop::Blocks) if self.effort == Effort::MayBlock => {
                w.fail(code, Status::Delay);
                Status::Delay
            }
            _ => {
                self.current = current;
                self.act_in_export();
                self.placing.take_back(placing);
                return None;
            }
        };
        let bytes = self.reply_bytes(w);
        let too_big = match self.kept_max {
            Some(kept) if bytes > kept => Some(Status::RepTooBigToCache),
            _ if w.bytes() > self.reply_max || bytes > self.session_reply_max => {
                Some(self.too_big())
            }
            _ => None,
        };
        if let Some(status) = too_big {
            w.take_back();
            w.fail(code, status);
            self.placing.take_back(placing);
        }
        if status == Status::Ok && renewed.is_some() {
            self.renewed = renewed;
        }
        Some(too_big.unwrap_or(status))
    }

    /// Acts with the credential of the export in which the current object lies.
    fn act_in_export(&mut self) {
        if let Some(object) = self.current.object {
            self.acting.move_to(object.tag(self.export), &mut self.who);
        }
    }

    /// Drops the current and the saved object if the caller may no longer reach their exports, because the rules have changed.
    /// The client may still give back what it holds on the current file.
    fn drop_unreachable(&mut self) {
        let is_reachable = |of: &CurrentObject| {
            let tag = of.object.map(|object| object.tag(self.export));
            tag.is_none_or(|tag| self.acting.check(tag).is_ok())
        };
        let (current, saved) = (is_reachable(&self.current), is_reachable(&self.saved));
        if !current {
            self.current = match self.current.object {
                Some(Object::Real(object)) => self.still_held(object).unwrap_or_default(),
                _ => CurrentObject::default(),
            };
        }
        if !saved {
            self.saved = CurrentObject::default();
        }
    }

    /// The reply if nobody goes on: after the results so far, the operation of this code is to be tried again later. Writes
    /// nothing that stays.
    fn cut_short(
        &self,
        code: OpCode,
        so_far: ResultsMark,
        results: &mut Writer<'_>,
        slot: &Slot,
    ) -> CutShort {
        let (start, end) = (so_far.start(), results.position());
        let mut w = ResultWriter::resume(results, so_far);
        w.fail(code, Status::Delay);
        w.finish(Status::Delay);
        let kept = self.kept(results.written(start), start, slot);
        let kept = kept.map(Cow::into_owned);
        results.truncate(end);
        CutShort { kept }
    }

    /// All that another thread needs to go on.
    fn suspend(
        self,
        held: Held<Arc<Nfs4>>,
        next: OperationsMark,
        so_far: ResultsMark,
    ) -> SuspendedCompound {
        SuspendedCompound {
            held,
            next,
            so_far,
            minor: self.minor,
            origin: self.origin,
            sender: self.sender,
            renewed: self.renewed,
            placing: self.placing,
            current: self.current,
            saved: self.saved,
            reply_max: self.reply_max,
            session_reply_max: self.session_reply_max,
            kept_max: self.kept_max,
        }
    }
}

/// A suspended compound. It holds its slot. It never holds the turn of an owner (4.0): an operation takes one only on a thread
/// that may block, and gives it back before it ends.
struct SuspendedCompound {
    held: Held<Arc<Nfs4>>,
    /// The place of the operation that would have blocked.
    next: OperationsMark,
    /// How far results are written: to the end of those before this operation.
    so_far: ResultsMark,
    // The other fields are those of `Compound`.
    minor: u32,
    origin: Option<Origin>,
    sender: Sender,
    renewed: Option<u64>,
    placing: Placing,
    current: CurrentObject,
    saved: CurrentObject,
    reply_max: usize,
    session_reply_max: usize,
    kept_max: Option<usize>,
}

impl Suspended for SuspendedCompound {
    fn pins(&self) -> usize {
        self.placing.pins()
    }

    fn resume(self: Box<Self>, call: Resumed<'_>, results: &mut Writer<'_>) -> Answer {
        let mut suspended = *self;
        let operations = match Operations::resume(call.arguments, suspended.next) {
            Ok(operations) => operations,
            // These are not the arguments with which it began.
            Err(error) => return Answer::Garbage(error),
        };
        let server = &suspended.held.server;
        let mut compound = Compound {
            server,
            export: &server.export,
            acting: Acting::new(call.rights, &call.who),
            who: call.who,
            effort: Effort::MayBlock,
            minor: suspended.minor,
            connection: call.caller.connection,
            back: call.caller.back.clone(),
            origin: suspended.origin,
            now: clock::awake(),
            sender: suspended.sender,
            renewed: suspended.renewed,
            placements: call.caller.placements,
            placing: suspended.placing,
            // Only threads that may block fill, and those do not suspend.
            has_filled: false,
            apart: call.apart,
            came: None,
            current: suspended.current,
            saved: suspended.saved,
            reply_max: suspended.reply_max,
            session_reply_max: suspended.session_reply_max,
            kept_max: suspended.kept_max,
        };
        let held = Held {
            server: &**server,
            slot: suspended.held.slot.take(),
            first: suspended.held.first,
            has_begun: suspended.held.has_begun,
            cut_short: None,
        };
        compound.drop_unreachable();
        compound.act_in_export();
        compound.run_rest(held, operations, suspended.so_far, results)
    }
}
