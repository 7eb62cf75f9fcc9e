//! The TCP transport, with calls that say themselves what shall become of them.

#![cfg(not(shuttle))]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use odafs_nic::calls::{Caller, Calls, Errand, Job, Outcome, Workers};
use odafs_server::tcp::{Limits, TcpServer};

/// What a call asks for: the first byte. The reply is the message, padded to the length in its second word.
const NOW: u8 = 0;
const LATER: u8 = 1;
const NEVER: u8 = 2;
const PANIC: u8 = 3;
const FAR_LATER: u8 = 4;
const SLOWLY: u8 = 5;
const BRIEFLY: u8 = 6;
const HELD: u8 = 7;

#[derive(Default)]
struct Obedient {
    served: AtomicUsize,
    closed: AtomicUsize,
    released: Arc<AtomicBool>,
    /// The numbers of those that were served where they came, in their order.
    order: Mutex<Vec<u32>>,
}

fn echo(message: &[u8], reply: &mut Vec<u8>) {
    let length = u32::from_be_bytes(message[4..8].try_into().expect("a word")) as usize;
    reply.extend_from_slice(message);
    reply.resize(length.max(message.len()), 0xEE);
}

impl Calls for Obedient {
    fn call(&self, _: &Caller, message: &[u8], reply: &mut Vec<u8>) -> Outcome {
        assert!(reply.is_empty(), "a reply buffer was not cleared");
        self.served.fetch_add(1, Ordering::SeqCst);
        let copy = message.to_vec();
        let released = self.released.clone();
        if let NOW | SLOWLY | BRIEFLY = message[0] {
            let number = message[8..12].try_into().expect("a word");
            let mut order = self.order.lock().expect("no panic with the lock");
            order.push(u32::from_be_bytes(number));
        }
        match message[0] {
            NOW => echo(message, reply),
            BRIEFLY => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(100) {}
                echo(message, reply);
            }
            HELD => {
                while !released.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                echo(message, reply);
            }
            SLOWLY => {
                std::thread::sleep(Duration::from_millis(1));
                echo(message, reply);
            }
            NEVER => return Outcome::Dropped,
            LATER => {
                reply.extend_from_slice(b"thrown away");
                return Outcome::Deferred(Job::new(move |reply| {
                    echo(&copy, reply);
                    Outcome::Replied
                }));
            }
            FAR_LATER => {
                return Outcome::Deferred(Job::new(move |reply| {
                    while !released.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    echo(&copy, reply);
                    Outcome::Replied
                }));
            }
            _ => return Outcome::Deferred(Job::new(|_| panic!("on purpose"))),
        }
        Outcome::Replied
    }

    fn closed(&self, _: u64) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Two threads; every third submission is refused at first.
struct Pool {
    tasks: Mutex<Sender<Task>>,
    submissions: AtomicUsize,
}

impl Pool {
    fn new() -> Arc<Self> {
        let (sender, tasks) = channel::<Task>();
        let tasks = Arc::new(Mutex::new(tasks));
        for _ in 0..2 {
            let tasks = tasks.clone();
            std::thread::spawn(move || {
                loop {
                    let Ok(task) = tasks.lock().expect("no panic with the lock").recv() else {
                        return;
                    };
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
                }
            });
        }
        Arc::new(Self {
            tasks: Mutex::new(sender),
            submissions: AtomicUsize::new(0),
        })
    }
}

impl Workers for Pool {
    fn submit(&self, errand: Errand) -> Result<(), Errand> {
        if self.submissions.fetch_add(1, Ordering::SeqCst) % 3 == 1 {
            return Err(errand);
        }
        let sender = self.tasks.lock().expect("no panic with the lock");
        sender.send(errand.task).expect("its threads live");
        Ok(())
    }
}

struct Fixture {
    server: TcpServer,
    calls: Arc<Obedient>,
    address: SocketAddr,
}

