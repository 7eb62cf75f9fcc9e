//! The path of a read: all its branching, top to bottom.
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
//! One part that needs no waiting is over in [`at_once`]. Otherwise the parts take each step together: all that can be
//! posted is in flight before the first answer is waited for.

use crate::{
    direct::{DirectPair, NotPosted},
    directory::Lookup,
    error::{CallError, ReadError},
    file::{File, ReadRequest},
    lane::Lane,
    options::Route,
    policy::{Choice, SizeClass},
    pool::TakeError,
    read_rpc,
    session::Session,
    shared::{Shared, TIMED_ONE_IN},
    state::{FileState, Moment},
    trace::{self, Taken, Why},
    transport::Broken,
};
use odafs_common::{exception::Exception, page::PageSize, reference::Reference};
use odafs_fabric::{
    clock::{self, Nanos},
    memory::ArenaView,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use std::ops::Range;

/// Parts that are worked on together: 4 MiB of 4 KiB pages.
const PARTS_MAX: usize = 1024;
/// Cache lines of the next page that are fetched while one is copied.
const PREFETCH_LINES: u32 = 8;

/// A part of a read: what it wants of one page.
pub struct Part<'b> {
    /// Which request of the batch it belongs to.
    request: usize,
    /// Index of the page.
    pub page: u64,
    /// First byte wanted, within the page.
    pub within: usize,
    /// Where the bytes go.
    pub buf: &'b mut [u8],
    /// What comes next.
    pub step: Step,
    /// Bytes that it got.
    pub bytes: usize,
    /// Which route it took or takes, and why.
    pub why: Why,
    /// The file when it began.
    pub moment: Moment,
    probe: bool,
    /// How long a refused direct try took, where that was measured.
    stale_ns: Option<u64>,
    taken: Taken,
    began: Nanos,
    /// Measured only when a trace is asked for: looking at the clock is a tenth of a direct read.
    took: Option<Nanos>,
}

/// What a part does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look into the data cache and the directory.
    Look,
    /// Copy from the server's memory and check the stamp.
    OneSided(Reference),
    /// Have the server's NIC check and copy.
    Guarded(Reference),
    /// Ask the server.
    Rpc,
    /// Nothing: it has its bytes.
    Done,
}

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
    /// Size class of each request.
    pub class: SizeClass,
    traced: bool,
}

/// Reads into `buf` from `offset` on.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    if let Some(bytes) = at_once(file, buf, offset) {
        return Ok(bytes);
    }
    let mut request = [ReadRequest::new(offset, buf)];
    read_many(file, &mut request, None)?;
    Ok(request[0].bytes)
}

/// A read within one page that needs no waiting: the data cache, or one-sided from shared memory. It takes no lock
/// but that of the page's shard of the cache, where there is one.
pub fn at_once(file: &File, buf: &mut [u8], offset: u64) -> Option<usize> {
    let shared = file.shared();
    let present;
    let session = match file.session_at_hand() {
        Some(session) => Some(&**session),
        None => {
            present = shared.session();
            present.as_deref()
        }
    };
    let size = shared.page(session);
    let within = size.within(offset);
    if within + buf.len() > size.bytes() || buf.is_empty() {
        return buf.is_empty().then_some(0);
    }
    let lane = Lane::mine();
    let page = size.index(offset);
    if let Some(bytes) = shared.cached(file.state(), page, size, within, buf) {
        let counts = shared.lanes.counts(lane);
        counts.cache_hits.add(lane, 1);
        counts.bytes_read.add(lane, bytes as u64);
        return Some(bytes);
    }
    let session = session?;
    let view = session.view.as_ref()?;
    one_sided_at_once(file, session, view, lane, buf, offset)
}

