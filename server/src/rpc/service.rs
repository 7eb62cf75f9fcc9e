//! The programs of a server behind its transports: from the bytes of a call to the bytes of its reply.

use std::ops::Range;

use odafs_common::wire::rpc::{self, Auth, AuthStat, CallError, CallHeader};
use odafs_common::wire::xdr::{Writer, padding};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::{Caller, Calls, ChunkSource, Job, Outcome, Placed, Transport};

use super::access::{Access, AccessVerdict};
use super::arguments::{Arguments, places};
use super::counts::{CallCounts, Counts, count};
use super::drc::{Asker, DuplicateCache, InProgress, Repeats, Seen};
use super::program::{Admission, Answer, Call, Program, Resumed, Suspended};
use super::seen::{self, Begun, ClientSeen, SlowCall};
use crate::vfs::pace::{self, Company};
use crate::vfs::read::Effort;
use crate::vfs::{Credential, ids};

/// The programs of a server behind all its transports.
pub struct Service(Arc<Programs>);

struct Programs {
    programs: Vec<Box<dyn Program>>,
    access: Arc<Access>,
    duplicates: DuplicateCache,
    offload: bool,
    counts: Counts,
    seen: seen::Seen,
    company: Arc<Company>,
}

impl Service {
    /// Serves `programs` to the callers that `access` admits. With `offload`, every call goes to the pool.
    pub fn new(
        programs: Vec<Box<dyn Program>>,
        access: Arc<Access>,
        duplicates: DuplicateCache,
        offload: bool,
    ) -> Self {
        Self(Arc::new(Programs {
            seen: seen::Seen::new(&programs),
            programs,
            access,
            duplicates,
            offload,
            counts: Counts::default(),
            company: Arc::default(),
        }))
    }

    /// Who may call.
    pub fn access(&self) -> &Arc<Access> {
        &self.0.access
    }

    /// Tells the programs that the rules of who may reach what have changed.
    pub fn rules_changed(&self) {
        for program in &self.0.programs {
            program.rules_changed();
        }
    }

    /// Ends what the programs do by themselves, for good.
    pub fn stop(&self) {
        for program in &self.0.programs {
            program.stop();
        }
    }

    /// To be called every second or so. It is `now` by [`awake`](odafs_fabric::clock::awake).
    pub fn tick(&self, now: Nanos) {
        for program in &self.0.programs {
            program.tick(now);
        }
    }

    /// Calls so far.
    pub fn counts(&self) -> CallCounts {
        self.0.counts.of(self.0.seen.calls())
    }

    /// Keeps the calls that take longer than `from`, and warns of them. Without this, of none.
    pub fn report_slow(&self, from: Nanos) {
        self.0.seen.report_slow(from);
    }

    /// The clients that called lately, those with the most calls first.
    pub fn clients(&self) -> Vec<ClientSeen> {
        self.0.seen.clients()
    }

    /// The slow calls of this minute and the last, the slowest first.
    pub fn slow_calls(&self) -> Vec<SlowCall> {
        self.0.seen.slow()
    }

    /// Appends the figures of all calls in the text format of Prometheus.
    pub fn append_text(&self, out: &mut String) {
        self.0.seen.append_text(out);
        self.counts().append_text(out);
        for program in &self.0.programs {
            program.append_text(out);
        }
    }
}

impl Calls for Service {
    fn call(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        match self.at_once(caller, message, reply) {
            Ok(outcome) => outcome,
            Err(later) => self.defer(caller, message.to_vec(), later),
        }
    }

    fn call_owned(&self, caller: &Caller, message: Vec<u8>, reply: &mut Vec<u8>) -> Outcome {
        match self.at_once(caller, &message, reply) {
            Ok(outcome) => outcome,
            Err(later) => self.defer(caller, message, later),
        }
    }

    fn may_sync(&self, message: &[u8]) -> bool {
        let Ok((header, arguments)) = rpc::parse_call(message) else {
            return true;
        };
        let program = self.0.find(&header).map(|at| &self.0.programs[at]);
        program.is_some_and(|program| program.may_sync(header.procedure, arguments))
    }

    /// Decides by the address. A peer on the wrong port is told so in the answer to its first call, as over TCP.
    fn admits(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Address(address) => self.0.access.admits_address(address.ip()),
            Peer::Uid { .. } | Peer::Simulated(_) => self.0.access.admits(peer),
        }
    }

    fn back_closed(&self, connection: u64) {
        for program in &self.0.programs {
            program.back_closed(connection);
        }
    }

    fn closed(&self, connection: u64) {
        for program in &self.0.programs {
            program.closed(connection);
        }
    }
}

