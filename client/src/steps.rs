//! The steps that all reads take: where a page is to be had, and how it comes out of the server's memory.

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

/// What a read works with.
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    /// The client.
    pub shared: &'a Shared,
    /// The file.
    pub file: &'a FileState,
    /// The session, if there is one.
    pub session: Option<&'a Session>,
    /// Page size.
    pub size: PageSize,
    /// What the read is to do.
    pub asked: TimedRead,
}

/// What the data cache and the directory have of a page.
pub enum Found {
    /// The data cache had it: so many bytes.
    Cached(usize),
    /// It is to be had by this step, and why.
    Next(ReadStep, RouteReason),
}

/// Where a page that is not in the data cache comes from.
enum Source<'s> {
    /// The server's memory, which is mapped here.
    Loads(&'s Session),
    /// A connection for direct reads, by one of the direct routes.
    Pair(&'s Session, Choice),
    /// A call.
    Call,
}

/// The route that a read takes for a page that it has a reference of: the order's, as far as the session goes.
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
    /// Steps 1 and 2: the data cache, from which `buf` is filled with the page's bytes from `within` on; then the
    /// directory.
    #[inline]
    pub fn look(&self, page: u64, within: usize, buf: &mut [u8]) -> Found {
        let (shared, file, order) = (self.shared, self.file, self.asked.order());
        if order.keeps {
            shared.follow(file, page, self.size, self.asked.shard());
        }
        if order.keeps
            && let Some(bytes) = shared.cached(file, page, self.size, within, buf)
        {
            return Found::Cached(bytes);
        }
        let (step, length) = match source(order, self.session) {
            Err(why) => return Found::Next(ReadStep::Rpc, why),
            Ok(Source::Call) if shared.options.route == Route::Rpc => {
                return Found::Next(ReadStep::Rpc, RouteReason::RpcAsked);
            }
            // The policy has had nothing to choose from.
            Ok(Source::Call) if self.session.is_none() => {
                return Found::Next(ReadStep::Rpc, RouteReason::NoSession);
            }
            Ok(Source::Call) => return Found::Next(ReadStep::Rpc, RouteReason::PolicyOnRpc),
            Ok(Source::Loads(session)) => {
                match shared.location(file, session, page, self.asked.shard()) {
                    Some(location) => (ReadStep::Load(location), location.length),
                    None => return Found::Next(ReadStep::Rpc, RouteReason::NoReference),
                }
            }
            Ok(Source::Pair(session, choice)) => {
                match shared.reference(file, session, page, self.asked.shard()) {
                    Some(known) if choice == Choice::OneSided => {
                        (ReadStep::OneSided(known), known.length)
                    }
                    Some(known) => (ReadStep::Guarded(known), known.length),
                    None => return Found::Next(ReadStep::Rpc, RouteReason::NoReference),
                }
            }
        };
        if length as usize <= within {
            return Found::Next(ReadStep::Rpc, RouteReason::NoReference);
        }
        let why = match order.purpose {
            Purpose::Standing => RouteReason::Referenced,
            Purpose::Probe => RouteReason::Probe,
            Purpose::Trial { .. } => RouteReason::Trial,
        };
        Found::Next(step, why)
    }

    /// The first of a read's pages has no reference, where direct reads are the rule: if the read is one of a run, those of
    /// the run's next pages are asked for at once. True if some came.
    #[cold]
    pub fn ask_ahead(&self, pages: Range<u64>) -> bool {
        if self.asked.order().purpose != Purpose::Standing {
            return false;
        }
        let Some(pages) = self.file.ahead.missed(pages) else {
            return false;
        };
        let wanted = references::Wanted::pages(self.file, &pages, self.size);
        // The read goes on without them.
        let learned = references::hint(self.shared, wanted);
        self.file.ahead.came(&pages, learned);
        learned > 0
    }

    /// The session and the server's memory, where that is mapped here.
    #[inline]
    pub fn view(&self) -> Option<(&'a Session, &'a ArenaView)> {
        let session = self.session?;
        Some((session, session.view.as_ref()?))
    }

    /// Step 3 where the server's memory is mapped: copies the page's bytes from `from` on, and checks its stamp. False if
    /// they are not the page's.
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

    /// Is what is read to be kept? A page that finds no frame is read as if none were kept.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.asked.order().keeps && self.shared.has_room()
    }

    /// Is a call for this page to ask for references? Those that nobody reads by are of no use. Without a session one is
    /// asked for again, now and then.
    #[inline]
    pub fn learns(&self, page: u64) -> bool {
        let directory = &self.shared.directory;
        self.session.is_none()
            || (self.asked.order().learns && directory.wants(&self.file.tree, page))
    }
}