fn serve(limits: Limits) -> Fixture {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let calls = Arc::new(Obedient::default());
    let server = TcpServer::start(listener, 2, calls.clone(), Pool::new(), limits, |_| true)
        .expect("threads");
    Fixture {
        server,
        calls,
        address,
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a timeout");
    stream.set_write_timeout(patience).expect("a timeout");
    stream
}

/// A record: a call that asks for `what`, with a number, and a reply of `length` bytes.
fn record(what: u8, number: u32, length: u32) -> Vec<u8> {
    let mut call = vec![what, 0, 0, 0];
    call.extend_from_slice(&length.to_be_bytes());
    call.extend_from_slice(&number.to_be_bytes());
    let mark = 1 << 31 | call.len() as u32;
    [&mark.to_be_bytes()[..], &call].concat()
}

/// The next reply, which is one fragment: its number and its length.
fn reply(stream: &mut TcpStream) -> (u32, usize) {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).expect("a mark");
    let mark = u32::from_be_bytes(mark);
    assert!(mark & 1 << 31 != 0, "a reply in several fragments");
    let mut body = vec![0; (mark & !(1 << 31)) as usize];
    stream.read_exact(&mut body).expect("a body");
    assert!(body[12..].iter().all(|byte| *byte == 0xEE));
    let number = body[8..12].try_into().expect("a word");
    (u32::from_be_bytes(number), body.len())
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn many_calls_are_in_flight_and_each_is_answered_once() {
    let fixture = serve(Limits::default());
    let mut stream = connect(fixture.address);
    let whats = [NOW, LATER, LATER, NOW, LATER];
    let calls = 500;
    let sender = stream.try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || {
        let mut sender = sender;
        for number in 0..calls {
            let what = whats[number as usize % whats.len()];
            let length = [0, 100, 5_000, 40_000][number as usize % 4];
            sender
                .write_all(&record(what, number, length))
                .expect("sent");
        }
    });
    let mut seen = vec![false; calls as usize];
    for _ in 0..calls {
        let (number, length) = reply(&mut stream);
        assert_eq!(length, [12, 100, 5_000, 40_000][number as usize % 4]);
        assert!(!std::mem::replace(&mut seen[number as usize], true));
    }
    writer.join().expect("all sent");
}

#[test]
fn a_flood_of_calls_does_not_keep_the_others_of_its_thread_waiting() {
    let fixture = serve(Limits::default());
    // The first and the third share a thread.
    let [mut flood, _apart, mut other] = [(); 3].map(|()| connect(fixture.address));
    other.write_all(&record(NOW, 0, 0)).expect("sent");
    assert_eq!(reply(&mut other), (0, 12));
    let calls = 2000;
    let all: Vec<u8> = (0..calls).flat_map(|n| record(SLOWLY, n, 0)).collect();
    flood.write_all(&all).expect("sent");
    assert_eq!(reply(&mut flood), (0, 12));
    other.write_all(&record(NOW, 1, 0)).expect("sent");
    assert_eq!(reply(&mut other), (1, 12));
    let served = fixture.calls.served.load(Ordering::SeqCst);
    assert!(served < calls as usize, "it was served last");
    for number in 1..calls {
        assert_eq!(reply(&mut flood), (number, 12));
    }
}

