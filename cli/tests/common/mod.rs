//! The program under test, and a server of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The program.
pub fn odafs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_odafs"))
}

/// The program, run as another user by root: a copy in `place`, to which that user must get.
#[allow(dead_code)]
pub fn odafs_as(user: u32, place: &Path) -> Command {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    let program = place.join("odafs");
    // A child of another test must not inherit it open for writing: nothing runs what somebody writes.
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_odafs")).arg(&program);
    assert!(copy.status().unwrap().success());
    std::fs::set_permissions(place, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.current_dir("/").uid(user);
    command
}

/// What it printed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The signals that end a command, and the status that it ends with. Under nohup SIGHUP is none.
#[allow(dead_code)]
pub fn ending_signals() -> Vec<(rustix::process::Signal, i32)> {
    use rustix::process::Signal;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:\t"));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    let all = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];
    let hangup = ignored & 1 == 0;
    let wanted = |(which, _): &(Signal, i32)| hangup || *which != Signal::HUP;
    all.into_iter().filter(wanted).collect()
}

/// A server that ends with the test.
#[allow(dead_code)]
pub struct Server {
    child: Child,
    pub shm: PathBuf,
    pub nfs: String,
    ready: String,
    _state: tempfile::TempDir,
}

#[allow(dead_code)]
impl Server {
    /// `odafs serve DIR` with a state directory and a socket of its own, an NFS port that is free, and these arguments.
    pub fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::serve(Some(dir), arguments)
    }

    /// The same, where the arguments say what is served.
    pub fn start_exports(arguments: &[&str]) -> Self {
        Self::serve(None, arguments)
    }

    fn serve(dir: Option<&Path>, arguments: &[&str]) -> Self {
        let state = tempfile::tempdir().unwrap();
        let socket = state.path().join("sock");
        let mut child = odafs()
            .arg("serve")
            .args(dir)
            .args([
                "--until-stdin-ends",
                "--nfs",
                "127.0.0.1:0",
                "--cache",
                "64MiB",
                "--shm",
            ])
            .arg(&socket)
            .arg("--state")
            .arg(state.path().join("state"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("ready "), "{line:?}");
        let word = |key: &str| {
            line.split_whitespace()
                .find_map(|w| w.strip_prefix(key))
                .unwrap()
                .to_owned()
        };
        Self {
            child,
            shm: word("shm=").into(),
            nfs: word("nfs="),
            ready: line.clone(),
            _state: state,
        }
    }

    /// What the line that says it is ready has behind a word such as `metrics=`.
    pub fn word(&self, key: &str) -> String {
        let mut words = self.ready.split_whitespace();
        words
            .find_map(|word| word.strip_prefix(key))
            .unwrap()
            .to_owned()
    }

    /// The URL of a path over shared memory.
    pub fn shm_url(&self, path: &str) -> String {
        format!("odafs+shm://{}?{path}", self.shm.display())
    }

    /// The URL of a path over NFS.
    pub fn nfs_url(&self, path: &str) -> String {
        format!("nfs://{}{path}", self.nfs)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whether it still ran or has ended, afterwards it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the program; it must succeed.
#[allow(dead_code)]
pub fn run(arguments: &[&str]) -> Output {
    let output = odafs().args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    output
}

/// A pipe in place of a file that a server reads: it holds the server there.
#[allow(dead_code)]
pub struct Held(PathBuf);

#[allow(dead_code)]
impl Held {
    /// Makes the pipe.
    pub fn at(path: PathBuf) -> Self {
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, mode, 0).unwrap();
        Self(path)
    }

    /// Waits until the server reads. It goes on when what this returns is dropped.
    pub fn reached(&self) -> std::os::fd::OwnedFd {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let began = std::time::Instant::now();
        loop {
            match rustix::fs::open(&self.0, flags, Mode::empty()) {
                Ok(writer) => return writer,
                // Nobody reads yet.
                Err(rustix::io::Errno::NXIO) => {}
                Err(error) => panic!("{error}"),
            }
            let waited = began.elapsed();
            assert!(waited < std::time::Duration::from_secs(30), "no server");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