fn one_sided_at_once(
    file: &File,
    session: &Session,
    view: &ArenaView,
    lane: Lane,
    buf: &mut [u8],
    offset: u64,
) -> Option<usize> {
    let (shared, state) = (file.shared(), file.state());
    let class = SizeClass::of(buf.len());
    // What the policy has not settled goes the longer way.
    if state.direct.load(Relaxed) & 1 << class.index() == 0 || prefers_guarded(shared) {
        return None;
    }
    let (page, within) = (session.page.index(offset), session.page.within(offset));
    let found = shared
        .directory
        .locate(&state.tree, page, session.number, session.page);
    let Lookup::Found(reference) = found else {
        return None;
    };
    let valid = reference.length as usize;
    let bytes = buf.len().min(valid.saturating_sub(within));
    let tick = &state.ticks[lane.index()];
    let ticks = tick.get() + 1;
    let began = (ticks >= TIMED_ONE_IN).then(clock::now);
    if bytes == 0 || !copy(file, view, &reference, page, within, &mut buf[..bytes]) {
        // The longer way tries again, and counts and tells why not.
        return None;
    }
    let counts = shared.lanes.counts(lane);
    counts.directory_hits.add(lane, 1);
    counts.one_sided_hits.add(lane, 1);
    counts.bytes_read.add(lane, bytes as u64);
    match began {
        None => tick.set(ticks),
        Some(began) => {
            tick.set(0);
            shared.directory.touch(&state.tree, page);
            shared.tell_completed(state, class, ticks, Some(clock::now().since(began).0));
        }
    }
    Some(bytes)
}

/// Copies from a page, and keeps all of it where pages are kept.
fn copy(
    file: &File,
    view: &ArenaView,
    reference: &Reference,
    page: u64,
    within: usize,
    buf: &mut [u8],
) -> bool {
    let shared = file.shared();
    if !shared.caches() {
        return view.read(reference.address + within as u64, buf, reference.epoch);
    }
    let moment = file.state().moment();
    let mut scratch = [0; PageSize::MIN.bytes()];
    let Some(whole) = scratch.get_mut(..reference.length as usize) else {
        return false;
    };
    let read = view.read(reference.address, whole, reference.epoch);
    if read {
        buf.copy_from_slice(&whole[within..within + buf.len()]);
        shared.keep(file.state(), moment, page, view.page(), whole);
    }
    read
}

/// Reads the file's change counter directly: is it what it was? `None` where that cannot be done.
pub fn unchanged(shared: &Shared, state: &FileState) -> Option<bool> {
    let session = shared.session()?;
    let counter = state.counter(session.number)?;
    state.change()?;
    let change = session
        .view
        .as_ref()?
        .read_word(counter.address, counter.epoch)?;
    Some(state.revalidate_change(change))
}

fn prefers_guarded(shared: &Shared) -> bool {
    shared.options.route == Route::Guarded
}

/// Reads all requests, together.
pub fn read_many(
    file: &File,
    requests: &mut [ReadRequest<'_>],
    mut trace: Option<&mut Vec<trace::Step>>,
) -> Result<(), ReadError> {
    let shared = file.shared();
    let session = shared.session();
    let size = shared.page(session.as_deref());
    let class = SizeClass::of(
        requests
            .iter()
            .map(|request| request.buf.len())
            .max()
            .unwrap_or(0),
    );
    let mut reading = Reading {
        shared,
        file: file.state(),
        session,
        size,
        class,
        traced: trace.is_some(),
    };
    let mut rest = requests;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at_mut(batch_of(rest, size));
        rest = after;
        reading.batch(file, batch, trace.as_deref_mut())?;
    }
    Ok(())
}