/// The order in which one thread serves what two connections have sent before it looks at either: numbers from 1000 on
/// are the second's.
fn order_of(first: &[Vec<u8>], second: &[Vec<u8>]) -> Vec<u32> {
    let fixture = serve(Limits::default());
    // Every other one is of another thread.
    let mut streams = [(); 5].map(|()| connect(fixture.address));
    for stream in &mut streams {
        stream.write_all(&record(NEVER, 0, 0)).expect("sent");
    }
    let served = |calls| {
        while fixture.calls.served.load(Ordering::SeqCst) < calls {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    served(5);
    let [hold, _, flood, _, other] = &mut streams;
    hold.write_all(&record(HELD, 0, 0)).expect("sent");
    served(6);
    flood.write_all(&first.concat()).expect("sent");
    other.write_all(&second.concat()).expect("sent");
    fixture.calls.released.store(true, Ordering::SeqCst);
    for _ in first {
        reply(flood);
    }
    for _ in second {
        reply(other);
    }
    std::mem::take(&mut fixture.calls.order.lock().expect("no panic with the lock"))
}

#[test]
fn one_call_is_served_among_a_flood_of_queued_ones() {
    let flood: Vec<_> = (0..32).map(|n| record(SLOWLY, n, 0)).collect();
    let order = order_of(&flood, &[record(NOW, 1000, 0)]);
    let at = order.iter().position(|number| *number == 1000);
    assert!(at.is_some_and(|at| at <= 1), "{order:?}");
}

#[test]
fn turns_are_as_long_for_long_calls_as_for_short_ones() {
    let long: Vec<_> = (0..40).map(|n| record(SLOWLY, n, 0)).collect();
    let short: Vec<_> = (1000..1040).map(|n| record(BRIEFLY, n, 0)).collect();
    let order = order_of(&long, &short);
    let last = order.iter().rposition(|number| *number >= 1000);
    let long_before = last.expect("served") + 1 - short.len();
    assert!(long_before <= 20, "{order:?}");
}

#[test]
fn a_flood_of_long_replies_does_not_go_before_one_short_one() {
    let flood: Vec<_> = (0..32).map(|n| record(NOW, n, 1 << 20)).collect();
    let order = order_of(&flood, &[record(NOW, 1000, 0)]);
    let at = order.iter().position(|number| *number == 1000);
    assert!(at.is_some_and(|at| at < 8), "{order:?}");
}

#[test]
fn a_call_is_put_together_from_pieces_and_fragments() {
    let fixture = serve(Limits::default());
    let mut stream = connect(fixture.address);
    let whole = record(NOW, 7, 0);
    for byte in &whole {
        stream.write_all(&[*byte]).expect("sent");
    }
    assert_eq!(reply(&mut stream), (7, 12));
    for piece in whole[4..].chunks(5) {
        stream
            .write_all(&(piece.len() as u32).to_be_bytes())
            .expect("sent");
        stream.write_all(piece).expect("sent");
    }
    stream
        .write_all(&(1_u32 << 31).to_be_bytes())
        .expect("sent");
    assert_eq!(reply(&mut stream), (7, 12));
}

#[test]
fn long_calls_arrive_whole_among_short_ones() {
    let fixture = serve(Limits::default());
    let mut stream = connect(fixture.address);
    let mut all = Vec::new();
    let mut sent = Vec::new();
    for number in 0..6_u32 {
        let mut call = vec![
            if number % 2 == 0 { NOW } else { LATER },
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        call.extend_from_slice(&number.to_be_bytes());
        call.extend((0..1_000_000_u32 - number).map(|byte| (byte ^ number) as u8));
        let mark = 1 << 31 | call.len() as u32;
        all.extend_from_slice(&mark.to_be_bytes());
        all.extend_from_slice(&call);
        sent.push(call);
        all.extend_from_slice(&record(NOW, 100 + number, 0));
    }
    let mut sender = stream.try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || {
        for piece in all.chunks(300_000) {
            sender.write_all(piece).expect("sent");
        }
    });
    for _ in 0..12 {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).expect("a mark");
        let mut body = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        stream.read_exact(&mut body).expect("a body");
        let number = u32::from_be_bytes(body[8..12].try_into().expect("a word"));
        if number < 100 {
            assert!(body == sent[number as usize], "call {number}");
        }
    }
    writer.join().expect("all sent");
}

#[test]
fn what_is_no_record_of_ours_ends_that_connection_alone() {
    let fixture = serve(Limits::default());
    let mut good = connect(fixture.address);
    let limit = Limits::default().record_bytes;
    for mark in [u32::MAX, 1 << 31 | (limit + 1), limit + 1] {
        let mut bad = connect(fixture.address);
        bad.write_all(&mark.to_be_bytes()).expect("sent");
        assert!(is_closed(&mut bad), "{mark:x}");
    }
    good.write_all(&record(NOW, 1, 0)).expect("sent");
    assert_eq!(reply(&mut good), (1, 12));
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let limits = Limits {
        reply_bytes: 1 << 20,
        ..Limits::default()
    };
    let fixture = serve(limits);
    let mut stream = connect(fixture.address);
    let (calls, length) = (3_000, 65_536);
    let sender = stream.try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || {
        let mut sender = sender;
        for number in 0..calls {
            sender
                .write_all(&record(NOW, number, length))
                .expect("sent");
        }
    });
    // All calls fit the socket's buffers; what is served of them does not grow beyond what waits.
    let mut served = 0;
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(20));
        let now = fixture.calls.served.load(Ordering::SeqCst);
        if now == served && now > 0 {
            break;
        }
        served = now;
    }
    assert!(served < calls as usize, "served {served} calls ahead");
    for number in 0..calls {
        assert_eq!(reply(&mut stream), (number, length as usize));
    }
    writer.join().expect("all sent");
}