/// What the duplicate request cache makes of a call.
enum Repeated {
    Harmless,
    First(InProgress),
    Again(Outcome, Option<Arc<[u8]>>),
}

/// A call for the pool.
struct Later {
    /// Its entry in the duplicate request cache, if it has one.
    in_progress: Option<InProgress>,
    begun: Begun,
    /// Where it goes on. `None`: it runs from its start.
    suspended: Option<Suspension>,
}

/// A call that has been served in part.
struct Suspension {
    procedure: Box<dyn Suspended>,
    /// The reply so far.
    reply: Vec<u8>,
    /// The first payload in that.
    payload: Option<Range<usize>>,
}

/// Why a call is not over.
enum Unserved {
    /// It would block, and nothing has been done.
    Blocks,
    /// It would block.
    Suspended(Suspension),
}

impl Service {
    /// Serves a call as far as nothing blocks.
    fn at_once(
        &self,
        caller: &Caller,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Later> {
        self.0.company.came(caller.connection);
        let seen = &self.0.seen;
        let (header, arguments) = match rpc::parse_call(message) {
            Ok(call) => call,
            Err(CallError::NotCall) if caller.back.is_some() => {
                for program in &self.0.programs {
                    program.answered(caller.connection, message);
                }
                return Ok(Outcome::Dropped);
            }
            Err(error) => {
                tracing::debug!(peer = %caller.peer, %error, "no call that can be served");
                count(&self.0.counts.refused);
                let begun = seen.begin(None, 0, caller.transport);
                let outcome = if error.reply(&mut Writer::new(reply)) {
                    Outcome::Replied
                } else {
                    Outcome::Dropped
                };
                seen.end(begun, caller, message, (&outcome, reply), || None);
                return Ok(outcome);
            }
        };
        let at = self.0.find(&header);
        let begun = seen.begin(at, header.procedure, caller.transport);
        let program = at.map(|at| &*self.0.programs[at]);
        let Some(places) = places(caller, program, &header, &arguments) else {
            tracing::debug!(peer = %caller.peer, "a chunk for what has to be in the message");
            count(&self.0.counts.refused);
            rpc::garbage_args(&mut Writer::new(reply), header.xid);
            seen.end(begun, caller, message, (&Outcome::Replied, reply), || None);
            return Ok(Outcome::Replied);
        };
        let arguments = Arguments::new(caller, arguments, &places);
        let later = |in_progress, suspended| Later {
            in_progress,
            begun,
            suspended,
        };
        match self.0.repeated(program, caller, &header, &arguments) {
            Repeated::Harmless if self.0.offload => Err(later(None, None)),
            Repeated::Harmless => {
                let effort = Effort::ResidentOnly;
                let programs = &self.0;
                let served = programs.serve(program, caller, &header, arguments, effort, reply);
                // The store had to act for the caller, and this thread must not: what it was refused is no answer.
                let missed = ids::were_missed();
                match served {
                    Ok(Outcome::Replied) if missed => Err(later(None, None)),
                    Ok(outcome) => {
                        let about = || programs.about(message);
                        seen.end(begun, caller, message, (&outcome, reply), about);
                        Ok(outcome)
                    }
                    Err(Unserved::Blocks) => Err(later(None, None)),
                    Err(Unserved::Suspended(call)) => Err(later(None, Some(call))),
                }
            }
            Repeated::First(in_progress) => Err(later(Some(in_progress), None)),
            Repeated::Again(outcome, earlier) => {
                count(&self.0.counts.duplicates);
                reply.extend_from_slice(earlier.as_deref().unwrap_or_default());
                Ok(outcome)
            }
        }
    }

    fn defer(&self, caller: &Caller, message: Vec<u8>, later: Later) -> Outcome {
        count(&self.0.counts.deferred);
        let Later {
            in_progress,
            begun,
            suspended,
        } = later;
        let begun = begun.deferred();
        let pins = suspended.as_ref().map_or(0, |call| call.procedure.pins());
        let (programs, caller) = (self.0.clone(), caller.clone());
        let job = Job::new(move |reply| {
            let serve = || programs.serve_deferred(suspended, &caller, &message, reply);
            let outcome = pace::paced(&programs.company, caller.connection, serve);
            if let (Some(call), Outcome::Replied) = (in_progress, &outcome)
                && let Some(again) = call.served(reply)
                && !(caller.back.as_ref()).is_some_and(|first| Arc::ptr_eq(first, &again))
            {
                again.send(reply.clone());
            }
            let about = || programs.about(&message);
            let seen = &programs.seen;
            seen.end(begun, &caller, &message, (&outcome, reply), about);
            outcome
        });
        Outcome::Deferred(job.with_pins(pins))
    }
}

impl Programs {
    /// The place of a call's program in the list.
    fn find(&self, header: &CallHeader<'_>) -> Option<usize> {
        self.programs.iter().position(|program| {
            (program.number(), program.version()) == (header.program, header.version)
        })
    }

