//! Client ids: who a client is, whether it is the one that it was, and when it is gone (RFC 8881, sections 2.4, 18.35,
//! 18.50 and 18.51; RFC 7530, sections 9.1.1, 16.30, 16.33 and 16.34).

use std::collections::{HashMap, VecDeque};

use odafs_common::wire::nfs4::{
    ClientIdConfirm, CreateSessionOk, ExchangeIdArgs, SessionId, SetClientIdArgs, StateOwner,
    Status, Verifier, exchange_id_flag,
};
use odafs_fabric::clock::Nanos;

use super::back::Callback;
use super::owners::Role;
use super::{Exchanged, Principal, Reclaiming, Record, Sender, State};
use crate::vfs::ObjectId;
use crate::vfs::locks::Side;

/// The clients of one identity.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub confirmed: Option<u32>,
    pub unconfirmed: Option<u32>,
}

/// What the minor versions know a client by.
#[derive(Debug)]
pub(super) enum Kind {
    /// Minor version 0.
    Legacy {
        /// What has confirmed it, or will.
        confirm: Verifier,
        /// What will confirm a change of where callbacks go.
        update: Option<Verifier>,
    },
    /// 4.1 and later.
    Sessions {
        /// Of the last CREATE_SESSION.
        sequence: u32,
        /// Its result.
        last: Option<CreateSessionOk>,
        sessions: Vec<SessionId>,
        /// It has sent RECLAIM_COMPLETE.
        complete: bool,
    },
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    /// A byte for the kind, and what the client calls itself.
    pub identity: Vec<u8>,
    pub verifier: Verifier,
    pub who: Principal,
    pub kind: Kind,
    pub confirmed: bool,
    /// Its lease was over and others wanted what it held (4.0, where the client learns so by its id).
    pub expelled: bool,
    /// The last sign of it.
    pub renewed: Nanos,
    /// Compounds of its sessions that are being executed: its lease does not end under them.
    pub under_way: u32,
    pub owners: HashMap<(Role, Vec<u8>), u64>,
    /// Bytes of their names.
    pub name_bytes: usize,
    /// How many stateids it has.
    pub states: usize,
    /// How many ranges it has locked.
    pub ranges: usize,
    /// The last stateid that was made for it.
    pub last_state: u32,
    /// Stable storage says that it may reclaim.
    pub recorded: bool,
    /// And delegations too.
    pub recorded_delegations: bool,
    /// When it was last known to have any.
    pub delegated: Nanos,
    /// It had state when the server went down.
    pub may_reclaim: bool,
    /// What it is to be told, in this order.
    pub callbacks: VecDeque<Callback>,
    /// The file of each lock for which it waits.
    pub waits: Vec<ObjectId>,
}

impl Client {
    pub fn legacy(&self) -> bool {
        matches!(self.kind, Kind::Legacy { .. })
    }

    /// For how long it has given no sign of itself.
    pub fn idle(&self, now: Nanos) -> Nanos {
        match self.under_way {
            0 => now.since(self.renewed),
            _ => Nanos(0),
        }
    }
}

fn identity(kind: u8, id: &[u8]) -> Vec<u8> {
    [&[kind], id].concat()
}

const LEGACY: u8 = 0;
const SESSIONS: u8 = 1;

impl State {
    /// EXCHANGE_ID: the cases of RFC 8881, section 18.35.4.
    pub fn exchange_id(
        &mut self,
        now: Nanos,
        who: Principal,
        args: &ExchangeIdArgs<'_>,
    ) -> Result<Exchanged, Status> {
        if args.flags & !exchange_id_flag::ARGUMENTS != 0 {
            return Err(Status::Inval);
        }
        let identity = identity(SESSIONS, args.client.id.0);
        let named = self.names.get(&identity);
        let known = named.and_then(|named| named.confirmed);
        let update = args.flags & exchange_id_flag::UPDATE_CONFIRMED != 0;
        let Some((number, client)) = known.and_then(|n| Some((n, self.clients.get(&n)?))) else {
            if update {
                return Err(Status::NoEnt);
            }
            return self.exchange_new(now, who, identity, args.client.verifier);
        };
        let same = client.verifier == args.client.verifier;
        if update {
            return match (same, client.who == who) {
                (false, _) => Err(Status::NotSame),
                (true, false) => Err(Status::Perm),
                (true, true) => Ok(self.exchanged(number)),
            };
        }
        if client.who != who {
            if client.states > 0 && !self.is_over(number, now) {
                return Err(Status::ClidInUse);
            }
            self.remove_client(number);
        } else if same {
            self.remove_unconfirmed(&identity);
            return Ok(self.exchanged(number));
        }
        self.exchange_new(now, who, identity, args.client.verifier)
    }

