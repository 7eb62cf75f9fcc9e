//! The file system by handle, against a served directory.

use odafs::{
    Cache, Changes, Client, FileKind, Options, PathError, When,
    fs::{Access, Cookie, Create, FileHandle, FileSystem, Node},
};
use odafs_server::{
    config::{ServerConfig, Squash},
    server::Server,
};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{MetadataExt as _, PermissionsExt},
    },
    path::PathBuf,
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;
const ESTALE: i32 = 116;

struct World {
    fs: FileSystem,
    server: Option<Server>,
    config: ServerConfig,
    files: PathBuf,
    _scratch: TempDir,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(prepare: impl FnOnce(&std::path::Path)) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let files = scratch.path().join("files");
        std::fs::create_dir(&files).unwrap();
        prepare(&files);
        let config = ServerConfig {
            nfs: Some("127.0.0.1:0".parse().unwrap()),
            shm: Some(scratch.path().join("sock")),
            state: Some(scratch.path().join("state")),
            squash: Squash::None,
            cache_bytes: 8 << 20,
            huge_pages: false,
            ..ServerConfig::new(&files)
        };
        let server = Server::start(config.clone());
        let fs = connect(&format!(
            "odafs+shm://{}?/",
            scratch.path().join("sock").display()
        ));
        Self {
            fs,
            server: Some(server.unwrap()),
            config,
            files,
            _scratch: scratch,
        }
    }

    fn restart(&mut self) {
        self.server.take().unwrap().shutdown();
        self.server = Some(Server::start(self.config.clone()).unwrap());
    }

    fn by_tcp(&self) -> FileSystem {
        let address = self.server.as_ref().unwrap().addresses().nfs.unwrap();
        connect(&format!("nfs://{address}/"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
    }
}

fn connect(url: &str) -> FileSystem {
    let options = Options {
        cache: Cache::Off,
        ..Options::default()
    };
    let client = Client::connect_with(&url.parse().unwrap(), options).unwrap();
    FileSystem::new(&client)
}

fn mode(mode: u32) -> Changes {
    Changes {
        mode: Some(mode),
        ..Changes::default()
    }
}

fn errno<T: std::fmt::Debug>(of: Result<T, PathError>) -> i32 {
    of.unwrap_err().errno()
}

fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}

#[test]
fn attributes_are_those_of_the_file() {
    let world = World::with(|files| {
        std::fs::write(files.join("a"), [7; 5000]).unwrap();
        std::fs::hard_link(files.join("a"), files.join("b")).unwrap();
        std::fs::set_permissions(files.join("a"), PermissionsExt::from_mode(0o1640)).unwrap();
    });
    let fs = &world.fs;
    is_shared(fs);
    let root = fs.root();
    let found = fs.lookup(&root, "a").unwrap();
    let told = found.attributes;
    let is = std::fs::metadata(world.files.join("a")).unwrap();
    assert_eq!(
        (told.kind, told.mode, told.nlink),
        (FileKind::Regular, 0o1640, 2)
    );
    assert_eq!((told.uid, told.gid), (is.uid(), is.gid()));
    assert_eq!((told.size, told.used), (5000, is.blocks() * 512));
    assert_eq!((told.rdev, told.fileid), ((0, 0), is.ino()));
    assert_eq!(told.mtime, is.modified().unwrap());
    assert_eq!(told.atime, is.accessed().unwrap());
    assert_eq!(fs.getattr(&found.handle).unwrap(), told);
    assert_eq!(fs.lookup(&root, "b").unwrap().handle, found.handle);
    assert_eq!(fs.lookup(&root, "..").unwrap().handle, root);
    assert_eq!(fs.getattr(&root).unwrap().kind, FileKind::Directory);
    assert_eq!(errno(fs.lookup(&root, "c")), ENOENT);
    assert_eq!(errno(fs.lookup(&found.handle, "c")), ENOTDIR);
    assert_eq!(errno(fs.open(&root)), EISDIR);
    assert_eq!(errno(fs.readlink(&found.handle)), EINVAL);
}

#[test]
fn every_change_shows_in_the_change_attribute() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let made = fs
        .create(&root, "a", &Create::Unchecked(mode(0o600)))
        .unwrap();
    let mut seen = BTreeSet::from([made.attributes.change]);
    for byte in 0..50 {
        fs.write(&made.handle, &[byte], 0).unwrap();
        let change = fs.getattr(&made.handle).unwrap().change;
        assert!(seen.insert(change), "write {byte}: {change} again");
    }
}

