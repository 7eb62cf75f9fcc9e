//! READDIR (RFC 1813, section 3.3.16).

use odafs_common::wire::nfs3::{
    Attributes, Entry, EntryBudget, EntryWriter, Failed, ReadDirArgs, ReadDirResult, Status,
};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::namespace;
use crate::vfs::{Listing, ReaddirRange};

/// Bytes of an entry with a short name, by which the server estimates how many entries may fit.
const ENTRY_BYTES_MIN: usize = 28;
/// The most entries listed for one call.
const ENTRIES_MAX: usize = 8192;

pub(super) fn readdir(
    context: &Context<'_>,
    arguments: ReadDirArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    let object = context.object(arguments.directory);
    let count = arguments.count.min(context.room);
    let range = ReaddirRange {
        cookie: arguments.cookie,
        verifier: arguments.verifier,
        max_entries: (count as usize / ENTRY_BYTES_MIN).clamp(1, ENTRIES_MAX),
        plus: false,
    };
    let listing = object.and_then(|directory| {
        let reaches = |tag| context.rights.check(tag);
        namespace::readdir(context.export, &context.who, directory, range, &reaches)
            .map_err(Status::from)
    });
    let attributes = object
        .ok()
        .and_then(|directory| context.attributes(directory));
    let refused = match listing {
        Ok(listing) => write(w, count, attributes.as_ref(), &listing).err(),
        Err(status) => Some(status),
    };
    if let Some(status) = refused {
        let rest = attributes;
        ReadDirResult::Err(Failed { status, rest }).encode(w);
    }
    Ok(())
}

fn write(
    w: &mut Writer<'_>,
    count: u32,
    attributes: Option<&Attributes>,
    listing: &Listing,
) -> Result<(), Status> {
    let budget = EntryBudget {
        total: count,
        directory: u32::MAX,
    };
    let mut entries = EntryWriter::begin(w, budget, attributes, listing.verifier);
    let all = listing.entries.iter().all(|entry| {
        entries.push(&Entry {
            fileid: entry.fileid,
            name: &entry.name,
            cookie: entry.cookie,
        })
    });
    let written = entries.finish(all && listing.eof);
    written.map(drop).map_err(|_| Status::TooSmall)
}
