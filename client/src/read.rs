//! The path of a read, with all its branches, from top to bottom.
//!
//! A read is cut into parts, one for each page that it touches, and each part goes through the same steps:
//!
//! ```text
//! Look ---- in the data cache ------------------------------------------------> Done
//!   |
//!   +------ a reference, and direct reads pay:  OneSided or Guarded ----------> Done
//!   |                                               | refused, with an exception
//!   +------ none, or they do not pay  --------> Rpc <
//!                                                |
//!                                                +-- learn references, fill --> Done
//! ```
//!
//! Reads within one page take the same [steps](crate::steps) in [`crate::read_page`], which allocates nothing. All
//! other reads are cut into parts here, and all parts take each step together: everything that can be posted is in
//! flight before the client waits for the first answer. The parts may be of several files of one client. Each file has
//! an order of its own; the connections are the same.

use crate::{
    buffer::Buffer,
    delegation::Asking,
    error::ReadError,
    nfs::{self, read_into, references},
    open_file::OpenFile,
    part::{Failed, FileReading, Part, ReadStep, Reading, contiguous},
    read_page::{self, Ended, Waits, attend},
    read_pair::PairFailed,
    record,
    request::{BatchRead, IntoRequest, ReadRequest},
    reuse::{self, BatchMemory},
    route::SizeClass,
    session::{NoPair, Session},
    shard::Shard,
    shared::TimedRead,
    steps::{Found, Steps},
    trace::{self, RouteReason, RouteTaken},
};
use odafs_common::{exception::Exception, page::PageSize, reference::Epoch};
use odafs_fabric::clock::{self, Nanos};
use std::{cell::Cell, ops::Range};

/// The most parts that are processed together: 4 MiB of 4 KiB pages.
const PARTS_MAX: usize = 1024;
/// Size of a cache line in bytes.
const LINE: usize = 64;
/// Number of cache lines of a part that are prefetched.
const PREFETCH_LINES: usize = 8;
/// Distance in bytes between the part that is copied and the one that is prefetched. If parts are small, that is
/// several parts.
const PREFETCH_BYTES: usize = 2048;

/// Reads into `buf` from `offset` on.
pub fn read_at(file: &OpenFile, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    let (asked, refused) = match read_page::read(file, buf, offset, Waits::Yes) {
        Ended::Read(bytes) => return Ok(bytes),
        Ended::Failed(failed) => return Err(failed.of(file, offset)),
        Ended::LongerWay(asked) => (asked.map(TimedRead::looked), None),
        Ended::Refused(asked, why, took_ns) => (Some(asked), Some((why, took_ns))),
    };
    let mut request = [ReadRequest::new(offset, buf)];
    read_on(file, &mut request, None, asked, refused)?;
    Ok(request[0].bytes)
}

/// Reads without waiting: within one page, from the data cache or from the server's memory. Returns `None` if that is
/// not possible.
pub fn at_once(file: &OpenFile, buf: &mut [u8], offset: u64) -> Option<usize> {
    match read_page::read(file, buf, offset, Waits::No) {
        Ended::Read(bytes) => Some(bytes),
        _ => None,
    }
}

/// Reads all requests into registered memory. The server writes long data there by RDMA; all other data is copied there
/// as by any read.
pub fn read_into(
    file: &OpenFile,
    buffer: &mut Buffer,
    requests: &mut [IntoRequest],
) -> Result<(), ReadError> {
    if requests.is_empty() {
        return Ok(());
    }
    read_into::recover(file, buffer, requests)?;
    let pays = |request: &IntoRequest| read_into::pays(file.shared(), request);
    // What most callers ask for takes no memory.
    if let [request] = requests
        && !pays(request)
    {
        let buf = &mut buffer[request.range.clone()];
        request.bytes = read_at(file, buf, request.offset)?;
        return Ok(());
    }
    let (long, short): (Vec<_>, Vec<_>) =
        (0..requests.len()).partition(|number| pays(&requests[*number]));
    if !long.is_empty() {
        let mut together: Vec<_> = long
            .iter()
            .map(|number| requests[*number].clone())
            .collect();
        let call = |requests: &mut [IntoRequest]| read_into::read(file, buffer, requests);
        file.recorded_reads(&mut together, call, |request| record::RecordedRead {
            offset: request.offset,
            bytes: request.range.len(),
            got: request.bytes,
        })?;
        for (number, request) in long.into_iter().zip(together) {
            requests[number].bytes = request.bytes;
        }
    }
    copied_into(file, buffer, requests, short)
}

