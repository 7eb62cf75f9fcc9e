//! Strangers write a file of the real local store that direct readers read: NFS clients that are not ours, by versions 3 and 4,
//! and programs on the server's own file system. No reader sees what a read by RPC could not have returned.
#![cfg(not(shuttle))]

mod writers;

use odafs::{Cache, Client, File, Options, Route};
use odafs_tests::linear::{self, Action, Operation};
use odafs_tests::page::{self, PAGE};
use odafs_tests::served::{self, Served};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use writers::{Calls, Compounds, Libnfs, Linux, Mount, Writer};

/// Pages that NFS clients write. Those behind them are written on the server's file system.
const BY_NFS: u32 = 6;
const SLOTS: u32 = 12;
/// Histories begin anew with each.
const ROUNDS: u32 = 4;
/// Of an NFS client to each of its pages, in a round.
const WRITES: u32 = 5;
/// How soon a change behind the server's back is there for every reader (docs/OPERATIONS.md).
const NOTICED: Duration = Duration::from_secs(1);
/// Longer than a tick of any file system's clock, by which changes of other programs are told.
const TICK: Duration = Duration::from_millis(20);

/// What is seen of the pages.
#[derive(Default)]
struct World {
    time: AtomicU64,
    versions: AtomicU32,
    /// Of pages that are written by NFS.
    histories: Vec<Mutex<Vec<Operation>>>,
    /// The newest version of each other page that a local program has begun to write.
    begun: Vec<AtomicU32>,
    done: AtomicBool,
}

impl World {
    fn now(&self) -> u64 {
        self.time.fetch_add(1, SeqCst)
    }

    fn record(&self, slot: u32, operations: &[Operation]) {
        let mut history = self.histories[slot as usize].lock().expect("history");
        history.extend(operations);
    }

    /// One round of an NFS client: each of its pages some times, in an order of its own.
    fn write_by_nfs(&self, writer: &mut dyn Writer, number: u32) {
        writer.open();
        for turn in 0..WRITES * BY_NFS {
            let slot = (turn * [1, 5][number as usize % 2] + number) % BY_NFS;
            let version = self.versions.fetch_add(1, SeqCst) + 1;
            let invoked = self.now();
            writer.write(slot, version);
            let action = Action::Write {
                value: version.into(),
                stable: version.is_multiple_of(2),
            };
            let returned = Some(self.now());
            self.record(
                slot,
                &[Operation {
                    invoked,
                    returned,
                    action,
                }],
            );
        }
        writer.close();
    }

    /// Pages on the file system, until the NFS clients are done; then all of its pages by one last call.
    fn write_locally(&self, file: &fs::File) {
        let mut data = vec![0; (SLOTS - BY_NFS) as usize * PAGE];
        let mut turn = 0;
        while !self.done.load(SeqCst) {
            let slot = BY_NFS + turn % (SLOTS - BY_NFS);
            self.fill_next(slot, &mut data[..PAGE]);
            file.write_all_at(&data[..PAGE], at(slot)).expect("pwrite");
            turn += 1;
            if turn.is_multiple_of(8) {
                thread::sleep(Duration::from_micros(200));
            }
        }
        thread::sleep(TICK);
        for (slot, page) in (BY_NFS..).zip(data.chunks_exact_mut(PAGE)) {
            self.fill_next(slot, page);
        }
        file.write_all_at(&data, at(BY_NFS)).expect("pwrite");
    }

    fn fill_next(&self, slot: u32, page: &mut [u8]) {
        let version = self.begun[slot as usize].fetch_add(1, SeqCst) + 1;
        page::fill(page, slot, version);
    }
}

fn at(slot: u32) -> u64 {
    u64::from(slot) * PAGE as u64
}

/// One client by one route, and what it has seen.
struct Reader {
    name: String,
    client: Client,
    file: File,
    /// By slot: reads that gave the same version one after the other are the first and the last of them. What a register
    /// held before and after, it held between, as no version is written twice.
    runs: Vec<Vec<Operation>>,
    /// By slot and word, of pages that are written locally.
    seen: Vec<Vec<u32>>,
    torn: u32,
}

impl Reader {
    fn new(url: &str, route: Route) -> Self {
        let options = Options {
            route,
            cache: Cache::Off,
            ..Options::default()
        };
        let client = Client::connect_with(&url.parse().expect("url"), options).expect("connect");
        Self {
            name: format!("{route:?} at {url}"),
            file: client.open("/data").expect("open"),
            client,
            runs: vec![Vec::new(); BY_NFS as usize],
            seen: vec![vec![0; PAGE / 8]; SLOTS as usize],
            torn: 0,
        }
    }