#[test]
fn setattr_with_a_guard_overwrites_no_change() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let made = fs
        .create(&root, "a", &Create::Guarded(mode(0o600)))
        .unwrap();
    let before = made.attributes;
    let at = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    let changes = Changes {
        size: Some(10_000),
        modified: Some(When::At(at)),
        ..Changes::default()
    };
    let after = fs
        .setattr(&made.handle, &changes, Some(before.ctime))
        .unwrap();
    assert_eq!((after.size, after.mtime), (10_000, at));
    assert_ne!(after.change, before.change);
    let late = fs.setattr(&made.handle, &mode(0o644), Some(before.ctime));
    assert_eq!(errno(late), EAGAIN);
    assert_eq!(fs.getattr(&made.handle).unwrap(), after);
    assert_eq!(
        fs.setattr(&made.handle, &mode(0o644), None).unwrap().mode,
        0o644
    );
}

#[test]
fn data_is_written_read_and_committed() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let made = fs
        .create(&root, "a", &Create::Guarded(mode(0o600)))
        .unwrap();
    let data: Vec<u8> = (0..300_000).map(|at| (at * 7 + at / 251) as u8).collect();
    fs.write(&made.handle, &data[..200_000], 0).unwrap();
    fs.write_stable(&made.handle, &data[200_000..], 200_000)
        .unwrap();
    fs.commit(&made.handle).unwrap();
    assert_eq!(std::fs::read(world.files.join("a")).unwrap(), data);
    let mut buf = vec![0; 4096];
    assert_eq!(fs.read(&made.handle, &mut buf, 299_000).unwrap(), 1000);
    assert_eq!(buf[..1000], data[299_000..]);
    assert_eq!(fs.read(&made.handle, &mut buf, 300_000).unwrap(), 0);
    let file = fs.open(&made.handle).unwrap();
    for _ in 0..20 {
        assert_eq!(file.read_at(&mut buf, 8192).unwrap(), 4096);
        assert_eq!(buf, data[8192..12_288]);
    }
    let again = fs.create(
        &root,
        "a",
        &Create::Unchecked(Changes {
            size: Some(0),
            ..mode(0o600)
        }),
    );
    assert_eq!(again.unwrap().handle, made.handle);
    assert_eq!(file.read_at(&mut buf, 8192).unwrap(), 0, "it was cut");
}

#[test]
fn exclusive_create_may_be_repeated() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let how = Create::Exclusive(*b"verifier");
    let made = fs.create(&root, "a", &how).unwrap();
    assert_eq!(fs.create(&root, "a", &how).unwrap().handle, made.handle);
    let other = Create::Exclusive(*b"another!");
    assert_eq!(errno(fs.create(&root, "a", &other)), EEXIST);
    assert_eq!(
        errno(fs.create(&root, "a", &Create::Guarded(mode(0o600)))),
        EEXIST
    );
    let times = Changes {
        modified: Some(When::Now),
        accessed: Some(When::Now),
        ..mode(0o640)
    };
    assert_eq!(fs.setattr(&made.handle, &times, None).unwrap().mode, 0o640);
}

#[test]
fn names_come_and_go() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let dir = fs.mkdir(&root, "d", &mode(0o750)).unwrap();
    assert_eq!(
        (dir.attributes.kind, dir.attributes.mode),
        (FileKind::Directory, 0o750)
    );
    assert_eq!(errno(fs.mkdir(&root, "d", &mode(0o755))), EEXIST);
    let link = fs.symlink(&dir.handle, "link", "../a b").unwrap();
    assert_eq!(link.attributes.kind, FileKind::Symlink);
    assert_eq!(fs.readlink(&link.handle).unwrap(), "../a b");
    let pipe = fs
        .mknod(&dir.handle, "pipe", Node::Pipe, &mode(0o600))
        .unwrap();
    assert_eq!(pipe.attributes.kind, FileKind::Pipe);
    let file = fs
        .create(&dir.handle, "x", &Create::Guarded(mode(0o600)))
        .unwrap();
    fs.link(&file.handle, &root, "y").unwrap();
    assert_eq!(fs.getattr(&file.handle).unwrap().nlink, 2);
    assert_eq!(errno(fs.link(&file.handle, &root, "y")), EEXIST);
    assert_eq!(errno(fs.rmdir(&root, "d")), ENOTEMPTY);
    assert_eq!(errno(fs.unlink(&root, "d")), EISDIR);
    for name in ["x", "link", "pipe"] {
        fs.unlink(&dir.handle, name).unwrap();
    }
    fs.rename(&root, "y", &dir.handle, "z").unwrap();
    assert_eq!(fs.lookup(&dir.handle, "z").unwrap().handle, file.handle);
    assert_eq!(errno(fs.lookup(&root, "y")), ENOENT);
    fs.create(&root, "over", &Create::Guarded(mode(0o600)))
        .unwrap();
    fs.rename(&dir.handle, "z", &root, "over").unwrap();
    assert_eq!(fs.lookup(&root, "over").unwrap().handle, file.handle);
    fs.rmdir(&root, "d").unwrap();
    assert_eq!(errno(fs.getattr(&dir.handle)), ESTALE);
}

