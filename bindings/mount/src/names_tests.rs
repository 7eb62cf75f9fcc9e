//! Names of open files, at a server whose answers fail.

#[path = "../tests/mounts/lacking/mod.rs"]
mod lacking;

use super::*;
use crate::{Options, inodes::ROOT};
use lacking::{Faults, NOTHING};
use odafs::{Client, fs::FileSystem};
use odafs_server::{
    config::{ExportOptions, ServerConfig, Squash},
    server::Server,
};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::SeqCst},
};
use tempfile::TempDir;

/// The user of nobody, as whom root acts where it is squashed.
const NOBODY: u32 = 65534;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const RENAME: u32 = 14;
const LINK: u32 = 15;

/// The files of a mount, without a kernel that asks for them.
struct World {
    files: Files,
    _server: Running,
    faults: Arc<Faults>,
    served: PathBuf,
    _scratch: TempDir,
}

impl World {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let served = scratch.path().join("files");
        fs::create_dir(&served).unwrap();
        let squash = match rustix::process::geteuid().is_root() {
            true => Squash::None,
            false => Squash::All,
        };
        let config = ServerConfig {
            squash,
            ..ServerConfig::new(&served)
        };
        Self::of(scratch, served, config)
    }

    fn of(scratch: TempDir, served: PathBuf, config: ServerConfig) -> Self {
        let server = Server::start(ServerConfig {
            nfs: Some("127.0.0.1:0".parse().unwrap()),
            insecure: true,
            state: Some(scratch.path().join("state")),
            cache_bytes: 8 << 20,
            huge_pages: false,
            ..config
        })
        .unwrap();
        let address = server.addresses().nfs.unwrap();
        let faults = Faults::lacking(NOTHING);
        let running = Running(Some(server));
        let port = lacking::before(address, &faults).port();
        let url = format!("nfs://127.0.0.1:{port}/?mountport={port}");
        let options = odafs::Options {
            cache: odafs::Cache::Off,
            deadline: Duration::from_secs(2),
            ..odafs::Options::default()
        };
        let client = Client::connect_with(&url.parse().unwrap(), options).unwrap();
        let fs = FileSystem::new(&client);
        let root = fs.root();
        Self {
            files: Files::new(fs, root, &Options::default()),
            _server: running,
            faults,
            served,
            _scratch: scratch,
        }
    }

    /// Creates a file and opens it. Returns the number of the open file.
    fn open(&self, name: &str) -> u64 {
        let root = Caller { uid: 0, gid: 0 };
        let made = self.files.create(root, ROOT, name.as_ref(), 0o644, 0);
        let (_, open, _) = made.unwrap();
        self.write(open, name).unwrap();
        open
    }

    fn write(&self, open: u64, text: &str) -> Result<(), Errno> {
        let how = fuser::WriteFlags::empty();
        self.files.write(open, 0, text.as_bytes(), how, 0)
    }

    fn read(&self, open: u64) -> Result<String, Errno> {
        let mut text = [0; 64];
        let bytes = self.files.read(open, 0, &mut text, false)?;
        Ok(str::from_utf8(&text[..bytes]).unwrap().to_owned())
    }

    fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.files.unlink(ROOT, name.as_ref())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = ((ROOT, from.as_ref()), (ROOT, to.as_ref()));
        self.files.rename(from, to, 0)
    }

    /// The names at the server, and how many hidden ones there are beside them.
    fn names(&self) -> (Vec<String>, usize) {
        let entries = fs::read_dir(&self.served).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let (hidden, mut names): (Vec<_>, Vec<_>) =
            names.partition(|name| name.starts_with(".odafs"));
        names.sort();
        for name in &hidden {
            assert!(self.files.lookup(ROOT, name.as_ref()).is_err(), "{name}");
        }
        (names, hidden.len())
    }
}

/// It goes after the files, which are synced when they go.
struct Running(Option<Server>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown();
    }
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_name_of_which_nothing_is_known_is_neither_removed_nor_replaced() {
    for unknown in [LOOKUP, GETATTR] {
        let world = World::new();
        let [open, new] = ["open", "new"].map(|name| world.open(name));
        world.faults.lacking.store(unknown, SeqCst);
        world.unlink("open").unwrap_err();
        world.rename("new", "open").unwrap_err();
        world.faults.lacking.store(NOTHING, SeqCst);
        assert_eq!(world.names(), (named(&["new", "open"]), 0));
        assert_eq!(world.read(open).unwrap(), "open");
        // When it is known again, both are done.
        world.unlink("open").unwrap();
        world.rename("new", "open").unwrap();
        assert_eq!(world.read(open).unwrap(), "open");
        assert_eq!(world.read(new).unwrap(), "new");
        world.files.release(open);
        assert_eq!(world.names(), (named(&["open"]), 0));
    }
}

