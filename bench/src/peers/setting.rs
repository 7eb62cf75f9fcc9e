//! The servers of a comparison, and the rows for them.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use odafs::{Cache, Options, Url, Wait};

use super::libnfs::Reader;
use super::memory::{PAGE, Pages, StoreProtocol};
use super::nfs::NfsFile;
use super::nfs4::Nfs4File;
use super::rows::{MANY, ROW, Rows};
use super::{Asks, Plan, Spec};
use crate::cpu::{self, Placement};
use crate::floors::memory::Mapping;
use crate::process::{Fabric, ServerPlan, ServerProcess};

/// The name of our own server in the rows.
pub const OURS: &str = "odafs";

const MIB: usize = 1 << 20;

/// How long a spinning server polls. As in the latency bench, it sleeps between the rows.
const SPIN: Duration = Duration::from_millis(20);

/// How a row waits whose client sleeps while our server waits as it does without options.
pub const USUAL: &str = "usual";

/// What carries the reads of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// NFS version 3 over TCP.
    NfsTcp,
    /// NFS version 4.2 over TCP.
    Nfs4Tcp,
    /// GET of a page over a Unix socket.
    Get(StoreProtocol),
    /// NFS version 3 over TCP, by libnfs.
    Libnfs,
    /// Our client, over shared memory.
    Client(odafs::Route),
    /// Our client by RPC-over-RDMA, into registered memory.
    Iwarp,
    /// Rows by number from Redis over a Unix socket, by GET for one and MGET for many.
    RedisRows,
    /// Rows by number from our client's table, over shared memory with default options.
    Table,
}

impl Route {
    /// The name of [`Route::NfsTcp`].
    pub const NFS: &'static str = "NFSv3/TCP READ";
    /// The name of [`Route::Nfs4Tcp`].
    pub const NFS4: &'static str = "NFSv4.2/TCP READ";
    /// The name of [`Route::Libnfs`].
    pub const LIBNFS: &'static str = "NFSv3/TCP READ by libnfs";
    /// The name of [`Route::Iwarp`].
    pub const RDMA: &'static str = "READ by RDMA over TCP";

    /// The name in a row.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NfsTcp => Self::NFS,
            Self::Nfs4Tcp => Self::NFS4,
            Self::Libnfs => Self::LIBNFS,
            Self::Iwarp => Self::RDMA,
            Self::Get(_) => "GET over a Unix socket",
            Self::RedisRows => "rows over a Unix socket",
            Self::Table => "table over shm",
            Self::Client(odafs::Route::Rpc) => "rpc over shm",
            Self::Client(odafs::Route::Guarded) => "guarded over shm",
            Self::Client(_) => "one-sided over shm",
        }
    }
}

/// A row to measure, and its server.
pub struct Candidate {
    /// The row.
    pub spec: Spec,
    route: Route,
    url: Option<Url>,
    socket: Option<PathBuf>,
}

/// What all rows share.
pub struct Setting {
    map: Mapping,
    spinning: ServerProcess,
    sleeping: ServerProcess,
    usual: ServerProcess,
    file: PathBuf,
    libnfs: Option<PathBuf>,
    name: String,
    processes: Vec<(String, u32)>,
}