#[test]
fn a_handle_is_stale_when_its_file_is_gone() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let made = fs
        .create(&root, "a", &Create::Guarded(mode(0o600)))
        .unwrap();
    fs.write_stable(&made.handle, b"abc", 0).unwrap();
    let kept = made.handle.as_bytes().to_vec();
    assert!(!kept.is_empty() && kept.len() <= FileHandle::MAX);
    let back = FileHandle::from_bytes(&kept).unwrap();
    assert_eq!(back, made.handle);
    let file = fs.open(&back).unwrap();
    // Another client knows it by the same bytes, over another transport.
    let other = world.by_tcp();
    assert_eq!(other.getattr(&back).unwrap().fileid, made.attributes.fileid);
    fs.unlink(&root, "a").unwrap();
    // Its number may be the next file's.
    fs.create(&root, "a", &Create::Guarded(mode(0o600)))
        .unwrap();
    for fs in [fs, &other] {
        assert_eq!(errno(fs.getattr(&back)), ESTALE);
        assert_eq!(errno(fs.open(&back)), ESTALE);
        assert_eq!(errno(fs.setattr(&back, &mode(0o600), None)), ESTALE);
        assert_eq!(errno(fs.link(&back, &root, "b")), ESTALE);
        assert_eq!(fs.read(&back, &mut [0; 3], 0).unwrap_err().errno(), ESTALE);
        assert_eq!(fs.write(&back, b"x", 0).unwrap_err().errno(), ESTALE);
    }
    assert_eq!(file.read_at(&mut [0; 3], 0).unwrap_err().errno(), ESTALE);
    assert_eq!(FileHandle::from_bytes(&[0; FileHandle::MAX + 1]), None);
    let strange = FileHandle::from_bytes(&[0xab; FileHandle::MAX]).unwrap();
    assert_eq!(errno(fs.getattr(&strange)), ESTALE);
    let told = fs.getattr(&strange).unwrap_err().to_string();
    assert!(told.starts_with("stat file handle abab"), "{told}");
}

#[test]
fn names_are_bytes_up_to_255() {
    let world = World::new();
    let (fs, root) = (&world.fs, world.fs.root());
    let odd = OsStr::from_bytes(b"caf\xe9 \xff\xfe\n");
    let long = OsString::from_vec(vec![b'n'; 255]);
    for name in [odd, &long] {
        let made = fs
            .create(&root, name, &Create::Guarded(mode(0o600)))
            .unwrap();
        assert_eq!(fs.lookup(&root, name).unwrap().handle, made.handle);
        assert!(world.files.join(name).exists());
    }
    let listed = fs
        .readdirplus(&root, Cookie::START)
        .map(|entry| entry.unwrap().name);
    let listed: BTreeSet<OsString> = listed.filter(|name| name != "." && name != "..").collect();
    assert_eq!(listed, BTreeSet::from([odd.to_owned(), long.clone()]));
    fs.rename(&root, odd, &root, "plain").unwrap();
    fs.unlink(&root, &long).unwrap();

    let longer = OsString::from_vec(vec![b'n'; 256]);
    let (create, plain) = (Create::Guarded(mode(0o600)), mode(0o700));
    assert_eq!(errno(fs.create(&root, &longer, &create)), ENAMETOOLONG);
    assert_eq!(errno(fs.lookup(&root, &longer)), ENAMETOOLONG);
    assert_eq!(errno(fs.mkdir(&root, &longer, &plain)), ENAMETOOLONG);
    assert_eq!(
        errno(fs.rename(&root, "plain", &root, &longer)),
        ENAMETOOLONG
    );
    for bad in ["", "a/b", "/", "a\0"] {
        assert_eq!(errno(fs.lookup(&root, bad)), EINVAL, "{bad:?}");
        assert_eq!(errno(fs.create(&root, bad, &create)), EINVAL, "{bad:?}");
    }
    assert_eq!(std::fs::read_dir(&world.files).unwrap().count(), 1);
}

