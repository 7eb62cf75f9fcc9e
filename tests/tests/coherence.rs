//! Several clients write and read the same pages by every route, while others push them out of memory: for each page some order
//! of the operations must explain what every read returned.
#![cfg(not(shuttle))]

use odafs::{Cache, Client, File, Options, Route};
use odafs_tests::linear::{self, Action, Operation};
use odafs_tests::page::{self, PAGE};
use odafs_tests::served::{self, Served};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};
use std::thread;

/// Pages that are written; the others are only read, to push these out.
const SLOTS: u32 = 12;
/// Pages between two of them.
const APART: u32 = 200;
/// Twice what the server's cache holds.
const FILE_BYTES: u64 = 16 << 20;
/// Histories begin anew with each: a search through a long one takes long.
const ROUNDS: u32 = 4;
/// Of a thread in a round.
const OPERATIONS: u64 = 60;
/// Of a read that pushes out others.
const PIECE_BYTES: usize = 64 << 10;
const PIECES: u64 = FILE_BYTES / PIECE_BYTES as u64;
const WRITERS: u32 = 2;
const ROUTES: [Route; 4] = [Route::Rpc, Route::Guarded, Route::OneSided, Route::Policy];

/// What is seen of the pages.
struct World {
    time: AtomicU64,
    versions: AtomicU32,
    histories: Vec<Mutex<Vec<Operation>>>,
}

impl World {
    fn now(&self) -> u64 {
        self.time.fetch_add(1, SeqCst)
    }

    fn operate(&self, slot: u32, operation: impl FnOnce() -> Action) {
        let invoked = self.now();
        let action = operation();
        let returned = Some(self.now());
        let mut history = self.histories[slot as usize].lock().expect("history");
        history.push(Operation {
            invoked,
            returned,
            action,
        });
    }

    fn write(&self, file: &File, random: &mut u32) {
        let slot = next(random) % SLOTS;
        let version = self.versions.fetch_add(1, SeqCst) + 1;
        let stable = version.is_multiple_of(2);
        let mut data = [0; PAGE];
        page::fill(&mut data, slot, version);
        self.operate(slot, || {
            let written = if stable {
                file.write_stable_at(&data, at(slot))
            } else {
                file.write_at(&data, at(slot))
            };
            written.expect("write");
            Action::Write {
                value: version.into(),
                stable,
            }
        });
    }

    fn read(&self, file: &File, slot: u32) {
        self.operate(slot, || {
            let mut data = [0; PAGE];
            file.read_exact_at(&mut data, at(slot)).expect("read");
            let version = page::version(&data, slot).expect("a whole page");
            Action::Read {
                value: version.into(),
            }
        });
    }
}

fn at(slot: u32) -> u64 {
    u64::from(slot * APART) * PAGE as u64
}

/// A cheap generator; the seed differs by thread.
fn next(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 8
}

fn open(url: &str, route: Route) -> (Client, File) {
    let options = Options {
        route,
        cache: Cache::Off,
        ..Options::default()
    };
    let client = Client::connect_with(&url.parse().expect("url"), options).expect("connect");
    let file = client.open("/data").expect("open");
    (client, file)
}

/// How many pieces of the file have been read in a round. Clients go on beside that, so the whole file passes through the
/// server's memory between their first operations and their last.
#[derive(Default)]
struct Passed {
    pieces: Mutex<u64>,
    more: Condvar,
}

impl Passed {
    fn set(&self, change: impl FnOnce(&mut u64)) {
        change(&mut self.pieces.lock().expect("pieces"));
        self.more.notify_all();
    }

    /// Waits until so large a part of the file has been read as `operation` is of all of a client's.
    fn wait(&self, operation: u64) {
        let pieces = self.pieces.lock().expect("pieces");
        let behind = |pieces: &mut u64| *pieces * OPERATIONS < operation * PIECES;
        drop(self.more.wait_while(pieces, behind).expect("pieces"));
    }
}

/// Lets all go on when the reader of everything ends, also if it panics.
struct Freed<'a>(&'a Passed);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.0.set(|pieces| *pieces = PIECES);
    }
}

