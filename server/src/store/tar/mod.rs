//! A read-only store that serves the members of a tar archive. The index is in memory, and bytes are read from the archive.

#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod header;
mod index;
mod pax;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::Duration;

use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::{Condvar, Mutex};
use rustix::io::{IoSliceMut, ReadWriteFlags, preadv2};
use sha2::{Digest as _, Sha256};

use super::names::{NAME_MAX, Name};
use super::permission::{attributes_permit, check_list, check_search};
use super::table::GENERATION_MAX;
use super::{
    Credential, DirEntry, FileSystemLimits, Listing, ObjectId, OutsideEvent, ReaddirRange, Result,
    Space, Store,
};
use crate::store::{Attributes, Device, FileType, Status, access};
use header::{BLOCK, Header};
use index::{Body, Bounds, Bytes, Index, Names, Node, ROOT, Refused};

/// All archives have this number, and objects of different archives have different generations. File handles of a replaced
/// archive are therefore STALE.
const NUMBER: u64 = u64::from_be_bytes(*b"archives");

/// How compressed archives begin: offset, bytes, and the program that decompresses them.
const COMPRESSED: [(&[u8], &str, &str); 4] = [
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
];

/// Serves the members of a tar archive. It refuses every change with ROFS.
///
/// The ids and modes in the archive decide about rights. Once the archive has changed, every call fails with STALE.
pub struct TarStore {
    archive: File,
    /// The archive's attributes when its index was made.
    stamp: Stamp,
    changed: AtomicBool,
    /// Whether the change of the archive has been reported as an event.
    told: AtomicBool,
    index: Index,
    generation: u64,
    interrupted: Mutex<bool>,
    news: Condvar,
}

/// Identifies an archive, and shows whether somebody has written to it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    ino: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Stamp {
    fn of(archive: &File) -> io::Result<Self> {
        let found = archive.metadata()?;
        Ok(Self {
            device: found.dev(),
            ino: found.ino(),
            size: found.len(),
            mtime: (found.mtime(), found.mtime_nsec()),
        })
    }

    fn generation(&self) -> u64 {
        let mut digest = Sha256::new();
        for number in [self.device, self.ino, self.size] {
            digest.update(number.to_be_bytes());
        }
        digest.update(self.mtime.0.to_be_bytes());
        digest.update(self.mtime.1.to_be_bytes());
        let digest = digest.finalize();
        digest.first_chunk().map_or(0, |b| u64::from_be_bytes(*b)) & GENERATION_MAX
    }
}

struct Archive<'a>(&'a File, u64);

impl Bytes for Archive<'_> {
    fn length(&self) -> u64 {
        self.1
    }

    fn read_exact(&self, data: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(data, offset)
    }
}

impl TarStore {
    /// Opens an archive and reads its headers.
    ///
    /// # Errors
    /// It cannot be opened, is compressed, damaged or no archive, or has too many members. The text says what to do.
    pub fn open(path: &Path) -> io::Result<Self> {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let archive = File::open(path)?;
        check_compression(&archive, path)?;
        let stamp = Stamp::of(&archive)?;
        let bytes = Archive(&archive, stamp.size);
        let root = root_of(&archive.metadata()?, &stamp);
        let index = Index::read(&bytes, root, Bounds::default()).map_err(|why| match why {
            Refused::Io(error) => error,
            why => refused(why.to_string()),
        })?;
        if Stamp::of(&archive)? != stamp {
            return Err(refused(
                "it was changed while it was read: wait until it is written".to_owned(),
            ));
        }
        Ok(Self {
            archive,
            changed: AtomicBool::new(false),
            told: AtomicBool::new(false),
            index,
            generation: stamp.generation(),
            stamp,
            interrupted: Mutex::new(false),
            news: Condvar::new(),
        })
    }

