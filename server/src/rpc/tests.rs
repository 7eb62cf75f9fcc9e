//! What a service makes of the answers of a program.

use std::sync::Arc as StdArc;

use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::xdr::{Reader, Writer};
use odafs_fabric::Peer;
use odafs_fabric::memory::Own;
use odafs_fabric::sync::{Arc, Mutex};
use odafs_nic::calls::{
    Back, Caller, Calls as _, ChunkSource, ChunkedArguments, Job, Notes, Outcome, Placements,
    Transport,
};
use odafs_nic::registration::Contents;

use super::access::{Access, Squash};
use super::drc::{Bounds, DuplicateCache, Repeats};
use super::*;
use crate::vfs::Credential;
use crate::vfs::read::Effort;

const PROGRAM: u32 = 0x2000_0000;

/// Does steps, each of which it notes and writes. A procedure's number says what it does with them.
#[derive(Default)]
struct Steps {
    done: Mutex<Vec<u32>>,
    /// Calls of which nobody has gone on.
    dropped: Mutex<u32>,
}

/// All steps at once.
const AT_ONCE: u32 = 1;
/// None on the thread that polls.
const BLOCKS: u32 = 2;
/// One on the thread that polls, and waits before each of the others.
const WAITS: u32 = 3;
/// The same, and a repetition would do harm.
const CHANGES: u32 = 4;
/// The same, and it remembers replies itself.
const REMEMBERS: u32 = 5;
/// Waits, and then says that it would block.
const AT_FAULT: u32 = 6;
/// Waits, and then does not understand its arguments.
const GARBAGE: u32 = 7;
/// Writes a payload, waits, and writes another.
const PAYLOADS: u32 = 8;
/// Takes a payload, which may come apart, waits, and takes another.
const TAKES: u32 = 9;

const STEPS: u32 = 4;

struct Program(Arc<Steps>);

struct Waiting {
    steps: Arc<Steps>,
    procedure: u32,
    next: u32,
    over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.steps.dropped.lock() += u32::from(!self.over);
    }
}

impl Steps {
    fn step(&self, number: u32, results: &mut Writer<'_>) {
        self.done.lock().push(number);
        results.u32(number);
    }

    fn done(&self) -> Vec<u32> {
        std::mem::take(&mut *self.done.lock())
    }
}

fn waiting(steps: &Arc<Steps>, procedure: u32, next: u32) -> Answer {
    Answer::Suspended(Box::new(Waiting {
        steps: Arc::clone(steps),
        procedure,
        next,
        over: false,
    }))
}

/// Takes a payload from the arguments and writes it. It is in `apart`, or in the message.
fn take(arguments: &mut Reader<'_>, apart: ApartPayloads<'_>, results: &mut Writer<'_>) {
    let data = arguments.payload("data", 100).expect("a payload");
    results.opaque(&apart.get(0).map_or(data.to_vec(), |apart| apart.to_vec()));
}

impl super::Program for Program {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn version(&self) -> u32 {
        1
    }

    fn admission(&self, _procedure: u32) -> Admission {
        Admission::Anyone
    }

    fn repeats<'a>(&self, procedure: u32, _arguments: Reader<'a>) -> Repeats<'a> {
        match procedure {
            CHANGES => Repeats::Change { names: [None; 2] },
            REMEMBERS => Repeats::Remembered,
            _ => Repeats::Harmless,
        }
    }

    fn payload(&self, procedure: u32, mut arguments: Reader<'_>) -> Option<std::ops::Range<usize>> {
        if procedure != TAKES {
            return None;
        }
        let length = arguments.u32().ok()? as usize;
        let start = arguments.position();
        Some(start..start + length)
    }

    fn call(&self, call: Call<'_>, results: &mut Writer<'_>) -> Answer {
        match call.procedure {
            AT_ONCE => {
                (0..STEPS).for_each(|number| self.0.step(number, results));
                Answer::Replied
            }
            BLOCKS if call.effort == Effort::ResidentOnly => {
                results.u32(99);
                Answer::Blocks
            }
            BLOCKS => {
                (0..STEPS).for_each(|number| self.0.step(number, results));
                Answer::Replied
            }
            PAYLOADS => {
                results.payload(b"first");
                waiting(&self.0, PAYLOADS, 1)
            }
            TAKES => {
                take(&mut call.arguments.clone(), call.apart, results);
                waiting(&self.0, TAKES, 1)
            }
            procedure => {
                self.0.step(0, results);
                waiting(&self.0, procedure, 1)
            }
        }
    }
}

