//! What operators see of calls: how many, how long, how they failed, who made them, and which were slow.
//!
//! A call that is served from memory takes less than a microsecond, and a look at the clock takes a good part of that. So
//! every call is counted, and one in [`SAMPLED`] is timed. The count itself chooses which, by multiples of the golden ratio:
//! they are spread evenly, and are in step with nothing that clients do in turn. On the pool every call is timed, in order
//! to find the slow ones; the clock costs nothing beside the change of threads.
//!
//! A row of counters is for one procedure over one fabric. An engine serves its fabrics on one thread and TCP has two, so
//! threads hardly share a row, and rows need no shards. A call that is not sampled takes no lock and allocates nothing.

mod clients;
mod histogram;
mod seldom;
mod slow;

use std::fmt::Write as _;
// Not the simulator's, because nothing depends on these and its scheduler need not see each.
use std::sync::atomic::{AtomicU64, Ordering};

use odafs_fabric::clock::{self, Nanos};
use odafs_nic::calls::{Caller, ChunkedArguments, Outcome, Transport};

use crate::rpc::Program;
use crate::vfs::metrics::{counter, describe, describe_as};

use histogram::Histogram;

pub use clients::ClientSeen;
pub use seldom::Seldom;
pub use slow::SlowCall;

/// One call in this many is timed.
pub const SAMPLED: u64 = 16;
/// The factor of the count: 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// How RPC itself says that a call failed, by `accept_stat` (RFC 5531, section 9); one more stands for a refusal.
const RPC_FAILURES: [&str; 7] = [
    "denied",
    "prog_unavail",
    "prog_mismatch",
    "proc_unavail",
    "garbage_args",
    "system_err",
    "other",
];
const DENIED: usize = 0;
const OTHER: usize = RPC_FAILURES.len() - 1;

/// What is counted of all calls of a service.
pub(super) struct Seen {
    procedures: Vec<Procedure>,
    /// Where each program's procedures begin. The last of a program stands for all that have no name.
    first: Vec<usize>,
    /// By fabric, then by procedure.
    rows: Box<[Row]>,
    clients: clients::Clients,
    slow: slow::Slow,
}

/// A procedure, over whichever fabric.
struct Procedure {
    program: &'static str,
    name: &'static str,
    /// The names of the statuses with which its results begin.
    statuses: Vec<(u32, String)>,
    /// Those of RPC, and then those of `statuses` and one for all others.
    failures: Box<[AtomicU64]>,
}

/// A procedure over a fabric.
#[derive(Default)]
#[repr(align(64))]
struct Row {
    calls: AtomicU64,
    times: Histogram,
}

/// A call that is being served.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    procedure: u32,
    transport: Transport,
    /// Counts for the histogram.
    sampled: bool,
    /// When it came, if it is timed.
    at: Option<Nanos>,
}

impl Begun {
    /// The call goes to the pool, where every call is timed.
    pub fn deferred(mut self) -> Self {
        if !cfg!(shuttle) && self.at.is_none() {
            self.at = Some(clock::now());
        }
        self
    }
}

impl Seen {
    /// Nothing yet, of these programs.
    pub fn new(programs: &[Box<dyn Program>]) -> Self {
        let mut procedures = Vec::new();
        let mut first = Vec::new();
        for program in programs {
            first.push(procedures.len());
            for (number, name) in (0..).zip(program.procedures()) {
                procedures.push(Procedure::new(
                    program.name(),
                    name,
                    program.statuses(number),
                ));
            }
            procedures.push(Procedure::new(program.name(), "other", Vec::new()));
        }
        first.push(procedures.len());
        procedures.push(Procedure::new("other", "other", Vec::new()));
        let rows = Transport::ALL.len() * procedures.len();
        Self {
            procedures,
            first,
            rows: (0..rows).map(|_| Row::default()).collect(),
            clients: clients::Clients::default(),
            slow: slow::Slow::default(),
        }
    }

    /// Calls that take longer than this are kept and reported.
    pub fn report_slow(&self, from: Nanos) {
        self.slow.report(from);
    }

