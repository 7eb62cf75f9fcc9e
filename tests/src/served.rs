//! `odafs serve` as a child process that tests may kill.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running `odafs serve`. Dropping it kills it.
#[derive(Debug)]
pub struct Served {
    child: Child,
    /// Arguments, with the real ports in place of 0, so that a restart serves at the same place.
    arguments: Vec<String>,
    /// `HOST:PORT` of the NFS listener.
    pub nfs: String,
    /// `HOST:PORT` of the RDMA listener; empty where there is none.
    pub rdma: String,
    /// `HOST:PORT` of the verbs listener; empty where there is none.
    pub verbs: String,
    /// `HOST:PORT` of the metrics; empty where there are none.
    pub metrics: String,
    /// Socket of the shm listener.
    pub shm: PathBuf,
}

/// The binary under test: built by `cargo test --workspace`, or by `cargo build`.
///
/// # Panics
/// It is not there; the message says what to run.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE");
    let binary = profile.join("odafs");
    assert!(
        binary.exists(),
        "{} is missing: run `cargo test --workspace`",
        binary.display()
    );
    binary
}

/// Options of `odafs serve` for an RDMA device of this machine, whose address `ODAFS_VERBS_ADDRESS` says.
///
/// # Panics
/// It says none.
pub fn verbs_options() -> Vec<String> {
    let address = std::env::var("ODAFS_VERBS_ADDRESS")
        .expect("ODAFS_VERBS_ADDRESS: the address of an interface with an RDMA device");
    let options = [
        "--verbs",
        &format!("{address}:0"),
        "--allow",
        &format!("{address}/32"),
    ];
    options.map(str::to_owned).into()
}

impl Served {
    /// Serves `directory` with its state and its socket in `scratch`, on a free port.
    ///
    /// # Panics
    /// It does not become ready.
    pub fn start(directory: &Path, scratch: &Path, options: &[&str]) -> Self {
        Self::with(directory, scratch, options, Command::new(binary()))
    }

    /// As [`Served::start`], as another user, who gets the scratch directory and a program of his own in it. For
    /// root.
    ///
    /// # Panics
    /// It does not become ready, or we are not root.
    pub fn start_as(user: u32, directory: &Path, scratch: &Path, options: &[&str]) -> Self {
        let program = scratch.join("odafs");
        std::fs::copy(binary(), &program).expect("a copy of the program");
        std::os::unix::fs::chown(scratch, Some(user), Some(user)).expect("chown");
        let mut command = Command::new(program);
        command.uid(user).gid(user);
        Self::with(directory, scratch, options, command)
    }

    fn with(directory: &Path, scratch: &Path, options: &[&str], command: Command) -> Self {
        let shm = scratch.join("odafs.sock");
        let mut arguments: Vec<String> = ["serve".into(), directory.display().to_string()].into();
        for (name, value) in [
            ("--nfs", "127.0.0.1:0".to_owned()),
            ("--shm", shm.display().to_string()),
            ("--state", scratch.join("state").display().to_string()),
            ("--cache", "64MiB".to_owned()),
        ] {
            if !options.contains(&name) {
                arguments.extend([name.to_owned(), value]);
            }
        }
        arguments.extend(options.iter().map(|&o| o.to_owned()));
        let (child, ready) = spawn(command, &arguments);
        for listener in ["nfs", "rdma", "verbs", "metrics"] {
            let option = arguments.iter().position(|a| *a == format!("--{listener}"));
            if let Some(at) = option {
                arguments[at + 1].clone_from(&ready[listener]);
            }
        }
        let address = |listener| ready.get(listener).cloned().unwrap_or_default();
        Self {
            child,
            arguments,
            nfs: address("nfs"),
            rdma: address("rdma"),
            verbs: address("verbs"),
            metrics: address("metrics"),
            shm,
        }
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Panics
    /// The system refuses it.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("wait for the killed server");
    }

    /// Starts a killed server again, at the same place with the same state.
    ///
    /// # Panics
    /// It does not become ready.
    pub fn restart(&mut self) {
        (self.child, _) = spawn(Command::new(binary()), &self.arguments);
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its resident memory in KiB.
    ///
    /// # Panics
    /// It does not run.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the status of the server");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.and_then(|kib| kib.parse().ok()).expect("VmRSS")
    }

    /// A metric without labels, of a server that was started with `--metrics`.
    ///
    /// # Panics
    /// There is none of this name.
    pub fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.metrics).expect("metrics");
        let ask = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", self.metrics);
        stream.write_all(ask.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name}:\n{answer}"))
    }

    /// Asks for a drain (SIGTERM) and returns the exit status.
    ///
    /// # Panics
    /// It has not ended after 20 s.
    pub fn drain(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("SIGTERM");
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for the server") {
                return status.code();
            }
            assert!(
                Instant::now() < patience,
                "the server does not end after SIGTERM"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// URL of `path` over the shm fabric.
    pub fn shm_url(&self, path: &str) -> String {
        format!("odafs+shm://{}?{path}", self.shm.display())
    }

    /// URL of `path` over RDMA, if it was started with `--rdma`.
    pub fn rdma_url(&self, path: &str) -> String {
        format!("odafs://{}{path}", self.rdma)
    }

    /// URL of `path` over verbs, if it was started with [`verbs_options`].
    pub fn verbs_url(&self, path: &str) -> String {
        format!("odafs+verbs://{}{path}", self.verbs)
    }

    /// URL of `path` over NFS.
    pub fn nfs_url(&self, path: &str) -> String {
        format!("nfs://{}{path}", self.nfs)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the server and waits for its `ready` line; returns the real addresses by the listener's name.
fn spawn(mut command: Command, arguments: &[String]) -> (Child, BTreeMap<String, String>) {
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start odafs serve");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout"))
        .read_line(&mut line)
        .expect("ready line");
    let ready: BTreeMap<String, String> = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(name, address)| (name.to_owned(), address.to_owned()))
        .collect();
    assert!(
        ready.contains_key("nfs"),
        "no ready line from odafs {}: {line:?}",
        arguments.join(" ")
    );
    (child, ready)
}
