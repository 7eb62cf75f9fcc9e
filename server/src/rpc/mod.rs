//! ONC RPC (RFC 5531): takes a call to the procedure that it names, whichever transport it came over.
//!
//! Every procedure is a step: tried at once on the thread that polls, it either replies from what is in
//! memory or says that it would block. Then the same procedure runs again on the pool, from the start, as
//! the job of an [`Outcome::Deferred`]. Calls whose repetition would do harm go to the pool at once, by
//! way of the duplicate request cache.

pub mod access;
pub mod drc;
pub mod pool;
pub mod seen;
#[cfg(not(shuttle))]
pub mod tcp;

use std::fmt::Write as _;
use std::ops::Range;

use odafs_common::rpcrdma::binding;
use odafs_common::wire::rpc::{self, Auth, AuthStat, CallError, CallHeader};
use odafs_common::wire::xdr::{Apart, Encode, Reader, Writer, XdrError, padding};
use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::Gather;
use odafs_fabric::sync::Arc;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_nic::calls::{Caller, Calls, ChunkSource, ChunkWrite, Outcome, Placed};

use crate::rpc::access::Access;
use crate::rpc::drc::{DuplicateCache, InProgress, Repeats, Seen};
use crate::rpc::seen::{Begun, ClientSeen, SlowCall};
use crate::vfs::metrics::describe;
use crate::vfs::pace::{self, Company};
use crate::vfs::read::Effort;
use crate::vfs::{Credential, ids};

/// One call of a program, as its procedures see it.
#[derive(Debug)]
pub struct Call<'a> {
    /// Who calls, and over what.
    pub caller: &'a Caller,
    /// On whose behalf.
    pub who: Credential,
    /// Procedure number.
    pub procedure: u32,
    /// Its arguments. Of a payload that came apart they have the length alone.
    pub arguments: Reader<'a>,
    /// That payload. The caller may be able to change it meanwhile.
    pub apart: Option<Gather<'a>>,
    /// How far it may go.
    pub effort: Effort,
}

/// What a procedure did. On everything but `Replied`, `Write` and `Placed` what it wrote is thrown away.
#[derive(Debug)]
pub enum Answer {
    /// The results have been written.
    Replied,
    /// The results have been written, and this goes ahead of them into the caller's memory.
    Write(Vec<ChunkWrite>),
    /// The results have been written but for this, which goes to the call's placement.
    Placed(Placed),
    /// It takes [`Effort::MayBlock`]. If it has that, it takes longer than a thread may wait: there is no reply, and the
    /// client asks again.
    Blocks,
    /// There is no such procedure.
    NoProcedure,
    /// The arguments do not decode.
    Garbage(XdrError),
}

impl From<XdrError> for Answer {
    fn from(error: XdrError) -> Self {
        Self::Garbage(error)
    }
}

/// An RPC program in one version.
pub trait Program: Send + Sync {
    /// Its number.
    fn number(&self) -> u32;

    /// Its version.
    fn version(&self) -> u32;

    /// What metrics and logs call it.
    fn name(&self) -> &'static str {
        "other"
    }

    /// What they call its procedures, by number.
    fn procedures(&self) -> &'static [&'static str] {
        &[]
    }

    /// What they call the statuses with which a procedure's results begin; none, if they begin with no status. 0 is no
    /// failure.
    fn statuses(&self, procedure: u32) -> Vec<(u32, String)> {
        let _ = procedure;
        Vec::new()
    }

    /// Which file a call is about, in words, for those who look for what is slow.
    fn about(&self, procedure: u32, arguments: Reader<'_>) -> Option<String> {
        let _ = (procedure, arguments);
        None
    }

    /// What is asked of callers of a procedure. Procedure 0 is for all, of every program.
    fn admission(&self, procedure: u32) -> Admission;

    /// What a repetition of a call would do: beyond [`Repeats::Harmless`] it is kept in the duplicate request cache.
    fn repeats<'a>(&self, procedure: u32, arguments: Reader<'a>) -> Repeats<'a> {
        let _ = (procedure, arguments);
        Repeats::Harmless
    }

    /// Whether a call that blocks may wait for stable storage.
    fn may_sync(&self, procedure: u32, arguments: Reader<'_>) -> bool {
        let _ = (procedure, arguments);
        false
    }

    /// Serves a call other than of procedure 0.
    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer;

    /// A reply came over the connection with this number, to a call that somebody made by [`Caller::back`].
    fn answered(&self, connection: u64, message: &[u8]) {
        let _ = (connection, message);
    }

    /// The connection with this number is gone.
    fn closed(&self, connection: u64) {
        let _ = connection;
    }

    /// A second or so has passed.
    fn tick(&self, now: Nanos) {
        let _ = now;
    }

    /// Appends figures of its own in the text format of Prometheus.
    fn append_text(&self, out: &mut String) {
        let _ = out;
    }
}

