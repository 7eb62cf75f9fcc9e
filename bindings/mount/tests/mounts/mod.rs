//! A mount within this process, over a served directory. The script `run` has the programs and the deaths.

mod changes;
mod lacking;
mod lists;

use odafs::{Client, Options, fs::FileSystem};
use odafs_mount::{Cache, MountError, Mounted, Uring, mount};
use odafs_server::{
    config::{ServerConfig, Squash},
    server::Server,
};
use rustix::fs::OFlags;
use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::PathBuf,
    process::Command,
};
use tempfile::TempDir;

/// Says whether the kernel offers FUSE over io_uring.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";

fn kernel_offers_io_uring() -> bool {
    fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y")
}

/// Says that a test is left out, for the lack of this. Fails where `ODAFS_REQUIRED`, a list of words, has it: nobody sees what a
/// test that passes has said.
fn skipped(what: &str, why: &str) {
    let required = std::env::var("ODAFS_REQUIRED").unwrap_or_default();
    let is_required = required.split_whitespace().any(|word| word == what);
    assert!(!is_required, "{what} is required: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Options for a mount that is asked as these tests want it.
fn options() -> odafs_mount::Options {
    odafs_mount::Options {
        uring: crate::URING,
        ..odafs_mount::Options::default()
    }
}

struct World {
    mounted: Option<Mounted>,
    server: Option<Server>,
    files: PathBuf,
    here: PathBuf,
    client: Client,
    url: String,
    scratch: TempDir,
}

impl World {
    /// `None`, which it says, where nothing can be mounted.
    fn new(cache: Cache) -> Option<Self> {
        Self::lacking(cache, &[])
    }

    /// As [`new`](Self::new); the kernel judges by access control lists.
    fn with_lists() -> Option<Self> {
        Self::with(Cache::CloseToOpen, &[], true)
    }

    /// As [`new`](Self::new); the server lacks procedures of NFS.
    fn lacking(cache: Cache, procedures: &[u32]) -> Option<Self> {
        Self::with(cache, procedures, false)
    }

    fn with(cache: Cache, procedures: &[u32], acls: bool) -> Option<Self> {
        let can = fs::metadata("/dev/fuse").is_ok() && rustix::process::geteuid().is_root();
        if !can {
            skipped("fuse", "this needs /dev/fuse and root");
            return None;
        }
        // A test changes no setting of the machine.
        if crate::URING == Uring::Auto && !kernel_offers_io_uring() {
            skipped("io_uring", &format!("this needs `Y` in {ENABLED}"));
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let [files, here] = ["files", "here"].map(|name| scratch.path().join(name));
        fs::create_dir(&files).unwrap();
        fs::create_dir(&here).unwrap();
        let socket = scratch.path().join("sock");
        let server = Server::start(ServerConfig {
            shm: Some(socket.clone()),
            nfs: Some("127.0.0.1:0".parse().unwrap()),
            insecure: true,
            state: Some(scratch.path().join("state")),
            squash: Squash::None,
            cache_bytes: 8 << 20,
            huge_pages: false,
            ..ServerConfig::new(&files)
        })
        .unwrap();
        let url = match procedures {
            [] => format!("odafs+shm://{}?/", socket.display()),
            procedures => {
                let nfs = server.addresses().nfs.unwrap();
                let before = |server, procedure: &u32| {
                    lacking::before(server, &lacking::Faults::lacking(*procedure))
                };
                let port = procedures.iter().fold(nfs, before).port();
                format!("nfs://127.0.0.1:{port}/?mountport={port}")
            }
        };
        let keeps_nothing = Options {
            cache: odafs::Cache::Off,
            ..Options::default()
        };
        let client = Client::connect_with(&url.parse().unwrap(), keeps_nothing).unwrap();
        let options = odafs_mount::Options {
            cache,
            acls,
            ..options()
        };
        let mounted = match mount(&client, &here, &options) {
            Err(MountError::System { why, .. }) if why.to_string().contains("EPERM") => {
                server.shutdown();
                skipped("fuse", &format!("this root may not mount: {why}"));
                return None;
            }
            mounted => mounted.unwrap(),
        };
        assert_eq!(mounted.uses_io_uring(), crate::URING == Uring::Auto);
        Some(Self {
            mounted: Some(mounted),
            server: Some(server),
            files,
            here,
            client,
            url,
            scratch,
        })
    }

    /// Another client, which knows nothing of the mount.
    fn other(&self) -> Client {
        Client::connect(&self.url).unwrap()
    }

    /// The names that programs find.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.here).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.mounted.take());
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
    }
}

#[test]
fn files_are_read_written_and_unmounted() {
    for cache in [Cache::CloseToOpen, Cache::Off] {
        let Some(mut world) = World::new(cache) else {
            return;
        };
        fs::write(world.files.join("there"), vec![7; 300_000]).unwrap();
        assert_eq!(fs::read(world.here.join("there")).unwrap(), [7; 300_000]);
        fs::write(world.here.join("new"), vec![8; 300_000]).unwrap();
        assert_eq!(fs::read(world.files.join("new")).unwrap(), [8; 300_000]);
        fs::hard_link(world.here.join("new"), world.here.join("link")).unwrap();
        let inode = |name| fs::metadata(world.here.join(name)).unwrap().ino();
        assert_eq!(inode("new"), inode("link"));
        world.mounted.take().unwrap().unmount().unwrap();
        assert_eq!(fs::read_dir(&world.here).unwrap().count(), 0);
    }
}

#[test]
fn a_removed_file_stays_for_those_who_have_it_open() {
    let Some(mut world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    let names = |dir: &PathBuf| fs::read_dir(dir).unwrap().count();
    let path = world.here.join("file");
    fs::write(&path, "all of it").unwrap();
    let mut file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    // Its hidden name.
    assert_eq!(names(&world.files), 1);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "all of it");
    drop(file);
    // By then the kernel has told of the close, or there is nobody left who has it open.
    world.mounted.take().unwrap().unmount().unwrap();
    assert_eq!(names(&world.files), 0);
}

const LOOKUP: u32 = 3;
const COMMIT: u32 = 21;
const LINK: u32 = 15;
const READDIRPLUS: u32 = 17;

#[test]
fn names_that_cannot_be_looked_up_are_listed() {
    for cache in [Cache::CloseToOpen, Cache::Off] {
        let Some(world) = World::lacking(cache, &[READDIRPLUS, LOOKUP]) else {
            return;
        };
        let mut wanted: Vec<_> = (0..300).map(|n| format!("file{n}")).collect();
        for name in &wanted {
            fs::write(world.files.join(name), "four").unwrap();
        }
        wanted.sort();
        for _ in 0..2 {
            assert_eq!(world.names(), wanted);
            assert!(fs::metadata(world.here.join("file7")).is_err());
        }
    }
}

#[test]
fn a_server_that_lists_names_alone_is_listed() {
    let Some(world) = World::lacking(Cache::CloseToOpen, &[READDIRPLUS]) else {
        return;
    };
    fs::create_dir(world.files.join("dir")).unwrap();
    let mut wanted: Vec<_> = (0..300).map(|n| format!("file{n}")).collect();
    for name in &wanted {
        fs::write(world.files.join(name), "four").unwrap();
    }
    wanted.push("dir".to_owned());
    wanted.sort();
    assert_eq!(world.names(), wanted);
    for entry in fs::read_dir(&world.here).unwrap() {
        let entry = entry.unwrap();
        let is_dir = entry.file_name() == "dir";
        assert_eq!(entry.file_type().unwrap().is_dir(), is_dir);
        assert!(is_dir || entry.metadata().unwrap().len() == 4);
    }
}

#[test]
fn an_open_file_is_replaced_even_where_the_server_makes_no_links() {
    let Some(world) = World::lacking(Cache::CloseToOpen, &[LINK]) else {
        return;
    };
    let [old, new] = ["old", "new"].map(|name| world.here.join(name));
    fs::write(&old, "old").unwrap();
    fs::write(&new, "new").unwrap();
    let mut open = fs::File::options().write(true).open(&old).unwrap();
    assert!(fs::hard_link(&new, world.here.join("link")).is_err());
    fs::rename(&new, &old).unwrap();
    assert_eq!(fs::read_to_string(&old).unwrap(), "new");
    // It is gone on the server.
    let stale = open.write_all(b"x").unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::StaleNetworkFileHandle);
    assert_eq!(world.names(), ["old"]);
}

#[test]
fn hidden_names_are_for_no_program() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    for name in ["removed", "replaced", "new"] {
        fs::write(world.here.join(name), name).unwrap();
    }
    let open = ["removed", "replaced"].map(|name| fs::File::open(world.here.join(name)).unwrap());
    fs::remove_file(world.here.join("removed")).unwrap();
    fs::rename(world.here.join("new"), world.here.join("replaced")).unwrap();
    fs::write(world.here.join("other"), "other").unwrap();
    let hidden: Vec<_> = fs::read_dir(&world.files)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".odafs"))
        .collect();
    assert_eq!(hidden.len(), 2);
    assert_eq!(world.names(), ["other", "replaced"]);
    let at = |name: &str| world.here.join(name);
    for name in &hidden {
        let name = at(name);
        assert!(!name.exists());
        let errors = [
            fs::rename(&name, at("mine")),
            fs::rename(at("other"), &name),
            fs::hard_link(&name, at("mine")),
            fs::hard_link(at("other"), &name),
            fs::remove_file(&name),
            fs::File::create(&name).map(drop),
        ];
        assert!(errors.iter().all(Result::is_err), "{errors:?}");
    }
    assert_eq!(world.names(), ["other", "replaced"]);
    for (mut file, wanted) in open.into_iter().zip(["removed", "replaced"]) {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, wanted);
    }
}

