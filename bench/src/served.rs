//! One file, and `odafs serve` with as much of it in memory as fits there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use odafs::{Cache, Client, File, Options, Route, Url};

use crate::cpu::{self, Placement};
use crate::floors::local;
use crate::process::{Fabric, ServerPlan, ServerProcess};
use crate::scratch::Scratch;

/// The file's name in the served directory.
const FILE: &str = "file";

/// What is served, and how.
#[derive(Clone, Debug)]
pub struct ServedPlan {
    /// The program `odafs`.
    pub program: PathBuf,
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Bytes of the server's page cache.
    pub cache_bytes: u64,
    /// What direct reads the server grants (`--direct`).
    pub direct: &'static str,
    /// Whether the server gets a processor of its own where there are two.
    pub apart: bool,
}

/// A server that ends with this value, and its file.
pub struct Served {
    // Dropped in this order: who serves, then the files.
    process: ServerProcess,
    directory: Scratch,
    file_bytes: u64,
    placement: Option<Placement>,
}

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Shared memory.
    Shm,
    /// RDMA over TCP.
    Iwarp,
    /// NFS over TCP.
    NfsTcp,
}

impl Way {
    /// As it is named in plans and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Iwarp => "tcp",
            Self::NfsTcp => "nfs",
        }
    }
}

impl Served {
    /// Writes the file (in memory, where there is room), starts the server, and binds the calling thread to the
    /// processor that is the clients'.
    ///
    /// # Errors
    /// The file could not be written, or the server not be started.
    pub fn start(plan: &ServedPlan) -> Result<Self> {
        Self::start_with(plan, &[])
    }

    /// As [`start`](Self::start), with further arguments of `odafs serve`.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(plan: &ServedPlan, arguments: &[&str]) -> Result<Self> {
        let directory = Scratch::for_bytes(plan.file_bytes).context("cannot make a directory")?;
        let path = directory.path().join(FILE);
        local::write_random(&path, plan.file_bytes, |_| {})
            .with_context(|| format!("cannot write {}", path.display()))?;
        // If root runs the server, callers over TCP act as nobody.
        let all = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        all(directory.path(), 0o777).and_then(|()| all(&path, 0o666))?;
        let placement = Placement::at_start().filter(|_| plan.apart);
        let process = ServerProcess::start(&ServerPlan {
            program: plan.program.clone(),
            directory: directory.path().to_owned(),
            read_only: false,
            cache_bytes: plan.cache_bytes,
            fabrics: vec![Fabric::Shm, Fabric::Iwarp],
            direct: Some(plan.direct),
            spin: None,
            nfs: true,
            cpus: placement.as_ref().map(|p| p.server.clone()),
            arguments: arguments.iter().map(|&argument| argument.into()).collect(),
        })?;
        if let Some(placement) = &placement {
            cpu::bind(&placement.client).context("cannot bind to a processor")?;
        }
        Ok(Self {
            process,
            directory,
            file_bytes: plan.file_bytes,
            placement,
        })
    }

    /// Has the server read the file once, from front to back.
    ///
    /// # Errors
    /// It could not be reached, or the file is shorter than it was made.
    pub fn fill(&self) -> Result<()> {
        let file = self.open(Way::Shm, by_rpc())?;
        let (mut piece, mut offset) = (vec![0; 1 << 20], 0);
        while offset < self.file_bytes {
            offset += match file.read_at(&mut piece, offset)? {
                0 => bail!("the server's file is shorter than what was written"),
                n => n as u64,
            };
        }
        Ok(())
    }

    /// A new client with the file open.
    ///
    /// # Errors
    /// The server refused it.
    pub fn open(&self, way: Way, options: Options) -> Result<File> {
        Ok(Client::connect_with(&self.url(way)?, options)?.open(FILE)?)
    }

    /// The export's root.
    ///
    /// # Errors
    /// None: the server has all of these ways.
    pub fn url(&self, way: Way) -> Result<Url> {
        match way {
            Way::Shm => self.process.url(Fabric::Shm),
            Way::Iwarp => self.process.url(Fabric::Iwarp),
            Way::NfsTcp => self.process.nfs_url(b"/"),
        }
    }

    /// The file's URL for clients of NFS over TCP.
    ///
    /// # Errors
    /// None: the server has an NFS port.
    pub fn nfs_file(&self) -> Result<Url> {
        self.process.nfs_url(format!("/{FILE}").as_bytes())
    }

    /// Where the file is.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(FILE)
    }

    /// The server.
    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// The processors of the server, where it has its own.
    pub fn server_cpus(&self) -> Option<&[usize]> {
        self.placement.as_ref().map(|p| p.server.as_slice())
    }

    /// Where client and server run, as a sentence.
    pub fn placement(&self) -> String {
        Placement::words(self.placement.as_ref())
    }
}

/// A client that makes calls, keeps nothing and asks for no references.
pub fn by_rpc() -> Options {
    Options {
        route: Route::Rpc,
        cache: Cache::Off,
        ..Options::default()
    }
}
