//! A read within one page, as most reads are. It takes the steps of [`crate::read`], but allocates nothing, takes at
//! most one lock besides that of a connection, and rarely reads the clock.

use crate::{
    cache::Put,
    delegation::Asking,
    direct::Alone,
    directory::Location,
    nfs,
    open_file::OpenFile,
    part::{Failed, ReadStep},
    route::{Choice, SizeClass},
    session::Session,
    shared::{Shared, TimedRead},
    state::FileState,
    steps::{Found, Steps},
    trace::RouteReason,
};
use odafs_common::{exception::Exception, page::PageSize, reference::Reference};
use odafs_fabric::clock::{self, Nanos};

/// Whether a read may wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It may wait until the deadline.
    Yes,
    /// It may not. The caller has other work to do.
    No,
}

/// The result of the short path.
pub enum Ended {
    /// The read is complete, with this many bytes.
    Read(usize),
    /// The read has failed.
    Failed(Failed),
    /// The read needs the long path of [`crate::read`]. The order is included if the read has asked for one.
    LongerWay(Option<TimedRead>),
    /// A direct read was refused after this many nanoseconds.
    Refused(TimedRead, Exception, u64),
}

/// A read of one page.
struct PageRead<'a> {
    steps: Steps<'a>,
    page: u64,
    within: usize,
}

/// How the bytes of a page came.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    /// Number of bytes.
    pub bytes: usize,
    /// The route.
    pub by: Choice,
    /// How long it took in nanoseconds, if it was timed.
    pub took_ns: Option<u64>,
}

/// Reads, if one page contains everything that is wanted.
#[inline]
pub fn read(file: &OpenFile, buf: &mut [u8], offset: u64, waits: Waits) -> Ended {
    if buf.is_empty() {
        return Ended::Read(0);
    }
    match file.session_at_hand() {
        Some(session) => read_in(file, Some(&**session), buf, offset, waits),
        None => without_session_at_hand(file, buf, offset, waits),
    }
}

/// As [`read`], if the session must be looked up, there is none, or reads are recorded.
fn without_session_at_hand(file: &OpenFile, buf: &mut [u8], offset: u64, waits: Waits) -> Ended {
    let session = file.shared().session();
    let began = file.records_from();
    let asked = (offset, buf.len());
    let ended = read_in(file, session.as_deref(), buf, offset, waits);
    if let Some(began) = began {
        match &ended {
            Ended::Read(bytes) => file.note_read(began, asked, Ok(*bytes)),
            Ended::Failed(_) => file.note_read(began, asked, Err(())),
            // The read goes on in `read`, which records it.
            Ended::LongerWay(_) | Ended::Refused(..) => {}
        }
    }
    ended
}

/// Where only delegated files are kept: the order of a read, of which nothing is kept if the file is not delegated. Without
/// `asking` the read may not wait. `None`: it would have to.
#[inline]
pub fn attend(
    shared: &Shared,
    file: &FileState,
    asked: TimedRead,
    asking: Option<&mut Asking>,
) -> Option<TimedRead> {
    if !shared.delegates() || !asked.order().keeps {
        return Some(asked);
    }
    let delegated = match asking {
        Some(asking) => shared.is_delegated(file, asking),
        None => shared.is_delegated_at_once(file)?,
    };
    Some(asked.kept_if(delegated))
}

#[inline(always)]
fn read_in(
    file: &OpenFile,
    session: Option<&Session>,
    buf: &mut [u8],
    offset: u64,
    waits: Waits,
) -> Ended {
    let shared = file.shared();
    let size = shared.page(session);
    let within = size.within(offset);
    if within + buf.len() > size.bytes() {
        return Ended::LongerWay(None);
    }
    let class = SizeClass::of(buf.len());
    let asked = match waits {
        Waits::Yes => shared.ask(file.state(), class),
        // Only take a standing order: what the policy wants to try may have to wait.
        Waits::No => match shared.standing(file.state(), class) {
            Some(asked) => asked,
            None => return Ended::LongerWay(None),
        },
    };
    let mut asking = (waits == Waits::Yes).then(Asking::default);
    let Some(asked) = attend(shared, file.state(), asked, asking.as_mut()) else {
        return Ended::LongerWay(None);
    };
    let read = PageRead {
        steps: Steps {
            shared,
            file: file.state(),
            session,
            size,
            asked,
        },
        page: size.index(offset),
        within,
    };
    let ended = read.run(buf, waits);
    if let Ended::Read(_) = ended {
        shared.note_page(file.state(), read.page);
    }
    ended
}