#[test]
fn calls_on_the_pool_are_bounded() {
    let limits = Limits {
        calls: 4,
        ..Limits::default()
    };
    let fixture = serve(limits);
    let mut stream = connect(fixture.address);
    for number in 0..50 {
        stream
            .write_all(&record(FAR_LATER, number, 0))
            .expect("sent");
    }
    // All four that may be there are. The others have some time to come, if nothing keeps them.
    let served = || fixture.calls.served.load(Ordering::SeqCst);
    for _ in 0..4000 {
        if served() >= 4 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    let at_once = served();
    // Or what waits would keep the fixture from its end.
    fixture.calls.released.store(true, Ordering::SeqCst);
    assert_eq!(at_once, 4);
    let mut numbers: Vec<u32> = (0..50).map(|_| reply(&mut stream).0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
}

#[test]
fn calls_without_a_reply_leave_the_connection_usable() {
    let fixture = serve(Limits::default());
    let mut stream = connect(fixture.address);
    for what in [NEVER, PANIC, NEVER, PANIC] {
        stream.write_all(&record(what, 0, 0)).expect("sent");
    }
    stream.write_all(&record(LATER, 5, 0)).expect("sent");
    assert_eq!(reply(&mut stream), (5, 12));
}

#[test]
fn a_record_that_stops_half_way_ends_the_connection_and_silence_does_not() {
    let limits = Limits {
        stall: Duration::from_millis(100),
        ..Limits::default()
    };
    let fixture = serve(limits);
    let mut silent = connect(fixture.address);
    let mut stalled = connect(fixture.address);
    stalled.write_all(&record(NOW, 1, 0)[..9]).expect("sent");
    assert!(is_closed(&mut stalled));
    silent.write_all(&record(NOW, 2, 0)).expect("sent");
    assert_eq!(reply(&mut silent), (2, 12));
}

#[test]
fn a_client_that_has_said_all_still_gets_its_replies() {
    let fixture = serve(Limits::default());
    let mut stream = connect(fixture.address);
    stream.write_all(&record(LATER, 1, 200_000)).expect("sent");
    stream.write_all(&record(NOW, 2, 0)).expect("sent");
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("half closed");
    let mut numbers = [reply(&mut stream).0, reply(&mut stream).0];
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    assert!(is_closed(&mut stream));
}

#[test]
fn connections_are_bounded_and_their_places_come_free() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let fixture = serve(limits);
    let mut kept = [connect(fixture.address), connect(fixture.address)];
    for stream in &mut kept {
        stream.write_all(&record(NOW, 1, 0)).expect("sent");
        assert_eq!(reply(stream), (1, 12));
    }
    assert!(is_closed(&mut connect(fixture.address)));
    drop(kept);
    while fixture.server.connections() > 0 {
        std::thread::yield_now();
    }
    let mut stream = connect(fixture.address);
    stream.write_all(&record(NOW, 3, 0)).expect("sent");
    assert_eq!(reply(&mut stream), (3, 12));
    assert_eq!(fixture.calls.closed.load(Ordering::SeqCst), 2);
}

#[test]
fn shutdown_finishes_what_is_under_way() {
    let fixture = serve(Limits::default());
    let mut stream = connect(fixture.address);
    stream.write_all(&record(FAR_LATER, 9, 100)).expect("sent");
    while fixture.calls.served.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let (server, released) = (fixture.server, fixture.calls.released.clone());
    let stopping = std::thread::spawn(move || server.shutdown());
    std::thread::sleep(Duration::from_millis(20));
    released.store(true, Ordering::SeqCst);
    assert_eq!(reply(&mut stream), (9, 100));
    assert!(is_closed(&mut stream));
    stopping.join().expect("it stopped");
    assert!(TcpStream::connect(fixture.address).is_err());
}