/// Reads those of the requests with these numbers, with a copy: all together whose ranges do not overlap.
fn copied_into(
    file: &OpenFile,
    buffer: &mut [u8],
    requests: &mut [IntoRequest],
    mut numbers: Vec<usize>,
) -> Result<(), ReadError> {
    numbers.sort_by_key(|number| requests[*number].range.start);
    while !numbers.is_empty() {
        let (mut together, mut later) = (Vec::new(), Vec::new());
        let (mut rest, mut rest_from) = (&mut *buffer, 0);
        for number in numbers {
            let IntoRequest { range, offset, .. } = &requests[number];
            let Some(skipped) = range.start.checked_sub(rest_from) else {
                later.push(number);
                continue;
            };
            let (buf, after) = rest[skipped..].split_at_mut(range.len());
            (rest, rest_from) = (after, range.end);
            together.push((number, ReadRequest::new(*offset, buf)));
        }
        let (read, mut reads): (Vec<_>, Vec<_>) = together.into_iter().unzip();
        match &mut reads[..] {
            [alone] => alone.bytes = read_at(file, alone.buf, alone.offset)?,
            reads => read_many(file, reads, None)?,
        }
        for (number, request) in read.into_iter().zip(reads) {
            requests[number].bytes = request.bytes;
        }
        numbers = later;
    }
    Ok(())
}

/// Reads all requests together.
pub fn read_many(
    file: &OpenFile,
    requests: &mut [ReadRequest<'_>],
    trace: Option<&mut Vec<trace::TracedPart>>,
) -> Result<(), ReadError> {
    read_on(file, requests, trace, None, None)
}

/// Reads all requests together, of any files of one client. `first` is the file of the first request.
pub fn read_files<'f>(
    first: &'f OpenFile,
    requests: &mut [impl BatchRead<'f>],
) -> Result<(), ReadError> {
    in_batches(first, requests, None, None, None)
}

/// As [`read_many`], for a read that has already asked the policy, or whose first part was read directly and `refused`.
fn read_on(
    file: &OpenFile,
    requests: &mut [ReadRequest<'_>],
    trace: Option<&mut Vec<trace::TracedPart>>,
    asked: Option<TimedRead>,
    refused: Option<(Exception, u64)>,
) -> Result<(), ReadError> {
    let call = |requests: &mut [ReadRequest<'_>]| in_batches(file, requests, trace, asked, refused);
    file.recorded_reads(requests, call, |request| record::RecordedRead {
        offset: request.offset,
        bytes: request.buf.len(),
        got: request.bytes,
    })
}

fn in_batches<'f>(
    file: &'f OpenFile,
    requests: &mut [impl BatchRead<'f>],
    mut trace: Option<&mut Vec<trace::TracedPart>>,
    asked: Option<TimedRead>,
    refused: Option<(Exception, u64)>,
) -> Result<(), ReadError> {
    let shared = file.shared();
    let session = shared.session();
    let size = shared.page(session.as_deref());
    let mut reading = Reading {
        shared,
        files: Vec::new(),
        session,
        size,
        asked,
        class: class_of(requests),
        traced: trace.is_some(),
        refused,
        disturbed: false,
        deadline: Nanos(0),
        in_pieces: false,
        slowest: Cell::new(None),
    };
    let mut rest = requests;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at_mut(batch_of(rest, size));
        rest = after;
        reading.batch(file, batch, trace.as_deref_mut())?;
    }
    Ok(())
}

/// The size class of requests that are read together: that of their mean length. A gather of many small ranges is not
/// one long read.
fn class_of<'f>(requests: &[impl BatchRead<'f>]) -> SizeClass {
    let bytes: usize = requests.iter().map(BatchRead::length).sum();
    SizeClass::of(bytes.div_ceil(requests.len().max(1)))
}

/// How many requests make up a batch of at most [`PARTS_MAX`] parts. At least one.
fn batch_of<'f>(requests: &[impl BatchRead<'f>], size: PageSize) -> usize {
    let mut parts = 0;
    let fits = requests.iter().take_while(|request| {
        parts += request.length() / size.bytes() + 2;
        parts <= PARTS_MAX
    });
    fits.count().max(1)
}