    /// STALE if the archive has changed. Looks at the archive.
    fn look(&self) -> Result<()> {
        if Stamp::of(&self.archive)? != self.stamp && !self.changed.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "the archive was changed while it is served: all of it is stale, start the server again"
            );
        }
        self.is_current()
    }

    /// The same without a look.
    fn is_current(&self) -> Result<()> {
        if self.changed.load(Ordering::Acquire) {
            Err(Status::Stale.into())
        } else {
            Ok(())
        }
    }

    fn node(&self, object: ObjectId) -> Result<&Node> {
        self.is_current()?;
        let found = self.index.find(object.ino);
        let found = found.filter(|_| object.generation == self.generation);
        found.ok_or_else(|| Status::Stale.into())
    }

    fn names(&self, object: ObjectId) -> Result<(&Node, &Names)> {
        let node = self.node(object)?;
        match &node.body {
            Body::Directory(names) => Ok((node, names)),
            _ => Err(Status::NotDir.into()),
        }
    }

    fn id(&self, node: &Node) -> ObjectId {
        ObjectId {
            ino: node.attributes.fileid,
            generation: self.generation,
        }
    }

    fn numbered(&self, place: u32) -> &Node {
        &self.index.nodes[place as usize]
    }

    /// The offset of a read in the archive, and the number of bytes that there are.
    fn place(&self, object: ObjectId, offset: u64, length: usize) -> Result<(u64, usize)> {
        let node = self.node(object)?;
        let Body::File(data) = node.body else {
            return Err(match node.body {
                Body::Directory(_) => Status::IsDir.into(),
                _ => Status::Inval.into(),
            });
        };
        // Within the archive's length, as the index has checked.
        let offset = offset.min(node.attributes.size);
        let count = (node.attributes.size - offset).min(length as u64);
        Ok((data + offset, count as usize))
    }
}