/// Who may call a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Anyone, with any credential; served as nobody.
    Anyone,
    /// Whom the access list lets in; others get an authentication error.
    Listed,
    /// Anyone, but the procedure asks the access list itself, to answer in its own words.
    Asks,
}

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

/// What became of calls.
#[derive(Debug, Default)]
struct Counts {
    deferred: AtomicU64,
    duplicates: AtomicU64,
    refused: AtomicU64,
}

/// How many calls came since the start, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// In all.
    pub calls: u64,
    /// Handed to the pool.
    pub deferred: u64,
    /// Repetitions, answered from the duplicate request cache or dropped.
    pub duplicates: u64,
    /// Not served: malformed, unknown or not let in.
    pub refused: u64,
}

impl CallCounts {
    /// Appends them in the text format of Prometheus, but for the calls.
    fn append_text(&self, out: &mut String) {
        let counts = [
            ("deferred", "Calls that went to the pool.", self.deferred),
            (
                "duplicates",
                "Repeated calls, answered from the duplicate request cache or dropped.",
                self.duplicates,
            ),
            (
                "refused_calls",
                "Calls malformed, unknown or not let in.",
                self.refused,
            ),
        ];
        for (name, help, count) in counts {
            describe(out, name, help);
            let _ = writeln!(out, "odafs_{name}_total {count}");
        }
    }
}

impl Service {
    /// Serves `programs` to whom `access` lets in; with `offload`, every call by a thread that may block.
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

    /// To be called every second or so.
    pub fn tick(&self, now: Nanos) {
        for program in &self.0.programs {
            program.tick(now);
        }
    }

    /// Calls so far.
    pub fn counts(&self) -> CallCounts {
        let counts = &self.0.counts;
        CallCounts {
            calls: self.0.seen.calls(),
            deferred: counts.deferred.load(Ordering::Relaxed),
            duplicates: counts.duplicates.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
        }
    }

    /// Keeps the calls that take longer than this, and warns of them. At first of none.
    pub fn report_slow(&self, from: Nanos) {
        self.0.seen.report_slow(from);
    }

    /// The clients that were seen lately, those with the most calls first.
    pub fn clients(&self) -> Vec<ClientSeen> {
        self.0.seen.clients()
    }

    /// The slow calls of this minute and the last, the slowest first.
    pub fn slow_calls(&self) -> Vec<SlowCall> {
        self.0.seen.slow()
    }

    /// Appends what is known of calls in the text format of Prometheus.
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

