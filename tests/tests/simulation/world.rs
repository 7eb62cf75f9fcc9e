//! One run: a server that pages out, is cut off and killed; clients that read by every route, write, sync, truncate and
//! extend, some of which keep pages; a clock that stands still now and then; someone who writes behind the server's back;
//! and an attacker.

use crate::attacker::attacker;
use crate::history::{History, PagePosition};
use crate::life::{Life, NAME, UID};
use crate::outside::{Log, look_at_last, outsider, reader, scribe};
use crate::tap::{Captured, Tapped};
use odafs::{
    Cache, Changes, Client, ConnectError, Dial, Options, Rdma, RdmaCredits, RdmaDesign,
    Registration, Route, RpcOver, Wait,
};
use odafs_common::page::{Layout, PageSize};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sim::{Network, NetworkConfig};
use odafs_fabric::sync::{Arc, Mutex, thread};
use odafs_fabric::{QueuePair, RemoteInvalidation, entropy};
use odafs_server::config::{RegistrationConfig, Strategy};
use odafs_server::store::{CreateHow, Credential, MemoryStore, ObjectId, SetAttributes, Store};
use odafs_tests::linear::Action;
use odafs_tests::page::PAGE;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Files that clients write to. The last page of each comes and goes.
const FILES: u8 = 2;
/// The file that only the outside writer changes.
pub const OUTSIDE: u8 = FILES;
/// Pages of a file.
pub const PAGES: u8 = 3;
/// What a page that is beyond the end holds.
const ABSENT: u64 = u64::MAX;
/// Frames of the page cache, one of them for counters: fewer than there are pages.
pub const FRAMES: u32 = 6;
const CLIENTS: u32 = 2;
const STEPS: u64 = 12;

/// What runs came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub runs: u64,
    pub reads: u64,
    pub writes: u64,
    pub lost_writes: u64,
    pub lost_reads: u64,
    pub cache_hits: u64,
    /// Reads of logs.
    pub log: u64,
    pub direct_hits: u64,
    pub one_sided_hits: u64,
    pub stale_hits: u64,
    pub rpc_reads: u64,
    /// Of those, what went as RPC-over-RDMA.
    pub rdma_reads: u64,
    /// Of those, what went so over iWARP.
    pub iwarp_reads: u64,
    pub reconnects: u64,
    pub kills: u64,
    pub attacks_refused: u64,
    pub replays_refused: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.reads += other.reads;
        self.writes += other.writes;
        self.lost_writes += other.lost_writes;
        self.lost_reads += other.lost_reads;
        self.cache_hits += other.cache_hits;
        self.log += other.log;
        self.direct_hits += other.direct_hits;
        self.one_sided_hits += other.one_sided_hits;
        self.stale_hits += other.stale_hits;
        self.rpc_reads += other.rpc_reads;
        self.rdma_reads += other.rdma_reads;
        self.iwarp_reads += other.iwarp_reads;
        self.reconnects += other.reconnects;
        self.kills += other.kills;
        self.attacks_refused += other.attacks_refused;
        self.replays_refused += other.replays_refused;
    }
}

/// A number below `bound`, from the seed.
pub fn below(bound: u64) -> u64 {
    entropy::word() % bound
}

/// One of the ways in which calls travel over RDMA. A reply that the client would fetch does not wait for memory: so not
/// where it is `tight`.
fn rdma(tight: bool) -> Rdma {
    use Registration::*;
    let designs = 2 - u64::from(tight);
    Rdma {
        design: [RdmaDesign::ReadWrite, RdmaDesign::ReadRead][below(designs) as usize],
        credits: [RdmaCredits::Fixed(2), RdmaCredits::Adaptive][below(2) as usize],
        registration: [PerOperation, Pooled, Cached][below(3) as usize],
    }
}

pub struct Sim {
    pub network: Network,
    /// The client's: it is the same one when it comes back over another connection.
    pub node: u32,
    pub rpc_over: RpcOver,
    pub invalidation: RemoteInvalidation,
}

impl Dial for Sim {
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        loop {
            match (self.network).connect_from(self.node, NAME, private_data) {
                Ok(pair) => return Ok(pair),
                Err(error) if clock::now() >= deadline => return Err(error),
                Err(_) => clock::sleep(Nanos::from_millis(1)),
            }
        }
    }

    fn dial_with(
        &self,
        private_data: &dyn Fn(RemoteInvalidation) -> Vec<u8>,
        deadline: Nanos,
    ) -> io::Result<Box<dyn QueuePair>> {
        self.dial(&private_data(self.invalidation), deadline)
    }

    fn fabric(&self) -> &'static str {
        "sim"
    }

    fn rpc_over(&self) -> RpcOver {
        self.rpc_over
    }

    fn address(&self) -> String {
        NAME.to_owned()
    }
}

