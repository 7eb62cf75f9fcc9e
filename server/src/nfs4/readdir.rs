//! READDIR (RFC 7530, section 16.24; RFC 8881, section 18.23).

use odafs_common::wire::nfs4::{
    Attribute, Attributes as Wire, Bitmap, EntryBudget, EntryWriter, OpCode, ReadDirArgs,
    ResultWriter, Status, check_asked,
};

use super::attributes::{self, Details, FileSystem};
use super::compound::{Compound, Done};
use super::object::Object;
use crate::vfs::{DirEntry, ObjectId, ReaddirRange};
use crate::vfs::{namespace, pace};

/// What the budget does not count, in bytes: the number of the operation and its status.
const BEFORE_BYTES: usize = 8;
/// Bytes of an entry with a short name, without and with common attributes. They say how many entries are likely to fit.
const ENTRY_BYTES_MIN: u32 = 32;
const ENTRY_PLUS_BYTES: u32 = 160;
/// The most entries that one call lists, without and with their attributes.
const ENTRIES_MAX: u32 = 8192;
const ENTRIES_PLUS_MAX: u32 = 2048;
/// The attributes that a listing has without looking at the object.
const LISTED: Bitmap = Bitmap::of(&[Attribute::FileId, Attribute::MountedOnFileId]);
/// The lowest cookie of an entry. 0 is the beginning; 1 and 2 are `.` and `..`, which version 4 does not list.
const FIRST_COOKIE: u64 = 3;

pub(super) fn readdir(
    c: &Compound<'_>,
    arguments: &ReadDirArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    c.may_block()?;
    check_asked(&arguments.asked)?;
    let object = c.object()?;
    if (1..FIRST_COOKIE).contains(&arguments.cookie) {
        return Err(Status::BadCookie.into());
    }
    let room = c.room(w).saturating_sub(BEFORE_BYTES);
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    let budget = arguments.budget();
    let budget = EntryBudget {
        total: budget.total.min(room),
        ..budget
    };
    match object {
        Object::Pseudo(depth) => pseudo(c, depth, arguments, budget, w),
        Object::Real(directory) => real(c, directory, arguments, budget, w),
    }
}

/// Lists a directory of the pseudo file system, which has one entry.
fn pseudo(
    c: &Compound<'_>,
    depth: u8,
    arguments: &ReadDirArgs,
    budget: EntryBudget,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let below = c.server.tree.below(depth);
    let below = below.filter(|_| arguments.cookie == 0);
    let asked = arguments.asked.and(c.supported());
    let mut entries = EntryWriter::begin(w.start(OpCode::ReadDir), budget, [0; 8]);
    if let Some((name, object)) = below {
        attributes::with(c, object, &asked, |all| {
            entries.push(FIRST_COOKIE, name, all, &asked)
        })?;
    }
    end(entries, true)
}

fn real(
    c: &Compound<'_>,
    directory: ObjectId,
    arguments: &ReadDirArgs,
    budget: EntryBudget,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let asked = arguments.asked.and(c.supported());
    let plus = !asked.without(&LISTED).is_empty();
    let likely = if plus {
        (budget.total / ENTRY_PLUS_BYTES).clamp(1, ENTRIES_PLUS_MAX)
    } else {
        (budget.total / ENTRY_BYTES_MIN).clamp(1, ENTRIES_MAX)
    };
    let range = ReaddirRange {
        cookie: arguments.cookie,
        verifier: arguments.verifier,
        // `.` and `..` are left out below.
        max_entries: likely as usize + 2,
        plus,
    };
    let reaches = |tag| c.acting.check(tag);
    let listing = match namespace::readdir(c.export, &c.who, directory, range, &reaches) {
        Ok(listing) => listing,
        Err(error) => {
            c.check_directory(directory)?;
            return Err(error.into());
        }
    };
    let system = FileSystem::of(c, directory, &asked)?;
    let start = w.start(OpCode::ReadDir);
    let mut entries = EntryWriter::begin(start, budget, listing.verifier);
    let listed = |entry: &&DirEntry| !matches!(&entry.name[..], b"." | b"..");
    let all = listing.entries.iter().filter(listed).all(|entry| {
        pace::rest();
        let details = (entry.object.as_ref()).map(|(object, known)| {
            let details = Details::of(c, *object, known, &asked);
            (*object, known, details)
        });
        match details {
            Some((object, known, Ok(details))) => {
                attributes::with_all(c, object, known, (&system, &details), |all| {
                    entries.push(entry.cookie, &entry.name, all, &asked)
                })
            }
            // The caller may not look at the object, or it is gone.
            _ => entries.push(entry.cookie, &entry.name, &unseen(entry, plus), &asked),
        }
    });
    end(entries, all && listing.eof)
}

/// What a listing knows of an entry whose object was not looked at, or could not be.
fn unseen<'a>(entry: &DirEntry, wanted: bool) -> Wire<'a> {
    Wire {
        fileid: Some(entry.fileid),
        mounted_on_fileid: Some(entry.fileid),
        read_error: wanted.then_some(Status::Access),
        ..Wire::default()
    }
}

fn end(entries: EntryWriter<'_, '_>, eof: bool) -> Done<Status> {
    match entries.finish(eof) {
        Ok(_) => Ok(Status::Ok),
        Err(_) => Err(Status::TooSmall.into()),
    }
}