impl Setting {
    /// Starts our servers and fills the stores.
    pub fn new(plan: &Plan, tick: &mut impl FnMut(&str)) -> Result<Self> {
        let file = File::open(&plan.file)
            .with_context(|| format!("cannot open {}", plan.file.display()))?;
        let map =
            Mapping::of(&file).with_context(|| format!("cannot map {}", plan.file.display()))?;
        let (Some(directory), Some(name)) = (plan.file.parent(), plan.file.file_name()) else {
            bail!("{} names no file", plan.file.display());
        };
        let placement = Placement::apart();
        if let Some(placement) = &placement {
            cpu::bind(&placement.client)?;
        }
        let start = |spin| {
            ServerProcess::start(&ServerPlan {
                program: plan.program.clone(),
                directory: directory.to_owned(),
                read_only: true,
                cache_bytes: (map.bytes().len() as u64) * 5 / 4 + (16 << 20),
                fabrics: vec![Fabric::Shm, Fabric::Iwarp],
                direct: Some("one-sided"),
                spin,
                nfs: true,
                cpus: placement.as_ref().map(|p| p.server.clone()),
                arguments: Vec::new(),
            })
        };
        tick("starting servers");
        let (spinning, sleeping) = (start(Some(SPIN))?, start(Some(Duration::ZERO))?);
        let usual = start(None)?;
        for (store, socket) in stores(plan) {
            tick(&format!("filling {store:?}"));
            Pages::connect(store, &socket, false)?.load(map.bytes())?;
        }
        if let Some(socket) = &plan.redis {
            tick("filling Redis with rows");
            Rows::redis(socket, false)?.load(map.bytes())?;
        }
        let name = name.to_string_lossy().into_owned();
        Ok(Self {
            map,
            spinning,
            sleeping,
            usual,
            file: plan.file.clone(),
            libnfs: plan.libnfs.clone(),
            name,
            processes: plan.processes.clone(),
        })
    }

    /// All rows, in the order of the table.
    pub fn candidates(&self, plan: &Plan) -> Vec<Candidate> {
        let mut all = Vec::new();
        for wait in ["spin", "block"] {
            for (store, socket) in stores(plan) {
                let candidate = candidate(
                    &format!("{store:?}").to_lowercase(),
                    Route::Get(store),
                    wait,
                );
                all.push(Candidate {
                    socket: Some(socket),
                    ..candidate
                });
            }
            for route in [
                odafs::Route::Rpc,
                odafs::Route::Guarded,
                odafs::Route::OneSided,
            ] {
                all.push(candidate(OURS, Route::Client(route), wait));
            }
            for depth in [1, MANY] {
                let row = |peer, route| {
                    let one = candidate(peer, route, wait);
                    let spec = Spec {
                        size_bytes: ROW,
                        depth,
                        ..one.spec
                    };
                    Candidate { spec, ..one }
                };
                if plan.redis.is_some() {
                    all.push(Candidate {
                        socket: plan.redis.clone(),
                        ..row("redis", Route::RedisRows)
                    });
                }
                all.push(row(OURS, Route::Table));
            }
        }
        let servers = || {
            let peers = plan
                .nfs
                .iter()
                .map(|(name, url)| (name.as_str(), Some(url.clone())));
            peers.chain([(OURS, None)])
        };
        for (wait, size_bytes, depth, pattern) in [
            ("spin", PAGE, 1, "random"),
            ("block", PAGE, 1, "random"),
            ("block", PAGE, 32, "random"),
            ("block", MIB, 1, "sequential"),
            ("block", MIB, 4, "sequential"),
        ] {
            let mut rows: Vec<_> = servers()
                .map(|(name, url)| (name, url, Route::NfsTcp))
                .collect();
            let four = servers().filter(|(_, url)| plan.nfs4 || url.is_none());
            rows.extend(four.map(|(name, url)| (name, url, Route::Nfs4Tcp)));
            if size_bytes == MIB {
                if self.libnfs.is_some() {
                    rows.extend(servers().map(|(name, url)| (name, url, Route::Libnfs)));
                }
                rows.push((OURS, None, Route::Iwarp));
            }
            let mut rows: Vec<_> = rows
                .into_iter()
                .map(|(name, url, route)| (candidate(name, route, wait), url))
                .collect();
            if (wait, size_bytes) == ("block", PAGE) {
                let ours = [Route::NfsTcp, Route::Nfs4Tcp];
                rows.extend(ours.map(|route| (candidate(OURS, route, USUAL), None)));
            }
            for (one, url) in rows {
                all.push(Candidate {
                    url,
                    spec: Spec {
                        size_bytes,
                        depth,
                        pattern,
                        ..one.spec
                    },
                    ..one
                });
            }
        }
        all
    }

