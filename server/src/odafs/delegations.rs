//! Delegations of the ODAFS program: whoever has one of a file knows that nobody changes the file, and reads what it keeps
//! of it without asking. Each stands for a [`LEASE`] and then ends by itself; the client asks for another one and gives the
//! old one back with the same call. So nobody is called back: a change waits until the client asks again, which is refused,
//! or until the lease is over, which is soon.
//!
//! ```text
//!         DELEGATE          a change              returned, or the lease is over
//! (none) ----------> stands ----------> recalled --------------------------------> (none)
//!                      |                                                             ^
//!                      +-------------------------------------------------------------+
//! ```
//!
//! A client counts the lease from before it sends the call, the server from when it serves it: so the client's is over first.
//! Nothing but the client itself and time ends a delegation: it may go on reading when its connection or the server is gone.
//! A server that restarts lets nobody change anything for a lease, if an earlier life gave delegations.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::entropy;
use odafs_fabric::sync::{Arc, Mutex, MutexGuard};

use crate::vfs::ObjectId;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::metrics::{counter, gauge};
use crate::vfs::promises::{Holders, Keeper, Party};

/// How long a delegation stands.
pub const LEASE: Nanos = Nanos::from_millis(500);
/// A file that somebody else wanted to change is delegated to nobody for so long.
const COOLING: Nanos = Nanos::from_secs(30);
/// The most delegations, and the most files that cool down.
const ALL_MAX: usize = 1 << 16;
/// The most delegations of a session.
const SESSION_MAX: usize = 1 << 12;

/// What stable storage says of delegations: whether some were given.
pub struct GivenRecord {
    before: bool,
    failed: bool,
    keep: Option<Box<dyn FnMut() -> io::Result<()> + Send + Sync>>,
}

impl GivenRecord {
    /// Whether an earlier life gave some (`before`), as stable storage says. Otherwise `keep` brings there that this one does.
    pub fn new(before: bool, keep: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self {
            before,
            failed: false,
            keep: (!before).then(|| Box::new(keep) as _),
        }
    }

    /// Brings to stable storage, once, that some were given. A failure is final: none is given in this life.
    fn note(&mut self) -> bool {
        if let Some(mut keep) = self.keep.take()
            && let Err(error) = keep()
        {
            tracing::warn!(
                %error,
                "cannot keep that delegations are given"
            );
            self.failed = true;
        }
        !self.failed
    }
}

impl fmt::Debug for GivenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenRecord")
            .field("before", &self.before)
            .finish_non_exhaustive()
    }
}

/// Why there is no delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The file is being changed, or was recalled lately.
    Contention,
    /// There are as many as there may be.
    Full,
    /// Nobody would tell of changes by others, or stable storage of delegations.
    Never,
}

/// The delegations of an export's files.
pub struct Delegations {
    export: Arc<Exports>,
    /// `None`: there is no stable storage, and so nobody gets a delegation.
    record: Mutex<Option<GivenRecord>>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    all: HashMap<u64, Delegation>,
    files: HashMap<ObjectId, Delegated>,
    sessions: HashMap<u32, HashSet<u64>>,
    /// Numbers in the order in which their leases end, of delegations that are gone too.
    ends: VecDeque<(Nanos, u64)>,
    /// Until when a file is not delegated, and the same in order.
    cooling: HashMap<ObjectId, Nanos>,
    cooled: VecDeque<(Nanos, ObjectId)>,
    last: u64,
    counts: Counts,
}

struct Delegation {
    file: ObjectId,
    session: u32,
    until: Nanos,
}

/// A file that is delegated.
#[derive(Default)]
struct Delegated {
    numbers: HashSet<u64>,
    recalled: bool,
}

/// What became of delegations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that stand.
    pub held: usize,
    /// Given.
    pub granted: u64,
    /// Those that a change had to wait for.
    pub recalled: u64,
    /// Of these, those that ended with their leases: their clients did not give them back.
    pub lapsed: u64,
}

impl Delegations {
    /// Those of `export`, none yet. Asked for them by whoever changes a file.
    pub fn new(export: Arc<Exports>, record: Option<GivenRecord>) -> Arc<Self> {
        if record.as_ref().is_some_and(|record| record.before) {
            export.promises().hold(clock::now() + LEASE);
        }
        let table = Table {
            // Numbers of another life are of no use.
            last: entropy::word() >> 1,
            ..Table::default()
        };
        let delegations = Arc::new(Self {
            export,
            record: Mutex::new(record),
            table: Mutex::new(table),
        });
        let holders: Arc<dyn Holders> = Arc::clone(&delegations) as _;
        let promises = delegations.export.promises();
        promises.keep(Keeper::Odafs, Arc::downgrade(&holders));
        delegations
    }

