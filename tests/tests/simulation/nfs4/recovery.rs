//! How a client of version 4 gets a session, takes back what it had before the server died, and learns what it has lost.

use super::UNITS;
use super::client::{Answer, Client, Open, Plan};
use super::lines::By;
use super::ops::{Units, kind};
use super::session::{self, Session, results};
use crate::world::below;
use odafs_common::wire::nfs4::*;
use odafs_fabric::clock::{self, Nanos};
use odafs_tests::holdings::What;
use odafs_tests::linear::Action;

/// Sessions of a crowd.
const CROWD: u32 = 12;

impl Client<'_> {
    /// Gets a session, and reclaims what the client held.
    pub fn establish(&mut self) {
        while !self.alive {
            if self.legacy {
                self.establish_legacy();
                continue;
            }
            let before = (self.lines.is_open(By::Rdma)).then(|| self.lines.line(By::Rdma));
            let exchange = session::exchange_id(self.name.as_bytes(), self.verifier);
            let reply = self.deliver(&[&exchange], None).remove(0);
            let (id, sequence, known) = match results(&reply)[..] {
                [OperationResult::ExchangeId(Ok(ref exchanged))] => {
                    let confirmed = exchanged.flags & exchange_id_flag::CONFIRMED != 0;
                    let known = confirmed && exchanged.client_id == self.id;
                    (exchanged.client_id, exchanged.sequence, known)
                }
                ref other => self.fail(&format!("EXCHANGE_ID: {other:?}")),
            };
            let minor = 1 + below(2) as u32;
            let create = session::create_session(minor, id, sequence);
            let reply = self.deliver(&[&create], Some(By::Rdma)).remove(0);
            let made = match results(&reply)[..] {
                [OperationResult::CreateSession(Ok(made))] => made,
                // The server died in between.
                [OperationResult::CreateSession(Err(Status::StaleClientId))] => continue,
                // Others have taken what there is.
                [OperationResult::CreateSession(Err(Status::Delay))] => {
                    clock::sleep(Nanos::from_millis(100));
                    continue;
                }
                ref other => self.fail(&format!("CREATE_SESSION: {other:?}")),
            };
            if made.flags & create_session_flag::BACK_CHANNEL == 0 {
                // The way back of an older connection ends once it has left a callback unanswered for too long.
                if before != Some(self.lines.line(By::Rdma)) {
                    self.fail("a session without a way back");
                }
                self.lines.cut(By::Rdma);
                continue;
            }
            self.say(&format!("has a session, the same client: {known}"));
            self.id = id;
            self.session = Session::new(minor, &made);
            self.alive = true;
            self.tally.sessions += 1;
            // Callbacks may come over the connection that CREATE_SESSION came by, which may be gone.
            self.lines.cut(By::Rdma);
            if !known {
                self.unknown_to_server();
            }
        }
        if self.handles.is_empty() {
            self.look_up();
        }
    }

    /// Another client takes so many sessions that the server asks all to use fewer slots. It gives them back, or is forgotten.
    pub fn crowds(&mut self, step: u64) {
        let name = format!("crowd-{}-{step}", self.number);
        let ask = |client: &mut Self, body: Vec<u8>| client.deliver(&[&body], Some(By::Messages));
        let reply = ask(self, session::exchange_id(name.as_bytes(), 1)).remove(0);
        let (id, first) = match results(&reply)[..] {
            [OperationResult::ExchangeId(Ok(ref exchanged))] => {
                (exchanged.client_id, exchanged.sequence)
            }
            ref other => self.fail(&format!("EXCHANGE_ID: {other:?}")),
        };
        let mut all = Vec::new();
        for number in 0..CROWD {
            let create = session::create_session(1, id, first.wrapping_add(number));
            let reply = ask(self, create).remove(0);
            match results(&reply)[..] {
                [OperationResult::CreateSession(Ok(made))] => all.push(Session::new(1, &made)),
                // There is no room; or the server died in between, or its lease was over.
                [OperationResult::CreateSession(Err(Status::Delay | Status::StaleClientId))] => {
                    break;
                }
                ref other => self.fail(&format!("CREATE_SESSION: {other:?}")),
            }
        }
        if below(2) == 0 {
            for session in all {
                let reply = ask(self, session.destroy()).remove(0);
                match results(&reply)[..] {
                    [OperationResult::DestroySession(Ok(()) | Err(Status::BadSession))] => {}
                    // It came over another connection than the session was made by.
                    [OperationResult::DestroySession(Err(Status::ConnNotBoundToSession))] => {}
                    ref other => self.fail(&format!("DESTROY_SESSION: {other:?}")),
                }
            }
        }
    }

    /// Notes that the client may reclaim what it held, or has lost it.
    pub fn unknown_to_server(&mut self) {
        self.revoked = false;
        self.early.clear();
        self.model.holdings().doubted(self.number);
        self.reclaim();
    }

    /// One compound in slot 0.
    fn one(&mut self, operations: &[Operation<'_>]) -> Option<Vec<u8>> {
        let sent = self.session.next(0, 0, operations, true, clock::now());
        match self.exchange(&[sent], None).remove(0) {
            Answer::Reply(reply) => Some(reply),
            Answer::Somehow | Answer::Gone => {
                self.alive = false;
                None
            }
        }
    }

    /// As [`Client::one`], again while the server asks for time.
    fn patiently(&mut self, operations: &[Operation<'_>]) -> Option<Vec<u8>> {
        loop {
            let reply = self.one(operations)?;
            if !self.was_put_off(&reply, |_| ()) {
                return Some(reply);
            }
        }
    }

    /// Whether the server asks for time, which has then passed. `count` counts the turn that the last operation has taken of its
    /// owner all the same, in minor version 0.
    fn was_put_off(&mut self, reply: &[u8], count: impl FnOnce(&mut Self)) -> bool {
        if session::status(reply) != Status::Delay {
            return false;
        }
        let took_turn = matches!(
            results(reply).last(),
            Some(
                OperationResult::Open(Err(Status::Delay))
                    | OperationResult::Lock(Err(LockFailed::Other(Status::Delay)))
            )
        );
        if took_turn {
            count(self);
        }
        clock::sleep(Nanos::from_millis(100));
        true
    }

    fn look_up(&mut self) {
        let mut handles = Vec::new();
        for name in self.names.clone() {
            let operations = [
                Operation::PutRootFileHandle,
                Operation::Lookup(Name(name.as_bytes())),
                Operation::GetFileHandle,
            ];
            let Some(reply) = self.patiently(&operations) else {
                return;
            };
            match results(&reply).last() {
                Some(OperationResult::GetFileHandle(Ok(handle))) => {
                    handles.push(handle.0.to_vec());
                }
                other => self.fail(&format!("LOOKUP: {other:?}")),
            }
        }
        self.handles = handles;
    }

    /// Reclaims what the client held before the server died, as far as the server lets it.
    fn reclaim(&mut self) {
        self.done = [false, self.done[0]];
        let (forgets, late) = (below(8) == 0, below(8) == 0);
        for file in 0..self.held.len() {
            self.held[file].unstable.clear();
            if forgets {
                self.lose(file);
            }
            if let Some(delegation) = &mut self.held[file].delegation {
                // Reads since the server last showed that it kept the delegation prove nothing. Writes since then stand if the
                // delegation can be reclaimed: nobody has looked at the file meanwhile.
                delegation.pages.clear();
                delegation.read.clear();
                for written in delegation.dirty.values_mut() {
                    written.retain(|(_, is_write)| *is_write);
                }
            }
            // The client asks for the open by itself, and gives up a delegation without one.
            if self.held[file].open.is_none() {
                self.lose(file);
            }
        }
        if forgets {
            self.say("reclaims nothing");
            (self.model.holdings()).gone(self.number, clock::now().0);
        }
        let holds = self.held.iter().any(|held| held.open.is_some());
        if late && holds {
            self.say("comes late");
            clock::sleep(self.model.lease + Nanos::from_millis(below(1500)));
        }
        for file in 0..self.held.len() {
            if self.held[file].open.is_some() && !self.reclaim_file(file) && !self.alive {
                return;
            }
        }
        if self.legacy {
            return;
        }
        let complete = Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        });
        if let Some(reply) = self.one(&[complete]) {
            match results(&reply).last() {
                Some(OperationResult::ReclaimComplete(Ok(()))) => self.done[0] = true,
                other => self.fail(&format!("RECLAIM_COMPLETE: {other:?}")),
            }
        }
    }

    /// Whether this was held when the server died, and it is early enough to reclaim it. A client that was not done when the grace
    /// period of that server ended may reclaim nothing (RFC 8881, section 8.4.2.1).
    fn is_entitled(&self, owner: usize, file: usize, what: What) -> bool {
        let (by, at) = (self.holder(owner), self.model.files[file]);
        let lives = self.model.lives();
        let in_time = clock::now() < lives.started + self.model.lease;
        let was_done = self.legacy || self.done[1] || !lives.outlived_grace;
        in_time && was_done && self.model.holdings().was_kept(by, at, what)
    }

    /// Returns false if the client has lost it, or if the session is gone again.
    fn reclaim_file(&mut self, file: usize) -> bool {
        let Some(open) = self.held[file].open.take() else {
            return false;
        };
        let write = self.held[file].delegation.as_ref().map(|held| held.write);
        let before = match write {
            Some(true) => DelegationType::Write,
            Some(false) => DelegationType::Read,
            None => DelegationType::None,
        };
        let from = clock::now();
        // The handle borrows nothing of the client.
        let handle = self.handles[file].clone();
        let owner = self.opener();
        let ask = |sequence, before, open: &Open| {
            [
                Operation::PutFileHandle(FileHandle(&handle)),
                Operation::Open(OpenArgs {
                    sequence,
                    share_access: open.access,
                    share_deny: open.deny,
                    owner,
                    create: None,
                    claim: Claim::Previous(before),
                }),
            ]
        };
        let mut reply = loop {
            let Some(reply) = self.one(&ask(self.turn + 1, before, &open)) else {
                self.held[file].open = Some(open);
                return false;
            };
            if !self.was_put_off(&reply, |client| client.turn += 1) {
                break reply;
            }
        };
        let refused = |reply: &[u8]| {
            let last = results(reply).pop();
            matches!(
                last,
                Some(OperationResult::Open(Err(Status::ReclaimBad
                    | Status::NoGrace
                    | Status::ReclaimConflict)))
            )
        };
        if write.is_some() && refused(&reply) {
            self.lose_delegation(file);
            match self.patiently(&ask(self.turn + 1, DelegationType::None, &open)) {
                Some(again) => reply = again,
                None => {
                    self.held[file].open = Some(open);
                    return false;
                }
            }
        }
        self.turn += 1;
        if refused(&reply) {
            self.tally.refused_reclaims += 1;
            let last = results(&reply).pop();
            self.say(&format!("has lost file {file}: {last:?}"));
            let what = What::Open { access: 0, deny: 0 };
            if self.is_entitled(0, file, what) {
                self.fail("what it may reclaim was refused");
            }
            self.lose(file);
            return false;
        }
        let all = results(&reply);
        let Some(OperationResult::Open(Ok(opened))) = all.last() else {
            self.fail(&format!("a reclaim: {all:?}"));
        };
        // For one lease, for another one while anyone reclaims, and until the server notices that it is over, and stable storage has
        // forgotten those who have not reclaimed.
        let lease = self.model.lease;
        let graceful = self.model.lives().settled + lease + lease + lease;
        if from > graceful {
            self.fail("reclaimed after the grace");
        }
        let (access, deny, until) = (open.access, open.deny, (from + self.model.lease).0);
        let (by, at, what) = (
            self.holder(0),
            self.model.files[file],
            What::Open { access, deny },
        );
        let given = (self.model.holdings()).reclaimed(by, at, what, clock::now().0, until);
        self.say(&format!("has reclaimed file {at}: {what:?}"));
        self.expect(given);
        self.tally.reclaims += 1;
        let locks = open.locks.map(|locks| locks.units);
        self.held[file].open = Some(Open {
            state: opened.state,
            pairs: vec![(access, deny)],
            locks: Default::default(),
            ..open
        });
        if self.held[file].delegation.is_some()
            && !self.take_delegation(file, &opened.delegation, true)
        {
            self.lose_delegation(file);
        }
        for (owner, units) in locks.into_iter().enumerate() {
            for unit in 0..UNITS {
                let Some(write) = units[usize::from(unit)] else {
                    continue;
                };
                if !self.reclaim_lock(file, owner, (unit, write)) {
                    return false;
                }
            }
        }
        true
    }

    /// Returns false if the session is gone again.
    fn reclaim_lock(&mut self, file: usize, owner: usize, (unit, write): (u8, bool)) -> bool {
        if self.held[file].open.is_none() {
            return false;
        }
        let is_new = self.open_of(file).locks[owner].state.is_none();
        let units = Units {
            first: unit,
            count: 1,
        };
        let (offset, length) = units.range();
        let handle = self.handles[file].clone();
        let from = clock::now();
        let reply = loop {
            let put = Operation::PutFileHandle(FileHandle(&handle));
            let lock = Operation::Lock(LockArgs {
                kind: kind(write),
                reclaim: true,
                offset,
                length,
                locker: self.locker(file, owner),
            });
            let Some(reply) = self.one(&[put, lock]) else {
                return false;
            };
            let count = |client: &mut Self| {
                client.turn += u32::from(is_new);
                client.held[file].turns[owner] += u32::from(!is_new);
            };
            if !self.was_put_off(&reply, count) {
                break reply;
            }
        };
        let (by, at) = (self.holder(owner), self.model.files[file]);
        let what = What::Unit { unit, write };
        self.turn += u32::from(is_new);
        match results(&reply).last() {
            Some(OperationResult::Lock(Ok(state))) => {
                self.held[file].turns[owner] += 1;
                let until = (from + self.model.lease).0;
                let given = (self.model.holdings()).reclaimed(by, at, what, clock::now().0, until);
                self.expect(given);
                if let Some(open) = &mut self.held[file].open {
                    open.locks[owner].state = Some(*state);
                    open.locks[owner].units[usize::from(unit)] = Some(write);
                }
            }
            Some(OperationResult::Lock(Err(refused))) => {
                self.tally.refused_reclaims += 1;
                self.held[file].turns[owner] += u32::from(!is_new);
                // The client downgraded the open under the lock.
                let unfit = *refused == LockFailed::Other(Status::OpenMode);
                if !unfit && self.is_entitled(owner, file, what) {
                    self.fail("a lock that it may reclaim was refused");
                }
                (self.model.holdings()).ended(by, at, what, clock::now().0);
            }
            other => self.fail(&format!("a reclaim: {other:?}")),
        }
        true
    }

    /// Notes that the client holds nothing of a file any more.
    pub fn lose(&mut self, file: usize) {
        self.lose_delegation(file);
        self.held[file].open = None;
        let (at, now) = (self.model.files[file], clock::now().0);
        let mut holdings = self.model.holdings();
        let open = What::Open { access: 0, deny: 0 };
        holdings.ended(self.holder(0), at, open, now);
        for owner in 0..super::client::OWNERS {
            for unit in 0..UNITS {
                let unit = What::Unit { unit, write: false };
                holdings.ended(self.holder(owner), at, unit, now);
            }
        }
    }

    fn lose_delegation(&mut self, file: usize) {
        let (by, at) = (self.holder(0), self.model.files[file]);
        let what = What::Delegation { write: false };
        (self.model.holdings()).ended(by, at, what, clock::now().0);
        self.drop_delegation(file);
    }

    /// Drops what the client kept under a delegation. It may have sent what it wrote.
    pub fn drop_delegation(&mut self, file: usize) {
        let Some(delegation) = self.held[file].delegation.take() else {
            return;
        };
        for (page, written) in delegation.dirty {
            let last = written.iter().rev().find(|(_, is_write)| *is_write);
            if let Some((seen, _)) = last {
                let write = Action::Write {
                    value: seen.value,
                    stable: false,
                };
                let place = (self.model.files[file], page);
                self.record(place, seen.invoked, write, false);
            }
        }
    }

    /// Acknowledges that the server has revoked a delegation.
    pub fn free(&mut self, file: usize) {
        let Some(delegation) = &self.held[file].delegation else {
            return;
        };
        let state = delegation.state;
        self.tally.revoked += 1;
        self.say(&format!(
            "has lost the delegation of file {}",
            self.model.files[file]
        ));
        self.lose_delegation(file);
        if let Some(reply) = self.one(&[Operation::FreeStateId(state)]) {
            match results(&reply).last() {
                Some(OperationResult::FreeStateId(Ok(()))) => {}
                other => self.fail(&format!("FREE_STATEID: {other:?}")),
            }
        }
    }

    /// Finds the delegations that the server has revoked, if it says that there are some.
    pub fn settle(&mut self) {
        if !self.revoked || !self.alive {
            return;
        }
        for file in 0..self.held.len() {
            let Some(delegation) = &self.held[file].delegation else {
                continue;
            };
            let state = delegation.state;
            let test = Operation::TestStateId(TestStateIdArgs {
                states: List(vec![state]),
            });
            let Some(reply) = self.one(&[test]) else {
                return;
            };
            match results(&reply).last() {
                Some(OperationResult::TestStateId(Ok(found))) => match found.0[..] {
                    [Status::Ok] => {}
                    [Status::DelegRevoked] => self.free(file),
                    ref other => self.fail(&format!("TEST_STATEID: {other:?}")),
                },
                other => self.fail(&format!("TEST_STATEID: {other:?}")),
            }
        }
        // The server may have revoked another meanwhile.
        let none = self.held.iter().all(|held| held.delegation.is_none());
        if self.alive && self.one(&[]).is_some() && self.revoked && none {
            self.fail("told of a loss that is none");
        }
    }

    /// Returns the delegations that are due.
    pub fn give_back(&mut self) {
        for file in 0..self.held.len() {
            let due = self.held[file].delegation.as_ref().is_some_and(
                |held| matches!(held.recalled, Some(Plan::At(at)) if at <= clock::now()),
            );
            if due {
                self.return_delegation(file);
            }
        }
    }
}