    fn read(&mut self, world: &World, slot: u32) -> u32 {
        let invoked = world.now();
        let mut data = [0; PAGE];
        self.file.read_exact_at(&mut data, at(slot)).expect("read");
        let returned = Some(world.now());
        if slot >= BY_NFS {
            return self.reads_on(world, slot, &data);
        }
        let version = page::version(&data, slot).unwrap_or_else(|error| {
            panic!("{}, page {slot}: {error}", self.name);
        });
        let action = Action::Read {
            value: version.into(),
        };
        let operation = Operation {
            invoked,
            returned,
            action,
        };
        let runs = &mut self.runs[slot as usize];
        match &mut runs[..] {
            [.., before, last] if before.action == action && last.action == action => {
                *last = operation;
            }
            _ => runs.push(operation),
        }
        version
    }

    /// A page that a local program writes: the version of its first word. A `pread` beside a `pwrite` may find the page
    /// half written, as many file systems lock no page for a read; so each word is a register of its own. It never goes
    /// back, and never runs ahead.
    fn reads_on(&mut self, world: &World, slot: u32, data: &[u8]) -> u32 {
        let begun = world.begun[slot as usize].load(SeqCst);
        let words = page::versions(data, slot).unwrap_or_else(|error| {
            panic!("{}, page {slot}: {error}", self.name);
        });
        let seen = &mut self.seen[slot as usize];
        for (at, (new, old)) in words.iter().zip(&*seen).enumerate() {
            assert!(
                (*old..=begun).contains(new),
                "{}, page {slot}, word {at}: version {new} after {old}, {begun} begun",
                self.name
            );
        }
        self.torn += u32::from(words.iter().any(|word| *word != words[0]));
        *seen = words;
        seen[0]
    }

    fn read_until_done(&mut self, world: &World) {
        let mut turn = 0;
        while !world.done.load(SeqCst) {
            self.read(world, turn % SLOTS);
            turn += 1;
        }
    }

    /// Nobody writes any more, and all has been noticed.
    fn finds_the_newest(&mut self, world: &World) {
        for slot in 0..SLOTS {
            let version = self.read(world, slot);
            if slot >= BY_NFS {
                let newest = world.begun[slot as usize].load(SeqCst);
                let whole = self.seen[slot as usize].iter().all(|w| *w == newest);
                assert!(
                    whole,
                    "{}, page {slot}: {version} is not {newest}",
                    self.name
                );
            } else {
                let runs = std::mem::take(&mut self.runs[slot as usize]);
                world.record(slot, &runs);
            }
        }
    }
}

/// With `file`, a program on the server's file system writes beside the NFS clients.
fn round(
    world: &World,
    writers: &mut [Box<dyn Writer>],
    readers: &mut [Reader],
    file: Option<&fs::File>,
) {
    world.done.store(false, SeqCst);
    // Nobody looks at the file yet, so this writer may get a delegation.
    writers[0].open();
    thread::scope(|scope| {
        let local = file.map(|file| scope.spawn(|| world.write_locally(file)));
        let mut reading = Vec::new();
        for reader in &mut *readers {
            reading.push(scope.spawn(|| reader.read_until_done(world)));
        }
        let mut writing = Vec::new();
        for (number, writer) in (0..).zip(&mut *writers) {
            writing.push(scope.spawn(move || world.write_by_nfs(&mut **writer, number)));
        }
        let written: Vec<_> = writing.into_iter().map(|writer| writer.join()).collect();
        world.done.store(true, SeqCst);
        let local = local.map(|local| local.join());
        for thread in written.into_iter().chain(local) {
            thread.expect("a writer");
        }
        for reader in reading {
            reader.join().expect("a reader");
        }
    });
    thread::sleep(NOTICED);
    for reader in readers {
        reader.finds_the_newest(world);
    }
}

