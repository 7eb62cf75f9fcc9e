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
    buffer::Buffer,
    direct::{Alone, DirectPair},
    directory::{Location, Lookup},
    error::ReadError,
    file::{File, IntoRequest, ReadRequest},
    lane::Lane,
    options::Route,
    part::{Failed, Part, Step, contiguous},
    policy::{Choice, SizeClass},
    pool::TakeError,
    read_into,
    read_pair::PairFailed,
    read_rpc,
    session::Session,
    shared::{Shared, TIMED_ONE_IN},
    state::FileState,
    trace::{self, Taken, Why},
};
use odafs_common::{exception::Exception, page::PageSize, reference::Reference};
use odafs_fabric::{
    clock::{self, Nanos},
    memory::ArenaView,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Parts that are worked on together: 4 MiB of 4 KiB pages.
const PARTS_MAX: usize = 1024;
/// Cache lines of the next page that are fetched while one is copied.
const PREFETCH_LINES: u32 = 8;

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
    /// Somebody wants to know which way it went.
    pub traced: bool,
    /// Why the first part was refused, if it was, and how long that took in nanoseconds.
    refused: Option<(Exception, u64)>,
}

/// Reads into `buf` from `offset` on.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    let by_rpc = file.shared().options.route == Route::Rpc && !file.shared().caches();
    let lone = if by_rpc && !buf.is_empty() {
        rpc_alone(file, buf, offset)
    } else if let Some(bytes) = at_once(file, buf, offset) {
        return Ok(bytes);
    } else {
        direct_alone(file, buf, offset)
    };
    let refused = match lone {
        Lone::Read(bytes) => return Ok(bytes),
        Lone::Failed(failed) => return Err(failed.of(file, offset)),
        Lone::Refused(why, took_ns) => Some((why, took_ns)),
        Lone::LongerWay => None,
    };
    let mut request = [ReadRequest::new(offset, buf)];
    read_refused(file, &mut request, None, refused)?;
    Ok(request[0].bytes)
}

