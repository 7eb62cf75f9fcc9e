//! Opens objects by [`ObjectId`], and identifies open objects.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use odafs_fabric::clock;
use odafs_fabric::sync::Arc;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, openat, openat2, readlinkat,
    statx,
};
use rustix::io::Errno;

use super::descriptors::{Descriptor, Use, number};
use super::identity::Judge;
use super::index::Index;
use super::scheme::Scheme;
use super::{Finding, LocalStore, sys, within};
use crate::store::names::Name;
use crate::store::permission::check_search;
use crate::store::table::GENERATION_MAX;
use crate::store::{Attributes, Credential, Device, FileType, ObjectId, Result, Status, Time};

/// Opens as a path only, so that nothing can hang and no link is followed.
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Names stay beneath the directory in which they are resolved.
pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

impl LocalStore {
    /// An open object that can be used at least for `wanted`, with the server's own rights. Only regular files and
    /// directories can be used for more than [`Use::Path`].
    pub(super) fn descriptor(&self, object: ObjectId, wanted: Use) -> Result<Arc<Descriptor>> {
        if object == self.root && wanted == Use::Path {
            return Ok(self.root_fd.clone());
        }
        if let Some(found) = self.descriptors.find(object, wanted) {
            return Ok(found);
        }
        let opened = self.descriptors.with_room(|| match wanted {
            Use::Path => self.find(object),
            Use::Read | Use::Write => reopen(&*self.descriptor(object, Use::Path)?, wanted),
        })?;
        self.descriptors.keep(object, &opened);
        Ok(opened)
    }

    /// An open object that may be used. A directory must still lie within the export, because someone may have moved it
    /// away. One call looks once.
    pub(super) fn reach(&self, object: ObjectId) -> Result<Arc<Descriptor>> {
        let found = self.descriptor(object, Use::Path)?;
        if found.kind == FileType::Directory && object != self.root && !within::is_known(&found) {
            let now = clock::now();
            self.attributes(object, &*found)?;
            self.check_within(found.as_fd())?;
            within::note(&found, now);
        }
        Ok(found)
    }

