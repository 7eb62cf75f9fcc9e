//! The steps that all reads share: finding a page, and getting it out of the server's memory.

use crate::{
    directory::Location,
    nfs::references,
    options::Route,
    part::ReadStep,
    route::{Choice, Purpose, RouteOrder},
    session::Session,
    shared::{Shared, TimedRead},
    state::FileState,
    trace::RouteReason,
};
use odafs_common::page::PageSize;
use odafs_fabric::memory::ArenaView;
use std::ops::Range;

/// What the steps of a read need.
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    /// The client.
    pub shared: &'a Shared,
    /// The file.
    pub file: &'a FileState,
    /// The session, if there is one.
    pub session: Option<&'a Session>,
    /// The page size.
    pub size: PageSize,
    /// The read's order.
    pub asked: TimedRead,
}

/// The result of looking into the data cache and the directory.
pub enum Found {
    /// The data cache had this many bytes of the page.
    Cached(usize),
    /// The page is not in the data cache. Take this step next, for this reason.
    Next(ReadStep, RouteReason),
}

/// The source of a page that is not in the data cache.
enum Source<'s> {
    /// The server's memory, which is mapped into this process.
    Loads(&'s Session),
    /// A connection for direct reads, by this direct route.
    Pair(&'s Session, Choice),
    /// A call.
    Call,
}

/// The source of a page for which the directory has a reference: as the order says, if the session allows it.
#[inline]
fn source<'s>(order: &RouteOrder, session: Option<&'s Session>) -> Result<Source<'s>, RouteReason> {
    match (order.choice, session) {
        (Choice::Rpc, _) => Ok(Source::Call),
        (_, None) => Err(RouteReason::NoSession),
        (Choice::OneSided, Some(session)) if session.one_sided => Ok(match &session.view {
            Some(_) => Source::Loads(session),
            None => Source::Pair(session, Choice::OneSided),
        }),
        (_, Some(session)) => Ok(Source::Pair(session, Choice::Guarded)),
    }
}

impl<'a> Steps<'a> {
    /// Steps 1 and 2. Looks into the data cache, and on a hit fills `buf` with the page's bytes from `within` on. On a
    /// miss, looks into the directory.
    #[inline]
    pub fn look(&self, page: u64, within: usize, buf: &mut [u8]) -> Found {
        let (shared, file, order) = (self.shared, self.file, self.asked.order());
        if order.keeps {
            let shard = self.asked.shard();
            let far = !self.asked.has_looked() && shared.follow(file, page, self.size, shard);
            if let Some(bytes) = shared.cached(file, page, self.size, within, far, buf) {
                return Found::Cached(bytes);
            }
        }
        let (step, length) = match source(order, self.session) {
            Err(why) => return Found::Next(ReadStep::Rpc, why),
            Ok(Source::Call) if shared.options.route == Route::Rpc => {
                return Found::Next(ReadStep::Rpc, RouteReason::RpcAsked);
            }
            // The policy had no routes to choose from.
            Ok(Source::Call) if self.session.is_none() => {
                return Found::Next(ReadStep::Rpc, RouteReason::NoSession);
            }
            Ok(Source::Call) => {
                let why = match order.purpose {
                    Purpose::Trial { .. } => RouteReason::Trial,
                    Purpose::Standing | Purpose::Probe | Purpose::Together => {
                        RouteReason::PolicyOnRpc
                    }
                };
                return Found::Next(ReadStep::Rpc, why);
            }
            Ok(Source::Loads(session)) => match shared.location(file, session, page) {
                Some(location) => (ReadStep::Load(location), location.length),
                None => return Found::Next(ReadStep::Rpc, RouteReason::NoReference),
            },
            Ok(Source::Pair(session, choice)) => match shared.reference(file, session, page) {
                Some(known) if choice == Choice::OneSided => {
                    (ReadStep::OneSided(known), known.length)
                }
                Some(known) => (ReadStep::Guarded(known), known.length),
                None => return Found::Next(ReadStep::Rpc, RouteReason::NoReference),
            },
        };
        if length as usize <= within {
            return Found::Next(ReadStep::Rpc, RouteReason::NoReference);
        }
        let why = match order.purpose {
            Purpose::Standing | Purpose::Together => RouteReason::Referenced,
            Purpose::Probe => RouteReason::Probe,
            Purpose::Trial { .. } => RouteReason::Trial,
        };
        Found::Next(step, why)
    }

    /// Counts the lookup in the directory, if there was one. A read that looks again counts the last time.
    pub fn count(&self, found: &Found, page: u64) {
        let shard = self.asked.shard();
        match found {
            Found::Next(_, RouteReason::NoReference) => {
                self.shared.no_reference(shard, self.was_evicted(page));
            }
            Found::Next(ReadStep::Load(_) | ReadStep::OneSided(_) | ReadStep::Guarded(_), _) => {
                self.shared.was_referenced(shard);
            }
            Found::Next(..) | Found::Cached(_) => {}
        }
    }

    /// Whether the directory had a reference of the page that more memory would have kept.
    #[cold]
    pub fn was_evicted(&self, page: u64) -> bool {
        self.shared.directory.is_evicted(&self.file.tree, page)
    }

    /// Called when the first of a read's pages has no reference although direct reads are the rule. If the read belongs
    /// to a sequential run, returns the run's next pages, whose references to ask for.
    #[cold]
    pub fn run_ahead(&self, pages: Range<u64>) -> Option<Range<u64>> {
        if self.asked.order().purpose != Purpose::Standing {
            return None;
        }
        self.file.ahead.missed(pages)
    }

    /// As [`run_ahead`](Self::run_ahead), and fetches the references. Returns true if some came.
    #[cold]
    pub fn ask_ahead(&self, pages: Range<u64>) -> bool {
        let Some(pages) = self.run_ahead(pages) else {
            return false;
        };
        let wanted = references::Wanted::pages(self.file, &pages, self.size);
        // On failure, the read goes on without references.
        let learned = references::hint(self.shared, &[wanted]);
        self.file.ahead.came(&pages, learned[0]);
        learned[0] > 0
    }

    /// The session and the server's memory, if that is mapped into this process.
    #[inline]
    pub fn view(&self) -> Option<(&'a Session, &'a ArenaView)> {
        let session = self.session?;
        Some((session, session.view.as_ref()?))
    }

    /// Step 3 where the server's memory is mapped: copies the page's bytes from `from` on, and checks the page's stamp.
    /// Returns false if the bytes are not the page's.
    #[inline]
    pub fn load(&self, location: &Location, from: usize, into: &mut [u8]) -> bool {
        let Some((session, view)) = self.view() else {
            return false;
        };
        let good = view.read(location.address + from as u64, into, location.epoch);
        if !good && !view.is_alive() {
            session.end();
        }
        good
    }

    /// Whether to keep what this read reads. A page that finds no frame is read without being kept.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.asked.order().keeps && self.shared.has_room()
    }

    /// Whether a call for this page shall ask for references. References by which nobody reads are useless. Without a
    /// session, asking for references is an occasion to ask for a session again.
    #[inline]
    pub fn learns(&self, page: u64) -> bool {
        let directory = &self.shared.directory;
        self.session.is_none()
            || (self.asked.order().learns && directory.wants(&self.file.tree, page))
    }
}