    /// The reader by libnfs, if the row needs it.
    pub fn libnfs(&self, candidate: &Candidate, time: Duration) -> Result<Option<Reader>> {
        let Some(program) = self
            .libnfs
            .as_ref()
            .filter(|_| candidate.route == Route::Libnfs)
        else {
            return Ok(None);
        };
        let ours;
        let url = match &candidate.url {
            Some(url) => url,
            None => {
                ours = self.nfs_url(self.server(candidate))?;
                &ours
            }
        };
        Reader::start(program, url, &self.file, &candidate.spec, time).map(Some)
    }

    /// The file on a server of ours, by NFS.
    fn nfs_url(&self, server: &ServerProcess) -> Result<Url> {
        server.nfs_url(format!("/{}", self.name).as_bytes())
    }

    /// The source of rows by number, if the row needs it.
    pub fn rows(&self, candidate: &Candidate) -> Result<Option<Rows>> {
        let spin = candidate.spec.wait == "spin";
        match (&candidate.route, &candidate.socket) {
            (Route::RedisRows, Some(socket)) => Rows::redis(socket, spin).map(Some),
            (Route::Table, _) => {
                let mut options = Options::default();
                if spin {
                    options.wait = Wait::Spin;
                }
                let url = self.server(candidate).url(Fabric::Shm)?;
                let client = odafs::Client::connect_with(&url, options)?;
                Ok(Some(Rows::table(client.table(&self.name, ROW)?)))
            }
            _ => Ok(None),
        }
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.map.bytes().len() as u64
    }

    /// The bytes that a read must return.
    pub fn expected(&self, offset: u64, length: usize) -> &[u8] {
        &self.map.bytes()[offset as usize..offset as usize + length]
    }

    /// Lets the spinning server fall asleep.
    pub fn settle(&self) {
        std::thread::sleep(SPIN * 3 / 2);
    }

    /// CPU time that the row's server has used, if it is known.
    pub fn cpu_ns(&self, candidate: &Candidate) -> Option<u64> {
        if candidate.spec.peer == OURS {
            return Some(self.server(candidate).cpu_ns());
        }
        let known = self
            .processes
            .iter()
            .find(|(name, _)| *name == candidate.spec.peer);
        known.and_then(|(_, pid)| cpu::process_ns(*pid).ok())
    }

    fn server(&self, candidate: &Candidate) -> &ServerProcess {
        match candidate.spec.wait {
            "spin" => &self.spinning,
            USUAL => &self.usual,
            _ => &self.sleeping,
        }
    }

    /// A fresh connection for a row.
    pub fn connect(&self, candidate: &Candidate) -> Result<Box<dyn Asks>> {
        let spin = candidate.spec.wait == "spin";
        let server = self.server(candidate);
        match (&candidate.route, &candidate.url, &candidate.socket) {
            (Route::Get(store), _, Some(socket)) => {
                Ok(Box::new(Pages::connect(*store, socket, spin)?))
            }
            (Route::NfsTcp, Some(url), _) => Ok(Box::new(NfsFile::open(url, spin)?)),
            (Route::NfsTcp, None, _) => Ok(Box::new(NfsFile::open(&self.nfs_url(server)?, spin)?)),
            (Route::Nfs4Tcp, Some(url), _) => Ok(Box::new(Nfs4File::open(url, spin)?)),
            (Route::Nfs4Tcp, None, _) => {
                Ok(Box::new(Nfs4File::open(&self.nfs_url(server)?, spin)?))
            }
            (Route::Iwarp, _, _) => {
                let options = Options {
                    route: odafs::Route::Rpc,
                    wait: Wait::Block {
                        spin: Duration::ZERO,
                    },
                    cache: Cache::Off,
                    ..Options::default()
                };
                let client = odafs::Client::connect_with(&server.url(Fabric::Iwarp)?, options)?;
                let file = client.open(&self.name)?;
                let Spec {
                    size_bytes, depth, ..
                } = candidate.spec;
                Ok(Box::new(RegisteredFile::new(file, size_bytes, depth)?))
            }
            (Route::Libnfs, _, _) => bail!("a process of its own"),
            (Route::Client(route), _, _) => {
                let wait = if spin {
                    Wait::Spin
                } else {
                    Wait::Block {
                        spin: Duration::ZERO,
                    }
                };
                let options = Options {
                    route: *route,
                    wait,
                    cache: Cache::Off,
                    ..Options::default()
                };
                let client = odafs::Client::connect_with(&server.url(Fabric::Shm)?, options)?;
                let file = client.open(&self.name)?;
                if *route != odafs::Route::Rpc {
                    // Pages that were never read have no references, so read them first.
                    let mut piece = vec![0; 1 << 20];
                    for offset in (0..self.file_bytes()).step_by(piece.len()) {
                        file.read_at(&mut piece, offset)?;
                    }
                    file.learn(0, self.file_bytes())?;
                }
                Ok(Box::new(OurFile {
                    file,
                    page: Vec::new(),
                    asked: 0,
                    offset: 0,
                }))
            }
            (Route::Get(_), _, None) => bail!("no socket"),
            (Route::RedisRows | Route::Table, ..) => bail!("rows are no reads"),
        }
    }
}

