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
//! [`source`] decides the route, for all reads. Those within one page take the same steps in [`crate::read_page`], with
//! nothing allocated; the others are cut into parts here, which take each step together: all that can be posted is in
//! flight before the first answer is waited for.

use crate::{
    buffer::Buffer,
    direct::DirectPair,
    error::ReadError,
    file::{File, IntoRequest, ReadRequest},
    options::Route,
    part::{Failed, Part, Step, contiguous},
    pool::TakeError,
    read_into,
    read_page::{self, Ended, Waits},
    read_pair::PairFailed,
    read_rpc,
    route::{Choice, Order, Purpose, SizeClass},
    session::Session,
    shared::{Asked, Shared},
    state::FileState,
    trace::{self, Taken, Why},
};
use odafs_common::{exception::Exception, page::PageSize, reference::Reference};
use odafs_fabric::{clock, memory::ArenaView, sync::Arc};

/// Parts that are worked on together: 4 MiB of 4 KiB pages.
const PARTS_MAX: usize = 1024;
/// Cache lines of the next page that are fetched while one is copied.
const PREFETCH_LINES: u32 = 8;

/// Where a page that is not in the data cache comes from.
pub enum Source<'s> {
    /// The server's memory, which is mapped here.
    Loads(&'s Session, &'s ArenaView),
    /// A connection for direct reads, by one of the direct routes.
    Pair(&'s Session, Choice),
    /// A call.
    Call,
}

/// The route that a read takes for a page that it has a reference of: the order's, as far as the session goes.
#[inline]
pub fn source<'s>(order: &Order, session: Option<&'s Session>) -> Result<Source<'s>, Why> {
    match (order.choice, session) {
        (Choice::Rpc, _) => Ok(Source::Call),
        (_, None) => Err(Why::NoSession),
        (Choice::OneSided, Some(session)) if session.one_sided => Ok(match &session.view {
            Some(view) => Source::Loads(session, view),
            None => Source::Pair(session, Choice::OneSided),
        }),
        (_, Some(session)) => Ok(Source::Pair(session, Choice::Guarded)),
    }
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
    /// What the read is to do.
    pub asked: Asked,
    /// Somebody wants to know which way it went.
    pub traced: bool,
    /// Why the first part was refused, if it was, and how long that took in nanoseconds.
    refused: Option<(Exception, u64)>,
    /// The page that is read has been noted already.
    noted: bool,
    /// Something was on the way that is no part of a route's cost: a connection had to be made.
    pub disturbed: bool,
}

/// Reads into `buf` from `offset` on.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
    let (asked, refused) = match read_page::read(file, buf, offset, Waits::Yes) {
        Ended::Read(bytes) => return Ok(bytes),
        Ended::Failed(failed) => return Err(failed.of(file, offset)),
        Ended::LongerWay(asked) => (asked, None),
        Ended::Refused(asked, why, took_ns) => (Some(asked), Some((why, took_ns))),
    };
    let mut request = [ReadRequest::new(offset, buf)];
    read_on(file, &mut request, None, asked, refused)?;
    Ok(request[0].bytes)
}