    /// Procedure `number` of the program at this place of the list; of none, if it is not there.
    #[inline]
    pub fn begin(&self, program: Option<usize>, number: u32, transport: Transport) -> Begun {
        let at = program.unwrap_or(self.first.len() - 1);
        let end = *self.first.get(at + 1).unwrap_or(&self.procedures.len());
        let procedure = self.first[at].saturating_add(number as usize).min(end - 1);
        let row = &self.rows[self.row(procedure, transport)];
        let count = row.calls.fetch_add(1, Ordering::Relaxed);
        // The simulator's clock moves when somebody looks at it, so nothing is timed there.
        let sampled = !cfg!(shuttle) && count.wrapping_mul(GOLDEN) < u64::MAX / SAMPLED;
        Begun {
            procedure: procedure as u32,
            transport,
            sampled,
            at: sampled.then(clock::now),
        }
    }

    fn row(&self, procedure: usize, transport: Transport) -> usize {
        transport as usize * self.procedures.len() + procedure
    }

    /// The call has its reply. `about` says which file it was about, and is asked only for slow calls.
    #[inline]
    pub fn end(
        &self,
        begun: Begun,
        caller: &Caller,
        message: &[u8],
        (outcome, reply): (&Outcome, &[u8]),
        about: impl FnOnce() -> Option<String>,
    ) {
        let procedure = &self.procedures[begun.procedure as usize];
        if !matches!(outcome, Outcome::Dropped)
            && let Some(failure) = procedure.failure(reply)
        {
            procedure.failures[failure].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(at) = begun.at {
            let took = clock::now().since(at);
            self.timed(begun, took, caller, bytes(caller, message, outcome, reply));
            if self.slow.is_slow(took) {
                self.slow.keep(SlowCall {
                    program: procedure.program,
                    procedure: procedure.name,
                    fabric: begun.transport.label(),
                    client: caller.peer.to_string(),
                    about: about().unwrap_or_default(),
                    took,
                    at: std::time::SystemTime::now(),
                });
            }
        }
    }

    #[cold]
    fn timed(&self, begun: Begun, took: Nanos, caller: &Caller, bytes: u64) {
        if begun.sampled {
            let row = self.row(begun.procedure as usize, begun.transport);
            self.rows[row].times.add(took);
            self.clients.saw(&caller.peer, SAMPLED, bytes * SAMPLED);
        }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        let calls = self
            .rows
            .iter()
            .map(|row| row.calls.load(Ordering::Relaxed));
        calls.sum()
    }

    /// The clients that made the most calls, by the samples.
    pub fn clients(&self) -> Vec<ClientSeen> {
        self.clients.all()
    }

    /// The slowest calls of the last minutes, the slowest first.
    pub fn slow(&self) -> Vec<SlowCall> {
        self.slow.all()
    }

    /// Appends everything in the text format of Prometheus, except procedures that nobody called.
    pub fn append_text(&self, out: &mut String) {
        describe(out, "calls", "RPC calls.");
        for (labels, row) in self.called() {
            let calls = row.calls.load(Ordering::Relaxed);
            let _ = writeln!(out, "odafs_calls_total{{{labels}}} {calls}");
        }
        describe(out, "call_errors", "Calls that failed, by status.");
        for procedure in &self.procedures {
            procedure.append_failures(out);
        }
        describe_as(
            out,
            "histogram",
            "sampled_call_seconds",
            "Time from the coming of a call to its reply, of one call in 16. odafs_calls_total counts all.",
        );
        for (labels, row) in self.called() {
            row.times
                .append_text(out, "odafs_sampled_call_seconds", &labels);
        }
        let help = "Calls slower than --slow-call.";
        counter(out, "slow_calls", help, self.slow.count());
    }

    fn called(&self) -> impl Iterator<Item = (String, &Row)> {
        let by_fabric = self.rows.chunks(self.procedures.len());
        let by_fabric = Transport::ALL.iter().zip(by_fabric);
        by_fabric.flat_map(|(fabric, rows)| {
            let rows = self.procedures.iter().zip(rows);
            rows.filter(|(_, row)| row.calls.load(Ordering::Relaxed) > 0)
                .map(|(procedure, row)| (procedure.labels_over(*fabric), row))
        })
    }
}

/// The bytes that went over the wire for a call, including data that went apart from its messages.
fn bytes(caller: &Caller, message: &[u8], outcome: &Outcome, reply: &[u8]) -> u64 {
    let apart = caller.apart.as_ref().map_or(0, ChunkedArguments::len);
    let placed = match outcome {
        Outcome::Placed(placed) => placed.bytes(),
        Outcome::Write(writes) => writes
            .iter()
            .map(|write| u64::from(write.from.length()))
            .sum(),
        _ => 0,
    };
    (message.len() + apart + reply.len()) as u64 + placed
}

impl Procedure {
    fn new(program: &'static str, name: &'static str, statuses: Vec<(u32, String)>) -> Self {
        let failures = RPC_FAILURES.len() + statuses.len();
        Self {
            program,
            name,
            statuses,
            failures: (0..failures).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn labels_over(&self, fabric: Transport) -> String {
        let (program, procedure, fabric) = (self.program, self.name, fabric.label());
        format!("program=\"{program}\",procedure=\"{procedure}\",fabric=\"{fabric}\"")
    }

    /// Which failure a reply reports.
    #[inline]
    fn failure(&self, reply: &[u8]) -> Option<usize> {
        let word = |at: usize| {
            let bytes = reply.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        // xid, REPLY, whether it was accepted, a verifier (ours is empty), how it was accepted, results.
        if word(8)? != 0 {
            return Some(DENIED);
        }
        match word(20)? {
            0 if self.statuses.is_empty() => None,
            0 => match word(24)? {
                0 => None,
                status => Some(self.named(status)),
            },
            failure => Some((failure as usize).min(OTHER)),
        }
    }

    #[cold]
    fn named(&self, status: u32) -> usize {
        let named = self.statuses.iter().position(|(code, _)| *code == status);
        named.map_or(OTHER, |at| RPC_FAILURES.len() + at)
    }

    fn append_failures(&self, out: &mut String) {
        let own = self.statuses.iter().map(|(_, name)| &**name);
        let names = RPC_FAILURES.into_iter().chain(own);
        for (name, failures) in names.zip(&self.failures) {
            let failures = failures.load(Ordering::Relaxed);
            if failures > 0 {
                let (program, procedure) = (self.program, self.name);
                let _ = writeln!(
                    out,
                    "odafs_call_errors_total{{program=\"{program}\",procedure=\"{procedure}\",status=\"{name}\"}} {failures}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One call in 16, within a few, wherever one begins to count and whatever the step.
    #[test]
    fn one_in_sixteen_is_sampled_and_none_of_two_that_alternate_is_left_out() {
        let sampled = |count: u64| count.wrapping_mul(GOLDEN) < u64::MAX / SAMPLED;
        assert!(sampled(0), "the first of a procedure is");
        for step in 1..40 {
            for from in [0, 7, 1 << 40] {
                let hits = (0..1600).filter(|i| sampled(from + i * step)).count();
                assert!((70..=130).contains(&hits), "{hits} by {step} from {from}");
            }
        }
    }

    #[test]
    fn a_reply_tells_how_its_call_failed() {
        let procedure = Procedure::new("p", "q", vec![(0, "ok".into()), (70, "stale".into())]);
        let reply = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        let failure = |words: &[u32]| procedure.failure(&reply(words));
        assert_eq!(failure(&[1, 1, 0, 0, 0, 0, 0]), None);
        assert_eq!(
            failure(&[1, 1, 0, 0, 0, 0, 70]),
            Some(RPC_FAILURES.len() + 1)
        );
        assert_eq!(failure(&[1, 1, 0, 0, 0, 0, 99]), Some(OTHER));
        assert_eq!(failure(&[1, 1, 0, 0, 0, 4]), Some(4));
        assert_eq!(failure(&[1, 1, 0, 0, 0, 77]), Some(OTHER));
        assert_eq!(failure(&[1, 1, 1, 1, 5]), Some(DENIED));
        assert_eq!(failure(&[1, 1]), None);
        let none = Procedure::new("p", "other", Vec::new());
        assert_eq!(none.failure(&reply(&[1, 1, 0, 0, 0, 0, 70])), None);
    }
}