fn stores(plan: &Plan) -> impl Iterator<Item = (StoreProtocol, PathBuf)> {
    let redis = plan
        .redis
        .clone()
        .map(|socket| (StoreProtocol::Redis, socket));
    redis.into_iter().chain(
        plan.memcached
            .clone()
            .map(|socket| (StoreProtocol::Memcached, socket)),
    )
}

fn candidate(peer: &str, route: Route, wait: &'static str) -> Candidate {
    let name = route.name();
    let spec = Spec {
        peer: peer.to_owned(),
        route: name,
        wait,
        size_bytes: PAGE,
        depth: 1,
        pattern: "random",
    };
    Candidate {
        spec,
        route,
        url: None,
        socket: None,
    }
}

/// Our client over RDMA. When a caller waits for an answer, all requested reads go in one batch.
struct RegisteredFile {
    file: odafs::File,
    buffer: odafs::Buffer,
    size: usize,
    asked: u64,
    /// The reads with their numbers. Those before `answered` have their bytes.
    batch: Vec<(u64, odafs::IntoRequest)>,
    answered: usize,
    waiting: Vec<(u64, u64)>,
}

impl RegisteredFile {
    fn new(file: odafs::File, size: usize, depth: usize) -> Result<Self> {
        Ok(Self {
            file,
            buffer: odafs::Buffer::new(size * depth)?,
            size,
            asked: 0,
            batch: Vec::new(),
            answered: 0,
            waiting: Vec::new(),
        })
    }

    fn read(&mut self) -> Result<()> {
        let places = (0..self.buffer.len()).step_by(self.size);
        let asked = self.waiting.drain(..).zip(places);
        let (numbers, mut requests): (Vec<u64>, Vec<_>) = asked
            .map(|((number, offset), at)| {
                let range = at..at + self.size;
                (number, odafs::IntoRequest::new(range, offset))
            })
            .unzip();
        self.file.read_batch_into(&mut self.buffer, &mut requests)?;
        self.batch = numbers.into_iter().zip(requests).collect();
        self.answered = 0;
        Ok(())
    }
}

impl Asks for RegisteredFile {
    fn ask(&mut self, offset: u64, _: usize) -> Result<u64> {
        self.asked += 1;
        self.waiting.push((self.asked, offset));
        Ok(self.asked)
    }

    fn answer(&mut self) -> Result<(u64, &[u8])> {
        if self.answered == self.batch.len() {
            self.read()?;
        }
        let (number, request) = self.batch.get(self.answered).context("nothing was asked")?;
        self.answered += 1;
        Ok((
            *number,
            &self.buffer[request.range.clone()][..request.bytes],
        ))
    }
}

/// Our client, one read at a time.
struct OurFile {
    file: odafs::File,
    page: Vec<u8>,
    asked: u64,
    offset: u64,
}

impl Asks for OurFile {
    fn ask(&mut self, offset: u64, length: usize) -> Result<u64> {
        self.page.resize(length, 0);
        self.offset = offset;
        self.asked += 1;
        Ok(self.asked)
    }

    fn answer(&mut self) -> Result<(u64, &[u8])> {
        let bytes = self.file.read_at(&mut self.page, self.offset)?;
        Ok((self.asked, &self.page[..bytes]))
    }
}