/// How many requests make up a batch of at most [`PARTS_MAX`] parts; at least one.
fn batch_of(requests: &[ReadRequest<'_>], size: PageSize) -> usize {
    let mut parts = 0;
    let fits = requests.iter().take_while(|request| {
        parts += request.buf.len() / size.bytes() + 2;
        parts <= PARTS_MAX
    });
    fits.count().max(1)
}

impl Reading<'_> {
    fn batch(
        &mut self,
        file: &File,
        requests: &mut [ReadRequest<'_>],
        mut trace: Option<&mut Vec<trace::Step>>,
    ) -> Result<(), ReadError> {
        // One request that is longer than a batch goes piece by piece, until it ends or the file does.
        if let [request] = requests
            && request.buf.len() > PARTS_MAX * self.size.bytes()
        {
            let (mut offset, mut bytes) = (request.offset, 0);
            for piece in request.buf.chunks_mut(PARTS_MAX * self.size.bytes() / 2) {
                let mut piece = [ReadRequest::new(offset, piece)];
                self.together(file, &mut piece, trace.as_deref_mut())?;
                bytes += piece[0].bytes;
                offset += piece[0].bytes as u64;
                if piece[0].bytes < piece[0].buf.len() {
                    break;
                }
            }
            request.bytes = bytes;
            return Ok(());
        }
        self.together(file, requests, trace)
    }

    /// The steps, each for all parts that have come to it.
    fn together(
        &mut self,
        file: &File,
        requests: &mut [ReadRequest<'_>],
        trace: Option<&mut Vec<trace::Step>>,
    ) -> Result<(), ReadError> {
        let began = clock::now();
        let (mut parts, ranges) = self.cut(requests, began);
        self.look(&mut parts);
        self.one_sided(&mut parts);
        let failed = self
            .guarded(&mut parts)
            .and_then(|()| read_rpc::read(self, &mut parts));
        if let Err(failed) = failed {
            return Err(failed.of(file, requests.first().map_or(0, |request| request.offset)));
        }
        self.account(&parts, &ranges, began);
        if let Some(trace) = trace {
            trace.extend(parts.iter().map(|part| part.traced(self.size)));
        }
        let gained: Vec<usize> = ranges
            .into_iter()
            .map(|range| contiguous(&parts[range]))
            .collect();
        drop(parts);
        for (request, bytes) in requests.iter_mut().zip(gained) {
            request.bytes = bytes;
        }
        Ok(())
    }

    /// The parts of all requests, and which are whose.
    fn cut<'b>(
        &self,
        requests: &'b mut [ReadRequest<'_>],
        began: Nanos,
    ) -> (Vec<Part<'b>>, Vec<Range<usize>>) {
        let moment = self.file.moment();
        let mut parts = Vec::new();
        let mut ranges = Vec::with_capacity(requests.len());
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
                    request: ranges.len(),
                    page,
                    within,
                    buf,
                    step: Step::Look,
                    bytes: 0,
                    why: Why::Cached,
                    moment,
                    probe: false,
                    stale_ns: None,
                    taken: Taken::Cache,
                    began,
                    took: self.traced.then_some(Nanos(0)),
                });
            }
            ranges.push(first..parts.len());
        }
        (parts, ranges)
    }

    /// Step 1 and 2: the data cache, then the directory and the policy.
    fn look(&self, parts: &mut [Part<'_>]) {
        let lane = Lane::mine();
        let mut chosen = None;
        for part in parts {
            if chosen.is_some_and(|(request, _)| request != part.request) {
                chosen = None;
            }
            let cached = self
                .shared
                .cached(self.file, part.page, self.size, part.within, part.buf);
            part.step = match cached {
                Some(bytes) => {
                    part.done(bytes, Taken::Cache, Why::Cached);
                    Step::Done
                }
                None => match self.choose(lane, part, &mut chosen) {
                    Ok(step) => step,
                    Err(why) => {
                        part.why = why;
                        Step::Rpc
                    }
                },
            };
        }
    }

    /// Is there a reference that reaches to the part, and does the policy choose the direct route? It chooses once for
    /// each request.
    fn choose(
        &self,
        lane: Lane,
        part: &mut Part<'_>,
        chosen: &mut Option<(usize, Choice)>,
    ) -> Result<Step, Why> {
        if self.shared.options.route == Route::Rpc {
            return Err(Why::RpcAsked);
        }
        let session = self.session.as_ref().ok_or(Why::NoSession)?;
        let reference = self
            .shared
            .reference(lane, self.file, session, part.page)
            .ok_or(Why::NoReference)?;
        if reference.length as usize <= part.within {
            return Err(Why::NoReference);
        }
        let (_, choice) = *chosen.get_or_insert_with(|| (part.request, self.ask_policy()));
        match choice {
            Choice::Direct => part.why = Why::Referenced,
            Choice::Probe => {
                part.why = Why::Probe;
                part.probe = true;
            }
            Choice::Rpc => return Err(Why::PolicyOnRpc),
            Choice::Check => return Err(Why::Check),
        }
        if session.one_sided && !prefers_guarded(self.shared) {
            if let Some(view) = &session.view {
                view.prefetch_stamp(reference.address);
            }
            return Ok(Step::OneSided(reference));
        }
        Ok(Step::Guarded(reference))
    }

    fn ask_policy(&self) -> Choice {
        if self.file.direct.load(Relaxed) & 1 << self.class.index() != 0 {
            return Choice::Direct;
        }
        let mut policy = self.shared.policy.lock();
        let mut record = self.file.record.lock();
        policy.choose(&mut record, self.class, clock::now().0)
    }

    /// Step 3, one-sided: the first lines of the next part are on their way while one is copied.
    fn one_sided(&self, parts: &mut [Part<'_>]) {
        let Some((session, view)) = self
            .session
            .as_ref()
            .and_then(|s| Some((s, s.view.as_ref()?)))
        else {
            return;
        };
        let mut scratch = self.scratch();
        for at in 0..parts.len() {
            if let Some(Part {
                step: Step::OneSided(next),
                within,
                ..
            }) = parts.get(at + 1)
            {
                view.prefetch(next.address + *within as u64, PREFETCH_LINES);
            }
            let part = &mut parts[at];
            let Step::OneSided(reference) = part.step else {
                continue;
            };
            let began = part.probe.then(clock::now);
            let wanted = part.wanted(&reference, !scratch.is_empty());
            let into = if wanted.whole {
                &mut scratch[..wanted.bytes]
            } else {
                &mut part.buf[..wanted.bytes]
            };
            if view.read(
                reference.address + wanted.from as u64,
                into,
                reference.epoch,
            ) {
                part.finish(self, &wanted, &scratch, Taken::OneSided);
            } else {
                if !view.is_alive() {
                    session.end();
                }
                let sample = began.map(|began| clock::now().since(began).0);
                self.refuse(session, part, &reference, Exception::Stale, sample);
            }
        }
    }

    /// Step 3, guarded: many in flight, data lands in the connection's sink. Also one-sided where the fabric offers no
    /// loads: RDMA Reads of the data and its stamp.
    fn guarded(&self, parts: &mut [Part<'_>]) -> Result<(), Failed> {
        let direct = |part: &Part<'_>| matches!(part.step, Step::Guarded(_) | Step::OneSided(_));
        if !parts.iter().any(direct) {
            return Ok(());
        }
        let (Some(session), shared) = (self.session.as_ref(), self.shared) else {
            return Ok(());
        };
        let deadline = shared.calls.deadline();
        let made = || DirectPair::new(session, &shared.calls, deadline);
        let mut pair = match session.pairs.take(deadline, made) {
            Ok(pair) => pair,
            Err(TakeError::TimedOut) => return Err(Failed::TimedOut),
            Err(TakeError::NotMade(_)) => {
                session.end();
                parts
                    .iter_mut()
                    .filter(|part| direct(part))
                    .for_each(Part::connection_lost);
                return Ok(());
            }
        };
        match self.on_pair(session, &mut pair, parts, deadline) {
            Ok(()) => {
                shared.policy.lock().feedback(pair.feedback());
                Ok(())
            }
            Err(PairFailed::TimedOut) => Err(Failed::TimedOut),
            Err(PairFailed::Broken(broken)) => {
                tracing::debug!(%broken, "a connection for direct reads was lost");
                pair.discard();
                session.look();
                parts
                    .iter_mut()
                    .filter(|part| direct(part))
                    .for_each(Part::connection_lost);
                Ok(())
            }
        }
    }

    fn on_pair(
        &self,
        session: &Session,
        pair: &mut DirectPair,
        parts: &mut [Part<'_>],
        deadline: Nanos,
    ) -> Result<(), PairFailed> {
        let mut scratch = self.scratch();
        let mut next = 0;
        loop {
            while next < parts.len() {
                match self.post(session, pair, &mut parts[next], next, !scratch.is_empty()) {
                    Ok(()) => next += 1,
                    Err(NotPosted::Full) => break,
                    Err(NotPosted::Broken(broken)) => return Err(broken.into()),
                }
            }
            pair.flush();
            if pair.in_flight() == 0 && next == parts.len() {
                return Ok(());
            }
            let Some(answer) = pair.next(deadline)? else {
                return Err(PairFailed::TimedOut);
            };
            let part = &mut parts[answer.part];
            let (Step::Guarded(reference) | Step::OneSided(reference)) = part.step else {
                return Err(Broken("the server completed what was not asked".into()).into());
            };
            let one_sided = matches!(part.step, Step::OneSided(_));
            let wanted = part.wanted(&reference, !scratch.is_empty());
            match answer.result {
                Ok(bytes) if bytes as usize == wanted.bytes => {
                    let into = if wanted.whole {
                        &mut scratch[..wanted.bytes]
                    } else {
                        &mut part.buf[..wanted.bytes]
                    };
                    if !pair.take(&answer, into) {
                        return Err(Broken("the server completed what was not asked".into()).into());
                    }
                    session.was_served();
                    part.finish(
                        self,
                        &wanted,
                        &scratch,
                        if one_sided {
                            Taken::OneSided
                        } else {
                            Taken::Guarded
                        },
                    );
                }
                Ok(_) => self.refuse(session, part, &reference, Exception::OutOfBounds, None),
                Err(exception) => {
                    let sample = clock::now().since(part.began).0;
                    self.refuse(session, part, &reference, exception, Some(sample));
                }
            }
        }
    }

    fn post(
        &self,
        session: &Session,
        pair: &mut DirectPair,
        part: &mut Part<'_>,
        at: usize,
        fill: bool,
    ) -> Result<(), NotPosted> {
        match part.step {
            Step::Guarded(reference) => {
                let wanted = part.wanted(&reference, fill);
                part.began = clock::now();
                pair.post(
                    session,
                    &reference,
                    wanted.from as u32,
                    wanted.bytes as u32,
                    at,
                )
            }
            Step::OneSided(reference) => {
                let wanted = part.wanted(&reference, fill);
                part.began = clock::now();
                pair.post_one_sided(&reference, wanted.from as u32, wanted.bytes as u32, at)
            }
            Step::Look | Step::Rpc | Step::Done => Ok(()),
        }
    }

    /// A direct try was refused: the reference is forgotten or kept, the part goes on by RPC.
    fn refuse(
        &self,
        session: &Session,
        part: &mut Part<'_>,
        reference: &Reference,
        why: Exception,
        sample_ns: Option<u64>,
    ) {
        self.shared
            .refused(session, self.file, part.page, reference, why);
        let lane = Lane::mine();
        self.shared.lanes.counts(lane).refused(lane, why);
        part.stale_ns = sample_ns;
        part.why = Why::Refused(why);
        part.step = Step::Rpc;
    }

    /// Room for a page, where pages are kept; else none.
    fn scratch(&self) -> Vec<u8> {
        if self.shared.caches() {
            vec![0; self.size.bytes()]
        } else {
            Vec::new()
        }
    }

    /// Counts each request under the slowest route that any of its parts took, and tells the policy of it.
    fn account(&self, parts: &[Part<'_>], ranges: &[Range<usize>], began: Nanos) {
        let took_ns = clock::now().since(began).0 / ranges.len().max(1) as u64;
        let mut told = Told::default();
        let lane = Lane::mine();
        let counts = self.shared.lanes.counts(lane);
        for range in ranges {
            let parts = &parts[range.clone()];
            counts.bytes_read.add(lane, contiguous(parts) as u64);
            let slowest = parts.iter().map(|part| part.taken).max();
            match slowest.unwrap_or(Taken::Cache) {
                Taken::Cache => counts.cache_hits.add(lane, 1),
                Taken::OneSided => counts.one_sided_hits.add(lane, 1),
                Taken::Guarded => counts.guarded_hits.add(lane, 1),
                Taken::Rpc | Taken::PlainRpc => counts.rpc_reads.add(lane, 1),
            }
            told.count(parts);
        }
        self.shared
            .tell_reads(self.file, self.class, &told, took_ns);
    }
}

/// What the requests of a batch came to, for the policy.
#[derive(Debug, Default)]
pub struct Told {
    /// Requests that were read directly, entirely or but for what had no reference.
    pub completed: u32,
    /// All parts of all of those were.
    pub mixed: bool,
    /// Requests that were read by RPC alone.
    pub by_rpc: u32,
    /// Requests of which a part was refused, with the time of the first refusal where it was measured.
    pub refused: Vec<Option<u64>>,
}

impl Told {
    fn count(&mut self, parts: &[Part<'_>]) {
        let refused = |part: &&Part<'_>| matches!(part.why, Why::Refused(_));
        let direct = |part: &Part<'_>| matches!(part.taken, Taken::OneSided | Taken::Guarded);
        let by_rpc = |part: &Part<'_>| matches!(part.taken, Taken::Rpc | Taken::PlainRpc);
        if let Some(part) = parts.iter().find(refused) {
            self.refused.push(part.stale_ns);
        } else if parts.iter().any(direct) {
            self.completed += 1;
            self.mixed |= !parts.iter().all(direct);
        } else if parts.iter().any(by_rpc) {
            self.by_rpc += 1;
        }
    }
}

/// What is asked of a page: all its valid bytes where they are kept, else the part's alone.
pub struct Wanted {
    from: usize,
    bytes: usize,
    whole: bool,
}

impl Part<'_> {
    fn wanted(&self, reference: &Reference, fill: bool) -> Wanted {
        let valid = reference.length as usize;
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
    fn finish(&mut self, reading: &Reading<'_>, wanted: &Wanted, scratch: &[u8], taken: Taken) {
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
    pub fn done(&mut self, bytes: usize, taken: Taken, why: Why) {
        self.bytes = bytes;
        self.taken = taken;
        self.why = why;
        self.step = Step::Done;
        if let Some(took) = &mut self.took {
            *took = clock::now().since(self.began);
        }
    }

    fn connection_lost(&mut self) {
        self.why = Why::ConnectionLost;
        self.step = Step::Rpc;
    }

    fn traced(&self, size: PageSize) -> trace::Step {
        trace::Step {
            offset: size.start(self.page) + self.within as u64,
            length: self.bytes as u32,
            taken: self.taken,
            why: self.why,
            took: self.took.unwrap_or_default().duration(),
        }
    }
}

/// Bytes from the start up to the first part that fell short: there the file ended when that part was read.
fn contiguous(parts: &[Part<'_>]) -> usize {
    let mut bytes = 0;
    for part in parts {
        bytes += part.bytes;
        if part.bytes < part.buf.len() {
            break;
        }
    }
    bytes
}

enum PairFailed {
    TimedOut,
    Broken(Broken),
}

impl From<Broken> for PairFailed {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Why a read failed.
pub enum Failed {
    /// The deadline passed while direct reads were in flight.
    TimedOut,
    /// The server refused the read.
    Status(crate::error::Status),
    /// The call failed.
    Call(CallError),
}

impl Failed {
    fn of(self, file: &File, offset: u64) -> ReadError {
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