impl Suspended for Waiting {
    fn resume(mut self: Box<Self>, mut call: Resumed<'_>, results: &mut Writer<'_>) -> Answer {
        self.over = true;
        match self.procedure {
            AT_FAULT => return Answer::Blocks,
            GARBAGE => return Answer::Garbage(odafs_common::wire::xdr::XdrError::Short),
            PAYLOADS => results.payload(b"second"),
            TAKES => {
                // The first argument has been taken, and what came apart with it.
                let first = call.arguments.payload("data", 100).expect("a payload");
                assert_eq!(
                    (first.len(), call.apart.get(0).map(|apart| apart.len())),
                    (0, Some(5))
                );
                take(&mut call.arguments, ApartPayloads::default(), results);
            }
            procedure => {
                self.steps.step(self.next, results);
                if self.next + 1 < STEPS {
                    return waiting(&self.steps, procedure, self.next + 1);
                }
            }
        }
        Answer::Replied
    }
}

struct Bench {
    steps: Arc<Steps>,
    service: Service,
    caller: Caller,
}

impl Bench {
    fn new() -> Self {
        let steps = Arc::<Steps>::default();
        let access = Access::new(Vec::new(), Squash::None, Credential::of(1000, 1000, &[]));
        let programs: Vec<Box<dyn super::Program>> = vec![Box::new(Program(Arc::clone(&steps)))];
        let duplicates = DuplicateCache::new(Bounds::default());
        Self {
            service: Service::new(programs, StdArc::new(access), duplicates, false),
            steps,
            caller: Caller {
                peer: Peer::Simulated(1),
                local: None,
                connection: 1,
                transport: Transport::Sim,
                reply_bytes_max: 1 << 20,
                placements: Placements::default(),
                apart: None,
                back: None,
                notes: Notes::default(),
            },
        }
    }

    /// What becomes of a call on the thread that polls, whose buffer has held other replies.
    fn call(&self, message: &[u8]) -> (Outcome, Vec<u8>) {
        let mut reply = Vec::with_capacity(1000);
        let outcome = self.service.call(&self.caller, message, &mut reply);
        (outcome, reply)
    }

    fn deferred(&self, message: &[u8]) -> Job {
        match self.call(message) {
            (Outcome::Deferred(job), _) => job,
            (outcome, _) => panic!("{outcome:?}"),
        }
    }
}

fn message(procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut w = Writer::new(&mut message);
    rpc::call(&mut w, 7, PROGRAM, 1, procedure, &Auth::None);
    message.extend_from_slice(arguments);
    message
}

fn done(job: Job) -> Vec<u8> {
    let mut reply = Vec::new();
    let outcome = job.run(&mut reply);
    assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
    reply
}

