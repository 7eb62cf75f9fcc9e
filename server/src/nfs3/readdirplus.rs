//! READDIRPLUS (RFC 1813, section 3.3.17).

use odafs_common::wire::nfs3::{
    Attributes, Entry, EntryBudget, EntryPlus, EntryWriter, Failed, FileHandle, ReadDirPlusArgs,
    ReadDirPlusResult, Status,
};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::{Listing, ReaddirRange};
use crate::vfs::{namespace, pace};

/// Bytes of an entry with a short name, without and with its attributes and handle. The server estimates from them how many
/// entries are likely to fit.
const ENTRY_BYTES_MIN: u32 = 28;
const ENTRY_PLUS_BYTES: u32 = 184;
/// The most entries that one call looks up.
const ENTRIES_MAX: u32 = 2048;

pub(super) fn readdirplus(
    context: &Context<'_>,
    arguments: ReadDirPlusArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    let object = context.object(arguments.directory);
    let budget = EntryBudget {
        total: arguments.max_count.min(context.room),
        directory: arguments.directory_count,
    };
    let likely = (budget.total / ENTRY_PLUS_BYTES).min(budget.directory / ENTRY_BYTES_MIN);
    let range = ReaddirRange {
        cookie: arguments.cookie,
        verifier: arguments.verifier,
        max_entries: likely.clamp(1, ENTRIES_MAX) as usize,
        plus: true,
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
        Ok(listing) => write(context, w, budget, attributes.as_ref(), &listing).err(),
        Err(status) => Some(status),
    };
    if let Some(status) = refused {
        let rest = attributes;
        ReadDirPlusResult::Err(Failed { status, rest }).encode(w);
    }
    Ok(())
}

fn write(
    context: &Context<'_>,
    w: &mut Writer<'_>,
    budget: EntryBudget,
    attributes: Option<&Attributes>,
    listing: &Listing,
) -> Result<(), Status> {
    let mut entries = EntryWriter::begin(w, budget, attributes, listing.verifier);
    let all = listing.entries.iter().all(|entry| {
        pace::rest();
        let handle = entry.object.map(|(object, _)| context.handle(object));
        entries.push_plus(&EntryPlus {
            entry: Entry {
                fileid: entry.fileid,
                name: &entry.name,
                cookie: entry.cookie,
            },
            attributes: entry.object.map(|(_, attributes)| attributes.into()),
            file: handle.as_ref().map(|handle| FileHandle(handle)),
        })
    });
    let written = entries.finish(all && listing.eof);
    written.map(drop).map_err(|_| Status::TooSmall)
}
