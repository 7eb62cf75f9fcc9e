//! Which clients may reclaim after a restart, and when that changes (RFC 8881, sections 8.4.2.1 and 8.4.3).
//!
//! A client that loses something and does not know it must not reclaim it later: others may have had it since. So stable storage
//! forgets the client first, and the client loses what it holds afterwards. Until then all of that stays in the way of others.
//! Their calls fail and say that they were held up ([`State::is_held_up`]). The caller brings the records to stable storage and tries
//! again. If stable storage takes nothing, they get DELAY, and what needs no such change goes on.
//!
//! A record that a client may reclaim holds nobody up. Without it the client's reclaims fail, which a server may always let
//! happen: nobody else has taken anything that the client could reclaim by mistake. A delegation is different, because others wait
//! after a restart only for clients that are recorded ([`State::has_recorded_delegations`]).

use std::collections::HashSet;

use odafs_common::wire::nfs4::Status;
use odafs_fabric::clock::Nanos;

use super::clients::Client;
use super::{Reclaiming, Record, State};
use crate::vfs::locks::Side;

/// The most clients that stable storage forgets at once because there is no room for others. Few of them have to go.
const FORGOTTEN_MAX: usize = 64;

/// The changes of who may reclaim. They have numbers from 1 on, in their order.
#[derive(Debug, Default)]
pub(super) struct RecordLog {
    /// Those that [`State::take_records`] returns next.
    pending: Vec<Record>,
    /// The number of the last one.
    made: u64,
    /// The number of the last one that was taken.
    taken: u64,
    /// Stable storage has them up to this number.
    kept: u64,
    /// There is stable storage. Otherwise nobody ever reclaims, and nothing has to be kept.
    is_stable: bool,
    /// Something was refused that may succeed once stable storage has all of them.
    held_up: bool,
    /// Whether stable storage has refused the last changes.
    refused: bool,
}

impl RecordLog {
    fn has_kept(&self, number: u64) -> bool {
        !self.is_stable || number <= self.kept
    }
}

impl State {
    /// With stable storage, which [`State::have_kept_records`] tells of. This comes before [`State::with_locks`].
    #[must_use]
    pub fn with_stable_storage(mut self) -> Self {
        self.record_log.is_stable = true;
        self
    }

    /// Changes of who may reclaim, since this was last called. If they do not get to stable storage, the caller keeps them, and
    /// brings them there with later ones.
    pub fn take_records(&mut self) -> Vec<Record> {
        self.record_log.taken = self.record_log.made;
        std::mem::take(&mut self.record_log.pending)
    }

    /// Whether [`State::have_kept_records`] would change something.
    pub fn owes_records(&self) -> bool {
        self.record_log.kept < self.record_log.taken
    }

    /// Stable storage has all changes that were taken.
    pub fn have_kept_records(&mut self) {
        self.record_log.kept = self.record_log.taken;
    }

    /// Nothing is held up from here on.
    pub fn begin(&mut self) {
        self.record_log.held_up = false;
    }

    /// Whether something was refused, since [`State::begin`], that may succeed once stable storage has the changes of who may
    /// reclaim.
    pub fn is_held_up(&self) -> bool {
        self.record_log.held_up
    }

    /// Whether something is held up by stable storage that takes changes.
    pub fn is_put_off(&self) -> bool {
        self.record_log.held_up && !self.record_log.refused
    }

    /// Notes whether stable storage has taken the last changes.
    pub fn note_kept(&mut self, kept: bool) {
        self.record_log.refused = !kept;
    }

    /// Whether stable storage has the record of this number. If not, something is held up.
    fn waits_for(&mut self, number: u64) -> bool {
        let kept = self.record_log.has_kept(number);
        self.record_log.held_up |= !kept;
        kept
    }

    /// Notes a change. Returns its number.
    pub(super) fn note_record(&mut self, record: Record) -> u64 {
        self.record_log.made += 1;
        let number = self.record_log.made;
        match &record {
            Record::Keep(of) => {
                self.grace.forgotten.remove(&of.identity);
            }
            Record::Forget(identity) if self.grace.waiting.contains(identity) => {
                self.grace.forgotten.insert(identity.clone());
                self.grace.last_forgotten = number;
            }
            Record::Forget(_) => {}
        }
        self.record_log.pending.push(record);
        number
    }