/// What the threads of a run share.
pub struct World {
    pub network: Network,
    /// Its devices have the least.
    bare: bool,
    /// Its connections are iWARP streams.
    iwarp: bool,
    /// Nothing goes wrong in it.
    calm: bool,
    /// Its server has memory for the data of one call at a time.
    tight: bool,
    /// How often the server is killed.
    kills: u64,
    pub history: History,
    store: Arc<MemoryStore>,
    pub logs: Vec<Log>,
    pub captured: Arc<Captured>,
    pub tally: Mutex<Tally>,
}

impl World {
    /// One of the logs.
    pub fn log(&self) -> &Log {
        &self.logs[below(self.logs.len() as u64) as usize]
    }

    /// Notes what a client could not do.
    pub fn failed(&self, what: &str) {
        if self.calm {
            panic!(
                "nothing went wrong, and yet: {what}\n{}",
                self.history.check()
            );
        }
        self.history.say(what);
    }
}

pub fn name_of(file: u8) -> String {
    format!("file-{file}")
}

pub fn page_of(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(PAGE / 8)
}

/// The value that a page holds.
pub fn value_of(page: &[u8], history: &History, place: PagePosition) -> u64 {
    if page.is_empty() {
        return ABSENT;
    }
    let words: Vec<u64> = page
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("whole words")))
        .collect();
    assert!(
        page.len() == PAGE && words.iter().all(|word| *word == words[0]),
        "a torn page {place:?}: {} bytes, {:?}…\n{}",
        page.len(),
        &words[..words.len().min(4)],
        history.check()
    );
    words[0]
}

/// Whether nothing goes wrong in the world of a seed: no connection is lost, no server killed, no deadline passes while
/// anybody can run. Then no call may fail: one that does has waited for a wake-up that was lost.
pub fn is_calm(seed: u64) -> bool {
    seed.is_multiple_of(4)
}

/// Runs the world of `seed` on the scheduler that it is called under.
pub fn run(seed: u64) -> (String, Tally) {
    let calm = is_calm(seed);
    // Devices that have the least, RDMA Reads in order, or memory to load from; or iWARP, whose bytes are split and cut
    // anywhere.
    let kinds = ["bare", "ordered", "loads", "iwarp"];
    let kind = kinds[below(kinds.len() as u64) as usize];
    let bare = kind == "bare";
    // The server itself bounds the memory for calls, or its system does, or neither.
    let [bounded, locked] = [[0, PAGE, 0], [0, 0, PAGE]].map(|bounds| bounds[below(3) as usize]);
    let tight = bounded + locked > 0;
    let config = NetworkConfig {
        delay_max: Nanos(below(3) * 2000),
        cut_one_in: [0, 0, 150][below(3) as usize] * u32::from(!calm),
        loads: kind == "loads",
        bare,
        rising: below(2) == 0,
        slow: below(2) == 0,
        receives: below(2) == 0,
        iwarp: kind == "iwarp",
        depth: 0,
        locked_max: locked,
    };
    let mut registration = RegistrationConfig {
        strategy: [Strategy::PerOperation, Strategy::Pooled, Strategy::Cached][below(3) as usize],
        ..RegistrationConfig::default()
    };
    if bounded > 0 {
        registration.bytes_max = bounded;
    }
    let network = Network::new(seed, config);
    let store = Arc::new(MemoryStore::new(seed));
    let files: Vec<ObjectId> = (0..=OUTSIDE).map(|file| make(&store, file)).collect();
    let state = PathBuf::from(format!("life-{seed}-{:?}", std::thread::current().id()));
    let kills = below(2) * u64::from(!calm);
    let world = Arc::new(World {
        network: network.clone(),
        bare,
        iwarp: kind == "iwarp",
        calm,
        tight,
        kills,
        history: History::default(),
        store: Arc::clone(&store),
        logs: Log::some(&store),
        captured: Arc::default(),
        tally: Mutex::default(),
    });
    // Stamps lie beside the pages, or apart.
    let layout = match below(2) {
        0 => Layout::beside(PageSize::DEFAULT),
        _ => Layout::apart(PageSize::DEFAULT),
    };
    let mut life = Life::start(&store, &network, 1, (FRAMES, layout), registration, &state);

    let mut threads = Vec::new();
    for number in 0..CLIENTS {
        let world = Arc::clone(&world);
        threads.push(thread::spawn(move || client(&world, number)));
    }
    let here = Arc::clone(&world);
    threads.push(thread::spawn(move || attacker(&here)));
    if kills == 0 {
        let (world, store, file) = (
            Arc::clone(&world),
            Arc::clone(&store),
            files[OUTSIDE as usize],
        );
        for act in [scribe, reader] {
            let here = Arc::clone(&world);
            threads.push(thread::spawn(move || act(&here)));
        }
        threads.push(thread::spawn(move || outsider(&world, &store, file)));
    }
    if !calm && below(2) == 0 {
        let (world, store, files) = (Arc::clone(&world), Arc::clone(&store), files.clone());
        threads.push(thread::spawn(move || failing_disk(&world, &store, &files)));
    }
    let mut dead = Vec::new();
    for number in 0..kills {
        clock::sleep(Nanos::from_micros(20 + below(2000)));
        let invoked = world.history.now();
        world.history.say("kill");
        life.kill(&network);
        let places = (0..FILES).flat_map(|file| (0..PAGES).map(move |page| (file, page)));
        world
            .history
            .record("server", places, invoked, Action::Crash, true);
        dead.push(life);
        life = Life::start(
            &store,
            &network,
            number + 2,
            (FRAMES, layout),
            registration,
            &state,
        );
        world.tally.lock().kills += 1;
    }
    for thread in threads {
        thread.join().expect("a client panicked");
    }
    look_at_last(&world, &store, &files);
    dead.push(life);
    for life in dead {
        life.end();
    }
    let mut tally = world.tally.lock().clone();
    tally.runs = 1;
    tally.replays_refused = world.captured.replayed();
    (world.history.check(), tally)
}