    fn exchange_new(
        &mut self,
        now: Nanos,
        who: Principal,
        identity: Vec<u8>,
        verifier: Verifier,
    ) -> Result<Exchanged, Status> {
        let kind = Kind::Sessions {
            sequence: 0,
            last: None,
            sessions: Vec::new(),
            complete: false,
        };
        let number = self.add_client(now, who, identity, verifier, kind)?;
        Ok(self.exchanged(number))
    }

    fn exchanged(&self, number: u32) -> Exchanged {
        let client = self.clients.get(&number);
        let confirmed = client.is_some_and(|client| client.confirmed);
        let sequence = match client.map(|client| &client.kind) {
            Some(Kind::Sessions { sequence, .. }) => *sequence,
            _ => 0,
        };
        Exchanged {
            client_id: self.id(number),
            sequence: sequence.wrapping_add(1),
            flags: if confirmed {
                exchange_id_flag::USE_NON_PNFS | exchange_id_flag::CONFIRMED
            } else {
                exchange_id_flag::USE_NON_PNFS
            },
        }
    }

    /// DESTROY_CLIENTID
    pub fn destroy_client_id(&mut self, _now: Nanos, client: u64) -> Result<(), Status> {
        let number = self.number(client).ok_or(Status::StaleClientId)?;
        let found = self.clients.get(&number).ok_or(Status::StaleClientId)?;
        match &found.kind {
            Kind::Legacy { .. } => return Err(Status::StaleClientId),
            Kind::Sessions { sessions, .. } if !sessions.is_empty() => {
                return Err(Status::ClientIdBusy);
            }
            Kind::Sessions { .. } if found.states > self.revoked_of(number) => {
                return Err(Status::ClientIdBusy);
            }
            Kind::Sessions { .. } => {}
        }
        self.remove_client(number);
        Ok(())
    }

    /// RECLAIM_COMPLETE
    pub fn reclaim_complete(
        &mut self,
        _now: Nanos,
        client: u64,
        one_file_system: bool,
    ) -> Result<(), Status> {
        let number = self.number(client).ok_or(Status::StaleClientId)?;
        let client = self.clients.get_mut(&number).ok_or(Status::StaleClientId)?;
        let Kind::Sessions { complete, .. } = &mut client.kind else {
            return Err(Status::StaleClientId);
        };
        // File systems do not move here: there is nothing to reclaim for one alone.
        if one_file_system {
            return Ok(());
        }
        if std::mem::replace(complete, true) {
            return Err(Status::CompleteAlready);
        }
        self.grace.waiting.remove(&client.identity);
        self.grace.delegated.remove(&client.identity);
        if self.grace.waiting.is_empty() {
            self.locks.has_reclaimed(Side::Nfs4);
        }
        self.record(number);
        Ok(())
    }

    /// SETCLIENTID: the cases of RFC 7530, section 16.33.5.
    pub fn set_client_id(
        &mut self,
        now: Nanos,
        who: Principal,
        args: &SetClientIdArgs<'_>,
    ) -> Result<ClientIdConfirm, Status> {
        let identity = identity(LEGACY, args.client.id.0);
        let verifier = args.client.verifier;
        let confirm = self.serial().to_be_bytes();
        let known = self.names.get(&identity).and_then(|named| named.confirmed);
        if let Some((number, client)) = known.and_then(|n| Some((n, self.clients.get(&n)?))) {
            let holds = client.states > 0 && !self.is_over(number, now);
            match (client.who == who, client.verifier == verifier) {
                _ if client.expelled => self.remove_client(number),
                (false, _) if holds => return Err(Status::ClidInUse),
                (false, _) => self.remove_client(number),
                (true, false) => {}
                (true, true) => {
                    self.remove_unconfirmed(&identity);
                    let client_id = self.id(number);
                    if let Some(client) = self.clients.get_mut(&number)
                        && let Kind::Legacy { update, .. } = &mut client.kind
                    {
                        *update = Some(confirm);
                    }
                    return Ok(ClientIdConfirm {
                        client_id,
                        verifier: confirm,
                    });
                }
            }
        }
        let kind = Kind::Legacy {
            confirm,
            update: None,
        };
        let number = self.add_client(now, who, identity, verifier, kind)?;
        Ok(ClientIdConfirm {
            client_id: self.id(number),
            verifier: confirm,
        })
    }

