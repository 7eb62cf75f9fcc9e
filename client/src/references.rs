//! Eager queries: GET_REFS for ranges of files.

use crate::{
    calls::Trusting,
    error::{CallError, Status},
    nfs::NfsError,
    procedure::{Asks, Number, Procedure},
    shared::Shared,
    state::FileState,
};
use odafs_common::wire::{
    nfs3,
    odafs::{self, GetRefsArgs, MAX_RANGES, OdafsStatus, PageReference, Range},
    xdr::Decode as _,
};
use odafs_fabric::sync::atomic::Ordering::Relaxed;

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
    let session = shared.tended_session().ok_or(CallError::Unavailable {
        call: GET_REFS.name,
        what: "there is no session for direct reads",
    })?;
    let wire = ranges.iter().map(|range| Range {
        file: range.file.handle.wire(),
        offset: range.offset,
        length: range.length,
    });
    let mut arguments = GetRefsArgs {
        session: session.id,
        ranges: wire.collect(),
        resume: 0,
    };
    loop {
        let answer = shared.calls.call(&GET_REFS, &arguments, &Trusting, |r| {
            odafs::GetRefsResult::decode(r)
        })?;
        let answer = answer.map_err(refused)?;
        for told in &answer.files {
            let Some((range, answer)) = ranges
                .get(told.range as usize)
                .zip(answers.get_mut(told.range as usize))
            else {
                let what = "an answer to a range that was not asked about".into();
                return Err(CallError::Misbehaved {
                    call: GET_REFS.name,
                    what,
                }
                .into());
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
        }
        if answer.resume == 0 || answer.files.is_empty() {
            return Ok(());
        }
        arguments.resume = answer.resume;
    }
}

fn refused(status: OdafsStatus) -> CallError {
    CallError::Refused {
        call: GET_REFS.name,
        reason: status.to_string(),
    }
}