/// A file of zeros, stable. Its last page is there at first.
fn make(store: &MemoryStore, file: u8) -> ObjectId {
    let who = Credential::of(UID, UID, &[]);
    let attributes = SetAttributes {
        mode: Some(0o666),
        ..SetAttributes::default()
    };
    let name = name_of(file);
    let how = CreateHow::Unchecked(&attributes);
    let made = store
        .create(&who, store.root(), name.as_bytes(), how)
        .expect("create")
        .object;
    let zeros = vec![0; PAGE * PAGES as usize];
    store.write_at(&who, made, 0, &zeros).expect("write");
    store.sync(made, false).expect("sync");
    made
}

/// A client of one of the kinds that there are.
pub fn connect(
    world: &World,
    rpc_over: RpcOver,
    (route, cache): (Route, Cache),
) -> Result<Client, ConnectError> {
    let options = Options {
        route,
        cache,
        wait: Wait::Block {
            spin: Duration::ZERO,
        },
        lanes: 1,
        deadline: Duration::from_secs(5),
        rdma: rdma(world.tight),
        seed: below(u64::MAX),
        ..Options::default()
    };
    let url = "odafs+shm:///sim?/".parse().expect("url");
    let dial = Tapped {
        dial: Sim {
            network: world.network.clone(),
            node: world.network.node(),
            rpc_over,
            invalidation: match world.bare {
                true => RemoteInvalidation::Never,
                false => RemoteInvalidation::Any,
            },
        },
        captured: Arc::clone(&world.captured),
    };
    Client::over(Arc::new(dial), &url, options)
}