impl<'f> Reading<'f> {
    fn batch(
        &mut self,
        file: &'f OpenFile,
        requests: &mut [impl BatchRead<'f>],
        mut trace: Option<&mut Vec<trace::TracedPart>>,
    ) -> Result<(), ReadError> {
        // A request that is longer than a batch is read in pieces, until it ends or the file does.
        if let [request] = requests
            && request.length() > PARTS_MAX * self.size.bytes()
        {
            let file = request.file().unwrap_or(file);
            let asked_from = request.offset();
            let (mut offset, mut bytes) = (asked_from, 0);
            self.in_pieces = true;
            for piece in request.buf().chunks_mut(PARTS_MAX * self.size.bytes() / 2) {
                let mut piece = [ReadRequest::new(offset, piece)];
                self.together(file, &mut piece, trace.as_deref_mut())
                    .map_err(|error| error.asked_from(asked_from))?;
                bytes += piece[0].bytes;
                offset = offset.saturating_add(piece[0].bytes as u64);
                if piece[0].bytes < piece[0].buf.len() {
                    break;
                }
            }
            request.set_bytes(bytes);
            self.in_pieces = false;
            if let Some(slowest) = self.slowest.take() {
                let shard = Shard::mine();
                self.shared.shards.counts(shard).read_by(shard, slowest, 1);
            }
            return Ok(());
        }
        self.together(file, requests, trace)
    }

    /// Takes each step for all parts that need it.
    fn together(
        &mut self,
        file: &'f OpenFile,
        requests: &mut [impl BatchRead<'f>],
        trace: Option<&mut Vec<trace::TracedPart>>,
    ) -> Result<(), ReadError> {
        self.disturbed = false;
        let BatchMemory {
            parts,
            mut ranges,
            files,
        } = BatchMemory::take();
        self.files = files;
        self.order(file, requests);
        let began = clock::now();
        self.deadline = self.shared.calls.deadline_from(began);
        // The parts borrow the requests while the batch lasts.
        let mut parts: Vec<Part<'_>> = parts;
        self.cut(requests, began, &mut parts, &mut ranges);
        self.look(&mut parts);
        self.by_loads(&mut parts);
        let failed = self
            .by_pair(&mut parts)
            .and_then(|()| nfs::read::read(self, &mut parts));
        if let Err(failed) = failed {
            // All calls fail with the connection, and so the first that was not answered.
            let open = || parts.iter().position(Part::is_open);
            let at = failed.at().or_else(open).unwrap_or(0);
            let number = ranges.iter().position(|range| range.contains(&at));
            let of = parts.get(at).map_or(0, |part| part.of);
            let offset = requests[number.unwrap_or(0)].offset();
            return Err(failed.of(self.files[of].file, offset));
        }
        self.account(&parts, &ranges);
        if let Some(trace) = trace {
            trace.extend(parts.iter().map(|part| part.traced(self.size)));
        }
        // The parts still borrow the requests, so store each request's length in its range for now.
        for range in &mut ranges {
            *range = 0..contiguous(&parts[range.clone()]);
        }
        let parts = reuse::emptied(parts);
        for (request, gained) in requests.iter_mut().zip(&ranges) {
            request.set_bytes(gained.len());
        }
        let files = reuse::emptied(std::mem::take(&mut self.files));
        BatchMemory {
            parts,
            ranges,
            files,
        }
        .give_back();
        Ok(())
    }

    /// Gives each file its order. Requests of one file that do not follow one another are as of several files.
    fn order(&mut self, file: &'f OpenFile, requests: &[impl BatchRead<'f>]) {
        for (number, request) in requests.iter().enumerate() {
            let (file, end) = match request.file() {
                Some(file) => (file, number + 1),
                None => (file, requests.len()),
            };
            if let Some(last) = self.files.last_mut()
                && std::ptr::eq(last.state(), file.state())
            {
                last.requests.end = end;
                continue;
            }
            let asked = match self.files.first() {
                None => self.asked.take(),
                Some(first) => {
                    let first = &first.asked;
                    Some(self.shared.ask_beside(file.state(), self.class, first))
                }
            };
            self.files.push(FileReading {
                file,
                requests: number..end,
                asked: asked.unwrap_or_else(|| self.shared.ask(file.state(), self.class)),
                keeps: false,
                learns: Cell::new(false),
            });
            if end == requests.len() {
                break;
            }
        }
        let mut asking = Asking::default();
        for of in 0..self.files.len() {
            let file = &mut self.files[of];
            let state = file.file.state();
            let attended = attend(self.shared, state, file.asked, Some(&mut asking));
            file.asked = attended.unwrap_or(file.asked);
            self.files[of].keeps = self.steps(of).keeps();
        }
    }

    /// The steps of the reads of a file, by its number in the batch.
    pub fn steps(&self, of: usize) -> Steps<'_> {
        let file = &self.files[of];
        Steps {
            shared: self.shared,
            file: file.state(),
            session: self.session.as_deref(),
            size: self.size,
            asked: file.asked,
        }
    }