    /// By its address. That its port will not do it is told in the answer to its first call, as over TCP.
    fn admits(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Address(address) => self.0.access.admits_address(address.ip()),
            Peer::Uid { .. } | Peer::Simulated(_) => self.0.access.admits(peer),
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

/// The arguments of a call.
struct Arguments<'a> {
    /// Where they are read.
    reader: Reader<'a>,
    /// The payload, if it came apart.
    apart: Option<Gather<'a>>,
}

impl<'a> Arguments<'a> {
    /// `None`: something came apart that may not.
    fn of(caller: &'a Caller, header: &CallHeader<'_>, reader: Reader<'a>) -> Option<Self> {
        let Some(apart) = &caller.apart else {
            return Some(Self {
                reader,
                apart: None,
            });
        };
        let bytes = binding::argument_apart(header, &reader, &apart.place())?;
        let mut payload = apart.bytes();
        payload.truncate(bytes as usize);
        // Who wants it knows where it is.
        let nowhere = Apart { bytes, data: &[] };
        Some(Self {
            reader: reader.reduced(Some(nowhere)),
            apart: Some(payload),
        })
    }

    /// As they would be in a message that had all of them.
    fn bytes(&self) -> Gather<'a> {
        let mut bytes = Gather::from(self.reader.rest());
        if let Some(apart) = &self.apart {
            const PADDING: &[u8] = &[0; 4];
            bytes.push_part(apart, 0, apart.len());
            bytes.push_part(&PADDING.into(), 0, padding(apart.len()));
        }
        bytes
    }
}

/// A call for the pool, and its entry in the duplicate request cache if it has one.
struct Later {
    in_progress: Option<InProgress>,
    begun: Begun,
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
        let Some(arguments) = Arguments::of(caller, &header, arguments) else {
            tracing::debug!(peer = %caller.peer, "a chunk for what has to be in the message");
            count(&self.0.counts.refused);
            rpc::garbage_args(&mut Writer::new(reply), header.xid);
            seen.end(begun, caller, message, (&Outcome::Replied, reply), || None);
            return Ok(Outcome::Replied);
        };
        let program = at.map(|at| &*self.0.programs[at]);
        let later = |in_progress| Later { in_progress, begun };
        match self.0.repeated(program, caller, &header, &arguments) {
            Repeated::Harmless if self.0.offload => Err(later(None)),
            Repeated::Harmless => {
                let effort = Effort::ResidentOnly;
                let programs = &self.0;
                let served = programs.serve(program, caller, &header, arguments, effort, reply);
                // The store had to act for the caller, and this thread may not.
                let missed = ids::were_missed();
                match served {
                    Some(Outcome::Replied) if missed => Err(later(None)),
                    Some(outcome) => {
                        let about = || programs.about(message);
                        seen.end(begun, caller, message, (&outcome, reply), about);
                        Ok(outcome)
                    }
                    None => Err(later(None)),
                }
            }
            Repeated::First(in_progress) => Err(later(Some(in_progress))),
            Repeated::Again(outcome, earlier) => {
                count(&self.0.counts.duplicates);
                reply.extend_from_slice(earlier.as_deref().unwrap_or_default());
                Ok(outcome)
            }
        }
    }

    fn defer(&self, caller: &Caller, message: Vec<u8>, later: Later) -> Outcome {
        count(&self.0.counts.deferred);
        let (in_progress, begun) = (later.in_progress, later.begun.deferred());
        let (programs, caller) = (self.0.clone(), caller.clone());
        Outcome::Deferred(Box::new(move |reply| {
            let serve = || programs.serve_deferred(&caller, &message, reply);
            let outcome = pace::paced(&programs.company, serve);
            if let (Some(call), Outcome::Replied) = (in_progress, &outcome) {
                call.served(reply);
            }
            let about = || programs.about(&message);
            let seen = &programs.seen;
            seen.end(begun, &caller, &message, (&outcome, reply), about);
            outcome
        }))
    }
}