    /// SETCLIENTID_CONFIRM
    pub fn confirm_client_id(
        &mut self,
        now: Nanos,
        who: Principal,
        given: &ClientIdConfirm,
    ) -> Result<(), Status> {
        let number = self.number(given.client_id).ok_or(Status::StaleClientId)?;
        let client = self.clients.get_mut(&number).ok_or(Status::StaleClientId)?;
        let Kind::Legacy { confirm, update } = &mut client.kind else {
            return Err(Status::StaleClientId);
        };
        if *confirm != given.verifier && *update != Some(given.verifier) {
            return Err(Status::StaleClientId);
        }
        if client.who != who {
            return Err(Status::ClidInUse);
        }
        if *update == Some(given.verifier) {
            *confirm = given.verifier;
            *update = None;
        }
        client.renewed = now;
        if !client.confirmed {
            self.confirm_client(number);
        }
        Ok(())
    }

    /// RENEW
    pub fn renew(&mut self, now: Nanos, client: u64) -> Result<(), Status> {
        self.legacy_client(now, client).map(|_| ())
    }

    /// When a client was last known to be there.
    #[cfg(test)]
    pub fn renewed(&self, client: u64) -> Nanos {
        self.clients[&self.number(client).unwrap()].renewed
    }

    /// The client of minor version 0 with this id, whose lease is renewed.
    pub(super) fn legacy_client(&mut self, now: Nanos, id: u64) -> Result<u32, Status> {
        let number = self.number(id).ok_or(Status::StaleClientId)?;
        match self.clients.get_mut(&number) {
            Some(client) if client.expelled => Err(Status::Expired),
            Some(client) if client.confirmed && client.legacy() => {
                client.renewed = now;
                Ok(number)
            }
            _ => Err(Status::StaleClientId),
        }
    }

    /// The client on whose behalf an owner acts.
    pub(super) fn client_of(
        &mut self,
        now: Nanos,
        sender: Sender,
        owner: &StateOwner<'_>,
    ) -> Result<u32, Status> {
        match sender {
            Sender::Client(id) => self.session_client(id),
            Sender::Named => self.legacy_client(now, owner.client_id),
        }
    }

    /// The client of a session, which may have been expelled since the compound began.
    pub(super) fn session_client(&self, id: u64) -> Result<u32, Status> {
        let number = self.number(id).filter(|n| self.clients.contains_key(n));
        number.ok_or(Status::Expired)
    }

    /// Whether a client may take state now.
    pub(super) fn may_take(
        &mut self,
        now: Nanos,
        number: u32,
        reclaim: bool,
    ) -> Result<(), Status> {
        // Before anything is given that those who have not come may have had.
        self.end_grace(now);
        let client = self.clients.get(&number).ok_or(Status::Expired)?;
        let complete = match client.kind {
            Kind::Legacy { .. } => None,
            Kind::Sessions { complete, .. } => Some(complete),
        };
        let grace = self.in_grace(now);
        if reclaim {
            let may = grace && client.may_reclaim && complete != Some(true);
            return if may { Ok(()) } else { Err(Status::NoGrace) };
        }
        if grace || complete == Some(false) {
            return Err(Status::Grace);
        }
        Ok(())
    }

    /// The status for a client that takes too much, in the terms of its minor version.
    pub(super) fn too_much(&self, number: u32) -> Status {
        match self.clients.get(&number) {
            Some(client) if client.legacy() => Status::Resource,
            _ => Status::Delay,
        }
    }

    /// The lease of a client is over.
    pub(super) fn is_over(&self, number: u32, now: Nanos) -> bool {
        self.clients
            .get(&number)
            .is_none_or(|client| client.idle(now) > self.limits.lease)
    }

    pub(super) fn id(&self, number: u32) -> u64 {
        u64::from(self.boot) << 32 | u64::from(number)
    }

    pub(super) fn number(&self, id: u64) -> Option<u32> {
        ((id >> 32) as u32 == self.boot).then_some(id as u32)
    }