/// A read that needs no waiting: within one page, from the data cache or the server's memory.
pub fn at_once(file: &File, buf: &mut [u8], offset: u64) -> Option<usize> {
    match read_page::read(file, buf, offset, Waits::No) {
        Ended::Read(bytes) => Some(bytes),
        _ => None,
    }
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

/// Reads all requests, together.
pub fn read_many(
    file: &File,
    requests: &mut [ReadRequest<'_>],
    trace: Option<&mut Vec<trace::Step>>,
) -> Result<(), ReadError> {
    read_on(file, requests, trace, None, None)
}

/// The same, for a read that has asked already, or whose first part was read directly and `refused`.
fn read_on(
    file: &File,
    requests: &mut [ReadRequest<'_>],
    mut trace: Option<&mut Vec<trace::Step>>,
    asked: Option<Asked>,
    refused: Option<(Exception, u64)>,
) -> Result<(), ReadError> {
    let shared = file.shared();
    let session = shared.session();
    let size = shared.page(session.as_deref());
    let bytes = requests.iter().map(|request| request.buf.len()).sum();
    let class = SizeClass::of(bytes);
    let noted = asked.is_some();
    let asked = asked.unwrap_or_else(|| shared.ask(file.state(), class));
    let mut reading = Reading {
        shared,
        file: file.state(),
        session,
        size,
        asked,
        traced: trace.is_some(),
        refused,
        noted,
        disturbed: false,
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
        self.by_loads(&mut parts);
        let failed = self
            .by_pair(&mut parts)
            .and_then(|()| read_rpc::read(self, &mut parts));
        if let Err(failed) = failed {
            return Err(failed.of(file, requests.first().map_or(0, |request| request.offset)));
        }
        self.account(&parts, &ranges);
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

    /// Step 1 and 2: the data cache, then the directory.
    fn look(&mut self, parts: &mut [Part<'_>]) {
        let refused = self.refused.take();
        if let (Some((why, took_ns)), Some(part)) = (refused, parts.first_mut()) {
            part.refused(why, Some(took_ns));
        }
        let order = self.asked.order;
        let source = source(&order, self.session.as_deref());
        for part in parts.iter_mut().filter(|part| part.step == Step::Look) {
            if !self.noted {
                self.shared.note_page(self.file, part.page);
            }
            let cached = match order.keeps {
                true => self
                    .shared
                    .cached(self.file, part.page, self.size, part.within, part.buf),
                false => None,
            };
            if let Some(bytes) = cached {
                part.done(bytes, Taken::Cache, Why::Cached);
                continue;
            }
            (part.step, part.why) = match source {
                Err(why) => (Step::Rpc, why),
                Ok(Source::Call) if self.shared.options.route == Route::Rpc => {
                    (Step::Rpc, Why::RpcAsked)
                }
                Ok(Source::Call) => (Step::Rpc, Why::PolicyOnRpc),
                Ok(Source::Loads(session, view)) => match self.reference(session, part) {
                    None => (Step::Rpc, Why::NoReference),
                    Some(reference) => {
                        view.prefetch_stamp(reference.address);
                        (Step::OneSided(reference), self.why())
                    }
                },
                Ok(Source::Pair(session, choice)) => match self.reference(session, part) {
                    None => (Step::Rpc, Why::NoReference),
                    Some(reference) if choice == Choice::OneSided => {
                        (Step::OneSided(reference), self.why())
                    }
                    Some(reference) => (Step::Guarded(reference), self.why()),
                },
            };
        }
    }

    /// A reference that reaches to the part.
    fn reference(&self, session: &Session, part: &Part<'_>) -> Option<Reference> {
        let reference = self.shared.reference(self.file, session, part.page)?;
        (reference.length as usize > part.within).then_some(reference)
    }

    /// Why a part with a reference is read directly.
    fn why(&self) -> Why {
        match self.asked.order.purpose {
            Purpose::Standing => Why::Referenced,
            Purpose::Probe => Why::Probe,
            Purpose::Trial { .. } => Why::Trial,
        }
    }

    /// Step 3, one-sided: the first lines of the next part are on their way while one is copied.
    fn by_loads(&self, parts: &mut [Part<'_>]) {
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
            let began = alone.then(clock::now);
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

    /// Step 3 on a connection: guarded, or one-sided where the fabric offers no loads (RDMA Reads of the data and its
    /// stamp). Many are in flight, and data lands in the connection's sink.
    fn by_pair(&mut self, parts: &mut [Part<'_>]) -> Result<(), Failed> {
        let direct = |part: &Part<'_>| matches!(part.step, Step::Guarded(_) | Step::OneSided(_));
        if !parts.iter().any(direct) {
            return Ok(());
        }
        let (Some(session), shared) = (self.session.as_ref(), self.shared) else {
            return Ok(());
        };
        let deadline = shared.calls.deadline();
        let mut made = false;
        let make = || {
            made = true;
            DirectPair::new(session, &shared.calls, deadline)
        };
        let taken = session.pairs.take(deadline, make);
        self.disturbed |= made;
        let mut pair = match taken {
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
        part.refused(why, sample_ns);
    }

    /// Room for a page, where pages are kept; else none.
    pub fn scratch(&self) -> Vec<u8> {
        if self.asked.order.keeps {
            vec![0; self.size.bytes()]
        } else {
            Vec::new()
        }
    }
}