/// `far` is where readers find the server that is not their host.
fn is_explained(
    options: &[&str],
    far: impl Fn(&Served) -> String,
    writers: impl Fn(&Served) -> Vec<Box<dyn Writer>>,
) {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    let data = directory.path().join("data");
    fs::write(&data, vec![0; SLOTS as usize * PAGE]).expect("data");
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("mode");
    };
    allow(&data, 0o666);
    // Before it opens a file to write, libnfs asks by version 4 whether it may change the directory.
    allow(directory.path(), 0o777);
    let options = [&["--direct", "one-sided"], options].concat();
    let server = Served::start(directory.path(), scratch.path(), &options);
    let file = fs::File::options()
        .write(true)
        .open(&data)
        .expect("the file");
    let (shm, far) = (server.shm_url("/"), far(&server));
    let mut readers = vec![
        Reader::new(&shm, Route::OneSided),
        Reader::new(&shm, Route::Guarded),
        Reader::new(&far, Route::OneSided),
        Reader::new(&far, Route::Guarded),
        Reader::new(&shm, Route::Rpc),
    ];
    let mut writers = writers(&server);
    let world = World {
        histories: (0..BY_NFS).map(|_| Mutex::default()).collect(),
        begun: (0..SLOTS).map(|_| AtomicU32::default()).collect(),
        ..World::default()
    };
    let mut initial = [0; BY_NFS as usize];
    for number in 0..ROUNDS {
        // A local change revokes all references to the file. Beside one, nobody would notice that a write by NFS revokes none.
        let local = (number % 2 == 1).then_some(&file);
        round(&world, &mut writers, &mut readers, local);
        for (slot, initial) in initial.iter_mut().enumerate() {
            let history = std::mem::take(&mut *world.histories[slot].lock().expect("it"));
            if let Err(violation) = linear::check(*initial, &history) {
                panic!("page {slot}, {initial} at first:\n{}", violation.history);
            }
            if let Some(Action::Read { value }) = history.last().map(|o| o.action) {
                *initial = value;
            }
        }
    }
    for reader in &readers {
        let seen = reader.client.statistics();
        println!(
            "{}: {} direct, {} refused, {} by RPC; {} found in mid-pwrite",
            reader.name, seen.direct_hits, seen.stale_hits, seen.rpc_reads, reader.torn
        );
        assert!(
            seen.direct_hits > 0 && seen.stale_hits > 0 || reader.name.starts_with("Rpc"),
            "no direct read beside a write: nothing was tested"
        );
    }
    println!("local writes: {:?}", world.begun);
    drop((readers, writers));
    assert_eq!(server.drain(), Some(0));
}

const TCP: [&str; 2] = ["--rdma", "127.0.0.1:0"];

fn over_tcp(server: &Served) -> String {
    server.rdma_url("/")
}

#[test]
fn direct_readers_beside_bare_calls_and_the_local_file_system() {
    is_explained(&TCP, over_tcp, |server| {
        let calls = || Box::new(Calls::new(server)) as Box<dyn Writer>;
        vec![calls(), calls()]
    });
}

#[test]
fn direct_readers_beside_bare_compounds_and_the_local_file_system() {
    let by_delegation = Arc::default();
    is_explained(&TCP, over_tcp, |server| {
        let compounds =
            |name| Box::new(Compounds::new(server, name, &by_delegation)) as Box<dyn Writer>;
        vec![compounds("one"), compounds("two")]
    });
    assert!(by_delegation.load(SeqCst) > 0, "none was given");
}

#[test]
fn direct_readers_beside_bare_calls_of_both_versions_and_the_local_file_system() {
    let by_delegation = Arc::default();
    is_explained(&TCP, over_tcp, |server| {
        let compounds = Compounds::new(server, "one", &by_delegation);
        vec![Box::new(compounds), Box::new(Calls::new(server))]
    });
    assert!(by_delegation.load(SeqCst) > 0, "none was given");
}

fn beside_libnfs(version: u32) {
    let program = std::env::var("ODAFS_LIBNFS_WRITER").expect("ODAFS_LIBNFS_WRITER: the program");
    is_explained(&TCP, over_tcp, |server| {
        let libnfs = || Box::new(Libnfs::new(&program, server, version)) as Box<dyn Writer>;
        vec![libnfs(), libnfs()]
    });
}

#[test]
#[ignore = "needs libnfs: tests/libnfs/run"]
fn direct_readers_beside_libnfs_by_version_3_and_the_local_file_system() {
    beside_libnfs(3);
}

#[test]
#[ignore = "needs a libnfs that writes by version 4: tests/libnfs/run"]
fn direct_readers_beside_libnfs_by_version_4_and_the_local_file_system() {
    beside_libnfs(4);
}

/// Both Linux and the readers come over the device. Stamps lie beside the pages, as soft devices allow within one host.
fn beside_linux(version: &str) {
    let mut options = served::verbs_options();
    options.extend(["--read-order", "rising"].map(str::to_owned));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    is_explained(
        &options,
        |server| server.verbs_url("/"),
        |server| {
            let mount = Arc::new(Mount::new(server, version));
            let linux = || Box::new(Linux::new(&mount)) as Box<dyn Writer>;
            vec![linux(), linux()]
        },
    );
}

#[test]
#[ignore = "needs an RDMA device, and root to mount: tests/vm/run"]
fn direct_readers_beside_linux_by_version_3_and_the_local_file_system() {
    beside_linux("3");
}

#[test]
#[ignore = "needs an RDMA device, and root to mount: tests/vm/run"]
fn direct_readers_beside_linux_by_version_4_2_and_the_local_file_system() {
    beside_linux("4.2");
}
