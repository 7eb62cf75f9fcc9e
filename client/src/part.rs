//! The parts of a read, one for each page, and their results.

use crate::{
    cache::Put,
    directory::Location,
    error::{CallError, ReadError, Status},
    open_file::OpenFile,
    request::BatchRead,
    route::{Choice, SizeClass},
    session::Session,
    shared::{Shared, TimedRead},
    state::{FileState, Moment},
    trace::{self, RouteReason, RouteTaken},
};
use odafs_common::{exception::Exception, page::PageSize, reference::Reference};
use odafs_fabric::{
    clock::{self, Nanos},
    sync::Arc,
};
use std::{cell::Cell, ops::Range};

/// Of the pages that timed reads of several pages keep, one in this many is timed by itself.
const PUTS_TIMED_ONE_IN: u64 = 4;

/// The state of a read.
pub struct Reading<'a> {
    /// The client.
    pub shared: &'a Shared,
    /// The files of the present batch, in the order of their requests. Never empty while a batch is read.
    pub files: Vec<FileReading<'a>>,
    /// The session, if there is one.
    pub session: Option<Arc<Session>>,
    /// The page size.
    pub size: PageSize,
    /// The order of the first file's reads, if the policy was asked already and has not heard the result.
    pub asked: Option<TimedRead>,
    /// The size class of the read.
    pub class: SizeClass,
    /// Whether the caller wants a trace.
    pub traced: bool,
    /// Why the first part was refused, if it was, and how long that took in nanoseconds.
    pub refused: Option<(Exception, u64)>,
    /// Whether something happened that is no part of a route's cost, such as making a connection or asking for
    /// references.
    pub disturbed: bool,
    /// When the present batch gives up, unless answers to its calls come.
    pub deadline: Nanos,
    /// Whether the present batch is a piece of a longer request, which is counted when it has been read.
    pub in_pieces: bool,
    /// The slowest route of its pieces.
    pub slowest: Cell<Option<RouteTaken>>,
}

/// A file of a batch.
pub struct FileReading<'a> {
    /// The file.
    pub file: &'a OpenFile,
    /// Its requests, by their numbers in the batch.
    pub requests: Range<usize>,
    /// What its reads are to do.
    pub asked: TimedRead,
    /// Whether its pages are kept. If so, they are fetched whole.
    pub keeps: bool,
    /// Whether the calls for it ask for references. The step that makes calls sets it.
    pub learns: Cell<bool>,
}

impl FileReading<'_> {
    /// What the client keeps about the file.
    pub fn state(&self) -> &FileState {
        self.file.state()
    }
}

/// A part of a read, within one page.
pub struct Part<'b> {
    /// The number of its file in the batch.
    pub of: usize,
    /// Index of the page.
    pub page: u64,
    /// First byte to read, as an offset in the page.
    pub within: usize,
    /// Where to put the bytes.
    pub buf: &'b mut [u8],
    /// The next step.
    pub step: ReadStep,
    /// Number of bytes read.
    pub bytes: usize,
    /// Why the part takes its route.
    pub why: RouteReason,
    /// The state of the file when the part began.
    pub moment: Moment,
    /// How long a refused direct read took, in nanoseconds, if that was measured.
    pub stale_ns: Option<u64>,
    /// The route that served the part.
    pub taken: RouteTaken,
    /// When the present step began.
    pub began: Nanos,
    /// How long the part took. Only measured for a trace, because reading the clock takes a tenth of a direct read.
    pub took: Option<Nanos>,
}

/// The next step of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStep {
    /// Look into the data cache and the directory.
    Look,
    /// Copy from the server's memory, which is mapped into this process, and check the stamp.
    Load(Location),
    /// Fetch the bytes and the stamp by RDMA Reads.
    OneSided(Reference),
    /// Let the server's NIC engine check and copy.
    Guarded(Reference),
    /// Call the server.
    Rpc,
    /// Nothing. The part has its bytes.
    Done,
}