/// The words of the results in a reply.
fn words(reply: &[u8]) -> Vec<u32> {
    let reply = rpc::parse_reply(reply).expect("a reply");
    let (words, rest) = reply.body.expect("results").rest().as_chunks::<4>();
    assert_eq!(rest, b"");
    words.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

#[test]
fn what_does_not_wait_ends_on_the_thread_that_polls() {
    let bench = Bench::new();
    let (outcome, reply) = bench.call(&message(AT_ONCE, &[]));
    assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
    assert_eq!(words(&reply), [0, 1, 2, 3]);
    assert_eq!(bench.service.counts().deferred, 0);
}

#[test]
fn what_has_done_nothing_runs_from_its_start() {
    let bench = Bench::new();
    let job = bench.deferred(&message(BLOCKS, &[]));
    assert_eq!(bench.steps.done(), []);
    assert_eq!(words(&done(job)), [0, 1, 2, 3]);
    assert_eq!(bench.steps.done(), [0, 1, 2, 3]);
}

#[test]
fn what_waits_goes_on_as_often_as_it_has_to() {
    let bench = Bench::new();
    for procedure in [WAITS, REMEMBERS] {
        let job = bench.deferred(&message(procedure, &[]));
        assert_eq!(bench.steps.done(), [0]);
        assert_eq!(words(&done(job)), [0, 1, 2, 3]);
        assert_eq!(bench.steps.done(), [1, 2, 3]);
    }
    assert_eq!(*bench.steps.dropped.lock(), 0);
}

#[test]
fn a_job_that_nobody_does_gives_back_what_its_call_holds() {
    let bench = Bench::new();
    drop(bench.deferred(&message(WAITS, &[])));
    assert_eq!(bench.steps.done(), [0]);
    assert_eq!(*bench.steps.dropped.lock(), 1);
}

/// It waits on the pool alone, where it goes by way of the cache.
#[test]
fn what_changes_something_is_done_once_however_often_it_waits() {
    let bench = Bench::new();
    let change = message(CHANGES, &[]);
    let job = bench.deferred(&change);
    assert_eq!(bench.steps.done(), []);
    assert!(matches!(bench.call(&change), (Outcome::Dropped, _)));
    let reply = done(job);
    assert_eq!(words(&reply), [0, 1, 2, 3]);
    let (outcome, again) = bench.call(&change);
    assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
    assert_eq!(again, reply);
    assert_eq!(bench.steps.done(), [0, 1, 2, 3]);
    assert_eq!(bench.service.counts().duplicates, 2);
}

/// What went to a peer later than its call.
#[derive(Debug, Default)]
struct Mailbox(Mutex<Vec<Vec<u8>>>);

impl Back for Mailbox {
    fn send(&self, message: Vec<u8>) -> bool {
        self.0.lock().push(message);
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

#[test]
fn the_reply_goes_to_who_has_asked_last_too() {
    let mut bench = Bench::new();
    let connections = [(); 3].map(|()| Arc::<Mailbox>::default());
    let change = message(CHANGES, &[]);
    let comes_over = |bench: &mut Bench, connection: usize| {
        let back: Arc<dyn Back> = connections[connection].clone();
        bench.caller.back = Some(back);
        bench.call(&change).0
    };
    let received = || connections.each_ref().map(|of| of.0.lock().len());
    // Over RDMA only calls go that way.
    let Outcome::Deferred(job) = comes_over(&mut bench, 0) else {
        panic!("it is new");
    };
    assert!(matches!(comes_over(&mut bench, 1), Outcome::Dropped));
    drop(job);
    bench.caller.transport = Transport::NfsTcp;
    let Outcome::Deferred(job) = comes_over(&mut bench, 0) else {
        panic!("nobody has done it");
    };
    for connection in [1, 2, 0, 2] {
        assert!(matches!(
            comes_over(&mut bench, connection),
            Outcome::Dropped
        ));
    }
    assert_eq!(received(), [0; 3]);
    let reply = done(job);
    assert_eq!(received(), [0, 0, 1]);
    assert_eq!(connections[2].0.lock()[0], reply);
}

#[test]
fn what_comes_of_waiting_may_be_a_refusal() {
    let bench = Bench::new();
    let mut reply = Vec::new();
    let outcome = bench.deferred(&message(AT_FAULT, &[])).run(&mut reply);
    assert!(matches!(outcome, Outcome::Dropped), "{outcome:?}");
    let reply = done(bench.deferred(&message(GARBAGE, &[])));
    let refused = rpc::parse_reply(&reply).expect("a reply").body;
    assert_eq!(refused.err(), Some(rpc::Rejection::GarbageArguments));
}

/// The first payload of a reply goes to the placement, whenever it was written.
#[test]
fn a_payload_from_before_is_placed() {
    let mut bench = Bench::new();
    bench.caller.placements = Placements::one(100);
    let job = bench.deferred(&message(PAYLOADS, &[]));
    let mut reply = Vec::new();
    let Outcome::Placed(placed) = job.run(&mut reply) else {
        panic!("{reply:?}");
    };
    let [ChunkSource::Bytes(bytes)] = &placed.pieces[..] else {
        panic!("{placed:?}");
    };
    assert_eq!((&bytes[..], placed.bytes()), (&b"first"[..], 5));
    let at = placed.results[0].at as usize;
    assert_eq!(reply[at - 4..], *b"\0\0\0\x05\0\0\0\x06second\0\0");
}

/// What came apart from the message is there before and after.
#[test]
fn what_came_apart_is_used_once() {
    let mut bench = Bench::new();
    let arguments = [&5_u32.to_be_bytes()[..], &4_u32.to_be_bytes(), b"more"].concat();
    let message = message(TAKES, &arguments);
    let mut memory = Own::new(5).expect("memory");
    memory.bytes_mut().copy_from_slice(b"hello");
    let contents = Contents::from(memory.lend());
    let at = message.len() - arguments.len() + 4;
    let bring = |at: usize| {
        let mut apart = ChunkedArguments::new(contents.clone());
        assert!(apart.push(at as u32, 0..5));
        Some(apart)
    };
    bench.caller.apart = bring(at);
    let reply = done(bench.deferred(&message));
    let results = rpc::parse_reply(&reply).expect("a reply").body;
    let results = results.expect("results");
    assert_eq!(results.rest(), b"\0\0\0\x05hello\0\0\0\0\0\0\x04more");
    // Where no payload belongs, none may come, beside one that may neither.
    let mut second = bring(at).expect("a payload");
    assert!(second.push(at as u32 + 8, 0..4));
    for apart in [bring(at + 4), bring(at - 4), Some(second)] {
        bench.caller.apart = apart;
        let (outcome, reply) = bench.call(&message);
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        let refused = rpc::parse_reply(&reply).expect("a reply").body;
        assert_eq!(refused.err(), Some(rpc::Rejection::GarbageArguments));
    }
}
