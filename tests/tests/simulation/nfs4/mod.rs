//! Clients of version 4 in a world: their operations, and what is left when they have ended.

mod client;
mod legacy;
mod lines;
mod looks;
mod ops;
mod recovery;
mod session;
mod steps;

use crate::tally::counts;
use crate::world::{PAGES, World, below};
use client::{Client, Seen};
use lines::{BOTH, By};
use looks::Looks;
use odafs_common::wire::nfs4::{OperationResult, Stable, Status, share_access, share_deny};
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Arc;
use odafs_tests::holdings::Holdings;
use ops::{Op, Units, write};
use session::results;
use std::sync::{Mutex, MutexGuard};

/// Units of a file that are locked.
pub const UNITS: u8 = 6;
/// Clients of version 4.
pub const CLIENTS: u32 = 3;
/// The most operations of each.
const STEPS: u64 = 24;

/// The times at which the server began and ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lives {
    /// The last one was begun,
    pub started: Nanos,
    /// and served.
    pub settled: Nanos,
    /// Whether the one before it lasted longer than its grace period.
    pub outlived_grace: bool,
}

/// What clients of version 4 share.
pub struct Model {
    pub lease: Nanos,
    /// Whether no deadline passes while any thread can run.
    pub in_time: bool,
    pub files: &'static [u8],
    /// Whether one client speaks minor version 0.
    pub legacy: bool,
    /// The clients that may reclaim, on stable storage.
    pub records: Arc<Mutex<String>>,
    /// The files of write delegations, on stable storage.
    pub named: Arc<Mutex<String>>,
    looks: Mutex<Looks>,
    holdings: Mutex<Holdings>,
    lives: Mutex<Lives>,
}

impl Model {
    pub fn new(files: &'static [u8], in_time: bool) -> Self {
        Self {
            lease: Nanos::from_secs(3),
            in_time,
            files,
            legacy: below(2) == 0,
            records: Arc::default(),
            named: Arc::default(),
            looks: Mutex::default(),
            holdings: Mutex::default(),
            lives: Mutex::default(),
        }
    }

    pub fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().expect("a run panicked before")
    }

    pub fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().expect("a run panicked before")
    }

    pub fn lives(&self) -> Lives {
        *self.lives.lock().expect("a run panicked before")
    }

    pub fn started(&self) -> Nanos {
        self.lives().started
    }

    /// Notes that the server has died.
    pub fn died(&self) {
        let now = clock::now();
        self.holdings().died(now.0);
        let mut lives = self.lives.lock().expect("a run panicked before");
        lives.outlived_grace = now >= lives.started + self.lease;
    }

    /// Notes that another server has started, at `started` or later.
    pub fn lives_again(&self, started: Nanos) {
        let mut lives = self.lives.lock().expect("a run panicked before");
        lives.started = started;
        lives.settled = clock::now();
    }
}

counts! {
    /// Counts of what happened to clients of version 4.
    pub struct Tally {
        sessions,
        /// Client ids of minor version 0.
        legacy,
        opens,
        reads,
        writes,
        locks,
        /// Opens and locks that the server refused because another was in the way.
        denied,
        /// Tests of locks that found nothing in the way,
        tested_free,
        /// or another's lock.
        tested_held,
        delegations,
        recalls,
        revoked,
        /// Reads and writes under delegations, without a call.
        cached,
        /// Looks at attributes.
        looks,
        /// Answers of clients about files that they may have written by themselves.
        told,
        /// Compounds that the server got twice.
        repeated,
        reclaims,
        /// Opens and locks that were not given back.
        refused_reclaims,
        /// Replies that say that no callback gets through.
        deaf,
        /// Slots that the server called back because there were too many.
        slots_recalled,
        /// Replies that ask for the use of fewer slots, also old ones that come again.
        fewer,
        /// Slots that the server gave besides.
        more,
    }
}