    /// Which file a call is about.
    fn about(&self, message: &[u8]) -> Option<String> {
        let (header, arguments) = rpc::parse_call(message).ok()?;
        self.programs[self.find(&header)?].about(header.procedure, arguments)
    }

    fn repeated(
        &self,
        program: Option<&dyn Program>,
        caller: &Caller,
        header: &CallHeader<'_>,
        arguments: &Arguments<'_>,
    ) -> Repeated {
        let repeats = program.map_or(Repeats::Harmless, |program| {
            program.repeats(header.procedure, arguments.reader.clone())
        });
        // Peers that are not admitted are refused below, so they cannot fill the cache.
        let kept_here = !matches!(repeats, Repeats::Harmless | Repeats::Remembered);
        let admitted = || matches!(self.access.verdict(caller), AccessVerdict::Admitted(_));
        if !kept_here || !admitted() {
            return Repeated::Harmless;
        }
        let bytes = arguments.bytes();
        let from = Asker {
            peer: &caller.peer,
            // Other transports send only calls that way.
            back: (caller.back.as_ref()).filter(|_| caller.transport == Transport::NfsTcp),
        };
        match self.duplicates.begin(from, header, bytes, repeats) {
            Seen::New(call) => Repeated::First(call),
            Seen::InProgress => Repeated::Again(Outcome::Dropped, None),
            Seen::Served(reply) => Repeated::Again(Outcome::Replied, Some(reply)),
        }
    }

    /// Serves a call to its end, from its start or from where it was suspended. May block.
    fn serve_deferred(
        &self,
        suspended: Option<Suspension>,
        caller: &Caller,
        message: &[u8],
        reply: &mut Vec<u8>,
    ) -> Outcome {
        let mut suspended = suspended;
        loop {
            // It was parsed before.
            let Ok((header, arguments)) = rpc::parse_call(message) else {
                return Outcome::Dropped;
            };
            let program = self.find(&header).map(|at| &*self.programs[at]);
            let Some(places) = places(caller, program, &header, &arguments) else {
                return Outcome::Dropped;
            };
            let arguments = Arguments::new(caller, arguments, &places);
            let served = match suspended {
                Some(call) => self.resume(program, call, caller, &header, arguments, reply),
                None => {
                    let effort = Effort::MayBlock;
                    self.serve(program, caller, &header, arguments, effort, reply)
                }
            };
            suspended = match served {
                Ok(outcome) => return outcome,
                Err(Unserved::Suspended(call)) => Some(call),
                // There is no further effort.
                Err(Unserved::Blocks) => return Outcome::Dropped,
            };
        }
    }