impl Programs {
    /// Where in the list the program of a call is.
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
        // Who is not let in is refused below, and shall fill no cache.
        if repeats == Repeats::Harmless || !self.access.admits(&caller.peer) {
            return Repeated::Harmless;
        }
        let bytes = arguments.bytes();
        match self.duplicates.begin(&caller.peer, header, bytes, repeats) {
            Seen::New(call) => Repeated::First(call),
            Seen::InProgress => Repeated::Again(Outcome::Dropped, None),
            Seen::Served(reply) => Repeated::Again(Outcome::Replied, Some(reply)),
        }
    }

    fn serve_deferred(&self, caller: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        let served = rpc::parse_call(message)
            .ok()
            .and_then(|(header, arguments)| {
                let arguments = Arguments::of(caller, &header, arguments)?;
                let program = self.find(&header).map(|at| &*self.programs[at]);
                let effort = Effort::MayBlock;
                self.serve(program, caller, &header, arguments, effort, reply)
            });
        // It parsed before, and there is no further effort.
        served.unwrap_or(Outcome::Dropped)
    }

    /// Serves a call, or says `None`: it would block.
    fn serve(
        &self,
        program: Option<&dyn Program>,
        caller: &Caller,
        header: &CallHeader<'_>,
        arguments: Arguments<'_>,
        effort: Effort,
        reply: &mut Vec<u8>,
    ) -> Option<Outcome> {
        reply.clear();
        let mut w = Writer::new(reply);
        let Some(program) = program else {
            self.refuse_program(&mut w, header);
            return Some(Outcome::Replied);
        };
        if header.procedure == 0 {
            rpc::reply_success(&mut w, header.xid);
            return Some(Outcome::Replied);
        }
        let who = match self.admit(
            program.admission(header.procedure),
            caller,
            &header.credential,
        ) {
            Ok(who) => who,
            Err(why) => {
                count(&self.counts.refused);
                tracing::debug!(peer = %caller.peer, %why, "call refused");
                rpc::auth_error(&mut w, header.xid, why);
                return Some(Outcome::Replied);
            }
        };
        rpc::reply_success(&mut w, header.xid);
        let call = Call {
            caller,
            who,
            procedure: header.procedure,
            arguments: arguments.reader,
            apart: arguments.apart,
            effort,
        };
        let refusal = match program.call(call, &mut w) {
            Answer::Replied => {
                let payload = w.payload_range();
                return Some(replied(caller, payload, reply));
            }
            Answer::Write(writes) => return Some(Outcome::Write(writes)),
            Answer::Placed(placed) => return Some(Outcome::Placed(placed)),
            Answer::Blocks => return None,
            Answer::NoProcedure => rpc::proc_unavail,
            Answer::Garbage(error) => {
                tracing::debug!(peer = %caller.peer, %error, "arguments that do not decode");
                rpc::garbage_args
            }
        };
        count(&self.counts.refused);
        w.truncate(0);
        refusal(&mut w, header.xid);
        Some(Outcome::Replied)
    }

    fn admit(
        &self,
        admission: Admission,
        caller: &Caller,
        credential: &Auth<'_>,
    ) -> Result<Credential, AuthStat> {
        match admission {
            Admission::Anyone => self.access.credential(&caller.peer, &Auth::None),
            Admission::Asks => self.access.credential(&caller.peer, credential),
            Admission::Listed if self.access.admits(&caller.peer) => {
                self.access.credential(&caller.peer, credential)
            }
            Admission::Listed => Err(AuthStat::TooWeak),
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

/// The reply is complete; but if the caller has a place for the payload in it, the payload goes there, or nowhere
/// (RFC 8166, section 4.3.2).
fn replied(caller: &Caller, payload: Option<Range<usize>>, reply: &mut Vec<u8>) -> Outcome {
    let Some(payload) = payload.filter(|payload| caller.placement.is_some() && !payload.is_empty())
    else {
        return Outcome::Replied;
    };
    let padded = payload.end + padding(payload.len());
    let mut data: Vec<u8> = reply.drain(payload.start..padded).collect();
    data.truncate(payload.len());
    Outcome::Placed(Placed {
        at: payload.start,
        length: payload.len() as u32,
        pieces: vec![ChunkSource::Bytes(data)],
    })
}

/// Writes `result`: for procedures that have nothing to write in place.
pub(crate) fn reply(results: &mut Writer<'_>, result: &impl Encode) -> Answer {
    result.encode(results);
    Answer::Replied
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