/// Reads, writes, syncs, truncates and extends at random.
fn client(world: &World, number: u32) {
    let history = &world.history;
    let who = format!("client-{number}");
    let route = [Route::OneSided, Route::Guarded, Route::Policy, Route::Rpc][below(4) as usize];
    // What a client has read of a server that was killed with unsynced data may be lost, without a sign of it.
    let caches = world.kills == 0 && below(2) == 0;
    let cache = match caches {
        true => Cache::CloseToOpen,
        false => Cache::Off,
    };
    let rpc_over = [RpcOver::Messages, RpcOver::Rdma][below(2) as usize];
    let client = match connect(world, rpc_over, (route, cache)) {
        Ok(client) => client,
        Err(error) => return world.failed(&format!("{who} cannot connect: {error}")),
    };
    // What this client has written and not yet synced: a sync may send it again. With it: does a sync that is answered
    // promise to have made it stable? Of a write that failed it says nothing, be its data there or not.
    let mut unstable: BTreeMap<PagePosition, (u64, bool)> = BTreeMap::new();
    let mut tally = Tally::default();
    for _ in 0..STEPS {
        // Of what changes behind the server's back, pages that are kept may be older than what others have seen.
        let file_number = below(u64::from(FILES) + u64::from(!caches)) as u8;
        let page = below(PAGES.into()) as u8;
        let place = (file_number, page);
        if below(4) == 0 {
            world.store.hold_clock(below(12) as u32);
        }
        if world.kills == 0 && below(3) == 0 {
            tally.log += 1;
            let log = world.log();
            let file = client.open(log.path());
            if !file.is_ok_and(|file| log.read(&file, history)) {
                world.failed(&format!("{who} cannot read a log"));
            }
            continue;
        }
        let opened = history.now();
        let file = match client.open(format!("/{}", name_of(file_number))) {
            Ok(file) => file,
            Err(error) => {
                world.failed(&format!("{who} open: {error}"));
                tally.lost_reads += 1;
                continue;
            }
        };
        let at = u64::from(page) * PAGE as u64;
        // What is kept is as old as the open.
        let invoked = if caches { opened } else { history.now() };
        let chance = if file_number == OUTSIDE { 0 } else { below(10) };
        match chance {
            0..5 => {
                let mut buffer = vec![0; PAGE];
                match file.read_at(&mut buffer, at) {
                    Ok(bytes) => {
                        let value = value_of(&buffer[..bytes], history, place);
                        history.record(&who, [place], invoked, Action::Read { value }, true);
                        tally.reads += 1;
                    }
                    Err(error) => {
                        world.failed(&format!("{who} read: {error}"));
                        tally.lost_reads += 1;
                    }
                }
            }
            5..8 => {
                let (value, stable) = (history.fresh_value(), below(3) != 0);
                let data = page_of(value);
                let result = match stable {
                    true => file.write_stable_at(&data, at),
                    false => file.write_at(&data, at),
                };
                let answered = result.is_ok();
                if let Err(error) = result {
                    world.failed(&format!("{who} write: {error}"));
                    tally.lost_writes += 1;
                }
                tally.writes += 1;
                history.record(
                    &who,
                    [place],
                    invoked,
                    Action::Write { value, stable },
                    answered,
                );
                match (stable, answered) {
                    (true, true) => drop(unstable.remove(&place)),
                    (false, true) => drop(unstable.insert(place, (value, true))),
                    (_, false) => {
                        let promised = unstable.get(&place).is_some_and(|(_, promised)| *promised);
                        unstable.insert(place, (value, promised));
                    }
                }
            }
            8 => {
                let mine: Vec<(PagePosition, u64, bool)> = unstable
                    .iter()
                    .filter(|(p, _)| p.0 == file_number)
                    .map(|(p, (value, promised))| (*p, *value, *promised))
                    .collect();
                let result = file.sync();
                for (place, value, _) in &mine {
                    // An answered sync has ended: what it sent again cannot come later.
                    let (value, answered) = (*value, result.is_ok());
                    let again = match answered {
                        true => Action::Again { value },
                        false => Action::Write {
                            value,
                            stable: false,
                        },
                    };
                    history.record(&who, [*place], invoked, again, answered);
                }
                if let Err(error) = result {
                    world.failed(&format!("{who} sync: {error}"));
                } else {
                    let promised = mine.iter().filter(|(_, _, promised)| *promised);
                    let places = promised.map(|(place, _, _)| *place);
                    history.record(&who, places, invoked, Action::Commit, true);
                    unstable.retain(|place, _| place.0 != file_number);
                }
            }
            _ => {
                let last = (file_number, PAGES - 1);
                let size = u64::from(PAGES - 1) * PAGE as u64;
                let changes = Changes {
                    size: Some(size),
                    ..Changes::default()
                };
                let path = format!("/{}", name_of(file_number));
                let result = client.set_attributes(path, &changes);
                let answered = result.is_ok();
                if let Err(error) = result {
                    world.failed(&format!("{who} cut: {error}"));
                }
                let cut = Action::Write {
                    value: ABSENT,
                    stable: true,
                };
                history.record(&who, [last], invoked, cut, answered);
            }
        }
    }
    let seen = client.statistics();
    if rpc_over == RpcOver::Rdma {
        tally.rdma_reads = seen.rpc_reads;
        if world.iwarp {
            tally.iwarp_reads = seen.rpc_reads;
        }
    }
    tally.cache_hits = seen.cache_hits;
    tally.direct_hits = seen.direct_hits;
    tally.one_sided_hits = seen.one_sided_hits;
    tally.stale_hits = seen.stale_hits;
    tally.rpc_reads = seen.rpc_reads;
    tally.reconnects = seen.reconnects;
    world.tally.lock().add(&tally);
}

/// Some of what was written and not synced is lost before anybody asks. Whoever syncs the file next must hear of it.
fn failing_disk(world: &World, store: &MemoryStore, files: &[ObjectId]) {
    for _ in 0..2 {
        clock::sleep(Nanos::from_micros(below(1000)));
        let file = below(u64::from(FILES));
        store.write_back_badly(files[file as usize]);
        world
            .history
            .say(&format!("unsynced data of file {file} was lost"));
    }
}