#[test]
fn a_file_that_was_opened_can_be_read_whoever_removes_it() {
    let Some(world) = World::new(Cache::Off) else {
        return;
    };
    let path = world.here.join("file");
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::SeqCst) {
                    match fs::File::open(&path) {
                        Ok(mut file) => {
                            let mut text = String::new();
                            file.read_to_string(&mut text).unwrap();
                        }
                        // The kernel tries ESTALE once more, and may meet the next removal.
                        Err(error) => assert!(
                            [ErrorKind::NotFound, ErrorKind::StaleNetworkFileHandle]
                                .contains(&error.kind()),
                            "{error}"
                        ),
                    }
                }
            });
        }
        for _ in 0..200 {
            fs::write(&path, "text").unwrap();
            fs::remove_file(&path).unwrap();
        }
        ends.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

#[test]
fn who_appends_writes_at_the_end_that_the_server_knows() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    let path = world.here.join("log");
    let mut log = fs::File::options()
        .append(true)
        .create(true)
        .open(&path)
        .unwrap();
    log.write_all(b"mount\n").unwrap();
    let other = world.client.open("log").unwrap();
    other.write_at(b"other\n", 6).unwrap();
    log.write_all(b"mount\n").unwrap();
    drop(log);
    assert_eq!(fs::read_to_string(path).unwrap(), "mount\nother\nmount\n");
}

