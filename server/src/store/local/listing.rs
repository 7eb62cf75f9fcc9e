//! Listing directories.
//!
//! A cookie is the position after an entry as the file system gives it (`d_off`), so it stays valid while the directory
//! changes and after a restart. The server lists `.` and `..` itself, with cookies 1 and 2.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek, statat};
use rustix::path::Arg as _;

use super::identity::Judge;
use super::scheme::Scheme;
use super::{LocalStore, objects, sys};
use crate::store::permission::{check_list, check_search};
use crate::store::{
    Attributes, Credential, DirEntry, Listing, ObjectId, ReaddirRange, Result, pace,
};

/// The cookies after `.` and after `..`.
const AFTER_HERE: u64 = 1;
const AFTER_UP: u64 = 2;
/// Positions that a file system may use, but that have another meaning as cookies, become cookies from here on: the last
/// ones before the end of the range that file systems use.
const MOVED: u64 = i64::MAX as u64 - 8;
const BUFFER_BYTES: usize = 32 << 10;

impl LocalStore {
    pub(super) fn list(
        &self,
        who: &Credential,
        directory: ObjectId,
        range: ReaddirRange,
    ) -> Result<Listing> {
        let within = self.directory(directory)?;
        let judge = self.identity.judge(who)?;
        let mut plus = range.plus;
        if matches!(judge, Judge::Ourselves) {
            let attributes = self.judged(&within, who)?;
            check_list(&attributes, who)?;
            plus &= check_search(&attributes, who).is_ok();
        }
        // The descriptor needs a position of its own. Opening `.` in the directory would take the right to search it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = within.magic_path();
        let listed = self
            .descriptors
            .with_room(|| Ok(openat(CWD, &*path, flags, Mode::empty())?))?;
        let mut entries = Vec::new();
        self.list_dots(directory, within.as_fd(), range.cookie, &mut entries)?;
        entries.truncate(range.max_entries.max(1));
        let mut eof = false;
        if entries.len() < range.max_entries {
            let from = position(range.cookie);
            eof = self.list_names(listed.as_fd(), from, range.max_entries, &mut entries)?;
        }
        if plus {
            for entry in &mut entries {
                entry.object = self.object_of(directory, within.as_fd(), &entry.name);
                pace::rest();
            }
        }
        drop(judge);
        for entry in entries.iter().filter(|entry| entry.cookie > AFTER_UP) {
            if let Some((object, _)) = entry.object {
                self.remember(object, directory, &entry.name);
                pace::rest();
            }
        }
        Ok(Listing {
            entries,
            eof,
            verifier: ReaddirRange::VERIFIER,
        })
    }

    fn list_dots(
        &self,
        directory: ObjectId,
        within: BorrowedFd<'_>,
        cookie: u64,
        entries: &mut Vec<DirEntry>,
    ) -> Result<()> {
        let mut dot = |fileid, name: &[u8], cookie| {
            entries.push(DirEntry {
                fileid,
                name: name.to_vec(),
                cookie,
                object: None,
            });
        };
        if cookie < AFTER_HERE {
            dot(directory.ino, b".", AFTER_HERE);
        }
        if cookie < AFTER_UP {
            let parent = if directory == self.root {
                directory.ino
            } else {
                // Whether it may be searched or not, its number is no secret, since readdir(3) shows it.
                statat(within, c"..", AtFlags::empty()).map_or(directory.ino, |up| up.st_ino)
            };
            dot(parent, b"..", AFTER_UP);
        }
        Ok(())
    }

    /// Adds entries from that position on until there are `max`. Returns true at the end of the directory.
    fn list_names(
        &self,
        listed: BorrowedFd<'_>,
        from: u64,
        max: usize,
        entries: &mut Vec<DirEntry>,
    ) -> Result<bool> {
        if from != 0 {
            seek(listed, SeekFrom::Start(from))?;
        }
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut names = RawDir::new(listed, &mut buffer);
        while let Some(entry) = names.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || self.private.contains(&entry.ino()) {
                continue;
            }
            if entries.len() == max {
                return Ok(false);
            }
            entries.push(DirEntry {
                fileid: entry.ino(),
                name: name.to_vec(),
                cookie: cookie(entry.next_entry_cookie()),
                object: None,
            });
            if entries.len().is_multiple_of(16) {
                pace::rest();
            }
        }
        Ok(true)
    }

    fn object_of(
        &self,
        directory: ObjectId,
        within: BorrowedFd<'_>,
        name: &[u8],
    ) -> Option<(ObjectId, Attributes)> {
        let fd = match name {
            b".." if directory != self.root => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(within, c"..", flags, Mode::empty()).ok()?
            }
            b"." | b".." => return self.identify(within).ok(),
            _ => match (self.scheme, self.mount) {
                (Some(scheme), Some(mount)) => {
                    return self.object_by_name(within, name, scheme, mount);
                }
                _ => objects::open_path(within, name).ok()?,
            },
        };
        self.identify(fd.as_fd()).ok()
    }

    /// The object of a name, without opening it. `None` for what is mounted there, also if it is of the same file system.
    fn object_by_name(
        &self,
        within: BorrowedFd<'_>,
        name: &[u8],
        scheme: Scheme,
        mount: sys::Mount,
    ) -> Option<(ObjectId, Attributes)> {
        // The handle comes first. If another object takes the name and the inode number in between, then the old object, which
        // is gone, is shown with attributes of the new one. The other way round the new object would be shown with old ones.
        let named = name.into_with_c_str(|name| Ok(sys::named_handle(within, name)));
        let (handle, of) = named.ok()?.ok()?;
        if of != mount {
            return None;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = statat(within, name, flags).ok()?;
        if stat.st_dev != self.device || self.private.contains(&stat.st_ino) {
            return None;
        }
        // Nor is it anything that came to that name in between.
        let generation = scheme.generation(&handle, stat.st_ino)?;
        let object = ObjectId {
            ino: stat.st_ino,
            generation,
        };
        Some((object, self.translate(&stat)))
    }
}

fn cookie(position: u64) -> u64 {
    if position <= AFTER_UP {
        MOVED + position
    } else {
        position
    }
}

fn position(cookie: u64) -> u64 {
    match cookie {
        0..=AFTER_UP => 0,
        _ => cookie
            .checked_sub(MOVED)
            .filter(|moved| *moved <= AFTER_UP)
            .unwrap_or(cookie),
    }
}
