//! Making, removing and renaming. Each call ends with a sync of the directories that it changed.

use std::os::fd::{AsFd, OwnedFd};

use odafs_fabric::sync::Arc;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, fstat, fsync, linkat, makedev, mkdirat, mknodat, openat, openat2,
    renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::LocalStore;
use super::attributes::{apply_ids, apply_times};
use super::descriptors::{Descriptor, Use};
use super::identity::{Judge, WithUmask};
use super::objects::{BENEATH, open_path};
use crate::store::names::{Name, check_target};
use crate::store::permission::{check_add, check_take, settable_at_first};
use crate::store::{
    Attributes, CreateHow, Created, Credential, FileType, ObjectId, Result, SetAttributes, Special,
    Status, Unlinked, default_mode,
};

/// How often to try again if another process keeps taking and freeing the name.
const ATTEMPTS: usize = 16;

/// A name for a new object.
struct NewName<'a> {
    directory: ObjectId,
    within: Arc<Descriptor>,
    name: &'a [u8],
}

impl LocalStore {
    fn new_name<'a>(&self, directory: ObjectId, name: &'a [u8]) -> Result<NewName<'a>> {
        let within = self.directory(directory)?;
        let name = Name::proper(name, Status::Exist, Status::Exist)?;
        Ok(NewName {
            directory,
            within,
            name,
        })
    }

    /// Refuses callers to whom the new object could not be given.
    fn judge_maker(&self, who: &Credential) -> Result<Judge<'_>> {
        match self.identity.judge(who)? {
            Judge::Ourselves => Err(Status::Perm.into()),
            judge => Ok(judge),
        }
    }

    pub(super) fn create_file(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        how: &CreateHow<'_>,
    ) -> Result<Created> {
        let place = self.new_name(directory, name)?;
        for _ in 0..ATTEMPTS {
            match self.look_up(who, directory, name) {
                Ok((object, attributes)) => {
                    let created = how.existing(object, attributes)?;
                    if let CreateHow::Exclusive(..) = how {
                        // The caller's own, which a server may have made that could not bring it to stable storage any more.
                        self.sync_names(place.directory, &place.within)?;
                    }
                    return Ok(created);
                }
                Err(refused) if refused.status == Status::NoEnt => {}
                // A mount point.
                Err(refused) => return Err(refused),
            }
            match self.create_new(who, &place, how) {
                Ok((object, attributes)) => {
                    return Ok(Created {
                        object,
                        attributes,
                        existed: false,
                    });
                }
                Err(refused) if refused.errno == Errno::EXIST.raw_os_error() => {}
                Err(refused) => return Err(refused),
            }
        }
        Err(Status::Exist.into())
    }

    fn create_new(
        &self,
        who: &Credential,
        place: &NewName<'_>,
        how: &CreateHow<'_>,
    ) -> Result<(ObjectId, Attributes)> {
        let new = match how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => **new,
            CreateHow::Exclusive(verifier, new) => new.exclusive(*verifier),
        };
        let mode = new.mode.unwrap_or(default_mode(FileType::Regular)) & 0o7777;
        let flags = OFlags::CREATE
            | OFlags::EXCL
            | OFlags::RDWR
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let fd = {
            let _umask = WithUmask::of(new.umask)?;
            let _judge = self.judge_maker(who)?;
            let fd = self.descriptors.with_room(|| {
                let mode = Mode::from_raw_mode(mode);
                Ok(openat2(&*place.within, place.name, flags, mode, BENEATH)?)
            })?;
            let size = new.size.unwrap_or(0);
            let sized = || rustix::fs::ftruncate(&fd, size.min(i64::MAX as u64));
            if size > 0
                && let Err(errno) = sized()
            {
                self.take_back(place, AtFlags::empty());
                return Err(errno.into());
            }
            self.dress(who, place, &fd, &new)?;
            fd
        };
        self.sync_new(&fd)?;
        self.finish(place, fd, Use::Write)
    }

    /// Brings a new object to stable storage.
    fn sync_new(&self, opened: &OwnedFd) -> Result<()> {
        if self.has_no_device {
            return Ok(());
        }
        #[cfg(test)]
        super::counted::count(super::counted::Counted::Sync);
        Ok(fsync(opened)?)
    }

    /// Sets the attributes of a new object as its maker. If they are refused, the object is removed again.
    fn dress(
        &self,
        who: &Credential,
        place: &NewName<'_>,
        fd: &OwnedFd,
        new: &SetAttributes,
    ) -> Result<()> {
        // It was made with its mode, or with as much of that as a default ACL left.
        let new = settable_at_first(who, new);
        let dressed = apply_ids(fd.as_fd(), &new).and_then(|()| apply_times(fd.as_fd(), &new));
        if dressed.is_err() {
            let directory = fstat(fd).is_ok_and(|stat| stat.st_mode & 0o170_000 == 0o040_000);
            let flags = if directory {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            self.take_back(place, flags);
        }
        dressed
    }

    fn take_back(&self, place: &NewName<'_>, flags: AtFlags) {
        let _ = unlinkat(&*place.within, place.name, flags);
    }

    /// Syncs the directory, and opens and remembers the new object.
    fn finish(
        &self,
        place: &NewName<'_>,
        fd: OwnedFd,
        good_for: Use,
    ) -> Result<(ObjectId, Attributes)> {
        self.sync_names(place.directory, &place.within)?;
        let (object, attributes) = self.identify(fd.as_fd())?;
        self.remember(object, place.directory, place.name);
        self.descriptors
            .keep(object, &Descriptor::new(fd, attributes.kind, good_for));
        Ok((object, attributes))
    }

    /// Brings a directory's names to stable storage.
    fn sync_names(&self, directory: ObjectId, within: &Descriptor) -> Result<()> {
        self.sync_attributes(directory, within)
    }

    pub(super) fn make_directory(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let place = self.new_name(directory, name)?;
        let mode = new.mode.unwrap_or(default_mode(FileType::Directory)) & 0o7777;
        let fd = self.make(who, &place, new.umask, |place| {
            mkdirat(&*place.within, place.name, Mode::from_raw_mode(mode))
        })?;
        {
            let _judge = self.judge_maker(who)?;
            self.dress(who, &place, &fd, new)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !self.has_no_device
            && let Ok(opened) = openat(&fd, c".", flags, Mode::empty())
        {
            self.sync_new(&opened)?;
        }
        self.finish(&place, fd, Use::Path)
    }

    pub(super) fn make_symlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let place = self.new_name(directory, name)?;
        check_target(target)?;
        let fd = self.make(who, &place, 0, |place| {
            symlinkat(target, &*place.within, place.name)
        })?;
        {
            let _judge = self.judge_maker(who)?;
            self.dress(who, &place, &fd, new)?;
        }
        self.finish(&place, fd, Use::Path)
    }

    pub(super) fn make_special(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
        what: Special,
        new: &SetAttributes,
    ) -> Result<(ObjectId, Attributes)> {
        let place = self.new_name(directory, name)?;
        let kind = match what {
            Special::Fifo => rustix::fs::FileType::Fifo,
            Special::Socket => rustix::fs::FileType::Socket,
            Special::CharacterDevice { .. } => rustix::fs::FileType::CharacterDevice,
            Special::BlockDevice { .. } => rustix::fs::FileType::BlockDevice,
        };
        let device = what.device()?;
        let device = makedev(device.major, device.minor);
        let mode = new.mode.unwrap_or(default_mode(what.kind())) & 0o7777;
        let fd = self.make(who, &place, new.umask, |place| {
            mknodat(
                &*place.within,
                place.name,
                kind,
                Mode::from_raw_mode(mode),
                device,
            )
        })?;
        {
            let _judge = self.judge_maker(who)?;
            self.dress(who, &place, &fd, new)?;
        }
        self.finish(&place, fd, Use::Path)
    }

    /// Makes an object by a call that does not open it, and then opens it as a path.
    fn make(
        &self,
        who: &Credential,
        place: &NewName<'_>,
        umask: u32,
        call: impl Fn(&NewName<'_>) -> rustix::io::Result<()>,
    ) -> Result<OwnedFd> {
        let _umask = WithUmask::of(umask)?;
        let _judge = self.judge_maker(who)?;
        call(place)?;
        self.descriptors
            .with_room(|| Ok(open_path(place.within.as_fd(), place.name)?))
    }

    pub(super) fn add_link(
        &self,
        who: &Credential,
        object: ObjectId,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Attributes> {
        let place = self.new_name(directory, name)?;
        let linked = self.reach(object)?;
        if linked.kind == FileType::Directory {
            return Err(Status::IsDir.into());
        }
        self.attributes(object, &*linked)?;
        {
            let _judge = self.judge_maker(who)?;
            let (from, flags) = (linked.magic_path(), AtFlags::SYMLINK_FOLLOW);
            linkat(CWD, from, &*place.within, name, flags)?;
        }
        self.remember(object, directory, name);
        if linked.kind == FileType::Regular {
            self.sync_attributes(object, &linked)?;
        }
        self.sync_names(directory, &place.within)?;
        self.attributes(object, &*linked)
    }

    /// The object of a name that is about to go.
    fn victim(&self, within: &Descriptor, name: &[u8]) -> Result<(ObjectId, Attributes, OwnedFd)> {
        let fd = self
            .descriptors
            .with_room(|| Ok(open_path(within.as_fd(), name)?))?;
        let (object, attributes) = self.identify(fd.as_fd())?;
        Ok((object, attributes, fd))
    }

    /// Notes that a name is gone. Returns whether it was the last of its object.
    fn unlinked(
        &self,
        directory: ObjectId,
        name: &[u8],
        (object, attributes, fd): &(ObjectId, Attributes, OwnedFd),
    ) -> Unlinked {
        let last = attributes.kind == FileType::Directory
            || fstat(fd).is_ok_and(|stat| stat.st_nlink == 0);
        if last {
            self.forget(*object);
        } else {
            self.forget_name(*object, directory, name);
        }
        Unlinked {
            object: *object,
            last,
        }
    }

    pub(super) fn remove_file(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Unlinked> {
        let within = self.directory(directory)?;
        let name = Name::proper(name, Status::IsDir, Status::IsDir)?;
        self.unlink(who, directory, &within, name, AtFlags::empty())
    }

    pub(super) fn remove_directory(
        &self,
        who: &Credential,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<ObjectId> {
        let within = self.directory(directory)?;
        let name = Name::proper(name, Status::Inval, Status::Exist)?;
        Ok(self
            .unlink(who, directory, &within, name, AtFlags::REMOVEDIR)?
            .object)
    }

    fn unlink(
        &self,
        who: &Credential,
        directory: ObjectId,
        within: &Descriptor,
        name: &[u8],
        flags: AtFlags,
    ) -> Result<Unlinked> {
        let victim = {
            let judge = self.judge_search(who, within)?;
            let victim = self.victim(within, name)?;
            if matches!(judge, Judge::Ourselves) {
                check_take(&self.judged(within, who)?, &victim.1, who)?;
            }
            unlinkat(within, name, flags)?;
            victim
        };
        let unlinked = self.unlinked(directory, name, &victim);
        self.sync_names(directory, within)?;
        Ok(unlinked)
    }

    pub(super) fn rename_entry(
        &self,
        who: &Credential,
        (from, from_name): (ObjectId, &[u8]),
        (to, to_name): (ObjectId, &[u8]),
    ) -> Result<Option<Unlinked>> {
        let (source, target) = (self.directory(from)?, self.directory(to)?);
        let from_name = Name::proper(from_name, Status::Inval, Status::Inval)?;
        let to_name = Name::proper(to_name, Status::Inval, Status::Inval)?;
        let (moved, replaced) = {
            let judge = self.judge_search(who, &source)?;
            let moved = self.victim(&source, from_name)?;
            let replaced = match self.victim(&target, to_name) {
                Ok(replaced) => Some(replaced),
                Err(refused) if refused.errno == Errno::NOENT.raw_os_error() => None,
                Err(refused) => return Err(refused),
            };
            if replaced
                .as_ref()
                .is_some_and(|replaced| replaced.0 == moved.0)
            {
                return Ok(None);
            }
            if matches!(judge, Judge::Ourselves) {
                check_take(&self.judged(&source, who)?, &moved.1, who)?;
                let into = self.judged(&target, who)?;
                check_add(&into, who)?;
                if let Some((_, attributes, _)) = &replaced {
                    check_take(&into, attributes, who)?;
                }
            }
            renameat(&*source, from_name, &*target, to_name).map_err(|errno| match errno {
                // Some file systems report EXIST for a directory that is not empty.
                Errno::EXIST => Errno::NOTEMPTY,
                errno => errno,
            })?;
            (moved, replaced)
        };
        self.remember(moved.0, to, to_name);
        self.forget_name(moved.0, from, from_name);
        let replaced = replaced.map(|replaced| self.unlinked(to, to_name, &replaced));
        self.sync_names(to, &target)?;
        if from != to {
            self.sync_names(from, &source)?;
        }
        Ok(replaced)
    }
}