impl Reading<'_> {
    /// Counts each request under the slowest route of its parts, and reports to the policy. The time of the batch
    /// belongs to the first file. It counts only if the reads of the other files took the same route.
    pub fn account(&self, parts: &[Part<'_>], ranges: &[Range<usize>]) {
        let [first, others @ ..] = &self.files[..] else {
            return;
        };
        let took_ns = first.asked.took_ns().filter(|_| !self.disturbed);
        // The time of one request, so that it compares with reads that are alone.
        let took_ns = took_ns.map(|ns| ns / ranges.len().max(1) as u64);
        if others.is_empty() {
            return self.account_file(first, parts, ranges, took_ns);
        }
        let mut all = BatchOutcome::default();
        for range in ranges {
            all.count(&parts[range.clone()]);
        }
        self.account_file(first, parts, ranges, took_ns.filter(|_| all.is_pure()));
        for file in others {
            self.account_file(file, parts, ranges, None);
        }
    }

    fn account_file(
        &self,
        file: &FileReading<'_>,
        parts: &[Part<'_>],
        ranges: &[Range<usize>],
        took_ns: Option<u64>,
    ) {
        let ranges = &ranges[file.requests.clone()];
        let mut told = BatchOutcome::default();
        let shard = file.asked.shard();
        let counts = self.shared.shards.counts(shard);
        let mut pages = 0;
        for range in ranges {
            let parts = &parts[range.clone()];
            pages += parts.len();
            counts.bytes_read.add(shard, contiguous(parts) as u64);
            match parts.iter().map(|part| part.taken).max() {
                // It asked for nothing.
                None => {}
                slowest if self.in_pieces => self.slowest.set(slowest.max(self.slowest.get())),
                Some(slowest) => counts.read_by(shard, slowest, 1),
            }
            told.count(parts);
        }
        told.pages = pages.div_ceil(ranges.len().max(1)) as u32;
        self.shared
            .tell_batch(file.state(), &file.asked, &told, took_ns);
    }

    /// Cuts the requests of each file into parts. `ranges` says which parts belong to which request. Both vectors must
    /// be empty.
    pub fn cut<'b, 'f>(
        &self,
        requests: &'b mut [impl BatchRead<'f>],
        began: Nanos,
        parts: &mut Vec<Part<'b>>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let mut left = requests;
        for (of, file) in self.files.iter().enumerate() {
            let (requests, after) = left.split_at_mut(file.requests.len());
            left = after;
            self.cut_of((of, file), requests, began, parts, ranges);
        }
    }

    fn cut_of<'b, 'f>(
        &self,
        (of, file): (usize, &FileReading<'_>),
        requests: &'b mut [impl BatchRead<'f>],
        began: Nanos,
        parts: &mut Vec<Part<'b>>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let moment = file.state().moment();
        for request in requests {
            let first = parts.len();
            let mut offset = request.offset();
            let mut rest = request.buf();
            while !rest.is_empty() && offset < u64::MAX {
                let within = self.size.within(offset);
                let (buf, after) = rest.split_at_mut(rest.len().min(self.size.bytes() - within));
                rest = after;
                let page = self.size.index(offset);
                offset = offset.saturating_add(buf.len() as u64);
                parts.push(Part {
                    of,
                    page,
                    within,
                    buf,
                    step: ReadStep::Look,
                    bytes: 0,
                    why: RouteReason::Cached,
                    moment,
                    stale_ns: None,
                    taken: RouteTaken::Cache,
                    began,
                    took: self.traced.then_some(Nanos(0)),
                });
            }
            ranges.push(first..parts.len());
        }
    }
}

/// The results of a batch, for the policy.
#[derive(Debug, Default)]
pub struct BatchOutcome {
    /// Mean number of pages of a request.
    pub pages: u32,
    /// The route of the requests that were read directly, at least as far as they had references.
    pub direct: Option<Choice>,
    /// Whether some of those requests had parts that took another route.
    pub mixed: bool,
    /// Number of requests that were read by RPC alone.
    pub by_rpc: u32,
    /// The requests of which a part was refused, each with the time of its first refusal in nanoseconds if that was
    /// measured.
    pub refused: Vec<Option<u64>>,
}