/// Reads all requests into registered memory: what is long and comes by RDMA is written there by the server, all else is
/// copied there as by any read.
pub fn read_into(
    file: &File,
    buffer: &mut Buffer,
    requests: &mut [IntoRequest],
) -> Result<(), ReadError> {
    if read_into::pays(file.shared(), requests) {
        return read_into::read(file, buffer, requests);
    }
    for request in requests {
        let into = &mut buffer[request.range.clone()];
        request.bytes = read_at(file, into, request.offset)?;
    }
    Ok(())
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
    let location = found?;
    let valid = location.length as usize;
    let bytes = buf.len().min(valid.saturating_sub(within));
    let tick = &state.ticks[lane.index()];
    let ticks = tick.get() + 1;
    let began = (ticks >= TIMED_ONE_IN).then(clock::now);
    if bytes == 0 || !copy(file, view, &location, page, within, &mut buf[..bytes]) {
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

/// How a read of one page ended.
enum Lone {
    /// With so many bytes.
    Read(usize),
    /// With an exception, after so many nanoseconds.
    Refused(Exception, u64),
    /// For good.
    Failed(Failed),
    /// It is nothing for the short way.
    LongerWay,
}

/// A read within one page that is not kept, on a connection for direct reads that is there: no allocation, one lock, and
/// the clock is read while the other side is at it.
fn direct_alone(file: &File, buf: &mut [u8], offset: u64) -> Lone {
    let (shared, state) = (file.shared(), file.state());
    let class = SizeClass::of(buf.len());
    if shared.caches()
        || shared.options.route == Route::Rpc
        || state.direct.load(Relaxed) & 1 << class.index() == 0
    {
        return Lone::LongerWay;
    }
    let present;
    let session: &Session = match file.session_at_hand() {
        Some(session) => session,
        None => {
            present = shared.session();
            match &present {
                Some(session) => session,
                None => return Lone::LongerWay,
            }
        }
    };
    let (page, within) = (session.page.index(offset), session.page.within(offset));
    let one_sided = session.one_sided && !prefers_guarded(shared);
    if one_sided && session.view.is_some() || within + buf.len() > session.page.bytes() {
        return Lone::LongerWay;
    }
    let found = shared
        .directory
        .lookup(&state.tree, page, session.number, session.page);
    let Lookup::Found(reference) = found else {
        return Lone::LongerWay;
    };
    let bytes = buf
        .len()
        .min((reference.length as usize).saturating_sub(within));
    let Some(mut pair) = session.pairs.idle().filter(|_| bytes > 0) else {
        return Lone::LongerWay;
    };
    let lane = Lane::mine();
    let counts = shared.lanes.counts(lane);
    let tick = &state.ticks[lane.index()];
    let ticks = tick.get() + 1;
    let began = (ticks >= TIMED_ONE_IN).then(clock::now);
    let mut posted = Nanos(0);
    let deadline = || {
        posted = clock::now();
        shared.calls.deadline_from(posted)
    };
    let (into, from) = (&mut buf[..bytes], within as u32);
    let ended = match one_sided {
        true => pair.read_one_sided_alone(&reference, from, into, deadline),
        false => pair.read_alone(session, &reference, from, into, deadline),
    };
    match ended {
        Ok(Alone::Read) => {}
        Ok(Alone::Refused(why)) => {
            counts.directory_hits.add(lane, 1);
            counts.refused(lane, why);
            shared.refused(session, state, page, &reference, why);
            return Lone::Refused(why, clock::now().since(posted).0);
        }
        Ok(Alone::TimedOut) => return Lone::Failed(Failed::TimedOut),
        Ok(Alone::Full) => return Lone::LongerWay,
        Err(broken) => {
            tracing::debug!(%broken, "a connection for direct reads was lost");
            pair.discard();
            session.look();
            return Lone::LongerWay;
        }
    }
    session.was_served();
    counts.directory_hits.add(lane, 1);
    match one_sided {
        true => counts.one_sided_hits.add(lane, 1),
        false => counts.guarded_hits.add(lane, 1),
    }
    counts.bytes_read.add(lane, bytes as u64);
    match began {
        None => tick.set(ticks),
        Some(began) => {
            tick.set(0);
            shared.policy.lock().feedback(pair.feedback());
            shared.tell_completed(state, class, ticks, Some(clock::now().since(began).0));
        }
    }
    Lone::Read(bytes)
}

/// A read by RPC that one call can do, where no other route is wanted: nothing is allocated.
fn rpc_alone(file: &File, buf: &mut [u8], offset: u64) -> Lone {
    let shared = file.shared();
    let bytes = match read_rpc::alone(shared, file.state(), None, offset, buf) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Lone::LongerWay,
        Err(failed) => return Lone::Failed(failed),
    };
    let lane = Lane::mine();
    let counts = shared.lanes.counts(lane);
    counts.rpc_reads.add(lane, 1);
    counts.bytes_read.add(lane, bytes as u64);
    Lone::Read(bytes)
}

/// Copies from a page, and keeps all of it where pages are kept.
fn copy(
    file: &File,
    view: &ArenaView,
    location: &Location,
    page: u64,
    within: usize,
    buf: &mut [u8],
) -> bool {
    let shared = file.shared();
    if !shared.caches() {
        return view.read(location.address + within as u64, buf, location.epoch);
    }
    let moment = file.state().moment();
    let mut scratch = [0; PageSize::MIN.bytes()];
    let Some(whole) = scratch.get_mut(..location.length as usize) else {
        return false;
    };
    let read = view.read(location.address, whole, location.epoch);
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
    trace: Option<&mut Vec<trace::Step>>,
) -> Result<(), ReadError> {
    read_refused(file, requests, trace, None)
}

/// The same, where the first part was read directly and `refused`.
fn read_refused(
    file: &File,
    requests: &mut [ReadRequest<'_>],
    mut trace: Option<&mut Vec<trace::Step>>,
    refused: Option<(Exception, u64)>,
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
        refused,
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

    /// Step 1 and 2: the data cache, then the directory and the policy.
    fn look(&mut self, parts: &mut [Part<'_>]) {
        let lane = Lane::mine();
        let mut chosen = None;
        let refused = self.refused.take();
        if let (Some((why, took_ns)), Some(part)) = (refused, parts.first_mut()) {
            part.refused(why, Some(took_ns));
        }
        for part in parts.iter_mut().filter(|part| part.step == Step::Look) {
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
        // What comes this way alone has mostly been refused once already.
        let alone = parts.len() == 1;
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
            let began = (part.probe || alone).then(clock::now);
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

    /// A direct try was refused: the reference is forgotten or kept, the part goes on by RPC.
    pub fn refuse(
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
        part.refused(why, sample_ns);
    }

    /// Room for a page, where pages are kept; else none.
    pub fn scratch(&self) -> Vec<u8> {
        if self.shared.caches() {
            vec![0; self.size.bytes()]
        } else {
            Vec::new()
        }
    }
}
