//! The NFS clients that write.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use odafs_common::wire::nfs3::{DirectoryName, FileHandle, Payload, Stable, WriteArgs};
use odafs_common::wire::nfs4::{self, Operation, OperationResult, StateId};
use odafs_tests::page::{self, PAGE};
use odafs_tests::raw::{PATIENCE, RawRpc, xdr};
use odafs_tests::raw4::{PAUSE, Raw4, results};
use odafs_tests::served::Served;

use crate::at;

/// Someone who writes whole pages by NFS and is not our client.
pub trait Writer: Send {
    /// Opens the file for a round, if it is not open.
    fn open(&mut self) {}
    fn write(&mut self, slot: u32, version: u32);
    /// Ends a round.
    fn close(&mut self) {}
}

/// Bare calls of version 3 over TCP.
pub struct Calls {
    rpc: RawRpc,
    file: Vec<u8>,
}

impl Calls {
    pub fn new(server: &Served) -> Self {
        const LOOKUP: u32 = 3;
        let mut rpc = RawRpc::connect(&server.nfs);
        let root = rpc.root();
        let name = DirectoryName {
            directory: FileHandle(&root),
            name: b"data",
        };
        let (status, found) = rpc.nfs(LOOKUP, &xdr(&name));
        assert_eq!(status, 0, "LOOKUP");
        let length = u32::from_be_bytes(found[..4].try_into().expect("four")) as usize;
        Self {
            rpc,
            file: found[4..4 + length].to_vec(),
        }
    }
}

impl Writer for Calls {
    fn write(&mut self, slot: u32, version: u32) {
        const WRITE: u32 = 7;
        const JUKEBOX: u32 = 10008;
        let mut data = [0; PAGE];
        page::fill(&mut data, slot, version);
        let arguments = WriteArgs {
            file: FileHandle(&self.file),
            offset: at(slot),
            count: PAGE as u32,
            stable: match version % 2 {
                0 => Stable::FileSync,
                _ => Stable::Unstable,
            },
            data: Payload(&data),
        };
        let end = Instant::now() + PATIENCE;
        loop {
            match self.rpc.nfs(WRITE, &xdr(&arguments)).0 {
                0 => return,
                // The file is delegated to somebody, and too many wait for that already.
                JUKEBOX if Instant::now() < end => thread::sleep(PAUSE),
                status => panic!("WRITE: status {status}"),
            }
        }
    }
}

/// Bare compounds of version 4.2 over TCP. A writer that opens the file while nobody looks at it gets a write delegation. It
/// writes by this, once more after the recall, and then returns it. After a recall the server gives no delegation for 30
/// seconds, so later writes are by opens.
pub struct Compounds {
    raw: Raw4,
    file: Vec<u8>,
    open: Option<StateId>,
    delegation: Option<StateId>,
    /// The verifier of writes that are not committed yet.
    uncommitted: Option<[u8; 8]>,
    /// Writes of all writers that share this.
    by_delegation: Arc<AtomicU32>,
}

impl Compounds {
    pub fn new(server: &Served, name: &str, by_delegation: &Arc<AtomicU32>) -> Self {
        Self {
            raw: Raw4::connect(&server.nfs, name.as_bytes()),
            file: Vec::new(),
            open: None,
            delegation: None,
            uncommitted: None,
            by_delegation: by_delegation.clone(),
        }
    }

    fn does(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        let put = Operation::PutFileHandle(nfs4::FileHandle(&self.file));
        self.raw.does(&[&[put], operations].concat())
    }

    fn give_back(&mut self) {
        if let Some(state) = self.delegation.take() {
            self.does(&[Operation::DelegationReturn(state)]);
        }
    }
}

impl Writer for Compounds {
    fn open(&mut self) {
        if self.open.is_some() {
            return;
        }
        let open = Operation::Open(nfs4::OpenArgs {
            sequence: 0,
            share_access: nfs4::share_access::BOTH,
            share_deny: 0,
            owner: self.raw.owner(b"owner"),
            create: None,
            claim: nfs4::Claim::Null(nfs4::Name(b"data")),
        });
        let root = Operation::PutRootFileHandle;
        let get = Operation::GetFileHandle;
        let reply = self.raw.does(&[root, open, get]);
        let all = results(&reply);
        let [
            ..,
            OperationResult::Open(Ok(opened)),
            OperationResult::GetFileHandle(Ok(file)),
        ] = &all[..]
        else {
            panic!("{all:?}");
        };
        self.open = Some(opened.state);
        self.file = file.0.to_vec();
        if let nfs4::Delegation::Write(given) = &opened.delegation {
            self.delegation = Some(given.state);
        }
    }

