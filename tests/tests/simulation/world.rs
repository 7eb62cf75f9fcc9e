//! One run: a server that pages out, is cut off and killed; clients that read by every route, write, sync, truncate and
//! extend, some of which keep pages; a clock that stands still now and then; a writer behind the server's back; and an
//! attacker.

use crate::attacker::attacker;
use crate::client::client;
use crate::history::{History, PagePosition};
use crate::life::{Life, NAME, UID};
use crate::losses::{Losses, failing_disk};
use crate::nfs4::{self, Model};
use crate::outside::{Log, look_at_last, outsider, reader, scribe};
use crate::tally::Tally;
use crate::tap::{Captured, Tapped};
use odafs::{
    Cache, Client, ConnectError, Dial, Options, Rdma, RdmaCredits, RdmaDesign, Registration, Route,
    RpcOver, Wait,
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
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Files that clients write to. The last page of each comes and goes.
const FILES: u8 = 2;
/// The file that only the outside writer changes.
pub const OUTSIDE: u8 = FILES;
/// The files of clients where some speak version 4.
const FILES_4: &[u8] = &[0, 1, 3, 4];
/// Pages of a file.
pub const PAGES: u8 = 3;
/// The value that stands for a page beyond the end.
pub const ABSENT: u64 = u64::MAX;
/// Frames of the page cache, one of them for counters: fewer than there are pages.
pub const FRAMES: u32 = 6;
const CLIENTS: u32 = 2;

/// A number below `bound`, from the seed.
pub fn below(bound: u64) -> u64 {
    entropy::word() % bound
}

/// One of the designs of RPC-over-RDMA. It is not Read-Read where memory is `tight`, because replies that clients fetch do not
/// wait for memory.
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
    /// The client's place in the network, which stays the same over all its connections.
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
    /// Whether its devices have the fewest features.
    bare: bool,
    /// Whether its connections are iWARP streams.
    pub iwarp: bool,
    /// Whether its network cuts connections.
    cuts: bool,
    /// Whether nothing goes wrong in it.
    calm: bool,
    /// Whether its disk loses some of what was written.
    pub forgets: bool,
    /// Whether its server has memory for the data of one call only.
    tight: bool,
    /// How often the server is killed.
    pub kills: u64,
    pub history: History,
    pub losses: Losses,
    pub store: Arc<MemoryStore>,
    pub logs: Vec<Log>,
    pub captured: Arc<Captured>,
    pub tally: Mutex<Tally>,
    /// The state that its clients of version 4 share, if there are any.
    pub model: Option<Arc<Model>>,
}

impl World {
    /// One of the logs.
    pub fn log(&self) -> &Log {
        &self.logs[below(self.logs.len() as u64) as usize]
    }

    /// The files that clients write to.
    pub fn files(&self) -> Vec<u8> {
        match &self.model {
            Some(model) => model.files.to_vec(),
            None => (0..FILES).collect(),
        }
    }

    /// Notes that an operation of a client failed.
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

/// Whether the world of a seed has clients of version 4.
pub fn is_4(seed: u64) -> bool {
    seed % 4 == 1
}

/// Whether no deadline passes in the world of a seed while anybody can run.
pub fn is_in_time(seed: u64) -> bool {
    is_calm(seed) || is_4(seed) && seed % 8 == 1
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
    let cuts = config.cut_one_in > 0;
    let network = Network::new(seed, config);
    let store = Arc::new(MemoryStore::new(seed));
    let model = is_4(seed).then(|| Arc::new(Model::new(FILES_4, is_in_time(seed))));
    let last = if model.is_some() { 4 } else { OUTSIDE };
    let files: Vec<ObjectId> = (0..=last).map(|file| make(&store, file)).collect();
    let state = PathBuf::from(format!("life-{seed}-{:?}", std::thread::current().id()));
    let kills = match model {
        Some(_) => below(3),
        None => below(2) * u64::from(!calm),
    };
    let forgets = !calm && below(2) == 0;
    let world = Arc::new(World {
        network: network.clone(),
        bare,
        iwarp: kind == "iwarp",
        cuts,
        calm,
        forgets,
        tight,
        kills,
        history: History::default(),
        losses: Losses::default(),
        store: Arc::clone(&store),
        logs: Log::some(&store),
        captured: Arc::default(),
        tally: Mutex::default(),
        model: model.clone(),
    });
    let model = model.as_deref();
    // Stamps lie beside the pages, or apart.
    let layout = match below(2) {
        0 => Layout::beside(PageSize::DEFAULT),
        _ => Layout::apart(PageSize::DEFAULT),
    };
    let start = |number| {
        let memory = (FRAMES, layout);
        Life::start(
            &store,
            &network,
            number,
            memory,
            registration,
            &state,
            model,
        )
    };
    let mut life = start(1);

    let mut threads = Vec::new();
    for number in 0..CLIENTS {
        let world = Arc::clone(&world);
        threads.push(thread::spawn(move || client(&world, number)));
    }
    if world.model.is_some() {
        for number in 0..nfs4::CLIENTS {
            let here = Arc::clone(&world);
            threads.push(thread::spawn(move || {
                nfs4::client(&here, here.model.as_ref().expect("a model"), number);
            }));
        }
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
    if forgets {
        let (world, store, files) = (Arc::clone(&world), Arc::clone(&store), files.clone());
        threads.push(thread::spawn(move || failing_disk(&world, &store, &files)));
    }
    let mut dead = Vec::new();
    for number in 0..kills {
        match model {
            Some(model) => clock::sleep(Nanos(below(model.lease.0 * 2))),
            None => clock::sleep(Nanos::from_micros(20 + below(2000))),
        }
        let invoked = world.history.now();
        world.history.say("kill");
        let lost = life.kill(&network);
        // A lease that ran out before may have cost its client what it held.
        if let Some(model) = model {
            model.died();
        }
        let files = world.files().into_iter();
        let places = files.flat_map(|file| (0..PAGES).map(move |page| (file, page)));
        world
            .history
            .record("server", places, invoked, Action::Crash, true);
        dead.push(life);
        if let Some(model) = model {
            clock::sleep(Nanos(below(model.lease.0 / 4)));
        }
        life = start(number + 2);
        let counts = &mut world.tally.lock().all;
        counts.kills += 1;
        counts.losing_kills += u64::from(lost);
    }
    for thread in threads {
        thread.join().expect("a client panicked");
    }
    if let Some(model) = model {
        nfs4::finale(&world, model, &|| life.figures());
    }
    look_at_last(&world, &store, &files);
    dead.push(life);
    for life in dead {
        life.end();
    }
    let mut tally = world.tally.lock().clone();
    tally.all.runs = 1;
    tally.all.replays_refused = world.captured.replayed();
    let trace = world.history.check();
    let (lost, heard) = world.losses.all();
    tally.all.lost_by_disk = lost;
    // A server that is killed need tell nobody; nor does one whose reply is cut off, and that is asked again.
    if kills == 0 {
        tally.all.heard_of_loss = heard;
        if !world.cuts
            && let Err(why) = world.losses.check()
        {
            panic!("{why}\n{trace}");
        }
    }
    (trace, tally)
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
