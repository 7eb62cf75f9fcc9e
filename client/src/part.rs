//! What a read works on: its parts, one for each page, and what they came to.

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

/// What a read works with.
pub struct Reading<'a> {
    /// The client.
    pub shared: &'a Shared,
    /// The file.
    pub file: &'a FileState,
    /// The session, if there is one.
    pub session: Option<Arc<Session>>,
    /// Page size.
    pub size: PageSize,
    /// What the read is to do.
    pub asked: TimedRead,
    /// Its class.
    pub class: SizeClass,
    /// The policy was told how what was asked has ended.
    pub told: bool,
    /// Its pages are kept, and asked for as a whole.
    pub keeps: bool,
    /// Somebody wants to know which way it went.
    pub traced: bool,
    /// Why the first part was refused, if it was, and how long that took in nanoseconds.
    pub refused: Option<(Exception, u64)>,
    /// Something was on the way that is no part of a route's cost: a connection was made, references were asked for.
    pub disturbed: bool,
}

/// A part of a read: what it wants of one page.
pub struct Part<'b> {
    /// Index of the page.
    pub page: u64,
    /// First byte wanted, within the page.
    pub within: usize,
    /// Where the bytes go.
    pub buf: &'b mut [u8],
    /// What comes next.
    pub step: ReadStep,
    /// Bytes that it got.
    pub bytes: usize,
    /// Which route it took or takes, and why.
    pub why: RouteReason,
    /// The file when it began.
    pub moment: Moment,
    /// How long a refused direct try took, where that was measured.
    pub stale_ns: Option<u64>,
    /// The route that it took.
    pub taken: RouteTaken,
    /// When its present step began.
    pub began: Nanos,
    /// Measured only when a trace is asked for: looking at the clock is a tenth of a direct read.
    pub took: Option<Nanos>,
}

/// What a part does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStep {
    /// Look into the data cache and the directory.
    Look,
    /// Copy from the server's memory, which is mapped here, and check the stamp.
    Load(Location),
    /// Fetch the bytes and the stamp by RDMA Reads.
    OneSided(Reference),
    /// Have the server's NIC check and copy.
    Guarded(Reference),
    /// Ask the server.
    Rpc,
    /// Nothing: it has its bytes.
    Done,
}

impl Reading<'_> {
    /// Counts each request under the slowest route that any of its parts took, and tells the policy of it.
    pub fn account(&self, parts: &[Part<'_>], ranges: &[Range<usize>]) {
        let took_ns = self.asked.took_ns().filter(|_| !self.disturbed);
        // What one of them took: they are compared with reads that are alone, too.
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

    /// The parts of all requests, and which are whose. Both vectors are empty before.
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

/// What the requests of a batch came to, for the policy.
#[derive(Debug, Default)]
pub struct BatchOutcome {
    /// Pages of a request, in the mean.
    pub pages: u32,
    /// The route of the requests that were read directly, entirely or but for what had no reference.
    pub direct: Option<Choice>,
    /// Some of those had parts that went another way.
    pub mixed: bool,
    /// Requests that were read by RPC alone.
    pub by_rpc: u32,
    /// Requests of which a part was refused, with the time of the first refusal where it was measured.
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

/// What is asked of a page: all its valid bytes where they are kept, else the part's alone.
pub struct Wanted {
    /// First byte, within the page.
    pub from: usize,
    /// How many bytes of it.
    pub bytes: usize,
    /// All of the page: it is kept.
    pub whole: bool,
}

impl Part<'_> {
    /// What to ask for of a page with so many valid bytes; `fill`: the page is kept.
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

    /// The bytes are there: in the buffer, or the whole page in `scratch`.
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

    /// It has its bytes.
    pub fn done(&mut self, bytes: usize, taken: RouteTaken, why: RouteReason) {
        self.bytes = bytes;
        self.taken = taken;
        self.why = why;
        self.step = ReadStep::Done;
        if let Some(took) = &mut self.took {
            *took = clock::now().since(self.began);
        }
    }

    /// It was refused: it goes on by RPC.
    pub fn refused(&mut self, why: Exception, sample_ns: Option<u64>) {
        self.stale_ns = sample_ns;
        self.why = RouteReason::Refused(why);
        self.step = ReadStep::Rpc;
    }

    /// The connection was lost on the way: it goes on by RPC.
    pub fn connection_lost(&mut self) {
        self.why = RouteReason::ConnectionLost;
        self.step = ReadStep::Rpc;
    }

    /// What a trace says of it.
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

/// Bytes from the start up to the first part that fell short: there the file ended when that part was read.
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
    /// What the caller is told.
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
