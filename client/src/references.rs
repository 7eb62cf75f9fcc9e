//! Eager queries: GET_REFS for ranges of files.

use crate::{
    calls::Trusting,
    error::{CallError, Status},
    nfs::NfsError,
    procedure::{Asks, Number, Procedure},
    session::Session,
    shared::Shared,
    state::FileState,
};
use odafs_common::{
    page::PageSize,
    wire::{
        nfs3,
        odafs::{self, GetRefsArgs, MAX_RANGES, OdafsStatus, PageReference},
        xdr::Decode as _,
    },
};
use odafs_fabric::sync::{Arc, atomic::Ordering::Relaxed};
use std::ops::Range;

const GET_REFS: Procedure = Procedure {
    name: "GET_REFS",
    number: Number::Odafs(odafs::Procedure::GetRefs),
    idempotent: true,
    asks: Asks {
        count: 0,
        references: ANSWERED_MAX,
    },
};
/// References of one answer for which room is made, where that has to be said. (For more, the server is asked again.)
const ANSWERED_MAX: u32 = 1024;

/// A range that references are wanted of.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The file.
    pub file: &'a FileState,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl<'a> Wanted<'a> {
    /// Of these pages.
    pub fn pages(file: &'a FileState, pages: &Range<u64>, size: PageSize) -> Self {
        Self {
            file,
            offset: size.start(pages.start),
            length: (pages.end - pages.start).saturating_mul(size.bytes() as u64),
        }
    }
}

/// What the server said of one range.
#[derive(Debug, Default, Clone)]
pub struct Answered {
    /// Change counter of the file.
    pub change: u64,
    /// Its size.
    pub size: u64,
    /// The counter may be read directly.
    pub counter: bool,
    /// References that the directory took.
    pub learned: u64,
    /// All that came.
    pub references: Vec<PageReference>,
}

/// Asks for the references of the pages of one range, as many as one answer has room for, and keeps them: a hint, of which a
/// failure says no more than that none came. How many the directory took.
pub fn hint(shared: &Shared, range: Wanted<'_>) -> u64 {
    let mut answer = [Answered::default()];
    let asked = Asking::begin(shared, &[range]).and_then(|mut asking| asking.step(&mut answer));
    asked.map_or(0, |_| answer[0].learned)
}

/// Queries the references of all ranges, and keeps them. One answer for each range.
pub fn query(shared: &Shared, ranges: &[Wanted<'_>]) -> Result<Vec<Answered>, NfsError> {
    let mut answers = vec![Answered::default(); ranges.len()];
    let some = MAX_RANGES as usize;
    for (ranges, answers) in ranges.chunks(some).zip(answers.chunks_mut(some)) {
        query_some(shared, ranges, answers)?;
    }
    Ok(answers)
}

fn query_some(
    shared: &Shared,
    ranges: &[Wanted<'_>],
    answers: &mut [Answered],
) -> Result<(), NfsError> {
    let mut asking = Asking::begin(shared, ranges)?;
    while asking.step(answers)? {}
    Ok(())
}

/// One question, which may take several calls.
struct Asking<'a> {
    shared: &'a Shared,
    session: Arc<Session>,
    ranges: &'a [Wanted<'a>],
    arguments: GetRefsArgs<'a>,
    /// Pages of the ranges of which nothing came yet.
    pages_left: u64,
}

impl<'a> Asking<'a> {
    fn begin(shared: &'a Shared, ranges: &'a [Wanted<'a>]) -> Result<Self, NfsError> {
        let session = shared.tended_session().ok_or(CallError::Unavailable {
            call: GET_REFS.name,
            what: "there is no session for direct reads",
        })?;
        let wire = ranges.iter().map(|range| odafs::Range {
            file: range.file.handle.wire(),
            offset: range.offset,
            length: range.length,
        });
        let arguments = GetRefsArgs {
            session: session.id,
            ranges: wire.collect(),
            resume: 0,
        };
        let page_bytes = shared.page(Some(&session)).bytes() as u64;
        let pages = |range: &Wanted<'_>| range.length.div_ceil(page_bytes).saturating_add(1);
        Ok(Self {
            shared,
            session,
            pages_left: ranges.iter().map(pages).fold(0, u64::saturating_add),
            ranges,
            arguments,
        })
    }

    /// Makes a call, and adds what came to the ranges' answers. True if there is more.
    fn step(&mut self, answers: &mut [Answered]) -> Result<bool, NfsError> {
        let Self {
            shared, session, ..
        } = self;
        let answer = shared
            .calls
            .call(&GET_REFS, &self.arguments, &Trusting, |r| {
                odafs::GetRefsResult::decode(r)
            })?;
        let answer = answer.map_err(refused)?;
        let mut came = 0;
        for told in &answer.files {
            let Some((range, answer)) = self
                .ranges
                .get(told.range as usize)
                .zip(answers.get_mut(told.range as usize))
            else {
                return Err(misbehaved("an answer to a range that was not asked about"));
            };
            if told.status != nfs3::Status::Ok {
                return Err(NfsError::Status(Status(told.status.code())));
            }
            let references = told
                .references
                .iter()
                .map(|page| (page.page, page.reference));
            let learned = shared
                .directory
                .learn(&range.file.tree, session.number, references);
            shared.learned.fetch_add(learned, Relaxed);
            range.file.set_counter(session.number, told.counter);
            answer.change = told.change;
            answer.size = told.size;
            answer.counter |= told.counter.is_some();
            answer.learned += learned;
            answer.references.extend_from_slice(&told.references);
            came += told.references.len() as u64;
        }
        if answer.resume == 0 || came == 0 {
            return Ok(false);
        }
        // Who goes on for longer than there are pages will never end.
        self.pages_left = self
            .pages_left
            .checked_sub(came)
            .ok_or_else(|| misbehaved("more references than there are pages"))?;
        self.arguments.resume = answer.resume;
        Ok(true)
    }
}

fn misbehaved(what: &'static str) -> NfsError {
    let what = what.into();
    let call = GET_REFS.name;
    CallError::Misbehaved { call, what }.into()
}

fn refused(status: OdafsStatus) -> CallError {
    CallError::Refused {
        call: GET_REFS.name,
        reason: status.to_string(),
    }
}
