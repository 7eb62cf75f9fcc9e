//! Eager queries: GET_REFS for ranges of files.

use crate::{
    calls::Trusting,
    error::CallError,
    nfs::{
        NfsError,
        procedure::{Asks, Number, Procedure},
    },
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
use odafs_fabric::{
    clock::Nanos,
    sync::{Arc, atomic::Ordering::Relaxed},
};
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
/// Number of references in one answer for which the client makes room, where it must. For more, it asks again.
const ANSWERED_MAX: u32 = 1024;

/// A range whose references are wanted.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The file.
    pub file: &'a FileState,
    /// First byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

impl<'a> Wanted<'a> {
    /// The references of these pages.
    pub fn pages(file: &'a FileState, pages: &Range<u64>, size: PageSize) -> Self {
        Self {
            file,
            offset: size.start(pages.start),
            length: (pages.end - pages.start).saturating_mul(size.bytes() as u64),
        }
    }
}

/// The server's answer for one range.
#[derive(Debug, Default, Clone)]
pub struct Answered {
    /// The file's change counter.
    pub change: u64,
    /// The file's size.
    pub size: u64,
    /// Whether the counter can be read directly.
    pub counter: bool,
    /// Number of references that the directory took.
    pub learned: u64,
    /// Number of references that came.
    pub references: Vec<PageReference>,
}

/// Asks for the references of ranges, and keeps them. Of a single range it asks for as many as fit in one answer. A
/// failure only means that no more came, so nobody waits for them for long. Returns how many of each range the directory
/// took.
pub fn hint(shared: &Shared, ranges: &[Wanted<'_>]) -> Vec<u64> {
    let deadline = Some(shared.calls.brief_deadline());
    let mut answers = vec![Answered::default(); ranges.len()];
    let asked = match ranges {
        [_] => {
            Query::begin(shared, ranges, deadline).and_then(|mut query| query.step(&mut answers))
        }
        _ => query_into(shared, ranges, &mut answers, deadline).map(|()| false),
    };
    if let Err(error) = asked {
        tracing::debug!(?error, "references ahead of a read did not come");
    }
    answers.iter().map(|answer| answer.learned).collect()
}

/// Asks for the references of all ranges, and keeps them. Returns one answer for each range.
pub fn query(shared: &Shared, ranges: &[Wanted<'_>]) -> Result<Vec<Answered>, NfsError> {
    let mut answers = vec![Answered::default(); ranges.len()];
    query_into(shared, ranges, &mut answers, None)?;
    Ok(answers)
}

fn query_into(
    shared: &Shared,
    ranges: &[Wanted<'_>],
    answers: &mut [Answered],
    deadline: Option<Nanos>,
) -> Result<(), NfsError> {
    let some = MAX_RANGES as usize;
    for (ranges, answers) in ranges.chunks(some).zip(answers.chunks_mut(some)) {
        query_some(shared, ranges, answers, deadline)?;
    }
    Ok(())
}

fn query_some(
    shared: &Shared,
    ranges: &[Wanted<'_>],
    answers: &mut [Answered],
    deadline: Option<Nanos>,
) -> Result<(), NfsError> {
    let mut query = Query::begin(shared, ranges, deadline)?;
    while query.step(answers)? {}
    Ok(())
}

/// One query, which may take several calls.
struct Query<'a> {
    shared: &'a Shared,
    session: Arc<Session>,
    ranges: &'a [Wanted<'a>],
    arguments: GetRefsArgs<'a>,
    steps: StepsLeft,
    /// Of all its calls. `None`: each has its own.
    deadline: Option<Nanos>,
}

impl<'a> Query<'a> {
    fn begin(
        shared: &'a Shared,
        ranges: &'a [Wanted<'a>],
        deadline: Option<Nanos>,
    ) -> Result<Self, NfsError> {
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
        let lengths = ranges.iter().map(|range| range.length);
        let steps = StepsLeft::of(lengths, shared.page(Some(&session)));
        Ok(Self {
            shared,
            session,
            steps,
            ranges,
            arguments,
            deadline,
        })
    }

    /// Makes a call, and adds its results to the answers. Returns true if there is more.
    fn step(&mut self, answers: &mut [Answered]) -> Result<bool, NfsError> {
        let Self {
            shared, session, ..
        } = self;
        let deadline = self.deadline.unwrap_or_else(|| shared.calls.deadline());
        let arguments = &self.arguments;
        let answer = shared
            .calls
            .call_until(deadline, &GET_REFS, arguments, &Trusting, |r| {
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
                return Err(NfsError::Status(told.status.into()));
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
            if !told.references.is_empty() {
                range.file.record.lock().referenced();
            }
            answer.change = told.change;
            answer.size = told.size;
            answer.counter |= told.counter.is_some();
            answer.learned += learned;
            answer.references.extend_from_slice(&told.references);
            came += told.references.len() as u64;
        }
        if answer.resume == 0 || answer.files.is_empty() {
            return Ok(false);
        }
        if !self.steps.lasts(came) {
            return Err(misbehaved("more answers than there are pages and ranges"));
        }
        self.arguments.resume = answer.resume;
        Ok(true)
    }
}

/// How often to ask a server that has more to say. Each answer must bring references or finish a range; a server that
/// goes on for longer would never end.
struct StepsLeft(u64);

impl StepsLeft {
    /// A range touches at most two more pages than its own, and one answer for it may bring none.
    fn of(lengths: impl Iterator<Item = u64>, size: PageSize) -> Self {
        let steps = lengths.map(|length| size.index(length) + 3);
        Self(steps.fold(0, u64::saturating_add))
    }

    /// Whether the query continues after an answer with this many references.
    fn lasts(&mut self, references: u64) -> bool {
        let left = self.0.checked_sub(references.max(1));
        self.0 = left.unwrap_or(0);
        left.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Small replies: 63 of 64 ranges have no reference each, then one for each page.
    #[test]
    fn a_server_that_gets_on_is_heard_to_its_end() {
        let size = PageSize::MIN;
        let ten_pages = 10 * size.bytes() as u64;
        let mut steps = StepsLeft::of([ten_pages; 64].into_iter(), size);
        for references in std::iter::repeat_n(0, 63).chain(std::iter::repeat_n(1, 64 * 11)) {
            assert!(steps.lasts(references));
        }
    }

    #[test]
    fn one_that_never_ends_is_not() {
        let mut steps = StepsLeft::of([1 << 20].into_iter(), PageSize::MIN);
        assert_eq!((0..1000).filter(|_| steps.lasts(0)).count(), 259);
        let mut all = StepsLeft::of([u64::MAX; 64].into_iter(), PageSize::MIN);
        assert!(all.lasts(u64::MAX >> 12) && !all.lasts(u64::MAX));
    }
}
