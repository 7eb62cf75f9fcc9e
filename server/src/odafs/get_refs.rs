//! GET_REFS: references to the resident pages of whole ranges.

use odafs_common::reference::Reference;
use odafs_common::wire::nfs3::Status;
use odafs_common::wire::odafs::{
    FileReferences, GetRefsArgs, GetRefsOk, GetRefsResult, MAX_RANGE_REFERENCES, OdafsStatus, Range,
};
use odafs_common::wire::xdr::Writer;

use super::REPLY_OVERHEAD_BYTES;
use crate::rpc::{Answer, Call};
use crate::vfs::export::Exports;
use crate::vfs::read::{Effort, check_right};
use crate::vfs::references::Issue;
use crate::vfs::sessions::OpenSession;

/// The most bytes of a [`FileReferences`] without its references.
const FILE_BYTES: usize = 4 + 4 + 8 + 8 + 4 + Reference::WIRE_BYTES + 4;
const PAGE_REFERENCE_BYTES: usize = 8 + Reference::WIRE_BYTES;

pub(super) fn get_refs(
    export: &Exports,
    call: &Call<'_>,
    arguments: &GetRefsArgs<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    if call.effort == Effort::ResidentOnly {
        return Answer::Blocks;
    }
    let room = call
        .caller
        .reply_bytes_max
        .saturating_sub(REPLY_OVERHEAD_BYTES);
    let result: GetRefsResult = match super::session(export, call, arguments.session) {
        Some(session) => Ok(answer(export, call, &session, arguments, room as usize)),
        None => Err(OdafsStatus::NoSession),
    };
    super::reply(w, &result)
}

/// Where to continue: a range and one of its pages. On the wire this is `(range + 1) << 52 | page`, so that 0 stands for
/// the beginning. The page numbers of files below 2^63 bytes fit.
#[derive(Clone, Copy)]
struct Cursor {
    range: usize,
    /// `None` stands for the first page of the range.
    page: Option<u64>,
}

impl Cursor {
    const PAGE_BITS: u32 = 52;

    fn of(resume: u64) -> Self {
        match (resume >> Self::PAGE_BITS).checked_sub(1) {
            None => Self {
                range: 0,
                page: None,
            },
            Some(range) => Self {
                range: range as usize,
                page: Some(resume & ((1 << Self::PAGE_BITS) - 1)),
            },
        }
    }

    fn resume(range: usize, page: u64) -> u64 {
        (range as u64 + 1) << Self::PAGE_BITS | page
    }
}

fn answer(
    export: &Exports,
    call: &Call<'_>,
    session: &OpenSession,
    arguments: &GetRefsArgs<'_>,
    room: usize,
) -> GetRefsOk {
    let mut left = room;
    let mut files = Vec::new();
    let start = Cursor::of(arguments.resume);
    for (number, range) in arguments.ranges.iter().enumerate().skip(start.range) {
        let from = start.page.filter(|_| number == start.range);
        // The first range always goes in, with at least one reference, so that the caller makes progress.
        let references_max = left.saturating_sub(FILE_BYTES) / PAGE_REFERENCE_BYTES;
        if references_max == 0 && !files.is_empty() {
            let page = from.unwrap_or(export.page().index(range.offset));
            return GetRefsOk {
                files,
                resume: Cursor::resume(number, page),
            };
        }
        let limit = references_max.clamp(1, MAX_RANGE_REFERENCES as usize);
        let (mut found, more) =
            one(export, call, session, (range, from), limit).unwrap_or_else(|status| {
                let nothing = FileReferences {
                    range: 0,
                    status,
                    change: 0,
                    size: 0,
                    counter: None,
                    references: Vec::new(),
                };
                (nothing, None)
            });
        found.range = number as u32;
        left = left.saturating_sub(FILE_BYTES + found.references.len() * PAGE_REFERENCE_BYTES);
        files.push(found);
        if let Some(page) = more {
            return GetRefsOk {
                files,
                resume: Cursor::resume(number, page),
            };
        }
    }
    GetRefsOk { files, resume: 0 }
}

/// The references of one range, and the page with which to continue.
fn one(
    export: &Exports,
    call: &Call<'_>,
    session: &OpenSession,
    (range, from): (&Range<'_>, Option<u64>),
    limit: usize,
) -> Result<(FileReferences, Option<u64>), Status> {
    let tag = export.tag_of_handle(range.file.0);
    let who = call.rights.credential(tag, &call.who);
    let who = who.map_err(Status::from)?;
    let file = export
        .file_of_handle(range.file.0, Effort::MayBlock)
        .map_err(Status::from)?;
    // Somebody may have changed it unseen. A READ asks.
    if export.promises().is_hidden(file.object()) {
        return Err(Status::Jukebox);
    }
    let gate = file.enter_blocking();
    if gate.gone {
        return Err(Status::Stale);
    }
    let facts = file.facts();
    let change = file.change();
    let size = facts.attributes.size;
    check_right(export, &who, &file, &facts, Effort::MayBlock).map_err(Status::from)?;
    // Pages that the session may read, but not directly, count as not resident.
    let issue = Issue::to(export, &file, (session, &*who), facts);
    let length = range.length.min(size.saturating_sub(range.offset));
    let mut references = Vec::new();
    let span = export.page().span(range.offset, length);
    let more = span.zip(issue.as_ref()).and_then(|(span, issue)| {
        let first = from.unwrap_or(0).max(*span.start());
        issue.pages(first, *span.end(), limit, &mut references)
    });
    let found = FileReferences {
        range: 0,
        status: Status::Ok,
        change,
        size,
        counter: issue.as_ref().and_then(Issue::counter),
        references,
    };
    Ok((found, more))
}
