//! A server in its own process, as the measured one always is. So its CPU time is its own, and its memory can only be
//! reached through its listeners.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};

use crate::cpu;

/// The fabric that a server is read over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// Shared memory.
    Shm,
    /// iWARP over TCP.
    Iwarp,
    /// The RDMA device that has this address. (Its connections cannot go by the loopback.)
    Verbs(IpAddr),
}

impl Fabric {
    /// As `--fabric` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Iwarp => "tcp",
            Self::Verbs(_) => "verbs",
        }
    }
}

/// What server to start.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// The program `odafs`.
    pub program: PathBuf,
    /// The directory to serve.
    pub directory: PathBuf,
    /// Whether it refuses changes.
    pub read_only: bool,
    /// Bytes of its page cache.
    pub cache_bytes: u64,
    /// The fabrics that it is read over.
    pub fabrics: Vec<Fabric>,
    /// The direct reads that it grants (`--direct`), or none for the default.
    pub direct: Option<&'static str>,
    /// How long its engine polls before it sleeps; none: as long as it does by default.
    pub spin: Option<Duration>,
    /// Whether it listens on a TCP port for NFS too.
    pub nfs: bool,
    /// The processors that it may use, if not all.
    pub cpus: Option<Vec<usize>>,
    /// Further arguments of `odafs serve`.
    pub arguments: Vec<String>,
}

/// A server that runs, and ends with this value.
pub struct ServerProcess {
    child: Child,
    /// The server ends when this does, however this process ends.
    stdin: Option<ChildStdin>,
    addresses: Vec<(Fabric, odafs::ServerAddress)>,
    nfs: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    _directory: Scratch,
}

impl ServerProcess {
    /// Starts `odafs serve` with its own state directory and socket, and waits until it is ready.
    ///
    /// # Errors
    /// It could not be started, or ended before it was ready, after it had printed the reason to stderr.
    pub fn start(plan: &ServerPlan) -> Result<Self> {
        let directory = Scratch::new().context("cannot make a directory")?;
        let shm = directory.path().join("sock");
        let mut command = Command::new(&plan.program);
        command.arg("serve").arg(&plan.directory);
        command.arg("--until-stdin-ends");
        if let Some(direct) = plan.direct {
            command.args(["--direct", direct]);
        }
        if let Some(spin) = plan.spin {
            command.args(["--spin", &format!("{}ns", spin.as_nanos())]);
        }
        command.args(plan.read_only.then_some("--read-only"));
        command.arg("--state").arg(directory.path().join("state"));
        for fabric in &plan.fabrics {
            match fabric {
                Fabric::Shm => command.arg("--shm").arg(&shm),
                Fabric::Iwarp => command.args(["--rdma", "127.0.0.1:0"]),
                // Who connects from this machine has this address too.
                Fabric::Verbs(address) => {
                    let bits = if address.is_ipv4() { 32 } else { 128 };
                    command
                        .args(["--verbs", &SocketAddr::new(*address, 0).to_string()])
                        .args(["--allow", &format!("{address}/{bits}")])
                }
            };
        }
        command
            .args(["--cache", &plan.cache_bytes.to_string()])
            .args(&plan.arguments);
        if plan.nfs {
            command.args(["--nfs", "127.0.0.1:0"]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_on(&mut command, plan.cpus.as_deref())
            .with_context(|| format!("cannot start {}", plan.program.display()))?;
        directory.used_by(&child)?;
        let stdin = child.stdin.take();
        let line = first_line(&mut child)?;
        let Some(rest) = line.strip_prefix("ready") else {
            bail!("the server ended before it was ready, for the reason above");
        };
        let address = |name: &str| {
            rest.split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.parse::<SocketAddr>().ok())
        };
        let nfs = address("nfs=");
        let metrics = address("metrics=");
        let host = |name: &str| {
            let address =
                address(name).with_context(|| format!("the server announced no {name} address"))?;
            anyhow::Ok(odafs::Host {
                name: address.ip().to_string(),
                port: address.port(),
            })
        };
        let mut addresses = Vec::new();
        for fabric in &plan.fabrics {
            let address = match fabric {
                Fabric::Shm => odafs::ServerAddress::Shm(shm.clone()),
                Fabric::Iwarp => odafs::ServerAddress::Iwarp(host("rdma=")?),
                Fabric::Verbs(_) => odafs::ServerAddress::Verbs(host("verbs=")?),
            };
            addresses.push((*fabric, address));
        }
        Ok(Self {
            child,
            stdin,
            addresses,
            nfs,
            metrics,
            _directory: directory,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its metrics are, if an argument asked for them.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Where it serves NFS over TCP.
    pub fn nfs(&self) -> Option<SocketAddr> {
        self.nfs
    }

    /// The URL of the root of its export over a fabric.
    ///
    /// # Errors
    /// It was started without that fabric.
    pub fn url(&self, fabric: Fabric) -> Result<odafs::Url> {
        let found = self.addresses.iter().find(|(name, _)| *name == fabric);
        let (_, server) = found.context("the server was started without this fabric")?;
        Ok(odafs::Url {
            server: server.clone(),
            path: b"/".to_vec(),
            mount_port: None,
            crc: false,
        })
    }

    /// The URL of a path below its export by NFS over TCP.
    ///
    /// # Errors
    /// It was started without it.
    pub fn nfs_url(&self, path: &[u8]) -> Result<odafs::Url> {
        let address = self.nfs.context("the server has no NFS port")?;
        Ok(odafs::Url {
            server: odafs::ServerAddress::NfsTcp(odafs::Host {
                name: address.ip().to_string(),
                port: address.port(),
            }),
            path: path.to_vec(),
            mount_port: None,
            crc: false,
        })
    }

    /// CPU time that it has used so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        cpu::process_ns(self.child.id()).unwrap_or(0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let patience = Instant::now() + Duration::from_secs(5);
        while Instant::now() < patience {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        // It did not drain in time. Neither call can fail in a way that leaves more to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command on some processors.
pub(crate) fn spawn_on(command: &mut Command, cpus: Option<&[usize]>) -> io::Result<Child> {
    cpu::bound(cpus, || command.spawn())?
}

pub(crate) fn first_line(child: &mut Child) -> Result<String> {
    let Some(stdout) = child.stdout.take() else {
        bail!("the server has no stdout");
    };
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context("cannot read from the server")?;
    Ok(line)
}