/// Runs a client. It makes operations at random, is cut off, sleeps too long and restarts. It may end without a word.
pub fn client(world: &World, model: &Model, number: u32) {
    let mut client = Client::new(world, model, number, model.files.len());
    client.legacy = number == 0 && model.legacy;
    for step in 0..STEPS {
        client.establish();
        client.hears();
        client.give_back();
        client.settle();
        match below(40) {
            0 => client.sleeps_too_long(),
            1 => client.starts_anew(),
            2 if !client.legacy => client.leaves_session(),
            7 if !client.legacy => client.crowds(step),
            3..7 => client.tidies(),
            _ => {}
        }
        if clock::now().since(client.renewed) > Nanos(model.lease.0 / 3) {
            client.perform(&[Op::Renew]);
        }
        client.establish();
        let ops = client.choose(step);
        client.perform(&ops);
        client.rests(Nanos(below(model.lease.0 / 8)));
    }
    if below(3) != 0 {
        client.goes();
    }
    world.tally.lock().nfs4.add(&client.tally);
}

impl Client<'_> {
    /// Does nothing for so long; it answers what it is asked, or hears that later.
    fn rests(&mut self, time: Nanos) {
        let until = clock::now() + time;
        if below(2) == 0 {
            return clock::sleep(time);
        }
        while clock::now() < until {
            self.hears();
            self.lines.wait(until);
        }
    }

    /// Longer than a lease; with its connections, or without.
    fn sleeps_too_long(&mut self) {
        self.say("sleeps");
        if below(2) == 0 {
            for by in BOTH {
                self.lines.cut(by);
            }
        }
        clock::sleep(self.model.lease + Nanos(below(self.model.lease.0)));
    }

    /// The client dies and comes back, and has nothing.
    fn starts_anew(&mut self) {
        self.say("restarts");
        for file in 0..self.held.len() {
            self.lose(file);
            self.held[file].unstable.clear();
        }
        self.verifier += 1;
        self.alive = false;
    }

    /// Goes on with another session.
    fn leaves_session(&mut self) {
        let body = self.session.destroy();
        let reply = self.deliver(&[&body], Some(By::Rdma)).remove(0);
        match results(&reply)[..] {
            // The client tries again.
            [OperationResult::DestroySession(Ok(()) | Err(Status::BadSession))] => {}
            ref other => self.fail(&format!("DESTROY_SESSION: {other:?}")),
        }
        self.alive = false;
    }

    /// Makes, now and then, an operation of more than one compound.
    fn tidies(&mut self) {
        let file = below(self.held.len() as u64) as usize;
        match below(3) {
            0 => self.return_delegation(file),
            _ => {
                self.flush(file);
                if self.alive && self.held[file].open.is_some() && self.is_flushed(file) {
                    self.perform(&[Op::Close { file }]);
                }
            }
        }
    }

    /// Makes some operations at the same time, each on a file of its own. Those that need no call end at once.
    fn choose(&mut self, step: u64) -> Vec<Op> {
        let mut ops = Vec::new();
        if below(8) == 0 {
            let name = format!("{}-{step}", self.name);
            self.perform(&[Op::Make { name: name.clone() }]);
            ops.push(Op::Remove { name });
        }
        if !self.alive {
            return Vec::new();
        }
        for file in 0..self.held.len() {
            if self.held[file].open.is_some() && below(2) == 0 {
                let page = below(PAGES.into()) as u8;
                self.sees(file, page);
            }
        }
        let mut files: Vec<usize> = (0..self.held.len()).collect();
        let most = 1 + below(self.session.slots() as u64) as usize;
        // What another writes by itself is looked at often, for which its client is asked.
        let look = self.seeks().filter(|_| ops.len() < most && below(2) == 0);
        if let Some(file) = look {
            files.retain(|other| *other != file);
            ops.push(Op::Look { file });
        }
        while ops.len() < most && !files.is_empty() {
            let file = files.swap_remove(below(files.len() as u64) as usize);
            ops.extend(self.choose_for(file));
        }
        ops
    }

    /// A file that another client has alone.
    fn seeks(&self) -> Option<usize> {
        let holdings = self.model.holdings();
        (0..self.held.len()).find(|file| {
            let held = &self.held[*file];
            held.open.is_none()
                && held.delegation.is_none()
                && holdings.is_written_by_another(self.number, self.model.files[*file])
        })
    }

    fn choose_for(&mut self, file: usize) -> Option<Op> {
        let delegated = self.held[file].delegation.as_ref();
        let (has, writes) = (
            delegated.is_some(),
            delegated.is_some_and(|held| held.write),
        );
        let recalled = delegated.is_some_and(|held| held.recalled.is_some());
        // What others shall be told of the file, it has to know first.
        if delegated.is_some_and(|held| held.write && held.known.is_none()) {
            return Some(Op::Look { file });
        }
        let Some(open) = &self.held[file].open else {
            if below(3) == 0 {
                return Some(Op::Look { file });
            }
            let access = 1 + below(3) as u32;
            let deny = [0, 0, 0, 0, share_deny::WRITE, share_deny::READ][below(6) as usize];
            let covered = has && (writes || access == share_access::READ);
            let delegated = covered && below(3) != 0;
            return Some(Op::Open {
                file,
                access,
                deny: if delegated { 0 } else { deny },
                delegated,
            });
        };
        let access = open.access;
        let page = below(PAGES.into()) as u8;
        let owner = below(2) as usize;
        let first = below(UNITS.into()) as u8;
        let count = 1 + below(u64::from(UNITS - first)) as u8;
        let units = Units { first, count };
        let has_locked = open.locks[owner].state.is_some();
        let pair = open.pairs[below(open.pairs.len() as u64) as usize];
        match below(20) {
            18 => {
                let access = 1 + below(3) as u32;
                Some(Op::Open {
                    file,
                    access,
                    deny: 0,
                    delegated: false,
                })
            }
            19 if open.pairs.len() > 1 => {
                let (access, deny) = pair;
                Some(Op::Downgrade { file, access, deny })
            }
            0..5 if access & share_access::WRITE != 0 => {
                let value = self.world.history.fresh_value();
                if writes && !recalled && below(3) != 0 {
                    self.writes(file, page, value);
                    return None;
                }
                let dirty = self.held[file].delegation.as_ref();
                // What the client has written by itself is sent first.
                if dirty.is_some_and(|held| held.dirty.contains_key(&page)) {
                    return None;
                }
                let stable = [Stable::Unstable, Stable::DataSync, Stable::FileSync];
                let stable = stable[below(3) as usize];
                Some(write(file, page, value, stable, false))
            }
            5 => Some(Op::Commit { file }),
            6..9 => Some(Op::Lock {
                file,
                owner,
                units,
                write: match access {
                    share_access::READ => false,
                    share_access::WRITE => true,
                    _ => below(2) == 0,
                },
            }),
            9..11 if has_locked => Some(Op::Unlock { file, owner, units }),
            11 => Some(Op::Test {
                file,
                owner,
                units,
                write: below(2) == 0,
            }),
            _ if self.sees(file, page) => None,
            _ => Some(Op::Read { file, page }),
        }
    }

    /// Reads a page from what the client keeps. Returns false if it takes a call.
    fn sees(&mut self, file: usize, page: u8) -> bool {
        let history = &self.world.history;
        let Some(delegation) = &mut self.held[file].delegation else {
            return false;
        };
        let Some(value) = delegation.pages.get(&page).copied() else {
            return delegation.dirty.contains_key(&page);
        };
        let seen = Seen {
            page,
            value,
            invoked: history.now(),
            returned: history.now(),
            at: clock::now(),
        };
        match delegation.dirty.get_mut(&page) {
            Some(dirty) => dirty.push((seen, false)),
            None => delegation.read.push(seen),
        }
        true
    }

    /// Writes a page under a delegation, without a call.
    fn writes(&mut self, file: usize, page: u8, value: u64) {
        let history = &self.world.history;
        let seen = Seen {
            page,
            value,
            invoked: history.now(),
            returned: history.now(),
            at: clock::now(),
        };
        if let Some(delegation) = &mut self.held[file].delegation {
            delegation.dirty.entry(page).or_default().push((seen, true));
            delegation.pages.insert(page, value);
            delegation.changes(page);
        }
        self.say(&format!(
            "writes {value} to page {page} of file {file} for itself"
        ));
    }

    fn is_flushed(&self, file: usize) -> bool {
        let delegation = self.held[file].delegation.as_ref();
        delegation.is_none_or(|delegation| delegation.dirty.is_empty())
    }

    /// Sends what the client has written without a call.
    fn flush(&mut self, file: usize) {
        for page in 0..PAGES {
            for _ in 0..200 {
                let last = (self.held[file].delegation.as_ref()).and_then(|delegation| {
                    let written = delegation.dirty.get(&page)?.iter().rev();
                    let mut written = written.filter(|(_, is_write)| *is_write);
                    written.next().map(|(seen, _)| seen.value)
                });
                let Some(value) = last.filter(|_| self.alive) else {
                    break;
                };
                self.perform(&[write(file, page, value, Stable::FileSync, true)]);
                self.settle();
                if self.is_flushed(file) {
                    break;
                }
                clock::sleep(Nanos::from_millis(50));
            }
        }
    }

    /// Returns a delegation, after all data under it is sent.
    fn return_delegation(&mut self, file: usize) {
        self.flush(file);
        if self.alive && self.held[file].delegation.is_some() && self.is_flushed(file) {
            self.perform(&[Op::Return { file }]);
        }
    }

    /// Gives everything back, and has the server forget the client.
    fn goes(&mut self) {
        self.say("goes");
        self.careful = true;
        self.establish();
        self.settle();
        for file in 0..self.held.len() {
            self.return_delegation(file);
            if self.alive && self.held[file].open.is_some() {
                self.perform(&[Op::Close { file }]);
            }
        }
        // In minor version 0 the server itself forgets a client that holds nothing.
        if !self.alive || self.legacy {
            return;
        }
        self.leaves_session();
        let body = session::destroy_client(self.id);
        let reply = self.deliver(&[&body], None).remove(0);
        match results(&reply)[..] {
            // The server died in between.
            [OperationResult::DestroyClientId(Ok(()) | Err(Status::StaleClientId))] => {}
            ref other => self.fail(&format!("DESTROY_CLIENTID: {other:?}")),
        }
    }
}

