//! A read within one page, which most reads are: the steps of [`crate::read`] with nothing allocated, at most one lock
//! beyond that of a connection, and the clock read for few.

use crate::{
    direct::Alone,
    directory::Location,
    file::File,
    part::Failed,
    read::{Source, source},
    read_rpc,
    route::{Choice, SizeClass},
    session::Session,
    shared::{Asked, Shared},
    state::FileState,
};
use odafs_common::{exception::Exception, page::PageSize, reference::Reference};
use odafs_fabric::{
    clock::{self, Nanos},
    memory::ArenaView,
};

/// May the read wait for an answer?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// As long as it takes.
    Yes,
    /// No: it is for who has other work to do.
    No,
}

/// How it ended.
pub enum Ended {
    /// With so many bytes.
    Read(usize),
    /// For good.
    Failed(Failed),
    /// It takes more than the short way; what it was told to do, if it has asked.
    LongerWay(Option<Asked>),
    /// A direct read was refused, after so many nanoseconds.
    Refused(Asked, Exception, u64),
}

/// A read of one page.
struct PageRead<'a> {
    shared: &'a Shared,
    file: &'a FileState,
    session: Option<&'a Session>,
    asked: Asked,
    size: PageSize,
    page: u64,
    within: usize,
}

/// Where the page was found.
enum Found<'a> {
    Loads(&'a ArenaView, Location),
    Pair(&'a Session, Reference, Choice),
    /// The server is to be asked; for references too?
    Call {
        references: bool,
    },
}

/// How its bytes came.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    /// How many.
    pub bytes: usize,
    /// By which route.
    pub by: Choice,
    /// How long that took, if it was timed.
    pub took_ns: Option<u64>,
}

/// Reads, if one page holds all that is wanted.
#[inline]
pub fn read(file: &File, buf: &mut [u8], offset: u64, waits: Waits) -> Ended {
    let shared = file.shared();
    if buf.is_empty() {
        return Ended::Read(0);
    }
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
    if within + buf.len() > size.bytes() {
        return Ended::LongerWay(None);
    }
    let class = SizeClass::of(buf.len());
    let asked = match waits {
        Waits::Yes => shared.ask(file.state(), class),
        // What the policy wants tried may have to wait.
        Waits::No => match shared.standing(file.state(), class) {
            Some(asked) => asked,
            None => return Ended::LongerWay(None),
        },
    };
    let read = PageRead {
        shared,
        file: file.state(),
        session,
        asked,
        size,
        page: size.index(offset),
        within,
    };
    read.run(buf, waits)
}

