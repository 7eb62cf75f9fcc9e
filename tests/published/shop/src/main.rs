//! A program of somebody else's that serves a store of its own: a small tree that is part of the program. The server's
//! suite looks at the store first, then a client reads it.

use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use odafs::Client;
use odafs_server::config::ServerConfig;
use odafs_server::server::Server;
use odafs_server::store::{
    Attributes, Credential, Device, DirEntry, FileSystemLimits, FileType, Listing, ObjectId,
    OutsideEvent, ReaddirRange, Result, Space, Status, Store, Time, access, attributes_permit,
    suite,
};

/// What an object holds.
enum Body {
    File(Vec<u8>),
    /// Names and the places of what bears them. `.` and `..` come first.
    Directory(Vec<(&'static str, usize)>),
    Symlink(&'static str),
    Pipe,
}

/// Objects by their place, which is their inode number less one. The root is the first.
struct Shop {
    objects: Vec<Body>,
    interrupted: Mutex<bool>,
    news: Condvar,
}

impl Shop {
    fn new() -> Self {
        let root = vec![
            (".", 0),
            ("..", 0),
            ("file", 1),
            ("hard", 1),
            ("link", 2),
            ("pipe", 3),
            ("directory", 4),
        ];
        let objects = vec![
            Body::Directory(root),
            Body::File(suite::data()),
            Body::Symlink("file"),
            Body::Pipe,
            Body::Directory(vec![(".", 4), ("..", 0), ("empty", 5)]),
            Body::File(Vec::new()),
        ];
        Self {
            objects,
            interrupted: Mutex::new(false),
            news: Condvar::new(),
        }
    }

    fn id(place: usize) -> ObjectId {
        ObjectId {
            ino: place as u64 + 1,
            generation: 0,
        }
    }

    fn body(&self, object: ObjectId) -> Result<&Body> {
        let place = usize::try_from(object.ino)
            .ok()
            .and_then(|ino| ino.checked_sub(1));
        let body = place.and_then(|place| self.objects.get(place));
        let body = body.filter(|_| object.generation == 0);
        body.ok_or_else(|| Status::Stale.into())
    }

    fn names(&self, directory: ObjectId) -> Result<&[(&'static str, usize)]> {
        match self.body(directory)? {
            Body::Directory(names) => Ok(names),
            _ => Err(Status::NotDir.into()),
        }
    }

    /// What the caller may do with a directory: a bit of [`access`], or ACCES.
    fn allow(&self, who: &Credential, directory: ObjectId, wanted: u32) -> Result<()> {
        match attributes_permit(&self.getattr(directory)?, who, wanted) == wanted {
            true => Ok(()),
            false => Err(Status::Access.into()),
        }
    }
}

impl Store for Shop {
    fn root(&self) -> ObjectId {
        Self::id(0)
    }

    fn number(&self) -> u64 {
        u64::from_be_bytes(*b"the shop")
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        let (kind, mode, links, size) = match self.body(object)? {
            Body::File(data) => (FileType::Regular, 0o644, 1, data.len()),
            Body::Directory(_) => (FileType::Directory, 0o755, 2, 0),
            Body::Symlink(target) => (FileType::Symlink, 0o777, 1, target.len()),
            Body::Pipe => (FileType::Fifo, 0o644, 1, 0),
        };
        let made = Time {
            seconds: 1_000_000_000,
            nanoseconds: 0,
        };
        Ok(Attributes {
            kind,
            mode,
            // `file` is also called `hard`, and `directory` is in the root.
            links: links + u32::from(object.ino <= 2),
            uid: 0,
            gid: 0,
            size: size as u64,
            used: size as u64,
            device: Device::default(),
            fsid: self.number(),
            fileid: object.ino,
            atime: made,
            mtime: made,
            ctime: made,
        })
    }

    fn lookup(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)> {
        let names = self.names(directory)?;
        self.allow(who, directory, access::LOOKUP)?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Status::Access.into());
        }
        if name.len() > 255 {
            return Err(Status::NameTooLong.into());
        }
        let found = names.iter().find(|(known, _)| known.as_bytes() == name);
        let (_, place) = found.ok_or(Status::NoEnt)?;
        let object = Self::id(*place);
        Ok((object, self.getattr(object)?))
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        match self.body(object)? {
            Body::Symlink(target) => Ok(target.as_bytes().to_vec()),
            _ => Err(Status::Inval.into()),
        }
    }

    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        let held = match self.body(object)? {
            Body::File(held) => held,
            Body::Directory(_) => return Err(Status::IsDir.into()),
            _ => return Err(Status::Inval.into()),
        };
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(held.len());
        let count = data.len().min(held.len() - start);
        data[..count].copy_from_slice(&held[start..start + count]);
        Ok(count)
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        let names = self.names(directory)?;
        self.allow(who, directory, access::READ)?;
        let from = usize::try_from(range.cookie).map_err(|_| Status::BadCookie)?;
        let rest = names.get(from..).ok_or(Status::BadCookie)?;
        let entry = |(at, (name, place)): (usize, &(&str, usize))| {
            let object = Self::id(*place);
            Ok(DirEntry {
                fileid: object.ino,
                name: name.as_bytes().to_vec(),
                cookie: (from + at + 1) as u64,
                object: match range.plus {
                    true => Some((object, self.getattr(object)?)),
                    false => None,
                },
            })
        };
        let shown = rest.iter().take(range.max_entries).enumerate();
        let entries: Result<Vec<DirEntry>> = shown.map(entry).collect();
        Ok(Listing {
            entries: entries?,
            eof: rest.len() <= range.max_entries,
            verifier: [0; 8],
        })
    }

    fn statfs(&self, object: ObjectId) -> Result<Space> {
        self.find(object)?;
        Ok(Space {
            total_bytes: 1 << 20,
            free_bytes: 0,
            available_bytes: 0,
            total_files: self.objects.len() as u64,
            free_files: 0,
            available_files: 0,
        })
    }

    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits> {
        self.find(object)?;
        Ok(FileSystemLimits {
            link_max: 2,
            name_max: 255,
            size_max: i64::MAX as u64,
            time_delta_ns: 1,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
            read_only: true,
        })
    }

    /// Nothing here ever changes, so there is nothing to tell.
    fn watch(&self, object: ObjectId) -> bool {
        self.find(object).is_ok()
    }

    fn unwatch(&self, _object: ObjectId) {}

    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent> {
        let interrupted = self
            .interrupted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .news
            .wait_timeout_while(interrupted, timeout, |it| !*it);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
        Vec::new()
    }

    fn interrupt(&self) {
        *self
            .interrupted
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.news.notify_all();
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    suite::reading(&Shop::new());
    println!("the store passes the suite");

    let scratch = tempfile::tempdir()?;
    let config = ServerConfig {
        shm: Some(scratch.path().join("odafs.sock")),
        state: Some(scratch.path().join("state")),
        cache_bytes: 16 << 20,
        huge_pages: false,
        ..ServerConfig::new(scratch.path().to_owned())
    };
    let server = Server::start_with(config, |_, _| Ok(Arc::new(Shop::new())))?;
    let socket = server.addresses().shm.as_ref().ok_or("no socket")?;
    let client = Client::connect(&format!("odafs+shm://{}?/", socket.display()))?;
    let mut names: Vec<_> = client
        .read_dir("/")?
        .map(|entry| entry.map(|it| it.name))
        .collect::<std::result::Result<_, _>>()?;
    names.sort();
    assert_eq!(names, ["directory", "file", "hard", "link", "pipe"]);
    let file = client.open("/hard")?;
    let mut data = vec![0; suite::data().len()];
    for _ in 0..3 {
        file.read_exact_at(&mut data, 0)?;
        assert_eq!(data, suite::data());
        data.fill(0);
    }
    assert!(client.create("/new").is_err(), "it takes no changes");
    println!("a client read {} bytes of it", data.len());
    server.shutdown();
    Ok(())
}