    fn find(&self, object: ObjectId) -> Result<Arc<Descriptor>> {
        match &self.finding {
            Finding::ByHandle(scheme) => {
                let handle = scheme.handle(object);
                let fd = sys::open_by_handle(self.whole.as_fd(), handle.kind, &handle.bytes, PATH)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::STALE))
                    // Whatever the error is, there is no such object, or no longer.
                    .map_err(|errno| {
                        if is_shortage(errno) {
                            errno
                        } else {
                            Errno::STALE
                        }
                    })?;
                let (found, attributes) = self.identify(fd.as_fd()).map_err(|_| Status::Stale)?;
                if found != object || attributes.links == 0 {
                    return Err(Status::Stale.into());
                }
                Ok(Descriptor::new(fd, attributes.kind, Use::Path))
            }
            Finding::ByName(index) => self.walk(index, object),
        }
    }

    fn walk(&self, index: &Index, object: ObjectId) -> Result<Arc<Descriptor>> {
        for names in index.paths(object) {
            let mut at = None;
            for name in &names {
                let directory = at.as_ref().map_or(self.root_fd.as_fd(), OwnedFd::as_fd);
                match open_path(directory, name) {
                    Ok(next) => at = Some(next),
                    Err(errno) if is_shortage(errno) => return Err(errno.into()),
                    Err(_) => {
                        at = None;
                        break;
                    }
                }
            }
            if let Some(fd) = at
                && let Ok((found, attributes)) = self.identify(fd.as_fd())
                && found == object
            {
                return Ok(Descriptor::new(fd, attributes.kind, Use::Path));
            }
        }
        Err(Status::Stale.into())
    }

    /// The object of a descriptor. ACCES if it lies on another file system, NOENT if it must not be shown.
    pub(super) fn identify(&self, fd: BorrowedFd<'_>) -> Result<(ObjectId, Attributes)> {
        let stat = fstat(fd)?;
        if stat.st_dev != self.device {
            return Err(Status::Access.into());
        }
        if self.private.contains(&stat.st_ino) {
            return Err(Status::NoEnt.into());
        }
        let generation = generation(fd, self.scheme, stat.st_ino)?;
        Ok((
            ObjectId {
                ino: stat.st_ino,
                generation,
            },
            self.translate(&stat),
        ))
    }

    /// Attributes of an open object. STALE if it has lost its last name.
    pub(super) fn attributes(&self, object: ObjectId, fd: impl AsFd) -> Result<Attributes> {
        let stat = fstat(fd)?;
        if stat.st_nlink == 0 {
            self.forget(object);
            return Err(Status::Stale.into());
        }
        Ok(self.translate(&stat))
    }

    /// Notes that the object is gone. Its file handles are stale at once, even if someone still has it open.
    pub(super) fn forget(&self, object: ObjectId) {
        self.descriptors.forget(object);
        if let Finding::ByName(index) = &self.finding {
            index.forget(object);
        }
    }

    /// Notes that the object has that name.
    pub(super) fn remember(&self, object: ObjectId, directory: ObjectId, name: &[u8]) {
        if let Finding::ByName(index) = &self.finding {
            index.remember(object, directory.ino, name);
        }
    }

    /// Notes that the object no longer has that name.
    pub(super) fn forget_name(&self, object: ObjectId, directory: ObjectId, name: &[u8]) {
        if let Finding::ByName(index) = &self.finding {
            index.forget_place(object, directory.ino, name);
        }
    }

    /// A directory in which names may be resolved. It exists and lies within the export.
    pub(super) fn directory(&self, object: ObjectId) -> Result<Arc<Descriptor>> {
        let found = self.reach(object)?;
        match found.kind {
            FileType::Directory => Ok(found),
            _ => Err(Status::NotDir.into()),
        }
    }

    /// STALE for a directory that is not below the root, because someone has moved it away.
    fn check_within(&self, directory: BorrowedFd<'_>) -> Result<()> {
        #[cfg(test)]
        super::counted::count(super::counted::Counted::Look);
        let path = |fd| readlinkat(&self.open_files, number(fd), Vec::new());
        let within = match (path(self.root_fd.as_fd()), path(directory)) {
            (Ok(root), Ok(path)) => {
                let below = path.to_bytes().strip_prefix(root.to_bytes());
                root.to_bytes() == b"/" || below.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
            }
            // The kernel does not report paths longer than a page.
            (_, Err(Errno::NAMETOOLONG)) => self.is_within_by_parents(directory)?,
            (Err(errno), _) | (_, Err(errno)) => return Err(errno.into()),
        };
        if within {
            Ok(())
        } else {
            Err(Status::Stale.into())
        }
    }

    fn is_within_by_parents(&self, directory: BorrowedFd<'_>) -> Result<bool> {
        let mut at = self.open_parent(directory)?;
        let mut below = fstat(directory)?.st_ino;
        loop {
            let stat = fstat(&at)?;
            if stat.st_ino == self.root.ino && stat.st_dev == self.device {
                return Ok(true);
            }
            // The root of the file system is its own parent.
            if stat.st_dev != self.device || stat.st_ino == below {
                return Ok(false);
            }
            below = stat.st_ino;
            at = self.open_parent(at.as_fd())?;
        }
    }

    fn open_parent(&self, directory: BorrowedFd<'_>) -> Result<OwnedFd> {
        let flags = PATH | OFlags::DIRECTORY;
        self.descriptors
            .with_room(|| Ok(openat(directory, c"..", flags, Mode::empty())?))
    }

    pub(super) fn look_up(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<(ObjectId, Attributes)> {
        let within = self.directory(directory)?;
        let name = Name::parse(name)?;
        let (object, attributes, fd) = {
            let _judge = self.judge_look(who, &within)?;
            let fd = self
                .descriptors
                .with_room(|| self.step(directory, &within, name))?;
            let (object, attributes) = self.identify(fd.as_fd())?;
            (object, attributes, fd)
        };
        match name {
            Name::Proper(name) => self.remember(object, directory, name),
            Name::Up => self.check_within(fd.as_fd())?,
            Name::Here => {}
        }
        self.descriptors
            .keep(object, &Descriptor::new(fd, attributes.kind, Use::Path));
        Ok((object, attributes))
    }

    /// As [`LocalStore::look_up`], for names and objects that are in memory, in a directory that is open. The objects
    /// that it opens are open already, so closing them frees nothing.
    pub(super) fn look_up_at_hand(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Option<Result<(ObjectId, Attributes)>> {
        let within = match self.directory(directory) {
            Ok(within) => within,
            Err(refused) => return Some(Err(refused)),
        };
        let name = match Name::parse(name) {
            Ok(Name::Proper(name)) => name,
            Ok(Name::Here | Name::Up) => return None,
            Err(refused) => return Some(Err(refused)),
        };
        let _judge = match self.judge_look(who, &within) {
            Ok(judge) => judge,
            Err(refused) => return Some(Err(refused)),
        };
        let cached = BENEATH | ResolveFlags::CACHED;
        let fd = match openat2(&*within, name, PATH, Mode::empty(), cached) {
            Ok(fd) => fd,
            // Before Linux 5.12 the kernel cannot resolve names from memory alone.
            Err(Errno::AGAIN | Errno::INVAL) => return None,
            Err(errno) if is_shortage(errno) => return None,
            Err(errno) => return Some(Err(crossing(errno).into())),
        };
        let found = self.identify(fd.as_fd());
        let known = found.as_ref().is_ok_and(|(object, _)| {
            let open = self.descriptors.find(*object, Use::Path).is_some();
            open && match &self.finding {
                Finding::ByHandle(_) => true,
                Finding::ByName(index) => index.knows(*object, directory.ino, name),
            }
        });
        known.then_some(found)
    }

    /// Opens the object of a name as a path. `..` of the root is the root.
    fn step(&self, directory: ObjectId, within: &Descriptor, name: Name<'_>) -> Result<OwnedFd> {
        Ok(match name {
            Name::Proper(name) => open_path(within.as_fd(), name)?,
            // By name, so that the kernel checks the right to search.
            Name::Up if directory != self.root => openat(within, c"..", PATH, Mode::empty())?,
            Name::Here | Name::Up => openat(within, c".", PATH, Mode::empty())?,
        })
    }

    /// As [`Self::judge_search`], for a caller who only looks for a name.
    fn judge_look(&self, who: &Credential, within: &Descriptor) -> Result<Judge<'_>> {
        if !self.is_told_by_mode(who, within) {
            return self.judge_search(who, within);
        }
        check_search(&self.translate(&fstat(within)?), who)?;
        Ok(Judge::Kernel(None))
    }

    /// Lets the kernel judge the caller while the result lives, or judges by the directory's mode at once.
    pub(super) fn judge_search(&self, who: &Credential, within: &Descriptor) -> Result<Judge<'_>> {
        let judge = self.identity.judge(who)?;
        if matches!(judge, Judge::Ourselves) {
            check_search(&self.judged(within, who)?, who)?;
        }
        Ok(judge)
    }

    pub(super) fn translate(&self, stat: &Stat) -> Attributes {
        use rustix::fs::FileType as Kind;
        let kind = match Kind::from_raw_mode(stat.st_mode) {
            Kind::Directory => FileType::Directory,
            Kind::Symlink => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharacterDevice => FileType::Character,
            Kind::BlockDevice => FileType::Block,
            Kind::RegularFile | Kind::Unknown => FileType::Regular,
        };
        let ctime = time(stat.st_ctime, stat.st_ctime_nsec);
        Attributes {
            kind,
            mode: stat.st_mode & 0o7777,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size.cast_unsigned(),
            used: stat.st_blocks.cast_unsigned() * 512,
            device: Device {
                major: rustix::fs::major(stat.st_rdev),
                minor: rustix::fs::minor(stat.st_rdev),
            },
            fsid: self.number,
            fileid: stat.st_ino,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime,
        }
    }
}