    /// Delegates the file to a session for a [`LEASE`], and gives the number. May block.
    pub fn grant(&self, now: Nanos, session: u32, file: &Arc<File>) -> Result<u64, Refused> {
        if !file.is_watched() || !self.is_noted() {
            return Err(Refused::Never);
        }
        let object = file.object();
        let mut table = self.table_at(now);
        let recalled = table.files.get(&object).is_some_and(|of| of.recalled);
        if recalled || table.cooling.contains_key(&object) {
            return Err(Refused::Contention);
        }
        let of_session = table.sessions.get(&session).map_or(0, HashSet::len);
        // The numbers of those that were given back stay for their lease.
        if of_session >= SESSION_MAX || table.ends.len() >= ALL_MAX {
            return Err(Refused::Full);
        }
        if !self.export.promises().make(Keeper::Odafs, file) {
            return Err(Refused::Contention);
        }
        table.last += 1;
        // In order, though another thread may have looked at the clock later and come earlier.
        let last = table.ends.back().map_or(Nanos(0), |(until, _)| *until);
        let (number, until) = (table.last, last.max(now + LEASE));
        let delegation = Delegation {
            file: object,
            session,
            until,
        };
        table.all.insert(number, delegation);
        table
            .files
            .entry(object)
            .or_default()
            .numbers
            .insert(number);
        table.sessions.entry(session).or_default().insert(number);
        table.ends.push_back((until, number));
        table.counts.granted += 1;
        Ok(number)
    }

    fn is_noted(&self) -> bool {
        self.record.lock().as_mut().is_some_and(GivenRecord::note)
    }

    /// A session uses these of its delegations no more.
    pub fn give_back(&self, session: u32, numbers: &[u64]) {
        let mut table = self.table.lock();
        for number in numbers {
            let theirs = table
                .all
                .get(number)
                .is_some_and(|of| of.session == session);
            if theirs {
                self.remove(&mut table, *number);
            }
        }
    }

    /// The client has ended a session, and uses no delegation of it any more.
    pub fn end_session(&self, session: u32) {
        let mut table = self.table.lock();
        for number in table.sessions.remove(&session).unwrap_or_default() {
            self.remove(&mut table, number);
        }
    }

    /// Ends what is over by now.
    pub fn tick(&self, now: Nanos) {
        drop(self.table_at(now));
    }

    /// What became of them.
    pub fn counts(&self) -> Counts {
        let table = self.table.lock();
        Counts {
            held: table.all.len(),
            ..table.counts
        }
    }

    /// The table without what is over by now.
    fn table_at(&self, now: Nanos) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock();
        while let Some((_, number)) = table.ends.pop_front_if(|(until, _)| *until <= now) {
            let file = table.all.get(&number).map(|of| of.file);
            let recalled = file.is_some_and(|file| table.files[&file].recalled);
            table.counts.lapsed += u64::from(recalled);
            self.remove(&mut table, number);
        }
        while let Some((until, file)) = table.cooled.pop_front_if(|(until, _)| *until <= now) {
            if table.cooling.get(&file) == Some(&until) {
                table.cooling.remove(&file);
            }
        }
        table
    }

    /// The lock is held meanwhile, so that the file is not delegated anew before its promise has ended.
    fn remove(&self, table: &mut Table, number: u64) {
        let Some(Delegation { file, session, .. }) = table.all.remove(&number) else {
            return;
        };
        if let Some(of) = table.sessions.get_mut(&session) {
            of.remove(&number);
            if of.is_empty() {
                table.sessions.remove(&session);
            }
        }
        if let Some(of) = table.files.get_mut(&file) {
            of.numbers.remove(&number);
            if of.numbers.is_empty() {
                table.files.remove(&file);
                self.export.promises().end(Keeper::Odafs, file);
            }
        }
    }

    /// From now on nobody gets another delegation of the file. True: nobody has one.
    fn recall(&self, file: ObjectId) -> bool {
        let now = clock::now();
        let mut guard = self.table_at(now);
        let table = &mut *guard;
        let Some(of) = table.files.get_mut(&file) else {
            return true;
        };
        if !of.recalled {
            of.recalled = true;
            table.counts.recalled += of.numbers.len() as u64;
            if table.cooled.len() >= ALL_MAX
                && let Some((_, oldest)) = table.cooled.pop_front()
            {
                table.cooling.remove(&oldest);
            }
            table.cooling.insert(file, now + COOLING);
            table.cooled.push_back((now + COOLING, file));
        }
        false
    }

    /// Appends figures in the text format of Prometheus.
    pub fn append_text(&self, out: &mut String) {
        let counts = self.counts();
        let help = "Delegations that clients of the ODAFS program have.";
        gauge(out, "direct_delegations", help, counts.held);
        let figures = [
            ("granted", "Delegations given.", counts.granted),
            (
                "recalled",
                "Delegations that a change had to wait for.",
                counts.recalled,
            ),
            (
                "lapsed",
                "Recalled delegations that ended with their leases.",
                counts.lapsed,
            ),
        ];
        for (name, help, count) in figures {
            counter(out, &format!("direct_delegations_{name}"), help, count);
        }
    }
}

impl Holders for Delegations {
    /// Clients give their delegations back before they change a file: so whoever changes it waits for all.
    fn give_back(&self, object: ObjectId, _by: Party) -> bool {
        self.recall(object)
    }

    fn broken(&self, object: ObjectId) {
        self.recall(object);
    }

    fn end_at(&self, object: ObjectId) -> Option<Nanos> {
        let table = self.table.lock();
        let of = table.files.get(&object)?;
        let leases = of.numbers.iter().filter_map(|number| table.all.get(number));
        leases.map(|of| of.until).max()
    }
}

#[cfg(test)]
#[path = "delegations_tests.rs"]
mod tests;