impl PageRead<'_> {
    /// The steps.
    #[inline]
    fn run(&self, buf: &mut [u8], waits: Waits) -> Ended {
        // 1. The data cache.
        if waits == Waits::Yes {
            self.shared.note_page(self.file, self.page);
        }
        if self.asked.order.keeps
            && let Some(bytes) =
                self.shared
                    .cached(self.file, self.page, self.size, self.within, buf)
        {
            self.shared.was_hit(self.file, &self.asked, bytes);
            return Ended::Read(bytes);
        }
        // 2. The directory.
        let Some(found) = self.find().filter(|found| found.is_good(waits)) else {
            return Ended::LongerWay(Some(self.asked));
        };
        // 3. and 4. Directly, or by RPC; all of the page, where it is kept.
        let valid = found.valid(self.size);
        let ended = if !self.asked.order.keeps {
            let length = buf.len().min(valid.saturating_sub(self.within));
            self.fetch(&found, self.within, &mut buf[..length])
        } else if buf.len() == self.size.bytes() {
            self.fetch_and_keep(&found, &mut buf[..valid])
        } else {
            let mut aside = [0; PageSize::MIN.bytes()];
            let Some(page) = aside.get_mut(..valid) else {
                return Ended::LongerWay(Some(self.asked));
            };
            let fetched = self.fetch_and_keep(&found, page);
            fetched.map(|fetched| {
                let there = page[..fetched.bytes].get(self.within..).unwrap_or(&[]);
                let bytes = there.len().min(buf.len());
                buf[..bytes].copy_from_slice(&there[..bytes]);
                Fetched { bytes, ..fetched }
            })
        };
        match ended {
            Ok(fetched) => {
                self.shared.was_read(self.file, &self.asked, &fetched);
                Ended::Read(fetched.bytes)
            }
            Err(ended) => ended,
        }
    }

    /// Where the page is to be had, by the order's route.
    #[inline]
    fn find(&self) -> Option<Found<'_>> {
        let (directory, tree) = (&self.shared.directory, &self.file.tree);
        match source(&self.asked.order, self.session).ok()? {
            Source::Call => Some(Found::Call {
                references: self.asked.order.learns || self.session.is_none(),
            }),
            Source::Loads(session, view) => {
                match directory.locate(tree, self.page, session.number, session.page) {
                    Some(location) => {
                        let lane = self.asked.lane();
                        self.shared.lanes.counts(lane).directory_hits.add(lane, 1);
                        Some(Found::Loads(view, location))
                    }
                    None => self.missing(),
                }
            }
            Source::Pair(session, choice) => {
                match self.shared.reference(self.file, session, self.page) {
                    Some(reference) => Some(Found::Pair(session, reference, choice)),
                    None => self.missing(),
                }
            }
        }
    }

    #[cold]
    fn missing(&self) -> Option<Found<'_>> {
        Some(Found::Call { references: true })
    }

    /// All of the page, which is kept if the file has not changed meanwhile.
    fn fetch_and_keep(&self, found: &Found<'_>, into: &mut [u8]) -> Result<Fetched, Ended> {
        let moment = self.file.moment();
        let fetched = self.fetch(found, 0, into)?;
        let page = &into[..fetched.bytes];
        let timed = fetched.took_ns.map(|_| clock::now());
        self.shared
            .keep(self.file, moment, self.page, self.size, page);
        if let Some(began) = timed {
            self.shared.policy.lock().put(clock::now().since(began).0);
        }
        Ok(fetched)
    }

    /// What is wanted of the page, from `from` on.
    #[inline]
    fn fetch(&self, found: &Found<'_>, from: usize, into: &mut [u8]) -> Result<Fetched, Ended> {
        if into.is_empty() {
            return Err(Ended::LongerWay(Some(self.asked)));
        }
        let (bytes, by) = match found {
            Found::Loads(view, location) => {
                let address = location.address + from as u64;
                if !view.read(address, into, location.epoch) {
                    // The longer way tries again, and counts and tells why not.
                    return Err(Ended::LongerWay(Some(self.asked)));
                }
                (into.len(), Choice::OneSided)
            }
            Found::Pair(session, reference, choice) => {
                self.on_pair(session, reference, *choice, from, into)?;
                (into.len(), *choice)
            }
            Found::Call { references } => (self.call(*references, from, into)?, Choice::Rpc),
        };
        let took_ns = self.asked.took_ns();
        if by == Choice::OneSided && took_ns.is_some() {
            self.shared.directory.touch(&self.file.tree, self.page);
        }
        Ok(Fetched { bytes, by, took_ns })
    }

    /// On a connection for direct reads that is there, alone.
    fn on_pair(
        &self,
        session: &Session,
        reference: &Reference,
        choice: Choice,
        from: usize,
        into: &mut [u8],
    ) -> Result<(), Ended> {
        let longer_way = Err(Ended::LongerWay(Some(self.asked)));
        let Some(mut pair) = session.pairs.idle() else {
            return longer_way;
        };
        let mut posted = Nanos(0);
        let deadline = || {
            posted = clock::now();
            self.shared.calls.deadline_from(posted)
        };
        let from = from as u32;
        let ended = match choice {
            Choice::OneSided => pair.read_one_sided_alone(reference, from, into, deadline),
            _ => pair.read_alone(session, reference, from, into, deadline),
        };
        match ended {
            Ok(Alone::Read) => {
                session.was_served();
                if self.asked.is_timed() {
                    self.shared.policy.lock().feedback(pair.feedback());
                }
                Ok(())
            }
            Ok(Alone::Refused(why)) => {
                self.shared
                    .refused(session, self.file, self.page, reference, why);
                let took_ns = clock::now().since(posted).0;
                Err(Ended::Refused(self.asked, why, took_ns))
            }
            Ok(Alone::TimedOut) => Err(Ended::Failed(Failed::TimedOut)),
            Ok(Alone::Full) => longer_way,
            Err(broken) => {
                tracing::debug!(%broken, "a connection for direct reads was lost");
                pair.discard();
                session.look();
                longer_way
            }
        }
    }

    /// By one call.
    fn call(&self, references: bool, from: usize, into: &mut [u8]) -> Result<usize, Ended> {
        let session = match references {
            true => self.shared.tended_session(),
            false => None,
        };
        let offset = self.size.start(self.page) + from as u64;
        match read_rpc::alone(self.shared, self.file, session.as_deref(), offset, into) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err(Ended::LongerWay(Some(self.asked))),
            Err(failed) => Err(Ended::Failed(failed)),
        }
    }
}

impl Found<'_> {
    fn is_good(&self, waits: Waits) -> bool {
        waits == Waits::Yes || matches!(self, Self::Loads(..))
    }

    /// Bytes of the page, as far as is known.
    fn valid(&self, size: PageSize) -> usize {
        match self {
            Self::Loads(_, location) => location.length as usize,
            Self::Pair(_, reference, _) => reference.length as usize,
            Self::Call { .. } => size.bytes(),
        }
    }
}