impl BatchOutcome {
    /// Whether all requests took one route.
    pub fn is_pure(&self) -> bool {
        let one = self.direct.is_none() || self.by_rpc == 0;
        one && !self.mixed && self.refused.is_empty()
    }

    /// Counts one request. What lies behind the end of the file can go by no route but RPC, and costs little there: with
    /// it, the time is of no route.
    pub fn count(&mut self, parts: &[Part<'_>]) {
        self.mixed |= parts.iter().any(|part| part.bytes == 0);
        let refused = |part: &&Part<'_>| matches!(part.why, RouteReason::Refused(_));
        let direct = |part: &Part<'_>| part.taken.choice().filter(|choice| choice.is_direct());
        let by_rpc = |part: &Part<'_>| part.taken.choice() == Some(Choice::Rpc);
        if let Some(part) = parts.iter().find(refused) {
            self.refused.push(part.stale_ns);
        } else if let Some(choice) = parts.iter().find_map(direct) {
            let before = self.direct.replace(choice);
            self.mixed |= before.is_some_and(|before| before != choice);
            self.mixed |= !parts.iter().all(|part| direct(part).is_some());
        } else if parts.iter().any(by_rpc) {
            self.mixed |= !parts.iter().all(by_rpc);
            self.by_rpc += 1;
        } else {
            self.mixed = true;
        }
    }
}

/// The bytes to fetch of a page: all valid ones if the page is kept, else only those of the part.
pub struct Wanted {
    /// First byte, as an offset in the page.
    pub from: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Whether this is the whole page, because it is kept.
    pub whole: bool,
}

impl Part<'_> {
    /// What to fetch of a page with `valid` bytes. `fill` says whether the page is kept.
    pub fn wanted(&self, valid: u32, fill: bool) -> Wanted {
        let valid = valid as usize;
        if fill {
            return Wanted {
                from: 0,
                bytes: valid,
                whole: true,
            };
        }
        Wanted {
            from: self.within,
            bytes: self.buf.len().min(valid.saturating_sub(self.within)),
            whole: false,
        }
    }

    /// Completes the part, whose bytes are in the buffer, or in `scratch` if the whole page was fetched.
    pub fn finish(
        &mut self,
        reading: &Reading<'_>,
        wanted: &Wanted,
        scratch: &[u8],
        taken: RouteTaken,
    ) {
        let mut bytes = wanted.bytes;
        if wanted.whole {
            let page = &scratch[..wanted.bytes];
            let file = &reading.files[self.of];
            let timed = file.asked.is_timed() && self.page.is_multiple_of(PUTS_TIMED_ONE_IN);
            let began = timed.then(clock::now);
            let put = reading
                .shared
                .keep(file.state(), self.moment, self.page, reading.size, page);
            let there = page.get(self.within..).unwrap_or(&[]);
            bytes = there.len().min(self.buf.len());
            self.buf[..bytes].copy_from_slice(&there[..bytes]);
            if let (Some(began), Put::InPlace { .. }) = (began, put) {
                let ns = clock::now().since(began).0;
                reading.shared.policy.lock().put(ns);
            }
        }
        self.done(bytes, taken, self.why);
    }

    /// Completes the part.
    pub fn done(&mut self, bytes: usize, taken: RouteTaken, why: RouteReason) {
        self.bytes = bytes;
        self.taken = taken;
        self.why = why;
        self.step = ReadStep::Done;
        if let Some(took) = &mut self.took {
            *took = clock::now().since(self.began);
        }
    }

    /// Whether bytes are missing that may yet come.
    pub fn is_open(&self) -> bool {
        self.step != ReadStep::Done && self.bytes < self.buf.len()
    }

    /// Records that the direct read was refused. The part goes on by RPC.
    pub fn refused(&mut self, why: Exception, sample_ns: Option<u64>) {
        self.stale_ns = sample_ns;
        self.why = RouteReason::Refused(why);
        self.step = ReadStep::Rpc;
    }