    /// Records that the client may reclaim what it holds after a restart.
    pub(super) fn record(&mut self, number: u32) {
        if self.clients.get(&number).is_some_and(|it| !it.recorded) {
            self.record_anew(number);
        }
    }

    /// Records what the client may reclaim.
    pub(super) fn record_anew(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        (client.recorded, client.condemned) = (true, false);
        let of = Reclaiming {
            identity: client.identity.clone(),
            delegations: client.recorded_delegations,
        };
        let last = self.note_record(Record::Keep(of));
        if let Some(client) = self.clients.get_mut(&number) {
            client.last_record = last;
        }
    }

    /// Whether stable storage has forgotten the client, which may then lose what it holds. Asks for that.
    pub(super) fn is_forgotten(&mut self, number: u32) -> bool {
        let Some(client) = self.clients.get_mut(&number) else {
            return true;
        };
        let mut last = client.last_record;
        if std::mem::take(&mut client.recorded) {
            client.condemned = true;
            let identity = client.identity.clone();
            last = self.note_record(Record::Forget(identity));
            if let Some(client) = self.clients.get_mut(&number) {
                client.last_record = last;
            }
        }
        self.waits_for(last)
    }

    /// Whether stable storage knows that the client may not reclaim delegations, of which one may then be revoked. Asks for that.
    pub(super) fn has_forgotten_delegations(&mut self, number: u32) -> bool {
        self.record_delegations(number, false);
        let last = self.clients.get(&number).map_or(0, |it| it.last_record);
        self.waits_for(last)
    }

    /// Whether stable storage knows that the client may reclaim delegations.
    pub fn has_recorded_delegations(&self, number: u32) -> bool {
        self.clients.get(&number).is_some_and(|client| {
            let recorded = client.recorded && client.recorded_delegations;
            recorded && self.record_log.has_kept(client.last_record)
        })
    }

    /// Takes everything from a client whose lease is over, because another wants it. False: that is held up.
    pub(super) fn expel(&mut self, number: u32) -> bool {
        if !self.is_forgotten(number) {
            return false;
        }
        if !self.clients.get(&number).is_some_and(Client::legacy) {
            self.remove_client(number);
            return true;
        }
        self.take_all(number);
        if let Some(client) = self.clients.get_mut(&number) {
            // It is not recorded again if it comes back: there is nothing left to reclaim.
            (client.expelled, client.condemned) = (true, false);
        }
        true
    }

    /// Takes everything from these clients, whose leases are over. False: that is held up, and they have all that they had.
    pub(super) fn expel_all(&mut self, numbers: &HashSet<u32>) -> bool {
        // All are asked for, so that stable storage forgets them at once.
        let held_up = numbers.iter().filter(|of| !self.is_forgotten(**of));
        if held_up.count() > 0 {
            return false;
        }
        for number in numbers {
            self.expel(*number);
        }
        true
    }

    /// Removes a client whose lease is over. False: that is held up. A client that holds nothing has nothing to reclaim by mistake.
    pub(super) fn remove_silent(&mut self, number: u32) -> bool {
        let holds = self.clients.get(&number).is_some_and(|it| it.states > 0);
        if holds && !self.is_forgotten(number) {
            return false;
        }
        self.remove_client(number);
        true
    }

    /// Takes everything from clients whose leases are over and that `hold` something, until there is room. Those that have been
    /// silent for longest lose it first, and `wants` never does.
    pub(super) fn expel_silent(
        &mut self,
        now: Nanos,
        wants: u32,
        hold: impl Fn(u32, &Client) -> bool,
        has_room: impl Fn(&Self) -> bool,
    ) {
        if has_room(self) {
            return;
        }
        let over = self.clients.iter().filter(|(number, client)| {
            **number != wants && hold(**number, client) && client.idle(now) > self.limits.lease
        });
        let mut silent = Vec::from_iter(over.map(|(number, client)| (client.renewed, *number)));
        silent.sort_unstable();
        let mut silent = silent.into_iter().map(|(_, number)| number);
        while let Some(number) = silent.next() {
            if !self.expel(number) {
                // Perhaps some of the next have to go too.
                for next in silent.take(FORGOTTEN_MAX) {
                    self.is_forgotten(next);
                }
                return;
            }
            if has_room(self) {
                return;
            }
        }
    }