/// Ends the reader of everything, also if a client panics.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Reads pages that nobody writes, so that those that are written do not stay in memory.
fn push_out(url: &str, passed: &Passed, done: &AtomicBool) {
    let _freed = Freed(passed);
    let (_client, file) = open(url, Route::Rpc);
    let mut piece = vec![0; PIECE_BYTES];
    for number in 0.. {
        if number >= PIECES && done.load(SeqCst) {
            return;
        }
        let offset = number % PIECES * PIECE_BYTES as u64;
        file.read_exact_at(&mut piece, offset).expect("read");
        passed.set(|pieces| *pieces += 1);
    }
}

fn round(url: &str, clients: &[(Client, File)], world: &World, round: u32) {
    let (passed, done) = (Passed::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let pusher = scope.spawn(|| push_out(url, &passed, &done));
        let ended = Ended(&done);
        let mut threads = Vec::new();
        for (number, (_, file)) in clients.iter().enumerate() {
            let (number, passed) = (number as u32, &passed);
            threads.push(scope.spawn(move || {
                let mut random = round * 1000 + number;
                for operation in 0..OPERATIONS {
                    passed.wait(operation);
                    if number < WRITERS {
                        world.write(file, &mut random);
                    } else {
                        world.read(file, next(&mut random) % SLOTS);
                    }
                }
            }));
        }
        for thread in threads {
            thread.join().expect("a client");
        }
        drop(ended);
        pusher.join().expect("the reader of everything");
    });
}

fn is_coherent(url: impl Fn(&Served) -> String, options: &[&str]) {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    let data = directory.path().join("data");
    fs::write(&data, vec![0; FILE_BYTES as usize]).expect("data");
    fs::set_permissions(&data, PermissionsExt::from_mode(0o666)).expect("mode");
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let options = [
        options,
        &[
            "--direct",
            "one-sided",
            "--cache",
            "8MiB",
            "--metrics",
            "127.0.0.1:0",
        ],
    ]
    .concat();
    let server = Served::start(directory.path(), scratch.path(), &options);
    let url = url(&server);
    let readers = ROUTES.into_iter().cycle().take(2 * ROUTES.len());
    let clients: Vec<(Client, File)> = (0..WRITERS)
        .map(|_| Route::Rpc)
        .chain(readers)
        .map(|route| open(&url, route))
        .collect();
    let world = World {
        time: AtomicU64::new(0),
        versions: AtomicU32::new(0),
        histories: (0..SLOTS).map(|_| Mutex::default()).collect(),
    };
    let mut initial = vec![0; SLOTS as usize];
    for number in 0..ROUNDS {
        let pushed_out = server.metric("odafs_evictions_total");
        round(&url, &clients, &world, number);
        let pushed_out = server.metric("odafs_evictions_total") - pushed_out;
        assert!(pushed_out > 0, "all pages stayed in memory");
        for slot in 0..SLOTS {
            // The last word, when nobody writes any more.
            world.read(&clients[0].1, slot);
            let history = std::mem::take(&mut *world.histories[slot as usize].lock().expect("it"));
            let initial = &mut initial[slot as usize];
            if let Err(violation) = linear::check(*initial, &history) {
                panic!("page {slot}, {initial} at first:\n{}", violation.history);
            }
            if let Some(Action::Read { value }) = history.last().map(|o| o.action) {
                *initial = value;
            }
        }
    }
    let mut refused = [0, 0];
    let routes = ROUTES.into_iter().cycle();
    for ((client, _), route) in clients[WRITERS as usize..].iter().zip(routes) {
        let seen = client.statistics();
        println!(
            "{route:?}: {} direct, {} refused, {} by RPC",
            seen.direct_hits, seen.stale_hits, seen.rpc_reads
        );
        let at = match route {
            Route::Guarded => 0,
            Route::OneSided => 1,
            _ => continue,
        };
        assert!(seen.direct_hits > 0, "no direct read: nothing was tested");
        refused[at] += seen.stale_hits;
    }
    // What was pushed out or written over, a reader with a reference to it must have found refused.
    assert!(
        refused.iter().all(|refused| *refused > 0),
        "guarded and one-sided reads refused: {refused:?}"
    );
    assert_eq!(server.drain(), Some(0));
}

#[test]
fn every_page_is_a_register_over_shm() {
    is_coherent(|server| server.shm_url("/"), &[]);
}

#[test]
fn every_page_is_a_register_over_tcp() {
    is_coherent(|server| server.rdma_url("/"), &["--rdma", "127.0.0.1:0"]);
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn every_page_is_a_register_over_verbs() {
    let options = served::verbs_options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    is_coherent(|server| server.verbs_url("/"), &options);
}