impl PageRead<'_> {
    /// Takes the steps.
    #[inline]
    fn run(&self, buf: &mut [u8], waits: Waits) -> Ended {
        let Steps {
            shared,
            file,
            size,
            asked,
            ..
        } = self.steps;
        // Steps 1 and 2: the data cache, the directory.
        let mut missed = None;
        let step = match self.steps.look(self.page, self.within, buf) {
            Found::Cached(bytes) => {
                shared.was_hit(file, &asked, bytes);
                return Ended::Read(bytes);
            }
            Found::Next(ReadStep::Load(location), _) => ReadStep::Load(location),
            Found::Next(..) if waits == Waits::No => return Ended::LongerWay(Some(asked)),
            // The time of this read counts for no route.
            Found::Next(_, RouteReason::NoReference)
                if self.steps.ask_ahead(self.page..self.page + 1) =>
            {
                return Ended::LongerWay(None);
            }
            Found::Next(step, RouteReason::NoReference) => {
                // The reply may bring a reference.
                missed = Some(self.steps.was_evicted(self.page));
                step
            }
            Found::Next(step, _) => step,
        };
        // Steps 3 and 4: directly, or by RPC. Fetch the whole page if it is kept.
        let valid = match step {
            ReadStep::Load(location) => location.length as usize,
            ReadStep::OneSided(reference) | ReadStep::Guarded(reference) => {
                reference.length as usize
            }
            ReadStep::Look | ReadStep::Rpc | ReadStep::Done => size.bytes(),
        };
        let ended = if !self.steps.keeps() {
            let length = buf.len().min(valid.saturating_sub(self.within));
            self.fetch(&step, self.within, &mut buf[..length])
        } else if buf.len() == size.bytes() {
            self.fetch_and_keep(&step, &mut buf[..valid])
        } else {
            let mut aside = [0; PageSize::MIN.bytes()];
            let Some(page) = aside.get_mut(..valid) else {
                return Ended::LongerWay(Some(asked));
            };
            let fetched = self.fetch_and_keep(&step, page);
            fetched.map(|fetched| {
                let there = page[..fetched.bytes].get(self.within..).unwrap_or(&[]);
                let bytes = there.len().min(buf.len());
                buf[..bytes].copy_from_slice(&there[..bytes]);
                Fetched { bytes, ..fetched }
            })
        };
        match ended {
            Ok(fetched) => {
                if let Some(evicted) = missed {
                    shared.no_reference(asked.shard(), evicted);
                }
                shared.was_read(file, &asked, &fetched);
                Ended::Read(fetched.bytes)
            }
            Err(ended) => ended,
        }
    }

    /// Fetches the whole page, and keeps it if the file has not changed meanwhile.
    fn fetch_and_keep(&self, step: &ReadStep, into: &mut [u8]) -> Result<Fetched, Ended> {
        let (shared, file) = (self.steps.shared, self.steps.file);
        let moment = file.moment();
        let fetched = self.fetch(step, 0, into)?;
        let page = &into[..fetched.bytes];
        let timed = fetched.took_ns.map(|_| clock::now());
        let put = shared.keep(file, moment, self.page, self.steps.size, page);
        if let (Some(began), Put::InPlace { .. }) = (timed, put) {
            shared.policy.lock().put(clock::now().since(began).0);
        }
        Ok(fetched)
    }

    /// Fetches bytes of the page, from `from` on.
    #[inline]
    fn fetch(&self, step: &ReadStep, from: usize, into: &mut [u8]) -> Result<Fetched, Ended> {
        let steps = &self.steps;
        let (bytes, by) = match step {
            ReadStep::Load(location) => {
                return self.load(location, from, into);
            }
            ReadStep::OneSided(reference) => {
                self.on_pair(reference, Choice::OneSided, from, into)?;
                (into.len(), Choice::OneSided)
            }
            ReadStep::Guarded(reference) => {
                self.on_pair(reference, Choice::Guarded, from, into)?;
                (into.len(), Choice::Guarded)
            }
            ReadStep::Look | ReadStep::Rpc | ReadStep::Done => {
                (self.call(from, into)?, Choice::Rpc)
            }
        };
        let took_ns = steps.asked.took_ns();
        Ok(Fetched { bytes, by, took_ns })
    }

    /// Loads bytes of the page from the server's memory.
    #[inline]
    fn load(&self, location: &Location, from: usize, into: &mut [u8]) -> Result<Fetched, Ended> {
        let steps = &self.steps;
        let loads = &steps.file.ticks[steps.asked.shard().index()].loads;
        let whole = steps.size == PageSize::MIN && into.len() == PageSize::MIN.bytes();
        if whole
            && !loads.follows(self.page)
            && loads.are_far()
            && let Some((_, view)) = steps.view()
        {
            view.prefetch_page(location.address + from as u64);
        }
        if !steps.load(location, from, into) {
            // The long path tries again, counts the refusal and reports its reason.
            return Err(Ended::LongerWay(Some(steps.asked)));
        }
        let took_ns = steps.asked.took_ns();
        if let Some(ns) = took_ns.filter(|_| whole) {
            loads.took(ns);
        }
        Ok(Fetched {
            bytes: into.len(),
            by: Choice::OneSided,
            took_ns,
        })
    }

    /// Reads on an idle connection for direct reads, one read at a time.
    fn on_pair(
        &self,
        reference: &Reference,
        choice: Choice,
        from: usize,
        into: &mut [u8],
    ) -> Result<(), Ended> {
        let Steps {
            shared,
            file,
            session,
            asked,
            ..
        } = self.steps;
        let longer_way = || Err(Ended::LongerWay(Some(asked)));
        let idle = session.and_then(|session| Some((session, session.pairs.idle()?)));
        let Some((session, mut pair)) = idle else {
            return longer_way();
        };
        let mut posted = Nanos(0);
        let deadline = || {
            posted = clock::now();
            shared.calls.deadline_from(posted)
        };
        let from = from as u32;
        let ended = match choice {
            Choice::OneSided => pair.read_one_sided_alone(reference, from, into, deadline),
            _ => pair.read_alone(session, reference, from, into, deadline),
        };
        match ended {
            Ok(Alone::Read) => {
                session.was_served();
                if asked.is_timed() {
                    shared.policy.lock().feedback(pair.feedback());
                    drop(pair);
                    session.tend(&shared.calls, posted);
                }
                Ok(())
            }
            Ok(Alone::Refused(why)) => {
                shared.was_referenced(asked.shard());
                shared.refused(session, file, self.page, reference.epoch, why);
                let took_ns = clock::now().since(posted).0;
                Err(Ended::Refused(asked, why, took_ns))
            }
            Ok(Alone::TimedOut) => Err(Ended::Failed(Failed::TimedOut)),
            Ok(Alone::Full) => longer_way(),
            Err(broken) => {
                session.lost(pair, &broken);
                longer_way()
            }
        }
    }

    /// Reads by one call.
    fn call(&self, from: usize, into: &mut [u8]) -> Result<usize, Ended> {
        let Steps {
            shared,
            file,
            size,
            asked,
            ..
        } = self.steps;
        let session = match self.steps.learns(self.page) {
            true => shared.tended_session(),
            false => None,
        };
        let offset = size.start(self.page) + from as u64;
        match nfs::read::alone(shared, file, session.as_deref(), offset, into) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Ended::LongerWay(Some(asked))),
            Err(failed) => Err(Ended::Failed(failed)),
        }
    }
}