    fn write(&mut self, slot: u32, version: u32) {
        self.open();
        let mut data = [0; PAGE];
        page::fill(&mut data, slot, version);
        let state = self.delegation.or(self.open).expect("open");
        let recalled = self.raw.was_called_back();
        let stable = match version % 2 {
            0 => nfs4::Stable::FileSync,
            _ => nfs4::Stable::Unstable,
        };
        let reply = self.does(&[Operation::Write(nfs4::WriteArgs {
            state,
            offset: at(slot),
            stable,
            data: nfs4::Payload(&data),
        })]);
        let all = results(&reply);
        let Some(OperationResult::Write(Ok(written))) = all.last() else {
            panic!("{all:?}");
        };
        assert_eq!(written.count, PAGE as u32);
        if stable == nfs4::Stable::Unstable {
            self.uncommitted = Some(written.verifier);
        }
        self.by_delegation
            .fetch_add(self.delegation.is_some().into(), SeqCst);
        if recalled {
            self.give_back();
        }
    }

    fn close(&mut self) {
        self.give_back();
        if let Some(verifier) = self.uncommitted.take() {
            let all = nfs4::CommitArgs {
                offset: 0,
                count: 0,
            };
            let reply = self.does(&[Operation::Commit(all)]);
            let all = results(&reply);
            let Some(OperationResult::Commit(Ok(committed))) = all.last() else {
                panic!("{all:?}");
            };
            assert_eq!(committed.verifier, verifier);
        }
        if let Some(state) = self.open.take() {
            self.does(&[Operation::Close(nfs4::CloseArgs { sequence: 0, state })]);
        }
    }
}

/// The program `tests/libnfs/writer.c`.
pub struct Libnfs {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Libnfs {
    pub fn new(program: &str, server: &Served, version: u32) -> Self {
        let (host, port) = server.nfs.rsplit_once(':').expect("HOST:PORT");
        // What stands before the last slash is the export, and not empty to libnfs.
        let url = format!("nfs://{host}//data?version={version}&nfsport={port}&mountport={port}");
        let mut child = Command::new(program)
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the writer");
        Self {
            asks: child.stdin.take().expect("stdin"),
            answers: BufReader::new(child.stdout.take().expect("stdout")),
            child,
        }
    }
}

impl Writer for Libnfs {
    fn write(&mut self, slot: u32, version: u32) {
        writeln!(self.asks, "{slot} {version}").expect("the writer lives");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        assert_eq!(answer, "done\n");
    }
}

impl Drop for Libnfs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Linux' own client: a mount over the RDMA device, past Linux' page cache.
pub struct Linux {
    file: fs::File,
    /// Unmounted by the last of its writers.
    _mount: Arc<Mount>,
}

pub struct Mount(tempfile::TempDir);

impl Mount {
    /// By `vers=VERSION`.
    pub fn new(server: &Served, version: &str) -> Self {
        let directory = tempfile::tempdir().expect("dir");
        let part = |address: &str| {
            let (host, port) = address.rsplit_once(':').expect("HOST:PORT");
            (host.to_owned(), port.to_owned())
        };
        let ((host, port), (mount_host, mount_port)) = (part(&server.verbs), part(&server.nfs));
        let (kind, of_version) = match version {
            "3" => (
                "nfs",
                format!("mountproto=tcp,mountport={mount_port},mountaddr={mount_host},nolock"),
            ),
            _ => ("nfs4", format!("clientaddr={host}")),
        };
        let options =
            format!("addr={host},vers={version},proto=rdma,port={port},{of_version},hard");
        let mounted = Command::new("mount")
            .args(["-i", "-t", kind, "-o", &options, &format!("{host}:/")])
            .arg(directory.path())
            .status();
        assert!(mounted.expect("mount").success(), "mount with {options}");
        Self(directory)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

impl Linux {
    pub fn new(mount: &Arc<Mount>) -> Self {
        let mut options = fs::File::options();
        options.write(true).custom_flags(libc::O_DIRECT);
        Self {
            file: options.open(mount.0.path().join("data")).expect("open"),
            _mount: Arc::clone(mount),
        }
    }
}

impl Writer for Linux {
    fn write(&mut self, slot: u32, version: u32) {
        let mut data = [0; PAGE];
        page::fill(&mut data, slot, version);
        self.file.write_all_at(&data, at(slot)).expect("pwrite");
    }
}
