//! A connection that is slow, by a clock that stands still unless everybody waits.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use odafs_nic::calls::{Calls, Workers};

use super::super::round::Rounds;
use super::super::{Limits, STRANGERS_RECORD_BYTES};
use super::*;

/// Counts the calls, and answers none.
#[derive(Default)]
struct Silent(Mutex<Vec<usize>>);

impl Calls for Silent {
    fn call(&self, _: &Caller, message: &[u8], _: &mut Vec<u8>) -> Outcome {
        self.0.lock().expect("no panic").push(message.len());
        Outcome::Dropped
    }
}

struct NoWorkers;

impl Workers for NoWorkers {
    fn submit(&self, errand: Errand) -> Result<(), Errand> {
        Err(errand)
    }
}

/// What becomes of a connection whose client sends `message`, `step` bytes every second, and then closes it: its end, when that
/// was, and the lengths of the calls.
fn fate(message: &[u8], step: usize, listed: bool) -> (End, Duration, Vec<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let calls = Arc::new(Silent::default());
    let shared = Shared {
        calls: calls.clone(),
        workers: Arc::new(NoWorkers),
        limits: Limits::default(),
        listed: Box::new(move |_| listed),
        open: AtomicUsize::new(0),
        accepted: AtomicU64::new(0),
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut client = std::net::TcpStream::connect(address).expect("connected");
    let (stream, peer) = listener.accept().expect("accepted");
    stream.set_nonblocking(true).expect("a socket");
    let (end, took) = tokio::task::LocalSet::new().block_on(&runtime, async {
        let message = message.to_vec();
        tokio::task::spawn_local(async move {
            for bytes in message.chunks(step) {
                if client.write_all(bytes).is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let began = Instant::now();
        let of_thread = (Buffers::new(), ConnectionRound::new(Rounds::new()));
        let connection = Connection::new(&shared, stream, peer, 1, of_thread);
        let (_stop, stopped) = watch::channel(false);
        let end = connection.expect("a connection").run(stopped).await;
        (end, began.elapsed())
    });
    let lengths = std::mem::take(&mut *calls.0.lock().expect("no panic"));
    (end, took, lengths)
}

/// A record of so many bytes.
fn record(bytes: u32) -> Vec<u8> {
    let mark = odafs_common::wire::record::RecordMark::whole(bytes);
    [&mark.to_bytes()[..], &vec![0; bytes as usize]].concat()
}

#[test]
fn a_record_that_comes_in_too_slowly_ends_its_connection() {
    // A byte a second never stalls.
    let (end, took, calls) = fate(&record(1000), 1, true);
    let limit = Limits::default().record_time();
    assert!(matches!(end, End::Stalled), "{end}");
    assert!(
        (limit..limit + Duration::from_secs(2)).contains(&took),
        "{took:?}"
    );
    assert!(calls.is_empty());
    // The time is that of one record.
    let records = [record(100), record(100), record(100)].concat();
    let (end, took, calls) = fate(&records, 1, true);
    assert!(matches!(end, End::Complete), "{end}");
    assert!(took > limit && calls == [100; 3], "{took:?} {calls:?}");
    // Also if the next one has always begun.
    let records = record(1003).repeat(400);
    let (end, took, calls) = fate(&records, 1500, true);
    assert!(matches!(end, End::Complete), "{end}");
    assert!(took > limit && calls.len() == 400, "{took:?}");
    // The longest record, at a rate that is just enough.
    let longest = Limits::default().record_bytes;
    let (end, _, calls) = fate(&record(longest), 16 << 10, true);
    assert!(matches!(end, End::Complete), "{end}");
    assert_eq!(calls, [longest as usize]);
}

#[test]
fn strangers_send_short_records() {
    let most = STRANGERS_RECORD_BYTES;
    let (end, _, calls) = fate(&record(most), 1 << 20, false);
    assert!(matches!(end, End::Complete), "{end}");
    assert_eq!(calls, [most as usize]);
    let (end, _, calls) = fate(&record(most + 1), 1 << 20, false);
    assert!(matches!(end, End::Garbage(_)), "{end}");
    assert!(calls.is_empty());
}