    /// Records that the connection was lost. The part goes on by RPC.
    pub fn connection_lost(&mut self) {
        self.why = RouteReason::ConnectionLost;
        self.step = ReadStep::Rpc;
    }

    /// The trace of the part.
    pub fn traced(&self, size: PageSize) -> trace::TracedPart {
        trace::TracedPart {
            offset: size.start(self.page) + self.within as u64,
            length: self.bytes as u32,
            taken: self.taken,
            why: self.why,
            took: self.took.unwrap_or_default().duration(),
        }
    }
}

/// Number of bytes up to the first part that is short. The file ended there when that part was read.
pub fn contiguous(parts: &[Part<'_>]) -> usize {
    let mut bytes = 0;
    for part in parts {
        bytes += part.bytes;
        if part.bytes < part.buf.len() {
            break;
        }
    }
    bytes
}

/// Why a read failed.
pub enum Failed {
    /// The deadline passed while direct reads were in flight.
    TimedOut,
    /// The server refused the read of the part with this number, or into registered memory, that of the request.
    Status(Status, usize),
    /// The call failed.
    Call(CallError),
}

impl Failed {
    /// The number of the part or request that failed, if it is known.
    pub fn at(&self) -> Option<usize> {
        match self {
            Self::Status(_, at) => Some(*at),
            Self::TimedOut | Self::Call(_) => None,
        }
    }

    /// The error for the caller.
    pub fn of(self, file: &OpenFile, offset: u64) -> ReadError {
        let path = file.path().to_owned();
        let source = match self {
            Self::Status(status, _) => {
                return ReadError::Server {
                    path,
                    offset,
                    status,
                };
            }
            Self::TimedOut => CallError::TimedOut {
                call: "direct read",
                after: file.shared().options.deadline,
            },
            Self::Call(source) => source,
        };
        ReadError::Call {
            path,
            offset,
            source,
        }
    }
}

impl ReadError {
    /// The same for a read that was asked for from this offset on.
    pub(crate) fn asked_from(mut self, first: u64) -> Self {
        let (Self::Server { offset, .. }
        | Self::EndOfFile { offset, .. }
        | Self::Call { offset, .. }) = &mut self;
        *offset = first;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(taken: RouteTaken, bytes: usize, buf: &mut [u8]) -> Part<'_> {
        Part {
            of: 0,
            page: 0,
            within: 0,
            buf,
            step: ReadStep::Done,
            bytes,
            why: RouteReason::PolicyOnRpc,
            moment: Moment::default(),
            stale_ns: None,
            taken,
            began: Nanos(0),
            took: None,
        }
    }

    #[test]
    fn the_time_of_a_read_over_the_end_is_of_no_route() {
        let mut room = [[0; 8]; 3];
        let [one, two, three] = &mut room;
        let by_rpc = |bytes, buf| part(RouteTaken::Rpc, bytes, buf);
        let parts = [by_rpc(8, one), by_rpc(3, two), by_rpc(0, three)];
        let of = |parts: &[Part<'_>]| {
            let mut told = BatchOutcome::default();
            told.count(parts);
            told
        };
        assert!(of(&parts[..2]).is_pure() && !of(&parts).is_pure());
        assert_eq!(of(&parts).by_rpc, 1);
    }

    #[test]
    fn requests_by_different_routes_are_no_measure_of_one() {
        let mut room = [[0; 8]; 3];
        let [one, two, three] = &mut room;
        let parts = [
            part(RouteTaken::OneSided, 8, one),
            part(RouteTaken::Guarded, 8, two),
            part(RouteTaken::Rpc, 8, three),
        ];
        for (first, second) in [(0, 1), (0, 2), (2, 0)] {
            let mut told = BatchOutcome::default();
            told.count(&parts[first..=first]);
            assert!(told.is_pure());
            told.count(&parts[second..=second]);
            assert!(!told.is_pure(), "{first} and {second}");
        }
    }
}