    /// Serves a call from its start.
    fn serve(
        &self,
        program: Option<&dyn Program>,
        caller: &Caller,
        header: &CallHeader<'_>,
        arguments: Arguments<'_>,
        effort: Effort,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Unserved> {
        reply.clear();
        let mut w = Writer::new(reply);
        let Some(program) = program else {
            self.refuse_program(&mut w, header);
            return Ok(Outcome::Replied);
        };
        if header.procedure == 0 {
            rpc::reply_success(&mut w, header.xid);
            return Ok(Outcome::Replied);
        }
        let who = match self.admit(
            program.admission(header.procedure),
            caller,
            &header.credential,
        ) {
            Ok(who) => who,
            Err(why) => return Ok(self.refuse_caller(why, caller, header, reply)),
        };
        rpc::reply_success(&mut w, header.xid);
        let call = Call {
            caller,
            who,
            rights: self.access.rights(caller, &header.credential),
            procedure: header.procedure,
            arguments: arguments.reader,
            apart: arguments.apart,
            effort,
        };
        let answer = program.call(call, &mut w);
        let payload = w.payload_range();
        self.conclude(answer, payload, caller, header, reply)
    }

    /// Goes on with a call that was suspended, if its caller is still admitted.
    fn resume(
        &self,
        program: Option<&dyn Program>,
        call: Suspension,
        caller: &Caller,
        header: &CallHeader<'_>,
        arguments: Arguments<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Unserved> {
        let admission = program.map_or(Admission::Listed, |it| it.admission(header.procedure));
        let who = match self.admit(admission, caller, &header.credential) {
            Ok(who) => who,
            Err(why) => return Ok(self.refuse_caller(why, caller, header, reply)),
        };
        *reply = call.reply;
        let mut w = Writer::resume(reply, call.payload);
        let resumed = Resumed {
            caller,
            who,
            rights: self.access.rights(caller, &header.credential),
            arguments: arguments.reader,
            apart: arguments.apart,
        };
        let answer = call.procedure.resume(resumed, &mut w);
        let payload = w.payload_range();
        self.conclude(answer, payload, caller, header, reply)
    }

    /// What becomes of a call by its procedure's answer. `payload` is the first in the reply.
    fn conclude(
        &self,
        answer: Answer,
        payload: Option<Range<usize>>,
        caller: &Caller,
        header: &CallHeader<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Unserved> {
        let refusal = match answer {
            Answer::Replied => return Ok(replied(caller, payload, reply)),
            Answer::Write(writes) => return Ok(Outcome::Write(writes)),
            Answer::Placed(placed) => return Ok(Outcome::Placed(placed)),
            Answer::Blocks => return Err(Unserved::Blocks),
            Answer::Suspended(procedure) => {
                // A copy: the thread that polls keeps its buffer.
                return Err(Unserved::Suspended(Suspension {
                    procedure,
                    reply: reply.clone(),
                    payload,
                }));
            }
            Answer::NoProcedure => rpc::proc_unavail,
            Answer::Garbage(error) => {
                tracing::debug!(peer = %caller.peer, %error, "arguments that do not decode");
                rpc::garbage_args
            }
        };
        count(&self.counts.refused);
        reply.clear();
        refusal(&mut Writer::new(reply), header.xid);
        Ok(Outcome::Replied)
    }

    fn refuse_caller(
        &self,
        why: AuthStat,
        caller: &Caller,
        header: &CallHeader<'_>,
        reply: &mut Vec<u8>,
    ) -> Outcome {
        count(&self.counts.refused);
        let peer = &caller.peer;
        tracing::debug!(%peer, %why, "call refused");
        let refused = match self.access.verdict_on(caller, 0) {
            AccessVerdict::Admitted(_) => None,
            AccessVerdict::WrongPort => Some("the port is not below 1024"),
            AccessVerdict::Stranger => Some("not in the access list (--allow)"),
        };
        if let Some(refused) = refused
            && let Some(untold) = self.access.untold_refusals()
        {
            tracing::warn!(%peer, untold, "call refused: {refused}");
        }
        reply.clear();
        rpc::auth_error(&mut Writer::new(reply), header.xid, why);
        Outcome::Replied
    }

    fn admit(
        &self,
        admission: Admission,
        caller: &Caller,
        credential: &Auth<'_>,
    ) -> Result<Credential, AuthStat> {
        match admission {
            Admission::Anyone => self.access.credential(caller, &Auth::None),
            Admission::Asks => self.access.credential(caller, credential),
            Admission::Listed => self.access.credential_of_listed(caller, credential),
        }
    }

    fn refuse_program(&self, w: &mut Writer<'_>, header: &CallHeader<'_>) {
        count(&self.counts.refused);
        let versions = || {
            self.programs
                .iter()
                .filter(|program| program.number() == header.program)
                .map(|program| program.version())
        };
        match (versions().min(), versions().max()) {
            (Some(low), Some(high)) => rpc::prog_mismatch(w, header.xid, low, high),
            _ => rpc::reply_prog_unavail(w, header.xid),
        }
    }
}

/// The reply is complete. If the caller has a place for the payload in it, the payload goes there, or nowhere (RFC 8166,
/// section 4.3.2).
fn replied(caller: &Caller, payload: Option<Range<usize>>, reply: &mut Vec<u8>) -> Outcome {
    let has_room = caller.placements.first().is_some();
    let Some(payload) = payload.filter(|payload| has_room && !payload.is_empty()) else {
        return Outcome::Replied;
    };
    let padded = payload.end + padding(payload.len());
    let mut data: Vec<u8> = reply.drain(payload.start..padded).collect();
    data.truncate(payload.len());
    let pieces = vec![ChunkSource::Bytes(data)];
    Outcome::Placed(Placed::one(payload.start, payload.len() as u32, pieces))
}