#[test]
fn a_directory_of_5000_entries_is_listed_from_any_cookie() {
    const ENTRIES: usize = 5000;
    let world = World::with(|files| {
        for at in 0..ENTRIES {
            std::fs::write(files.join(format!("file-{at:04}")), [0; 3]).unwrap();
        }
    });
    for fs in [&world.fs, &world.by_tcp()] {
        let root = fs.root();
        let own = |name: &OsString| name.as_bytes().starts_with(b"file-");
        let plain: Vec<_> = fs
            .readdir(&root, Cookie::START)
            .map(Result::unwrap)
            .collect();
        let names: BTreeSet<_> = plain
            .iter()
            .map(|entry| &entry.name)
            .filter(|n| own(n))
            .collect();
        assert_eq!(names.len(), ENTRIES);
        assert_eq!(plain.len(), ENTRIES + 2, "none twice, and the dots");
        assert!(
            plain
                .iter()
                .all(|entry| entry.handle.is_none() && entry.attributes.is_none())
        );
        let middle = &plain[plain.len() / 2];
        let rest = fs
            .readdir(&root, middle.cookie)
            .map(|entry| entry.unwrap().name);
        assert!(
            rest.eq(plain[plain.len() / 2 + 1..]
                .iter()
                .map(|entry| entry.name.clone()))
        );

        let mut count = 0;
        for entry in fs.readdirplus(&root, Cookie::START) {
            let entry = entry.unwrap();
            if own(&entry.name) {
                let (handle, known) = (entry.handle.unwrap(), entry.attributes.unwrap());
                assert_eq!((known.size, known.fileid), (3, entry.fileid));
                if count % 1000 == 0 {
                    assert_eq!(fs.lookup(&root, &entry.name).unwrap().handle, handle);
                }
                count += 1;
            }
        }
        assert_eq!(count, ENTRIES);
    }
    let file = world
        .fs
        .lookup(&world.fs.root(), "file-0000")
        .unwrap()
        .handle;
    let mut none = world.fs.readdir(&file, Cookie::START);
    assert_eq!(errno(none.next().unwrap()), ENOTDIR);
    assert!(none.next().is_none());
}

#[test]
fn the_server_says_what_it_has_and_allows() {
    let world = World::with(|files| {
        std::fs::write(files.join("a"), "x").unwrap();
        std::fs::set_permissions(files.join("a"), PermissionsExt::from_mode(0o600)).unwrap();
    });
    let (fs, root) = (&world.fs, world.fs.root());
    let space = fs.statfs(&root).unwrap();
    assert!(space.total_bytes >= space.free_bytes && space.total_bytes > 0);
    let info = fs.fsinfo(&root).unwrap();
    assert!(info.rtmax >= 4096 && info.wtmax >= 4096 && info.maxfilesize > 1 << 32);
    assert!(info.properties.link && info.properties.symlink && info.properties.cansettime);
    let limits = fs.pathconf(&root).unwrap();
    assert_eq!((limits.name_max, limits.no_trunc), (255, true));
    assert!(limits.case_preserving && !limits.case_insensitive);

    let file = fs.lookup(&root, "a").unwrap().handle;
    let asked = Access::READ | Access::MODIFY;
    assert_eq!(fs.access(&file, asked).unwrap(), asked);
    assert!(
        fs.access(&root, Access::ALL)
            .unwrap()
            .contains(Access::LOOKUP | Access::DELETE)
    );
    assert!(
        !fs.access(&file, Access::ALL)
            .unwrap()
            .contains(Access::LOOKUP)
    );
}