    fn add_client(
        &mut self,
        now: Nanos,
        who: Principal,
        identity: Vec<u8>,
        verifier: Verifier,
        kind: Kind,
    ) -> Result<u32, Status> {
        self.remove_unconfirmed(&identity);
        self.make_room(now)?;
        let number = loop {
            self.last_client = self.last_client.wrapping_add(1);
            if self.last_client != 0 && !self.clients.contains_key(&self.last_client) {
                break self.last_client;
            }
        };
        let may_reclaim = self.grace.waiting.contains(&identity);
        let named = self.names.entry(identity.clone()).or_default();
        named.unconfirmed = Some(number);
        let client = Client {
            identity,
            verifier,
            who,
            kind,
            confirmed: false,
            expelled: false,
            renewed: now,
            under_way: 0,
            owners: HashMap::new(),
            name_bytes: 0,
            states: 0,
            ranges: 0,
            last_state: 0,
            recorded: false,
            recorded_delegations: false,
            delegated: now,
            may_reclaim,
            callbacks: VecDeque::new(),
            waits: Vec::new(),
        };
        self.clients.insert(number, client);
        self.fresh.push_back(number);
        Ok(number)
    }

    /// Makes room for a client: that which has waited longest to be confirmed goes first, then one whose lease is over.
    fn make_room(&mut self, now: Nanos) -> Result<(), Status> {
        while self.clients.len() >= self.limits.clients {
            let Some(number) = self.fresh.pop_front() else {
                let mut numbers = self.clients.keys();
                let over = numbers.find(|number| self.is_over(**number, now)).copied();
                self.remove_client(over.ok_or(Status::Delay)?);
                continue;
            };
            if self.clients.get(&number).is_some_and(|c| !c.confirmed) {
                self.remove_client(number);
            }
        }
        Ok(())
    }

    /// The client is who it says: an earlier one of its name is gone, with all that it had.
    pub(super) fn confirm_client(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        client.confirmed = true;
        let identity = client.identity.clone();
        let named = self.names.entry(identity).or_default();
        if named.unconfirmed == Some(number) {
            named.unconfirmed = None;
        }
        if let Some(earlier) = named.confirmed.replace(number) {
            self.remove_client(earlier);
        }
    }

    fn remove_unconfirmed(&mut self, identity: &[u8]) {
        let named = self.names.get(identity);
        if let Some(number) = named.and_then(|named| named.unconfirmed) {
            self.remove_client(number);
        }
    }

    /// From now on the client may reclaim what it has, should the server start anew.
    pub(super) fn record(&mut self, number: u32) {
        if let Some(client) = self.clients.get_mut(&number)
            && !client.recorded
        {
            client.recorded = true;
            self.records.push(Record::Keep(Reclaiming {
                identity: client.identity.clone(),
                delegations: client.recorded_delegations,
            }));
        }
    }

    /// Takes everything from a client whose lease is over, since another wants it.
    pub(super) fn expel(&mut self, number: u32) {
        if !self.clients.get(&number).is_some_and(Client::legacy) {
            self.remove_client(number);
            return;
        }
        self.take_all(number);
        if let Some(client) = self.clients.get_mut(&number) {
            client.expelled = true;
            if std::mem::take(&mut client.recorded) {
                self.records.push(Record::Forget(client.identity.clone()));
            }
        }
    }

    /// Makes room for state of a client where there is as much as there may be of all: those whose lease is over lose theirs.
    pub(super) fn make_room_for_state(&mut self, now: Nanos, client: u32) {
        let holds = |_, silent: &Client| !silent.owners.is_empty();
        self.expel_silent(now, client, holds, |state| {
            let most = state.limits.all_states;
            state.entries.len() < most && state.has_room_for_owner() && state.ranges + 2 <= most
        });
    }

    /// Takes everything from clients whose leases are over and that `hold` something, until there is room: first from those
    /// that were silent for longest, and never from `wants`.
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
        for (_, number) in silent {
            self.expel(number);
            if has_room(self) {
                break;
            }
        }
    }

    pub(super) fn remove_client(&mut self, number: u32) {
        self.take_all(number);
        let Some(client) = self.clients.remove(&number) else {
            return;
        };
        if let Kind::Sessions { sessions, .. } = &client.kind {
            for session in sessions {
                self.drop_session(session);
            }
        }
        if client.recorded {
            self.records.push(Record::Forget(client.identity.clone()));
        }
        if let Some(named) = self.names.get_mut(&client.identity) {
            for slot in [&mut named.confirmed, &mut named.unconfirmed] {
                if *slot == Some(number) {
                    *slot = None;
                }
            }
            if named.confirmed.is_none() && named.unconfirmed.is_none() {
                self.names.remove(&client.identity);
            }
        }
    }
}