#[test]
fn names_that_are_not_there_are_removed_and_replaced_as_the_server_says() {
    let world = World::new();
    let open = world.open("open");
    assert_eq!(world.unlink("none"), Err(Errno::ENOENT));
    world.rename("open", "new").unwrap();
    assert_eq!(world.names(), (named(&["new"]), 0));
    assert_eq!(world.read(open).unwrap(), "open");
}

#[test]
fn a_removed_file_goes_with_its_last_close_though_nobody_answered_the_removal() {
    let world = World::new();
    let open = world.open("open");
    world.faults.unanswered.store(RENAME, SeqCst);
    // It is looked for, and it was done.
    world.unlink("open").unwrap();
    assert_eq!(world.names(), (vec![], 1));
    assert_eq!(world.read(open).unwrap(), "open");
    world.files.release(open);
    assert_eq!(world.names(), (vec![], 0));
}

#[test]
fn a_replaced_file_is_kept_for_those_who_have_it_open_though_nobody_answered() {
    let world = World::new();
    let [open, new] = ["open", "new"].map(|name| world.open(name));
    world.faults.unanswered.store(RENAME, SeqCst);
    assert_eq!(world.rename("new", "open"), Err(Errno::EIO));
    assert_eq!(world.names(), (named(&["open"]), 1));
    assert_eq!(
        fs::read_to_string(world.served.join("open")).unwrap(),
        "new"
    );
    assert_eq!(world.read(open).unwrap(), "open");
    world.write(open, "more").unwrap();
    assert_eq!(world.read(open).unwrap(), "more");
    world.files.release(open);
    assert_eq!(world.names(), (named(&["open"]), 0));
    assert_eq!(world.read(new).unwrap(), "new");
}

#[test]
fn a_link_that_nobody_answered_is_looked_for() {
    let world = World::new();
    let [open, _] = ["open", "new"].map(|name| world.open(name));
    world.faults.unanswered.store(LINK, SeqCst);
    world.rename("new", "open").unwrap();
    assert_eq!(world.names(), (named(&["open"]), 1));
    assert_eq!(world.read(open).unwrap(), "open");
    world.files.release(open);
    assert_eq!(world.names(), (named(&["open"]), 0));
}

#[test]
fn a_rename_that_is_refused_leaves_no_hidden_name() {
    let world = World::new();
    let open = world.open("open");
    assert_eq!(world.rename("none", "open"), Err(Errno::ENOENT));
    assert_eq!(world.names(), (named(&["open"]), 0));
    assert_eq!(world.read(open).unwrap(), "open");
}

#[test]
fn a_removed_file_leaves_no_writes_to_send_again() {
    let world = World::new();
    let open = world.open("open");
    let handle = world.files.open_file(open).unwrap().inode.handle;
    world.unlink("open").unwrap();
    world.files.release(open);
    assert_eq!(world.names(), (vec![], 0));
    // It would say that the file is gone.
    world.files.fs.commit(&handle).unwrap();
}

/// One export gives new files to their users, the other keeps them.
#[test]
fn an_export_that_gives_no_files_away_changes_nothing_in_another() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this needs root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let export = |name: &str, squash| {
        let directory = scratch.path().join(name);
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        ExportOptions {
            squash: Some(squash),
            insecure: true,
            ..ExportOptions::new(format!("/{name}"), directory)
        }
    };
    let exports = vec![export("keeps", Squash::Root), export("gives", Squash::None)];
    let served = scratch.path().to_owned();
    let config = ServerConfig {
        exports,
        ..ServerConfig::new(&served)
    };
    let world = World::of(scratch, served, config);
    let someone = Caller {
        uid: 1234,
        gid: 1234,
    };
    for (dir, owner) in [
        ("gives", 1234),
        ("keeps", NOBODY),
        ("keeps", NOBODY),
        ("gives", 1234),
    ] {
        let number = world.files.lookup(ROOT, dir.as_ref()).unwrap().ino.0;
        let name = hidden_name();
        // The owner of a link is set by a call of its own, which is refused.
        let made = (world.files).symlink(someone, number, &name, "target".as_ref());
        assert_eq!(made.unwrap().uid, owner, "{dir}");
        let is = fs::symlink_metadata(world.served.join(dir).join(name)).unwrap();
        assert_eq!(is.uid(), owner, "{dir}");
    }
}