    /// Steps 1 and 2: the data cache, then the directory. The references of all sequential runs are asked for together.
    fn look(&mut self, parts: &mut [Part<'_>]) {
        let refused = self.refused.take();
        if let (Some((why, took_ns)), Some(part)) = (refused, parts.first_mut()) {
            part.refused(why, Some(took_ns));
        }
        let mut runs = Vec::new();
        for parts in parts.chunk_by_mut(|one, next| one.of == next.of) {
            let of = parts[0].of;
            for part in &*parts {
                self.shared.note_page(self.files[of].state(), part.page);
            }
            if let Some(pages) = self.look_of(of, parts, true) {
                runs.push((of, pages));
            }
        }
        if runs.is_empty() {
            return;
        }
        self.disturbed |= self.ask_ahead(&runs);
        for parts in parts.chunk_by_mut(|one, next| one.of == next.of) {
            self.look_of(parts[0].of, parts, false);
        }
    }

    /// Asks for the references of runs, each with the number of its file. Returns true if some came.
    #[cold]
    fn ask_ahead(&self, runs: &[(usize, Range<u64>)]) -> bool {
        let state = |of: usize| self.files[of].state();
        let wanted: Vec<_> = runs
            .iter()
            .map(|(of, pages)| references::Wanted::pages(state(*of), pages, self.size))
            .collect();
        // On failure, the read goes on without references.
        let learned = references::hint(self.shared, &wanted);
        for ((of, pages), learned) in runs.iter().zip(&learned) {
            state(*of).ahead.came(pages, *learned);
        }
        learned.iter().any(|learned| *learned > 0)
    }

    /// Steps 1 and 2 for the parts of one file. If `ahead` is set and the parts belong to a sequential run, this stops
    /// before the first that has no reference, and returns the pages whose references to ask for.
    fn look_of(&self, of: usize, parts: &mut [Part<'_>], ahead: bool) -> Option<Range<u64>> {
        let steps = self.steps(of);
        let end = parts.last().map_or(0, |part| part.page + 1);
        // A read counts as one miss, however many of its pages miss.
        let mut missed = !ahead;
        for part in parts {
            if part.step != ReadStep::Look {
                continue;
            }
            let found = steps.look(part.page, part.within, part.buf);
            if matches!(found, Found::Next(_, RouteReason::NoReference)) && !missed {
                missed = true;
                if let Some(pages) = steps.run_ahead(part.page..end) {
                    // The next look is the one that counts.
                    return Some(pages);
                }
            }
            steps.count(&found, part.page);
            match found {
                Found::Cached(bytes) => part.done(bytes, RouteTaken::Cache, RouteReason::Cached),
                Found::Next(step, why) => (part.step, part.why) = (step, why),
            }
            if let (ReadStep::Load(location), Some((_, view))) = (part.step, steps.view()) {
                view.prefetch_stamp(location.address);
            }
        }
        None
    }

    /// Step 3 by loads. While one part is copied, the first lines of a later one are prefetched.
    fn by_loads(&self, parts: &mut [Part<'_>]) {
        // Loads are the same for all files.
        let steps = self.steps(0);
        let Some((session, view)) = steps.view() else {
            return;
        };
        let mut scratch = self.scratch();
        // A single part that gets here has usually been refused once already.
        let alone = parts.len() == 1;
        let mean = parts.iter().map(|part| part.buf.len()).sum::<usize>() / parts.len().max(1);
        let ahead = (PREFETCH_BYTES / mean.max(1)).clamp(1, PREFETCH_LINES);
        for at in 0..parts.len() {
            if let Some(Part {
                step: ReadStep::Load(next),
                within,
                buf,
                ..
            }) = parts.get(at + ahead)
            {
                let lines = buf.len().div_ceil(LINE) + 1;
                let lines = lines.min(PREFETCH_LINES) as u32;
                view.prefetch(next.address + *within as u64, lines);
            }
            let part = &mut parts[at];
            let ReadStep::Load(location) = part.step else {
                continue;
            };
            let began = alone.then(clock::now);
            let wanted = part.wanted(location.length, self.keeps(part, &scratch));
            let into = if wanted.whole {
                &mut scratch[..wanted.bytes]
            } else {
                &mut part.buf[..wanted.bytes]
            };
            if steps.load(&location, wanted.from, into) {
                part.finish(self, &wanted, &scratch, RouteTaken::OneSided);
            } else {
                let sample = began.map(|began| clock::now().since(began).0);
                self.refuse(session, part, location.epoch, Exception::Stale, sample);
            }
        }
    }

    /// Step 3 on a connection: guarded, or one-sided by RDMA Reads of data and stamp where the fabric offers no loads.
    /// Many reads are in flight, and their data arrives in the connection's sink.
    fn by_pair(&mut self, parts: &mut [Part<'_>]) -> Result<(), Failed> {
        let direct =
            |part: &Part<'_>| matches!(part.step, ReadStep::Guarded(_) | ReadStep::OneSided(_));
        if !parts.iter().any(direct) {
            return Ok(());
        }
        let (Some(session), shared) = (self.session.as_ref(), self.shared) else {
            return Ok(());
        };
        let now = clock::now();
        let mut pair = match session.pair(&shared.calls, now, self.deadline) {
            Ok((pair, made)) => {
                self.disturbed |= made;
                pair
            }
            Err(NoPair::TimedOut) => return Err(Failed::TimedOut),
            Err(NoPair::NotMade) => {
                self.disturbed = true;
                parts
                    .iter_mut()
                    .filter(|part| direct(part))
                    .for_each(Part::connection_lost);
                return Ok(());
            }
        };
        let deadline = self.deadline;
        match self.on_pair(session, &mut pair, parts, deadline) {
            Ok(()) => {
                shared.policy.lock().feedback(pair.feedback());
                drop(pair);
                session.tend(&shared.calls, now);
                Ok(())
            }
            Err(PairFailed::TimedOut) => Err(Failed::TimedOut),
            Err(PairFailed::Broken(broken)) => {
                session.lost(pair, &broken);
                parts
                    .iter_mut()
                    .filter(|part| direct(part))
                    .for_each(Part::connection_lost);
                Ok(())
            }
        }
    }

    /// Handles a refused direct read: forgets the reference or keeps it, and sends the part on by RPC.
    pub fn refuse(
        &self,
        session: &Session,
        part: &mut Part<'_>,
        epoch: Epoch,
        why: Exception,
        sample_ns: Option<u64>,
    ) {
        let file = self.files[part.of].state();
        self.shared.refused(session, file, part.page, epoch, why);
        part.refused(why, sample_ns);
    }

    /// Whether the page of a part is kept, and so fetched whole into `scratch`.
    pub fn keeps(&self, part: &Part<'_>, scratch: &[u8]) -> bool {
        !scratch.is_empty() && self.files[part.of].keeps
    }

    /// Room for a page if pages are kept, else empty.
    pub fn scratch(&self) -> Vec<u8> {
        if self.files.iter().any(|file| file.keeps) {
            vec![0; self.size.bytes()]
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gather_is_of_the_class_of_its_ranges() {
        let mut rows = vec![[0; 256]; 10_000];
        let requests: Vec<_> = (0..)
            .zip(&mut rows)
            .map(|(at, row)| ReadRequest::new(at * 256, row))
            .collect();
        assert_eq!(class_of(&requests), SizeClass::of(256));
        assert_eq!(class_of(&requests[..1]), SizeClass::of(256));
        assert_eq!(class_of(&requests[..0]), SizeClass::of(0));
    }
}