fn time(seconds: i64, nanoseconds: u64) -> Time {
    Time {
        seconds,
        nanoseconds: nanoseconds as u32,
    }
}

/// Opens one name as a path. ACCES if it is a mount point.
pub(super) fn open_path(directory: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    #[cfg(test)]
    super::counted::count(super::counted::Counted::Open);
    openat2(directory, name, PATH, Mode::empty(), BENEATH).map_err(crossing)
}

/// Refuses what lies across a mount point.
fn crossing(errno: Errno) -> Errno {
    if errno == Errno::XDEV {
        Errno::ACCESS
    } else {
        errno
    }
}

/// Opens the same object for more.
pub(super) fn reopen(object: &Descriptor, wanted: Use) -> Result<Arc<Descriptor>> {
    let flags = match (object.kind, wanted) {
        (FileType::Regular, Use::Write) => OFlags::RDWR,
        (FileType::Regular, _) => OFlags::RDONLY,
        (FileType::Directory, Use::Read) => OFlags::RDONLY | OFlags::DIRECTORY,
        (FileType::Directory, _) => return Err(Status::IsDir.into()),
        _ => return Err(Status::Inval.into()),
    };
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = openat(CWD, object.magic_path(), flags, Mode::empty())?;
    Ok(Descriptor::new(fd, object.kind, wanted))
}

/// The generation of an open object with that inode number.
pub(super) fn generation(fd: BorrowedFd<'_>, scheme: Option<Scheme>, ino: u64) -> Result<u64> {
    if let Some(scheme) = scheme {
        let handle = sys::kernel_handle(fd)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // The handle has another encoding than the rest, as of a subvolume. The object could not be found again.
        return scheme
            .generation(&handle, ino)
            .ok_or_else(|| Status::Access.into());
    }
    let Some(birth) = birth_time(fd)? else {
        return Ok(0);
    };
    let nanoseconds = birth.seconds.cast_unsigned().wrapping_mul(1_000_000_000);
    // The lower bits tell two births apart unless just three days, six or so lie between them, to the nanosecond.
    Ok(nanoseconds.wrapping_add(birth.nanoseconds.into()) & GENERATION_MAX)
}

/// When an open object was made. `None` if its file system does not keep that.
pub(super) fn birth_time(fd: BorrowedFd<'_>) -> rustix::io::Result<Option<Time>> {
    let found = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(is_known.then_some(Time {
        seconds: found.stx_btime.tv_sec,
        nanoseconds: found.stx_btime.tv_nsec,
    }))
}

fn is_shortage(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR
    )
}