/// Refuses a compressed archive, and says how to decompress it.
///
/// # Errors
/// It is compressed, or cannot be read.
pub fn check_compression(archive: &File, path: &Path) -> io::Result<()> {
    let mut first = [0; BLOCK as usize];
    let read = archive.read_at(&mut first, 0)?;
    // The name of a first member may begin with any of them.
    if Header(first).has_good_checksum() {
        return Ok(());
    }
    for (magic, what, by) in COMPRESSED {
        if first[..read].starts_with(magic) {
            let why = format!(
                "it is compressed ({what}); decompress it first: {by} {}",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    }
    Ok(())
}

/// The attributes of the root, and of directories that occur only in paths.
fn root_of(archive: &std::fs::Metadata, stamp: &Stamp) -> Attributes {
    let nanoseconds = u32::try_from(stamp.mtime.1).unwrap_or(0);
    let time = pax::clamped(stamp.mtime.0, nanoseconds);
    Attributes {
        kind: FileType::Directory,
        mode: 0o755,
        links: 2,
        uid: archive.uid(),
        gid: archive.gid(),
        size: 0,
        used: 0,
        device: Device::default(),
        fsid: stamp.generation(),
        fileid: ROOT,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

impl Store for TarStore {
    fn root(&self) -> ObjectId {
        ObjectId {
            ino: ROOT,
            generation: self.generation,
        }
    }

    fn getattr(&self, object: ObjectId) -> Result<Attributes> {
        Ok(self.node(object)?.attributes)
    }

    fn access(&self, who: &Credential, object: ObjectId, mask: u32) -> Result<u32> {
        let changes = access::MODIFY | access::EXTEND | access::DELETE;
        let attributes = self.getattr(object)?;
        Ok(attributes_permit(&attributes, who, mask & !changes))
    }

    fn is_at_hand(&self, _object: ObjectId) -> bool {
        true
    }

    fn mode_decides(&self, object: ObjectId) -> Result<bool> {
        self.node(object).map(|_| true)
    }

    fn lookup(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)> {
        let (node, names) = self.names(directory)?;
        let name = Name::parse(name)?;
        check_search(&node.attributes, who)?;
        let found = match name {
            Name::Here => node,
            Name::Up => self.numbered(names.parent),
            Name::Proper(name) => {
                let place = names
                    .sorted
                    .binary_search_by(|(known, _)| (**known).cmp(name));
                self.numbered(names.sorted[place.map_err(|_| Status::NoEnt)?].1)
            }
        };
        Ok((self.id(found), found.attributes))
    }

    fn lookup_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<(ObjectId, Attributes)>> {
        Some(self.lookup(who, directory, name))
    }

    fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        match &self.node(object)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Status::Inval.into()),
        }
    }

    fn read_at(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> Result<usize> {
        let (start, count) = self.place(object, offset, data.len())?;
        let read = self.archive.read_exact_at(&mut data[..count], start);
        // A write to a file sets its time first. If the time has not moved, the bytes read are good.
        self.look()?;
        read?;
        Ok(count)
    }

    fn read_at_hand(&self, object: ObjectId, offset: u64, data: &mut [u8]) -> bool {
        let wanted = data.len();
        let Ok((start, count)) = self.place(object, offset, wanted) else {
            return false;
        };
        if count < wanted {
            return false;
        }
        let data = &mut [IoSliceMut::new(data)];
        let read = preadv2(&self.archive, data, start, ReadWriteFlags::NOWAIT);
        read == Ok(wanted) && self.look().is_ok()
    }

    fn readdir(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        range.check()?;
        let (node, names) = self.names(directory)?;
        check_list(&node.attributes, who)?;
        let searchable = check_search(&node.attributes, who).is_ok();
        let entry = |cookie, name: &[u8], found: &Node| {
            let fileid = found.attributes.fileid;
            let shown = range.plus && (searchable || fileid == directory.ino);
            DirEntry {
                fileid,
                name: name.to_vec(),
                cookie,
                object: shown.then(|| (self.id(found), found.attributes)),
            }
        };
        let parent = self.numbered(names.parent);
        let dots = [(1, b".".as_slice(), node), (2, b"..", parent)];
        let dots = dots.into_iter().filter(|(at, ..)| *at > range.cookie);
        let seen = usize::try_from(range.cookie.saturating_sub(2)).unwrap_or(usize::MAX);
        let rest = names.sorted.iter().enumerate().skip(seen);
        let rest = rest.map(|(at, (name, place))| (at as u64 + 3, &**name, self.numbered(*place)));
        let mut all = dots.chain(rest);
        let most = range.max_entries.max(1);
        let entries = all.by_ref().take(most);
        let entries = entries.map(|(cookie, name, node)| entry(cookie, name, node));
        Ok(Listing {
            entries: entries.collect(),
            eof: all.next().is_none(),
            verifier: ReaddirRange::VERIFIER,
        })
    }

    fn statfs(&self, object: ObjectId) -> Result<Space> {
        self.node(object)?;
        Ok(Space {
            total_bytes: self.stamp.size,
            free_bytes: 0,
            available_bytes: 0,
            total_files: self.index.nodes.len() as u64,
            free_files: 0,
            available_files: 0,
        })
    }

    fn pathconf(&self, object: ObjectId) -> Result<FileSystemLimits> {
        self.node(object)?;
        Ok(FileSystemLimits {
            link_max: u32::MAX,
            name_max: NAME_MAX as u32,
            size_max: i64::MAX as u64,
            time_delta_ns: 1,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
            read_only: true,
        })
    }

    fn number(&self) -> u64 {
        NUMBER
    }

    /// The thread that waits for events looks at the archive, which covers all objects.
    fn watch(&self, object: ObjectId) -> bool {
        self.node(object).is_ok()
    }

    fn unwatch(&self, _object: ObjectId) {}

    fn wait_events(&self, timeout: Duration) -> Vec<OutsideEvent> {
        let mut interrupted = self.interrupted.lock();
        if !*interrupted {
            interrupted = self.news.wait_timeout(interrupted, timeout.into()).0;
        }
        *interrupted = false;
        drop(interrupted);
        if self.look().is_err() && !self.told.swap(true, Ordering::AcqRel) {
            return vec![OutsideEvent::Overflow];
        }
        Vec::new()
    }

    fn interrupt(&self) {
        *self.interrupted.lock() = true;
        self.news.notify_all();
    }
}
