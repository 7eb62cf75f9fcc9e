//! Listings of directories.

use super::{Attributes, ObjectId, Result, Status};

/// The part of a directory that [`super::Store::readdir`] lists.
#[derive(Clone, Copy, Debug)]
pub struct ReaddirRange {
    /// Where to continue: 0, or the cookie of the last entry seen. 1 and 2 follow `.` and `..`.
    pub cookie: u64,
    /// The verifier that came with the cookie. Ignored if the cookie is 0.
    pub verifier: [u8; 8],
    /// The most entries to return, at least 1.
    pub max_entries: usize,
    /// Whether to fill in [`DirEntry::object`] (READDIRPLUS), which costs a lookup for each entry.
    pub plus: bool,
}

impl ReaddirRange {
    /// Cookies never become stale, so one verifier serves for all time.
    pub(super) const VERIFIER: [u8; 8] = [0; 8];

    /// BAD_COOKIE for a cookie that no store has given. Positions in a directory are signed, so half of the numbers are
    /// none.
    pub(super) fn check(&self) -> Result<()> {
        let ours = self.verifier == Self::VERIFIER && i64::try_from(self.cookie).is_ok();
        if self.cookie == 0 || ours {
            Ok(())
        } else {
            Err(Status::BadCookie.into())
        }
    }
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// Inode number.
    pub fileid: u64,
    /// The name, of 1 to 255 bytes.
    pub name: Vec<u8>,
    /// Where the entries after this one begin. It is never 0, and stays valid while the directory changes.
    pub cookie: u64,
    /// The object, if asked for and if the caller may look it up. Absent for mount points, and for objects that have
    /// vanished meanwhile.
    pub object: Option<(ObjectId, Attributes)>,
}

/// The result of [`super::Store::readdir`].
#[derive(Clone, Debug)]
pub struct Listing {
    /// Entries in the order of their cookies, `.` and `..` first.
    pub entries: Vec<DirEntry>,
    /// Whether nothing follows the last entry.
    pub eof: bool,
    /// The verifier that belongs to every cookie of this listing.
    pub verifier: [u8; 8],
}
