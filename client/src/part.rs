//! The parts of a read, one for each page, and their results.

use crate::{
    directory::Location,
    error::{CallError, ReadError, Status},
    open_file::OpenFile,
    request::ReadRequest,
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
use std::ops::Range;

/// The state of a read.
pub struct Reading<'a> {
    /// The client.
    pub shared: &'a Shared,
    /// The file.
    pub file: &'a FileState,
    /// The session, if there is one.
    pub session: Option<Arc<Session>>,
    /// The order of the read.
    pub size: PageSize,
    /// What the read is to do.
    pub asked: TimedRead,
    /// The size class of the read.
    pub class: SizeClass,
    /// Whether the policy has heard the result of `asked`.
    pub told: bool,
    /// Whether pages are kept. If so, they are fetched whole.
    pub keeps: bool,
    /// Whether the caller wants a trace.
    pub traced: bool,
    /// Why the first part was refused, if it was, and how long that took in nanoseconds.
    pub refused: Option<(Exception, u64)>,
    /// Whether something happened that is no part of a route's cost, such as making a connection or asking for
    /// references.
    pub disturbed: bool,
}

/// A part of a read, within one page.
pub struct Part<'b> {
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
    /// Counts each request under the slowest route of its parts, and reports to the policy.
    pub fn account(&self, parts: &[Part<'_>], ranges: &[Range<usize>]) {
        let took_ns = self.asked.took_ns().filter(|_| !self.disturbed);
        // The time of one request, so that it compares with reads that are alone.
        let took_ns = took_ns.map(|ns| ns / ranges.len().max(1) as u64);
        let mut told = BatchOutcome {
            pages: parts.len().div_ceil(ranges.len().max(1)) as u32,
            ..BatchOutcome::default()
        };
        let shard = self.asked.shard();
        let counts = self.shared.shards.counts(shard);
        for range in ranges {
            let parts = &parts[range.clone()];
            counts.bytes_read.add(shard, contiguous(parts) as u64);
            let slowest = parts.iter().map(|part| part.taken).max();
            counts.read_by(shard, slowest.unwrap_or(RouteTaken::Cache), 1);
            told.count(parts);
        }
        self.shared
            .tell_batch(self.file, &self.asked, &told, took_ns);
    }

    /// Cuts all requests into parts. `ranges` says which parts belong to which request. Both vectors must be empty.
    pub fn cut<'b>(
        &self,
        requests: &'b mut [ReadRequest<'_>],
        began: Nanos,
        parts: &mut Vec<Part<'b>>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let moment = self.file.moment();
        for request in requests {
            let first = parts.len();
            let mut offset = request.offset;
            let mut rest = &mut request.buf[..];
            while !rest.is_empty() && offset < u64::MAX {
                let within = self.size.within(offset);
                let (buf, after) = rest.split_at_mut(rest.len().min(self.size.bytes() - within));
                rest = after;
                let page = self.size.index(offset);
                offset = offset.saturating_add(buf.len() as u64);
                parts.push(Part {
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
    /// Counts one request.
    pub fn count(&mut self, parts: &[Part<'_>]) {
        let refused = |part: &&Part<'_>| matches!(part.why, RouteReason::Refused(_));
        let direct = |part: &Part<'_>| part.taken.choice().filter(|choice| choice.is_direct());
        let by_rpc = |part: &Part<'_>| part.taken.choice() == Some(Choice::Rpc);
        if let Some(part) = parts.iter().find(refused) {
            self.refused.push(part.stale_ns);
        } else if let Some(choice) = parts.iter().find_map(direct) {
            self.direct = Some(choice);
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
            reading
                .shared
                .keep(reading.file, self.moment, self.page, reading.size, page);
            let there = page.get(self.within..).unwrap_or(&[]);
            bytes = there.len().min(self.buf.len());
            self.buf[..bytes].copy_from_slice(&there[..bytes]);
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
    /// The server refused the read.
    Status(Status),
    /// The call failed.
    Call(CallError),
}

impl Failed {
    /// The error for the caller.
    pub fn of(self, file: &OpenFile, offset: u64) -> ReadError {
        let path = file.path().to_owned();
        let source = match self {
            Self::Status(status) => {
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