/// The path API and this one are two views of one file.
#[test]
fn a_change_by_handle_is_seen_by_path() {
    let world = World::new();
    let client = Client::connect(&world.fs.client().url().to_string()).unwrap();
    let fs = FileSystem::from(client.clone());
    let file = client.create("a").unwrap();
    file.write_at(&[1; 8192], 0).unwrap();
    let mut page = [0; 4096];
    for _ in 0..10 {
        file.read_exact_at(&mut page, 4096).unwrap();
    }
    let handle = fs.lookup(&fs.root(), "a").unwrap().handle;
    fs.write(&handle, &[2; 4096], 4096).unwrap();
    file.read_exact_at(&mut page, 4096).unwrap();
    assert_eq!(page, [2; 4096]);
    let cut = Changes {
        size: Some(100),
        ..Changes::default()
    };
    fs.setattr(&handle, &cut, None).unwrap();
    assert_eq!(file.read_at(&mut page, 0).unwrap(), 100);
    assert_eq!(client.stat("a").unwrap().size, 100);
}

/// Whatever changes a file or takes its name away ends a snapshot; reads alone do not.
#[test]
fn a_snapshot_ends_with_its_version() {
    let world = World::new();
    let client = Client::connect(&world.fs.client().url().to_string()).unwrap();
    let (fs, other) = (FileSystem::from(client), world.by_tcp());
    let root = fs.root();
    let make = |name: &str| {
        let made = other.create(&root, name, &Create::Guarded(mode(0o600)));
        let made = made.unwrap().handle;
        other.write_stable(&made, &[1; 16_384], 0).unwrap();
        made
    };
    type Change<'a> = &'a dyn Fn(&FileHandle);
    let changes: [(&str, Change); 5] = [
        ("written", &|file| {
            other.write_stable(file, &[2; 10], 4096).unwrap();
        }),
        ("cut", &|file| {
            let cut = Changes {
                size: Some(4096),
                ..Changes::default()
            };
            other.setattr(file, &cut, None).unwrap();
        }),
        ("renamed", &|_| {
            other.rename(&root, "renamed", &root, "away").unwrap();
        }),
        ("replaced", &|_| {
            make("new");
            other.rename(&root, "new", &root, "replaced").unwrap();
        }),
        ("removed", &|_| other.unlink(&root, "removed").unwrap()),
    ];
    for (name, change) in changes {
        let handle = make(name);
        let file = fs.file(&fs.resolve(name, true).unwrap().handle);
        let mut buf = vec![0; 16_384];
        for _ in 0..3 {
            assert_eq!(file.read_at(&mut buf, 0).unwrap(), buf.len());
        }
        let snapshot = file.snapshot().unwrap();
        assert_eq!(snapshot.attributes().size, 16_384);
        for at in 0..20 {
            file.read_at(&mut buf[..4096], at % 4 * 4096).unwrap();
            assert!(file.is_still(&snapshot).unwrap(), "{name}: read {at}");
        }
        // The counter is at hand.
        assert_eq!(file.try_is_still(&snapshot), Some(true), "{name}");
        change(&handle);
        assert_ne!(file.try_is_still(&snapshot), Some(true), "{name}");
        assert!(!file.is_still(&snapshot).is_ok_and(|still| still), "{name}");
        // Reads that learn of the new version say so as well.
        let _ = file.read_at(&mut buf, 0);
        assert!(!file.is_still(&snapshot).is_ok_and(|still| still), "{name}");
    }
}

#[cfg(feature = "tokio")]
#[test]
fn async_programs_have_it_too() {
    let world = World::with(|files| std::fs::write(files.join("a"), "asynchronous").unwrap());
    let url = world.fs.client().url().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = odafs::tokio::Client::connect(&url).await.unwrap();
        let files = odafs::tokio::FileSystem::new(&client);
        let found = files.call(|fs| fs.lookup(&fs.root(), "a")).await.unwrap();
        let file = files.open(found.handle).await.unwrap();
        assert_eq!(file.read_at(1, 4).await.unwrap(), b"sync");
        let gone = files.call(|fs| fs.lookup(&fs.root(), "b")).await;
        assert_eq!(errno(gone), ENOENT);
    });
}

/// The server never had the first call on a connection that ended while it was idle.
#[test]
fn a_change_after_a_restart_is_made_for_certain() {
    let mut world = World::new();
    for name in ["a", "b"] {
        world.restart();
        let root = world.fs.root();
        world.fs.mkdir(&root, name, &mode(0o755)).unwrap();
        assert!(world.files.join(name).is_dir());
    }
}
