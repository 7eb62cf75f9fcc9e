//! Client ids and leases: which client has which id, whether it has restarted, and when it is gone (RFC 8881, sections 2.4,
//! 18.35, 18.50 and 18.51). `legacy.rs` has those of minor version 0.

use std::collections::{HashMap, VecDeque};

use odafs_common::wire::nfs4::{
    CreateSessionOk, ExchangeIdArgs, SessionId, StateOwner, Status, Verifier, exchange_id_flag,
};
use odafs_fabric::clock::Nanos;
use sha2::{Digest as _, Sha256};

use super::back_channel::Callback;
use super::legacy::CallbackAddress;
use super::{Exchanged, Principal, Record, Sender, State};
use crate::vfs::ObjectId;
use crate::vfs::locks::Side;

/// The clients with one identity.
#[derive(Debug, Default)]
pub(super) struct ClientsOf {
    pub confirmed: Option<u32>,
    pub unconfirmed: Option<u32>,
}

/// What the minor versions keep of a client.
#[derive(Debug)]
pub(super) enum Kind {
    /// Minor version 0.
    Legacy {
        /// The verifier that confirms it, or has.
        confirm: Verifier,
        /// The verifier that will confirm a change of its callback address.
        update: Option<Verifier>,
        address: CallbackAddress,
    },
    /// 4.1 and later.
    Sessions {
        /// The sequence number of the last CREATE_SESSION.
        sequence: u32,
        /// The result of the last CREATE_SESSION.
        last: Option<Result<CreateSessionOk, Status>>,
        sessions: Vec<SessionId>,
        /// It has sent RECLAIM_COMPLETE.
        complete: bool,
    },
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    /// A byte for the kind, and the client's own name.
    pub identity: Vec<u8>,
    pub verifier: Verifier,
    pub who: Principal,
    pub kind: Kind,
    pub confirmed: bool,
    /// It lost all that it held after its lease. In 4.0 operations with its id then fail with EXPIRED.
    pub expelled: bool,
    /// When its lease was last renewed.
    pub renewed: Nanos,
    /// The number of compounds of its sessions under way. While there are some, its lease does not end.
    pub under_way: u32,
    /// The numbers of its owners by their names, for each [`OwnerRole`].
    pub owners: [HashMap<Vec<u8>, u64>; 2],
    /// Bytes in the names of its owners.
    pub name_bytes: usize,
    /// How many stateids it has.
    pub states: usize,
    /// How many ranges it has locked.
    pub ranges: usize,
    /// The number of the last stateid that was made for it.
    pub last_state: u32,
    /// Stable storage says that it may reclaim.
    pub recorded: bool,
    /// Stable storage says that it may reclaim delegations.
    pub recorded_delegations: bool,
    /// The number of the last record of that.
    pub last_record: u64,
    /// Stable storage was to forget it, because its lease was over and others wanted what it holds.
    pub condemned: bool,
    /// When it last had delegations.
    pub delegated: Nanos,
    /// It held state when the server went down.
    pub may_reclaim: bool,
    /// The callbacks that wait to be sent, in this order.
    pub callbacks: VecDeque<Callback>,
    /// The file of each lock for which one of its owners waits.
    pub waits: Vec<ObjectId>,
}

impl Client {
    pub fn legacy(&self) -> bool {
        matches!(self.kind, Kind::Legacy { .. })
    }

    /// How long ago its lease was last renewed.
    pub fn idle(&self, now: Nanos) -> Nanos {
        match self.under_way {
            0 => now.since(self.renewed),
            _ => Nanos(0),
        }
    }
}

/// What tells clients apart: the kind of the identity, and the name that the client gives itself, or a digest of a long one.
pub(in crate::nfs4) fn identity(kind: u8, id: &[u8]) -> Vec<u8> {
    match id.len() {
        0..=NAME_MAX => [&[kind], id].concat(),
        _ => [&[kind | DIGEST][..], &Sha256::digest(id)].concat(),
    }
}

/// The longest name that is kept as it is, in bytes. Each client that begins to hold something has a list of all that do written
/// to stable storage, and clients with long names must not make that slow for others.
const NAME_MAX: usize = 64;
/// Added to the kind of an identity with a digest.
const DIGEST: u8 = 2;