    /// Records clients again that stable storage was to forget, and that have come back before they lost anything.
    pub(super) fn record_returned(&mut self, now: Nanos) {
        let condemned = self.clients.iter().filter(|(_, client)| client.condemned);
        let back = condemned.filter(|(number, _)| !self.is_over(**number, now));
        for number in Vec::from_iter(back.map(|(number, _)| *number)) {
            self.record(number);
        }
    }

    /// Whether clients may take no state but what they reclaim.
    pub fn in_grace(&self, now: Nanos) -> bool {
        // With stable storage the period is over when that has forgotten the others.
        let lasts = now < self.grace.period.until() || self.record_log.is_stable;
        lasts && !self.grace.waiting.is_empty() || self.locks.is_reclaiming(Side::Nlm, now)
    }

    /// As [`State::in_grace`], for reading without an open. That takes nothing from those who may reclaim, so it does not wait for
    /// stable storage.
    pub(super) fn in_grace_for_reading(&self, now: Nanos) -> bool {
        match now < self.grace.period.until() {
            true => self.in_grace(now),
            false => self.locks.is_reclaiming(Side::Nlm, now),
        }
    }

    /// Tells other protocols how long clients may reclaim.
    pub(super) fn tell_of_grace(&self) {
        let until = match self.record_log.is_stable {
            true => Nanos(u64::MAX),
            false => self.grace.period.until(),
        };
        self.locks.reclaims_until(Side::Nfs4, until);
    }

    /// A client reclaims, and may have more to reclaim: the grace period does not end in the next moments. If it is over and only
    /// that of version 3 lasts, it does not begin again.
    pub(super) fn prolong_grace(&mut self, now: Nanos) {
        if !self.grace.waiting.is_empty() && self.grace.period.prolong(now) {
            self.tell_of_grace();
        }
    }

    /// If the grace period is over, ends it: clients that have not reclaimed lose the right to. Until stable storage has forgotten them,
    /// it goes on.
    ///
    /// A client of sessions that has reclaimed a part and has not said that it is done loses the rest, and others may take it. So it
    /// must not reclaim that after another restart (RFC 8881, section 8.4.3): stable storage knows of it again when it is done.
    pub(super) fn end_grace(&mut self, now: Nanos) {
        if now < self.grace.period.until()
            || self.grace.waiting.is_empty()
            || !self.has_forgotten_others()
        {
            return;
        }
        self.grace.delegated.clear();
        self.grace.forgotten.clear();
        self.locks.has_reclaimed(Side::Nfs4);
        for identity in std::mem::take(&mut self.grace.waiting) {
            if let Some(number) = self.reclaimed_in_4_0(&identity) {
                self.record(number);
            }
        }
    }

    /// The client of minor version 0 with this identity, if it has reclaimed something. There nobody says that he is done.
    fn reclaimed_in_4_0(&self, identity: &[u8]) -> Option<u32> {
        let number = self.identities.get(identity)?.confirmed?;
        let client = self.clients.get(&number)?;
        let reclaimed = client.legacy() && (client.recorded || client.states > 0);
        reclaimed.then_some(number)
    }

    /// Whether stable storage has forgotten the clients that have not reclaimed. Asks for that.
    fn has_forgotten_others(&mut self) -> bool {
        if !self.waits_for(self.grace.last_forgotten) {
            return false;
        }
        let waiting = self.grace.waiting.iter();
        let left = waiting.filter(|it| !self.grace.forgotten.contains(*it));
        let left = left.filter(|it| self.reclaimed_in_4_0(it).is_none());
        for identity in Vec::from_iter(left.cloned()) {
            let last = self.note_record(Record::Forget(identity.clone()));
            let confirmed = self.identities.get(&identity).and_then(|of| of.confirmed);
            if let Some(client) = confirmed.and_then(|number| self.clients.get_mut(&number)) {
                (client.recorded, client.last_record) = (false, last);
            }
        }
        self.waits_for(self.grace.last_forgotten)
    }

    /// The status for a client that wants what another holds whose lease is over, if stable storage has not forgotten that one.
    pub(super) const HELD_UP: Status = Status::Delay;
}