/// Checks, after all clients have ended, that one client gets everything in a bounded time, whatever the others have left. The
/// server then keeps nothing.
pub fn finale(world: &World, model: &Model, state: &dyn Fn() -> String) {
    clock::sleep(model.lease + model.lease);
    let mut last = Client::new(world, model, CLIENTS, model.files.len());
    last.careful = true;
    last.establish();
    let until = clock::now() + Nanos(model.lease.0 * 4);
    for file in 0..model.files.len() {
        while last.held[file].open.is_none() {
            last.establish();
            last.perform(&[Op::Open {
                file,
                access: share_access::BOTH,
                deny: share_deny::BOTH,
                delegated: false,
            }]);
            clock::sleep(Nanos::from_millis(100));
            if clock::now() > until && model.in_time {
                last.fail("a file cannot be opened at last");
            }
        }
        let units = Units {
            first: 0,
            count: UNITS,
        };
        // Nobody else is left who could hold anything.
        let (owner, write) = (0, true);
        let free = last.tally.tested_free;
        last.perform(&[Op::Test {
            file,
            owner,
            units,
            write,
        }]);
        if last.alive && last.tally.tested_free == free {
            last.fail("a lock is in the way at last");
        }
        last.perform(&[Op::Lock {
            file,
            owner,
            units,
            write,
        }]);
        let locked = last.held[file]
            .open
            .as_ref()
            .is_some_and(|open| open.locks[0].state.is_some());
        if last.alive && !locked {
            last.fail("a file cannot be locked at last");
        }
        for page in 0..PAGES {
            last.perform(&[Op::Read { file, page }]);
        }
    }
    last.goes();
    clock::sleep(Nanos(model.lease.0 * 3));
    let state = state();
    for left in ["clients", "sessions", "opens", "locks", "delegations"] {
        let are = |count| state.contains(&format!("odafs_nfs4_{left} {count}\n"));
        // For a day the server can still tell a client of minor version 0 that it was expelled.
        if !are(0) && !(model.legacy && left == "clients" && are(1)) {
            last.fail(&format!("{left} are left:\n{state}"));
        }
    }
}