#[test]
fn a_file_that_grew_on_the_server_is_read_to_its_end() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    let (served, here) = (world.files.join("grows"), world.here.join("grows"));
    for text in ["one", "longer", "the longest"] {
        fs::write(&served, text).unwrap();
        // By one read alone: fs::read_to_string asks for the size first, and the kernel asks the server for that.
        let mut read = [0; 64];
        let bytes = fs::File::open(&here).unwrap().read(&mut read).unwrap();
        assert_eq!(str::from_utf8(&read[..bytes]), Ok(text));
    }
}

#[test]
fn set_id_bits_end_with_a_write_of_somebody_else() {
    for cache in [Cache::CloseToOpen, Cache::Off] {
        let Some(world) = World::new(cache) else {
            return;
        };
        let every = fs::Permissions::from_mode(0o755);
        fs::set_permissions(world.scratch.path(), every).unwrap();
        let path = world.here.join("program");
        fs::write(&path, "one").unwrap();
        // 2666: nobody executes it as its group, and the bit means something else.
        for (mode, left) in [(0o6777, 0o777), (0o4666, 0o666), (0o2666, 0o2666)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let writes = Command::new("sh")
                .args(["-c", "echo more >>\"$0\""])
                .arg(&path)
                .uid(1234)
                .gid(1234)
                .status();
            assert!(writes.unwrap().success());
            let is = fs::metadata(world.files.join("program")).unwrap().mode() & 0o7777;
            assert_eq!(is, left, "{is:o} of {mode:o}, {cache:?}");
        }
    }
}

