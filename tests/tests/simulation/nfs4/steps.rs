//! The operations of a client of version 4 on files, and what it concludes from the replies.

use super::client::{Answer, Client, Delegation, Held, Locks, OWNERS, Open, Plan, Seen, end_of};
use super::lines::By;
use super::looks::{Look, Unseen};
use super::ops::{Op, Units};
use super::session::results;
use crate::losses::Told;
use crate::world::value_of;
use odafs_common::wire::nfs4::*;
use odafs_fabric::clock::{self, Nanos};
use odafs_tests::holdings::What;
use odafs_tests::linear::Action;
use odafs_tests::page::PAGE;

impl Client<'_> {
    /// Makes these operations at the same time, each in a slot of its own. No two of them concern one file.
    pub fn perform(&mut self, ops: &[Op]) {
        if !self.alive {
            return;
        }
        let from = clock::now();
        for op in ops {
            self.before(op, from);
        }
        let invoked = self.world.history.now();
        let mut sent = Vec::new();
        let slots = self.session.choose(ops.len());
        let highest = slots.iter().copied().max().unwrap_or(0);
        for (slot, op) in slots.into_iter().zip(ops) {
            let kept = !matches!(op, Op::Read { .. });
            let mut session = std::mem::take(&mut self.session);
            sent.push(session.next(slot, highest, &self.operations(op), kept, from));
            self.session = session;
        }
        let reads = ops.iter().any(|op| matches!(op, Op::Read { .. }));
        let answers = self.exchange(&sent, reads.then_some(By::Messages));
        for (op, answer) in ops.iter().zip(answers) {
            match answer {
                Answer::Reply(reply) => {
                    let results = results(&reply);
                    let last = results.last().expect("a result");
                    self.count(op, last);
                    self.learns(op, last, invoked);
                    self.after(op, last, invoked, from);
                }
                Answer::Somehow => self.unknown(op, invoked),
                Answer::Gone => {
                    self.unknown(op, invoked);
                    self.alive = false;
                }
            }
        }
        if let Some(file) = self.unconfirmed.take() {
            self.perform(&[Op::Confirm { file }]);
        }
    }

    /// Notes what an operation gives back. It counts as given back from the moment at which the call may arrive.
    fn before(&mut self, op: &Op, now: Nanos) {
        let end = |client: &Self, owner, file: usize, what| {
            let file = client.model.files[file];
            let holder = client.holder(owner);
            client.model.holdings().ended(holder, file, what, now.0);
        };
        match op {
            Op::Close { file } => {
                end(self, 0, *file, What::Open { access: 0, deny: 0 });
                for owner in 0..OWNERS {
                    for unit in 0..super::UNITS {
                        end(self, owner, *file, What::Unit { unit, write: false });
                    }
                }
            }
            Op::Downgrade { file, .. } => end(self, 0, *file, What::Open { access: 0, deny: 0 }),
            Op::Return { file } => end(self, 0, *file, What::Delegation { write: false }),
            Op::Unlock { file, owner, units } => {
                for unit in units.each() {
                    end(self, *owner, *file, What::Unit { unit, write: false });
                }
            }
            Op::Lock {
                file,
                owner,
                units,
                write: false,
            } => {
                for unit in units.each() {
                    if self.open_of(*file).locks[*owner].units[usize::from(unit)] == Some(true) {
                        end(self, *owner, *file, What::Unit { unit, write: true });
                    }
                }
            }
            Op::Write {
                file,
                page,
                delegated: false,
                ..
            } => {
                if let Some(delegation) = &mut self.held[*file].delegation {
                    delegation.pages.remove(page);
                }
            }
            _ => {}
        }
    }

    /// Notes what a reply says of stable storage.
    fn learns(&self, op: &Op, last: &OperationResult<'_>, invoked: u64) {
        use OperationResult as R;
        let told = match last {
            R::Write(Ok(ok)) if ok.committed == Stable::Unstable => return,
            R::Write(Ok(_)) | R::Commit(Ok(_)) => Told::Stable,
            R::Write(Err(Status::Io)) | R::Commit(Err(Status::Io)) => Told::Loss,
            // Whoever is put off is told nothing, and asks again.
            R::Write(Err(Status::Delay | Status::Grace)) => return,
            R::Commit(Err(Status::Delay | Status::Grace)) => return,
            _ => Told::Nothing,
        };
        self.notes(op, invoked, told);
    }

    /// Notes what the client was told of the file's bytes, if that was what it asked for.
    fn notes(&self, op: &Op, invoked: u64, told: Told) {
        if let Op::Write { file, .. } | Op::Commit { file } = op {
            let times = (invoked, self.world.history.now());
            (self.world.losses).told(self.model.files[*file], times, told);
        }
    }

    /// Notes an operation that the server may have executed or not.
    fn unknown(&mut self, op: &Op, invoked: u64) {
        self.notes(op, invoked, Told::Nothing);
        match op {
            Op::Write {
                file,
                page,
                value,
                delegated: false,
                ..
            } => {
                let write = Action::Write {
                    value: *value,
                    stable: false,
                };
                self.record((self.model.files[*file], *page), invoked, write, false);
                self.held[*file].unstable.remove(page);
            }
            Op::Commit { file } => self.held[*file].unstable.clear(),
            Op::Unlock { file, owner, units } => {
                if let Some(open) = &mut self.held[*file].open {
                    for unit in units.each() {
                        open.locks[*owner].units[usize::from(unit)] = None;
                    }
                }
            }
            Op::Lock {
                file,
                owner,
                units,
                write: false,
            } => {
                if let Some(open) = &mut self.held[*file].open {
                    for unit in units.each() {
                        let mine = &mut open.locks[*owner].units[usize::from(unit)];
                        *mine = mine.filter(|write| !write);
                    }
                }
            }
            Op::Close { file } | Op::Confirm { file } => self.held[*file].open = None,
            Op::Downgrade { file, access, deny } => {
                if let Some(open) = &mut self.held[*file].open {
                    (open.access, open.deny) = (*access, *deny);
                }
            }
            Op::Return { file } => self.drop_delegation(*file),
            _ => {}
        }
    }

    fn after(&mut self, op: &Op, last: &OperationResult<'_>, invoked: u64, from: Nanos) {
        use OperationResult as R;
        let later = |status: &Status| matches!(status, Status::Delay | Status::Grace);
        match (op, last) {
            (Op::Renew, R::Sequence(Ok(_)) | R::Renew(Ok(()))) => {}
            (Op::Confirm { file }, R::OpenConfirm(Ok(state))) => {
                self.follows(Some(self.open_of(*file).state), state);
                if let Some(mut open) = self.held[*file].open.take() {
                    open.state = *state;
                    self.holds(*file, open, from);
                }
            }
            (Op::Open { .. }, R::Open(Ok(opened))) => self.opened(op, opened, from),
            (Op::Open { .. }, R::Open(Err(Status::ShareDenied))) => self.tally.denied += 1,
            (Op::Downgrade { file, access, deny }, R::OpenDowngrade(Ok(state))) => {
                self.downgraded(*file, (*access, *deny), state, from);
            }
            (Op::Open { delegated, .. }, R::Open(Err(status))) => {
                let revoked = *delegated && *status == Status::DelegRevoked;
                if !later(status) && !revoked {
                    self.fail(&format!("{op:?}: {status:?}"));
                }
            }
            (Op::Read { file, page }, R::Read(Ok(read))) => {
                let place = (self.model.files[*file], *page);
                let value = value_of(read.data.0, &self.world.history, place);
                self.record(place, invoked, Action::Read { value }, true);
                if let Some(delegation) = &mut self.held[*file].delegation {
                    delegation.pages.insert(*page, value);
                }
                self.tally.reads += 1;
            }
            (Op::Look { file }, R::GetAttributes(Ok(raw))) => {
                self.looked(*file, raw, (invoked, from));
            }
            (Op::Write { .. }, R::Write(Ok(ok))) => self.wrote(op, ok, invoked),
            (Op::Write { .. }, R::Write(Err(Status::Io))) => self.unknown(op, invoked),
            (
                Op::Write {
                    delegated: true, ..
                },
                R::Write(Err(Status::DelegRevoked)),
            ) => {}
            (Op::Commit { file }, R::Commit(Ok(done))) => {
                for (page, (_, verifier, promised)) in
                    std::mem::take(&mut self.held[*file].unstable)
                {
                    if promised && verifier == done.verifier {
                        let place = (self.model.files[*file], page);
                        self.record(place, invoked, Action::Commit, true);
                    }
                }
            }
            (Op::Commit { .. }, R::Commit(Err(Status::Io))) => self.unknown(op, invoked),
            (Op::Lock { .. }, R::Lock(result)) => self.locked(op, result, from),
            (Op::Unlock { file, owner, units }, R::Unlock(Ok(state))) => {
                let (file, owner) = (*file, *owner);
                self.follows(self.open_of(file).locks[owner].state, state);
                if let Some(open) = &mut self.held[file].open {
                    open.locks[owner].state = Some(*state);
                    for unit in units.each() {
                        open.locks[owner].units[usize::from(unit)] = None;
                    }
                }
            }
            (
                Op::Test {
                    file,
                    owner,
                    units,
                    write,
                },
                R::LockTest(Ok(())),
            ) => {
                let (now, write) = (clock::now().0, *write);
                for unit in units.each() {
                    let what = What::Unit { unit, write };
                    let (by, at) = (self.holder(*owner), self.model.files[*file]);
                    let excluded = (self.model.holdings()).excluded(by, at, what, from.0, now);
                    if excluded {
                        self.fail(&format!("{op:?} found nothing in the way"));
                    }
                }
                self.tally.tested_free += 1;
            }
            (
                Op::Test {
                    file,
                    owner,
                    units,
                    write,
                },
                R::LockTest(Err(LockFailed::Denied(denied))),
            ) => {
                self.tally.tested_held += 1;
                self.is_in_the_way(op, (*file, *owner, *units, *write), denied);
            }
            (Op::Test { .. }, R::LockTest(Err(LockFailed::Other(status)))) if later(status) => {}
            (Op::Close { file }, R::Close(Ok(_))) => self.held[*file].open = None,
            (Op::Return { file }, R::DelegationReturn(Ok(()))) => self.drop_delegation(*file),
            (Op::Return { file }, R::DelegationReturn(Err(Status::DelegRevoked))) => {
                self.free(*file);
            }
            (Op::Make { .. }, R::Create(Ok(_))) | (Op::Remove { .. }, R::Remove(Ok(_))) => {}
            // The server executed it before it died, and has forgotten its reply.
            (Op::Make { .. }, R::Create(Err(Status::Exist)))
            | (Op::Remove { .. }, R::Remove(Err(Status::NoEnt)))
                if self.legacy && self.model.started() > from => {}
            // Not now.
            (Op::Read { .. }, R::Read(Err(status)))
            | (Op::Look { .. }, R::GetAttributes(Err(status)))
            | (Op::Write { .. }, R::Write(Err(status)))
            | (Op::Commit { .. }, R::Commit(Err(status)))
            | (Op::Make { .. }, R::Create(Err(status)))
            | (Op::Remove { .. }, R::Remove(Err(status)))
                if later(status) => {}
            _ => self.fail(&format!("{op:?}: {last:?}")),
        }
    }

    fn opened(&mut self, op: &Op, opened: &OpenOk<'_>, from: Nanos) {
        let Op::Open {
            file, access, deny, ..
        } = *op
        else {
            return;
        };
        let before = self.held[file].open.take();
        self.follows(before.as_ref().map(|open| open.state), &opened.state);
        let mut open = before.unwrap_or(Open {
            state: opened.state,
            access: 0,
            deny: 0,
            pairs: Vec::new(),
            locks: [Locks::default(); OWNERS],
        });
        open.state = opened.state;
        open.access |= access;
        open.deny |= deny;
        open.pairs.push((access, deny));
        self.tally.opens += 1;
        if opened.flags & open_result::CONFIRM != 0 {
            self.held[file].open = Some(open);
            self.unconfirmed = Some(file);
        } else {
            self.holds(file, open, from);
        }
        self.take_delegation(file, &opened.delegation, false);
    }

    /// Notes that a file is open so from now on.
    fn holds(&mut self, file: usize, open: Open, from: Nanos) {
        let what = What::Open {
            access: open.access,
            deny: open.deny,
        };
        let (now, until) = (clock::now().0, (from + self.model.lease).0);
        let (by, at) = (self.holder(0), self.model.files[file]);
        let given = self.model.holdings().given(by, at, what, now, until);
        self.say(&format!("has file {at} open: {what:?}"));
        self.expect(given);
        self.held[file].open = Some(open);
    }

    fn downgraded(
        &mut self,
        file: usize,
        (access, deny): (u32, u32),
        state: &StateId,
        from: Nanos,
    ) {
        self.follows(Some(self.open_of(file).state), state);
        if let Some(mut open) = self.held[file].open.take() {
            (open.state, open.access, open.deny) = (*state, access, deny);
            (open.pairs).retain(|(a, d)| a & !access == 0 && d & !deny == 0);
            self.holds(file, open, from);
        }
    }

    /// Notes a delegation that came with an open, if one did.
    pub fn take_delegation(
        &mut self,
        file: usize,
        delegation: &odafs_common::wire::nfs4::Delegation<'_>,
        reclaimed: bool,
    ) -> bool {
        use odafs_common::wire::nfs4::Delegation as Given;
        let (state, write, recall) = match delegation {
            Given::Read(read) => (read.state, false, read.recall),
            Given::Write(write) => (write.state, true, write.recall),
            Given::None | Given::NoneBecause(_) => return false,
        };
        let what = What::Delegation { write };
        let (by, at, now) = (self.holder(0), self.model.files[file], clock::now());
        let mut holdings = self.model.holdings();
        let given = match reclaimed {
            true => holdings.reclaimed(by, at, what, now.0, 0),
            false => holdings.given(by, at, what, now.0, 0),
        };
        drop(holdings);
        self.say(&format!("has a delegation of file {at}: {what:?}"));
        self.expect(given);
        let early = self
            .early
            .iter()
            .position(|early| early.other == state.other);
        let early = early.map(|early| self.early.swap_remove(early)).is_some();
        self.tally.delegations += 1;
        let kept = self.held[file].delegation.take();
        if kept.is_some() && !reclaimed {
            self.fail("a second delegation of a file");
        }
        let dirty = kept.map(|kept| kept.dirty).unwrap_or_default();
        self.held[file].delegation = Some(Delegation {
            state,
            write,
            recalled: (recall || early).then_some(Plan::At(now)),
            pages: Default::default(),
            read: Vec::new(),
            known: None,
            changed: !dirty.is_empty(),
            dirty,
        });
        true
    }

    /// Notes that a state has changed once.
    fn follows(&self, before: Option<StateId>, now: &StateId) {
        let expected = match before {
            Some(before) => StateId {
                sequence: before.sequence + 1,
                ..before
            },
            None => StateId {
                sequence: 1,
                ..*now
            },
        };
        if expected != *now {
            self.fail(&format!("{now:?} after {before:?}"));
        }
    }

    /// Judges what the server says is in the way of a lock of an owner: it must be another's, of these units, and exclude the
    /// lock.
    fn is_in_the_way(
        &self,
        op: &Op,
        (file, owner, units, write): (usize, usize, Units, bool),
        denied: &LockDenied<'_>,
    ) {
        let (offset, length) = units.range();
        let meets =
            denied.offset < offset + length && denied.offset.saturating_add(denied.length) > offset;
        let excludes = write || matches!(denied.kind, LockType::Write | LockType::WriteWait);
        if denied.owner == self.owned(file, owner) {
            self.fail(&format!("{op:?} stands in its own way"));
        }
        if !meets || !excludes {
            self.fail(&format!("{op:?} is denied for {denied:?}"));
        }
    }

    fn locked(&mut self, op: &Op, result: &LockResult<'_>, from: Nanos) {
        let Op::Lock {
            file,
            owner,
            units,
            write,
        } = *op
        else {
            return;
        };
        let (by, at, now) = (self.holder(owner), self.model.files[file], clock::now().0);
        let until = (from + self.model.lease).0;
        let mine = self.open_of(file).locks[owner];
        match result {
            Ok(state) => self.follows(mine.state, state),
            Err(LockFailed::Denied(denied)) => {
                self.tally.denied += 1;
                self.is_in_the_way(op, (file, owner, units, write), denied);
            }
            Err(LockFailed::Other(Status::Grace | Status::Delay)) => {}
            Err(LockFailed::Other(status)) => self.fail(&format!("{op:?}: {status:?}")),
        }
        for unit in units.each() {
            // The client still has what it did not give back.
            let still = mine.units[usize::from(unit)].filter(|had| *had && !write);
            let Some(write) = result.as_ref().map(|_| write).ok().or(still) else {
                continue;
            };
            let what = What::Unit { unit, write };
            let given = self.model.holdings().given(by, at, what, now, until);
            self.expect(given);
            if let Some(open) = &mut self.held[file].open {
                open.locks[owner].units[usize::from(unit)] = Some(write);
            }
        }
        if let (Ok(state), Some(open)) = (result, &mut self.held[file].open) {
            open.locks[owner].state = Some(*state);
            self.tally.locks += 1;
            self.say(&format!("has locked of file {at}: {units:?}, {write}"));
        }
    }

    fn wrote(&mut self, op: &Op, ok: &WriteOk, invoked: u64) {
        let Op::Write {
            file,
            page,
            value,
            stable: asked,
            delegated,
            ..
        } = op
        else {
            return;
        };
        let (place, stable) = (
            (self.model.files[*file], *page),
            ok.committed != Stable::Unstable,
        );
        if ok.count != PAGE as u32 || (*asked != Stable::Unstable && !stable) {
            self.fail(&format!("{op:?}: {ok:?}"));
        }
        self.tally.writes += 1;
        let held: &mut Held = &mut self.held[*file];
        if let Some(delegation) = &mut held.delegation {
            delegation.pages.insert(*page, *value);
            delegation.changes(*page);
        }
        let value = *value;
        match stable {
            true => drop(held.unstable.remove(page)),
            false => drop(held.unstable.insert(*page, (value, ok.verifier, true))),
        }
        if *delegated {
            return self.flushed(*file, *page, invoked);
        }
        self.record(place, invoked, Action::Write { value, stable }, true);
    }

    /// Judges the attributes of a file that the client was told.
    fn looked(&mut self, file: usize, raw: &RawAttributes<'_>, (invoked, from): (u64, Nanos)) {
        let told = Attributes::parse(raw).map(|told| (told.change, told.size));
        let Ok((Some(change), Some(size))) = told else {
            self.fail(&format!("a look: {told:?}"));
        };
        self.tally.looks += 1;
        self.say(&format!(
            "sees of file {file}: change {change}, {size} bytes"
        ));
        if let Some(delegation) = &mut self.held[file].delegation {
            delegation.known = Some((change, size));
            let dirty = delegation.dirty.keys().copied().max();
            dirty.into_iter().for_each(|page| delegation.changes(page));
        }
        let life = self.model.started();
        // The reply of a server that died since says nothing of the one that lives.
        if from < life {
            return;
        }
        let look = Look {
            by: self.number,
            file: self.model.files[file],
            life,
            invoked,
            returned: self.world.history.now(),
            change,
            size,
        };
        let fits = self.model.looks().looked(look);
        self.expect(fits);
    }

    /// Notes that all clients can see what this client wrote of a page under a delegation. It was sent at `sent`.
    fn flushed(&mut self, file: usize, page: u8, sent: u64) {
        let delegation = self.held[file].delegation.as_mut();
        let done = delegation.and_then(|delegation| delegation.dirty.remove(&page));
        for (seen, written) in done.unwrap_or_default() {
            let Seen { value, .. } = seen;
            let action = match written {
                true => Action::Write {
                    value,
                    stable: true,
                },
                false => Action::Read { value },
            };
            let place = (self.model.files[file], page);
            let times = (seen.invoked, seen.returned);
            let life = self.model.started();
            if written && seen.at > life {
                let write = Unseen {
                    by: self.number,
                    file: place.0,
                    life,
                    invoked: seen.invoked,
                    returned: seen.returned,
                    sent,
                    end: end_of(page),
                };
                let fits = self.model.looks().written(write);
                self.expect(fits);
            }
            self.tally.cached += 1;
            (self.world.history).record_at(&self.name, place, times, action);
        }
    }
}
