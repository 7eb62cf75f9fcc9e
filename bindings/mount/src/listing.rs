//! Listings. Each one is fetched when the kernel asks: entries kept from an earlier one would bring back attributes that a
//! write has changed since.

use crate::{
    attributes::{errno, kind, shown},
    files::Files,
    inodes::locked,
};
use fuser::{Errno, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use odafs::fs::{Cookie, DirEntry, Entry};

impl Files {
    /// Gives the entries of a directory behind a place in it to `add`, until that says that there is no more room.
    fn list(
        &self,
        number: u64,
        open: u64,
        offset: u64,
        mut add: impl FnMut(DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let inode = self.inode(number)?;
        let verifier = self.verifier(open)?;
        let from = match offset {
            0 => Cookie::START,
            value => Cookie {
                value,
                verifier: *locked(&verifier),
            },
        };
        let mut any = false;
        for entry in self.fs.readdirplus(&inode.handle, from) {
            let entry = match entry {
                Ok(entry) => entry,
                // What was listed so far is given; the next call meets the error again.
                Err(_) if any => break,
                Err(error) => return Err(errno(error)),
            };
            *locked(&verifier) = entry.cookie.verifier;
            any = true;
            if add(entry) {
                break;
            }
        }
        Ok(())
    }

    pub fn readdir(
        &self,
        number: u64,
        open: u64,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Errno> {
        self.list(number, open, offset, |entry| {
            let is = entry
                .attributes
                .map_or(FileType::RegularFile, |a| kind(a.kind));
            reply.add(INodeNo(entry.fileid), entry.cookie.value, is, &entry.name)
        })
    }

    pub fn readdirplus(
        &self,
        number: u64,
        open: u64,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Errno> {
        let dir = self.inode(number)?.handle;
        let none = Generation(0);
        self.list(number, open, offset, |listed| {
            let (cookie, name) = (listed.cookie.value, &listed.name);
            let own = name == "." || name == "..";
            let found = match (listed.handle, listed.attributes) {
                (Some(handle), Some(attributes)) => Some(Entry { handle, attributes }),
                _ => self.fs.lookup(&dir, name).ok(),
            };
            // It went away meanwhile.
            let Some(found) = found else {
                return false;
            };
            // The kernel does not count what it is told of these two.
            if own {
                let shown = shown(found.attributes.fileid, &found.attributes, false);
                return reply.add(shown.ino, cookie, name, &self.kept, &shown, none);
            }
            let (inode, shown) = self.told(&found);
            let full = reply.add(shown.ino, cookie, name, &self.kept, &shown, none);
            if full {
                self.inodes.forget(inode.number, 1);
            }
            full
        })
    }
}