/// The kinds of identities: of minor version 0, and of later ones.
pub(super) const LEGACY: u8 = 0;
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
        let known = self.identities.get(&identity).and_then(|of| of.confirmed);
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
            if !self.remove_silent(number) {
                return Err(Self::HELD_UP);
            }
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
    pub fn destroy_client_id(&mut self, client: u64) -> Result<(), Status> {
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
    pub fn reclaim_complete(&mut self, client: u64, one_file_system: bool) -> Result<(), Status> {
        let number = self.number(client).ok_or(Status::StaleClientId)?;
        let client = self.clients.get_mut(&number).ok_or(Status::StaleClientId)?;
        let Kind::Sessions { complete, .. } = &mut client.kind else {
            return Err(Status::StaleClientId);
        };
        // File systems do not move between servers here, so there is nothing to reclaim for one of them.
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

    /// When the lease of a client was last renewed.
    #[cfg(test)]
    pub fn renewed(&self, client: u64) -> Nanos {
        self.clients[&self.number(client).unwrap()].renewed
    }

    /// The client of an owner.
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

    /// Refuses state to a client during the grace period, and reclaims outside of it.
    pub(super) fn may_take(
        &mut self,
        now: Nanos,
        number: u32,
        reclaim: bool,
    ) -> Result<(), Status> {
        // This comes first: a client that has not reclaimed may do so no more once others take state.
        self.end_grace(now);
        let client = self.clients.get(&number).ok_or(Status::Expired)?;
        let complete = match client.kind {
            Kind::Legacy { .. } => None,
            Kind::Sessions { complete, .. } => Some(complete),
        };
        let grace = self.in_grace(now);
        if reclaim {
            if !grace || !client.may_reclaim || complete == Some(true) {
                return Err(Status::NoGrace);
            }
            self.prolong_grace(now);
            return Ok(());
        }
        if grace || complete == Some(false) {
            return Err(Status::Grace);
        }
        Ok(())
    }

    /// The status of its minor version for a client that wants more than it may have.
    pub(super) fn too_much(&self, number: u32) -> Status {
        match self.clients.get(&number) {
            Some(client) if client.legacy() => Status::Resource,
            _ => Status::Delay,
        }
    }

    /// Whether the lease of a client is over.
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

    pub(super) fn add_client(
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
        let of = self.identities.entry(identity.clone()).or_default();
        of.unconfirmed = Some(number);
        let client = Client {
            identity,
            verifier,
            who,
            kind,
            confirmed: false,
            expelled: false,
            renewed: now,
            under_way: 0,
            owners: Default::default(),
            name_bytes: 0,
            states: 0,
            ranges: 0,
            last_state: 0,
            recorded: false,
            recorded_delegations: false,
            last_record: 0,
            condemned: false,
            delegated: now,
            may_reclaim,
            callbacks: VecDeque::new(),
            waits: Vec::new(),
        };
        self.clients.insert(number, client);
        self.fresh.push_back(number);
        Ok(number)
    }

    /// Makes room for a client. Removes first the client that has been unconfirmed for longest, then any whose lease is over.
    fn make_room(&mut self, now: Nanos) -> Result<(), Status> {
        while self.clients.len() >= self.limits.clients {
            let Some(number) = self.fresh.pop_front() else {
                let over = self.clients.iter();
                let over = over.filter(|(number, _)| self.is_over(**number, now));
                // Those come first that need not be forgotten.
                let first = over.min_by_key(|(_, client)| (client.recorded, client.renewed));
                let number = *first.ok_or(Status::Delay)?.0;
                if !self.remove_silent(number) {
                    return Err(Self::HELD_UP);
                }
                continue;
            };
            if self.clients.get(&number).is_some_and(|c| !c.confirmed) {
                self.remove_client(number);
            }
        }
        Ok(())
    }

    /// Confirms a client. An earlier client with its identity is removed, with all that it held.
    pub(super) fn confirm_client(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        client.confirmed = true;
        let identity = client.identity.clone();
        let of = self.identities.entry(identity).or_default();
        if of.unconfirmed == Some(number) {
            of.unconfirmed = None;
        }
        if let Some(earlier) = of.confirmed.replace(number) {
            self.remove_client(earlier);
        }
    }

    pub(super) fn remove_unconfirmed(&mut self, identity: &[u8]) {
        let of = self.identities.get(identity);
        if let Some(number) = of.and_then(|of| of.unconfirmed) {
            self.remove_client(number);
        }
    }

    /// Makes room for state of a client if there is as much as there may be of all. Clients whose leases are over lose theirs.
    pub(super) fn make_room_for_state(&mut self, now: Nanos, client: u32) {
        let holds = |_, silent: &Client| silent.owners.iter().any(|of| !of.is_empty());
        self.expel_silent(now, client, holds, |state| {
            let most = state.limits.all_states;
            state.entries.len() < most && state.has_room_for_owner() && state.ranges + 2 <= most
        });
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
            self.note_record(Record::Forget(client.identity.clone()));
        }
        if let Some(of) = self.identities.get_mut(&client.identity) {
            for known in [&mut of.confirmed, &mut of.unconfirmed] {
                known.take_if(|known| *known == number);
            }
            if of.confirmed.is_none() && of.unconfirmed.is_none() {
                self.identities.remove(&client.identity);
            }
        }
    }
}