#[test]
fn writes_past_the_cache_are_stable_if_the_program_asks_for_that() {
    // What is stable needs no COMMIT; all else does.
    let Some(world) = World::lacking(Cache::Off, &[COMMIT]) else {
        return;
    };
    let open = |name: &str, flags: OFlags| {
        let mut options = fs::File::options();
        let flags = i32::try_from(flags.bits()).unwrap();
        options.write(true).create(true).custom_flags(flags);
        options.open(world.here.join(name)).unwrap()
    };
    for flags in [OFlags::SYNC, OFlags::DSYNC] {
        let mut file = open("stable", flags);
        file.write_all(b"kept").unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(fs::read(world.files.join("stable")).unwrap(), b"kept");
    let mut file = open("unstable", OFlags::empty());
    file.write_all(b"kept").unwrap();
    file.sync_all().unwrap_err();
}

#[test]
fn a_file_that_the_server_removed_is_stale() {
    let Some(world) = World::new(Cache::Off) else {
        return;
    };
    let path = world.here.join("file");
    fs::write(&path, "text").unwrap();
    let mut file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let other = FileSystem::new(&world.client);
    let root = other.resolve(".", true).unwrap().handle;
    other.unlink(&root, "file").unwrap();
    let read = file.read(&mut [0; 4]).unwrap_err();
    let written = file.write(b"text").unwrap_err();
    for error in [read, written] {
        assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle);
    }
    assert_eq!(
        fs::File::open(&path).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn the_mount_below_stays_when_the_one_above_goes() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    fs::write(world.files.join("file"), "below").unwrap();
    let above = mount(&world.client, &world.here, &options());
    above.unwrap().unmount().unwrap();
    assert_eq!(
        fs::read_to_string(world.here.join("file")).unwrap(),
        "below"
    );
}

#[test]
fn a_new_mount_stays_when_the_detached_one_is_told_to_unmount() {
    let Some(mut world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    fs::write(world.files.join("file"), "new").unwrap();
    let old = world.mounted.take().unwrap();
    // As long as it is open, the old mount has not ended.
    let open = fs::File::open(world.here.join("file")).unwrap();
    rustix::mount::unmount(&world.here, rustix::mount::UnmountFlags::DETACH).unwrap();
    let new = mount(&world.client, &world.here, &options()).unwrap();
    old.unmounter().unmount().unwrap();
    old.unmounter().detach().unwrap();
    assert_eq!(fs::read_to_string(world.here.join("file")).unwrap(), "new");
    drop(open);
    old.wait().unwrap();
    new.unmount().unwrap();
}

#[test]
fn a_mount_that_another_one_covers_is_busy() {
    let Some(mut world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    let below = world.mounted.take().unwrap();
    let above = mount(&world.client, &world.here, &options()).unwrap();
    let busy = below.unmounter().unmount().unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
    above.unmount().unwrap();
    below.unmount().unwrap();
}

#[test]
fn a_directory_is_removed_after_files_that_were_just_closed() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    let dir = world.here.join("dir");
    for _ in 0..60 {
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        let file = fs::File::open(dir.join("file")).unwrap();
        fs::remove_file(dir.join("file")).unwrap();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                drop(file);
            });
            both.wait();
            fs::remove_dir(&dir).unwrap();
        });
    }
}

#[test]
fn a_busy_mount_is_detached_and_goes_on() {
    let Some(mut world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    let path = world.here.join("file");
    let mut file = fs::File::create(&path).unwrap();
    let mounted = world.mounted.take().unwrap();
    let unmounter = mounted.unmounter();
    let busy = mounted.unmount().unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
    assert!(!path.exists(), "it is still mounted");
    file.write_all(b"on").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(world.files.join("file")).unwrap(), b"on");
    unmounter.unmount().unwrap();
}

#[test]
fn what_is_no_directory_is_not_mounted_on() {
    let Some(world) = World::new(Cache::Off) else {
        return;
    };
    let file = world.files.join("file");
    fs::write(&file, "").unwrap();
    for wrong in [file.clone(), file.join("x"), world.files.join("none")] {
        let error = mount(&world.client, &wrong, &options()).unwrap_err();
        assert!(matches!(error, MountError::NoDirectory { .. }), "{error}");
    }
}
