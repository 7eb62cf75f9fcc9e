//! Sessions, their slots and their connections (RFC 8881, sections 2.10, 18.34, 18.36, 18.37 and 18.46).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use odafs_common::wire::nfs4::{
    AtMostOne, BindConnectionArgs, BindConnectionOk, ChannelAttributes, CreateSessionArgs,
    CreateSessionOk, GrantedChannel, SequenceArgs, SequenceOk, SessionId, Status, WantedChannel,
    create_session_flag,
};
use odafs_fabric::clock::Nanos;

use super::back_channel::BackChannel;
use super::clients::{Client, Kind};
use super::{Arrival, Principal, Sequenced, Slot, State, StateLimits};

/// The least length of calls and replies, in bytes, that a session can do with.
const MESSAGE_BYTES_MIN: u32 = 128;
/// Replies up to this length, in bytes, are kept even if the client did not ask for that.
pub(super) const SHORT_BYTES: usize = 512;
/// The greatest length of a callback, in bytes.
const CALLBACK_BYTES: u32 = 2048;
/// The most connections that a session knows.
const CONNECTIONS_MAX: usize = 64;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub client: u32,
    /// What it began with.
    pub fore: ChannelAttributes,
    pub slots: Vec<SlotState>,
    /// How many of the first slots may keep replies. The others have none.
    pub keeping: u32,
    /// The highest slot that the client should use.
    pub target: u32,
    /// The highest slot that it has used since idle slots were last looked for.
    pub used: u32,
    connections: Vec<u64>,
    /// Its back channel, if the client asked for one.
    pub back: Option<BackChannel>,
}

#[derive(Debug, Default)]
pub(super) struct SlotState {
    /// The sequence number of the last compound.
    sequence: u32,
    /// That compound is being executed.
    pub busy: bool,
    /// Its reply is in `reply`.
    pub kept: bool,
    /// The user that sent it.
    who: Principal,
    /// The highest slot that the client should use, as the last SEQUENCE said.
    told: u32,
    pub reply: Vec<u8>,
}

/// Bytes of replies that so many slots of such a channel may keep.
pub(super) fn cached_bytes(fore: &ChannelAttributes, slots: u32) -> usize {
    let each = (fore.max_response_cached as usize).max(SHORT_BYTES);
    each.saturating_mul(slots as usize)
}

/// The attributes of a channel for which a client asks for these.
fn granted(asked: &ChannelAttributes, limits: &StateLimits) -> Result<ChannelAttributes, Status> {
    let shortest = asked.max_request.min(asked.max_response);
    if shortest < MESSAGE_BYTES_MIN || asked.max_operations == 0 || asked.max_requests == 0 {
        return Err(Status::TooSmall);
    }
    Ok(ChannelAttributes {
        header_padding: 0,
        max_request: asked.max_request.min(limits.message_bytes),
        max_response: asked.max_response.min(limits.message_bytes),
        max_response_cached: asked.max_response_cached.min(limits.cached_bytes),
        max_operations: asked.max_operations.min(limits.operations),
        max_requests: asked.max_requests.min(limits.slots),
        rdma_reads: AtMostOne(None),
    })
}

/// The back channel of a new session, if it is one that the server can use.
fn back_channel(
    now: Nanos,
    arrival: Arrival,
    args: &CreateSessionArgs<'_>,
    granted: &ChannelAttributes,
) -> Option<BackChannel> {
    if granted.max_request < CALLBACK_BYTES {
        return None;
    }
    BackChannel::new(
        now,
        args.callback_program,
        arrival.minor,
        &args.callback_security,
    )
}

impl State {
    /// CREATE_SESSION. A repetition gets the same result. A failure uses the sequence number up too (RFC 8881, section 18.36.4),
    /// except DELAY (section 15.1.1.3) and CLID_INUSE: another user's calls do not count for the client.
    pub fn create_session(
        &mut self,
        now: Nanos,
        who: Principal,
        arrival: Arrival,
        args: &CreateSessionArgs<'_>,
    ) -> Result<CreateSessionOk, Status> {
        let number = self.number(args.client_id).ok_or(Status::StaleClientId)?;
        let client = self.clients.get(&number).ok_or(Status::StaleClientId)?;
        let Kind::Sessions { sequence, last, .. } = &client.kind else {
            return Err(Status::StaleClientId);
        };
        match last {
            // The arguments are the reason of all other failures, so a repetition fails again. A call with other arguments is
            // none: some clients do not count such failures, because Linux' server does not (CSESS29 of pynfs).
            Some(last @ (Ok(_) | Err(Status::NoSpc))) if args.sequence == *sequence => {
                return *last;
            }
            Some(Err(_)) if args.sequence == *sequence => {}
            _ if args.sequence == sequence.wrapping_add(1) => {}
            _ => return Err(Status::SeqMisordered),
        }
        let made = self.new_session(now, who, (number, arrival), args);
        if !matches!(made, Err(Status::Delay | Status::ClidInUse))
            && let Some(client) = self.clients.get_mut(&number)
            && let Kind::Sessions { sequence, last, .. } = &mut client.kind
        {
            *sequence = args.sequence;
            *last = Some(made);
        }
        made
    }

    /// The session that CREATE_SESSION makes, if it is not a repetition.
    fn new_session(
        &mut self,
        now: Nanos,
        who: Principal,
        (number, arrival): (u32, Arrival),
        args: &CreateSessionArgs<'_>,
    ) -> Result<CreateSessionOk, Status> {
        let client = self.clients.get(&number).ok_or(Status::StaleClientId)?;
        let Kind::Sessions { sessions, .. } = &client.kind else {
            return Err(Status::StaleClientId);
        };
        if !client.confirmed && client.who != who {
            return Err(Status::ClidInUse);
        }
        let known = create_session_flag::PERSIST
            | create_session_flag::BACK_CHANNEL
            | create_session_flag::RDMA;
        if args.flags & !known != 0 {
            return Err(Status::Inval);
        }
        let fore = granted(&args.fore, &self.limits)?;
        let back = granted(&args.back, &self.limits)?;
        if sessions.len() >= self.limits.sessions {
            return Err(Status::NoSpc);
        }
        let fore = self.with_slots_left(now, number, fore)?;
        let id = self.session_id(number);
        let back_channel = back_channel(now, arrival, args, &back);
        // The flag is about this connection alone: another may be bound later (RFC 8881, sections 18.34.3 and 18.36.3). This one may
        // have ended meanwhile: then SEQUENCE says that the path is down, and the client binds another.
        let asked = args.flags & create_session_flag::BACK_CHANNEL != 0;
        let bound = asked && arrival.can_call_back && back_channel.is_some();
        let back_channel = match bound {
            true => back_channel.map(BackChannel::asked_for),
            false => back_channel,
        };
        let made = CreateSessionOk {
            session: id,
            sequence: args.sequence,
            // Not PERSIST: replies do not survive a restart of the server.
            flags: match bound {
                true => create_session_flag::BACK_CHANNEL,
                false => 0,
            },
            fore,
            back,
        };
        let slots = (0..fore.max_requests).map(|_| SlotState::default());
        let session = Session {
            client: number,
            fore,
            slots: slots.collect(),
            keeping: fore.max_requests,
            target: fore.max_requests - 1,
            used: 0,
            connections: Vec::new(),
            back: back_channel,
        };
        self.add_session(now, arrival, id, session);
        if bound {
            self.bind_back(arrival, &id);
        }
        Ok(made)
    }

    /// Adds a session of a client, and confirms the client.
    fn add_session(&mut self, now: Nanos, arrival: Arrival, id: SessionId, session: Session) {
        let number = session.client;
        self.cached_bytes += session.cached_bytes();
        self.sessions.insert(id, session);
        self.bind(arrival.connection, &id);
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        client.renewed = now;
        if let Kind::Sessions { sessions, .. } = &mut client.kind {
            sessions.push(id);
        }
        if !client.confirmed {
            self.confirm_client(number);
        }
    }

    /// A fore channel with as many slots as there is room for. Sessions of clients whose leases are over make room.
    fn with_slots_left(
        &mut self,
        now: Nanos,
        client: u32,
        mut fore: ChannelAttributes,
    ) -> Result<ChannelAttributes, Status> {
        let wanted = cached_bytes(&fore, fore.max_requests).saturating_mul(4);
        let hold = |_, silent: &Client| !silent.legacy();
        self.expel_silent(now, client, hold, |state| {
            state.cached_bytes.saturating_add(wanted) <= state.limits.all_cached_bytes
        });
        let all = self.limits.all_cached_bytes;
        let left = all.saturating_sub(self.cached_bytes);
        let asked = fore.max_requests;
        // One session must not take what is left for all.
        while fore.max_requests > 1 && cached_bytes(&fore, fore.max_requests) > left / 4 {
            fore.max_requests /= 2;
        }
        if left < all / 8 {
            self.ask_for_slots(now);
        }
        let cut = fore.max_requests < asked;
        // There may be room once stable storage has forgotten the silent. The session would keep its few slots for long.
        if cached_bytes(&fore, fore.max_requests) > left || (cut && self.is_put_off()) {
            return Err(Status::Delay);
        }
        Ok(fore)
    }

    /// A new session id, which others cannot guess.
    fn session_id(&mut self, client: u32) -> SessionId {
        loop {
            let secret = RandomState::new().hash_one(self.serial());
            let mut id = SessionId::default();
            id[..4].copy_from_slice(&self.boot.to_be_bytes());
            id[4..8].copy_from_slice(&client.to_be_bytes());
            id[8..].copy_from_slice(&secret.to_be_bytes());
            if !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    /// BIND_CONN_TO_SESSION
    pub fn bind_connection(
        &mut self,
        now: Nanos,
        arrival: Arrival,
        args: &BindConnectionArgs,
    ) -> Result<BindConnectionOk, Status> {
        let session = self.sessions.get(&args.session).ok_or(Status::BadSession)?;
        let client = session.client;
        if let Some(client) = self.clients.get_mut(&client) {
            client.renewed = now;
        }
        self.knows_session(&args.session);
        let back = args.channel != WantedChannel::Fore && self.bind_back(arrival, &args.session);
        let channel = match args.channel {
            WantedChannel::Back if back => GrantedChannel::Back,
            _ if back => GrantedChannel::Both,
            WantedChannel::Fore | WantedChannel::ForeOrBoth => GrantedChannel::Fore,
            // The connection takes no callbacks, and nothing was bound.
            WantedChannel::Back | WantedChannel::BackOrBoth => return Err(Status::Inval),
        };
        // Calls are taken over every connection of a session.
        self.bind(arrival.connection, &args.session);
        Ok(BindConnectionOk {
            session: args.session,
            channel,
            rdma: false,
        })
    }

    /// Binds a connection to a session. If the session has too many, it forgets the oldest.
    fn bind(&mut self, connection: u64, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        if session.connections.contains(&connection) {
            return;
        }
        let oldest =
            (session.connections.len() >= CONNECTIONS_MAX).then(|| session.connections.remove(0));
        session.connections.push(connection);
        self.connections.entry(connection).or_default().insert(*id);
        if let Some(oldest) = oldest {
            self.unbind_back(oldest, id);
            self.unbind(oldest, id);
        }
    }

    fn unbind(&mut self, connection: u64, id: &SessionId) {
        if let Some(sessions) = self.connections.get_mut(&connection) {
            sessions.remove(id);
            if sessions.is_empty() {
                self.connections.remove(&connection);
            }
        }
    }

    /// A connection has ended.
    pub fn connection_closed(&mut self, connection: u64) {
        for id in self.connections.remove(&connection).unwrap_or_default() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.connections.retain(|known| *known != connection);
            }
            self.unbind_back(connection, &id);
        }
    }

    /// DESTROY_SESSION, over this connection, which must be bound to the session unless the session has none.
    pub fn destroy_session(
        &mut self,
        now: Nanos,
        connection: u64,
        session: &SessionId,
    ) -> Result<(), Status> {
        let found = self.sessions.get(session).ok_or(Status::BadSession)?;
        if !found.connections.is_empty() && !found.connections.contains(&connection) {
            return Err(Status::ConnNotBoundToSession);
        }
        let client = found.client;
        self.drop_session(session);
        if let Some(client) = self.clients.get_mut(&client) {
            client.renewed = now;
            if let Kind::Sessions { sessions, .. } = &mut client.kind {
                sessions.retain(|known| known != session);
            }
        }
        Ok(())
    }

    /// Forgets a session. Another session of its client sends the callback that was under way.
    pub(super) fn drop_session(&mut self, id: &SessionId) {
        if let Some(session) = self.sessions.remove(id) {
            self.cached_bytes -= session.cached_bytes();
            self.grown.remove(id);
            if let Some(back) = session.back {
                self.drop_back(session.client, back);
            }
            for connection in session.connections {
                self.unbind(connection, id);
            }
        }
    }

    /// SEQUENCE, in a call of so many bytes and operations. Renews the lease, and binds the connection to the session (RFC 8881,
    /// section 2.10.3.1), also if it is a repetition that is answered from the slot.
    pub fn sequence(
        &mut self,
        now: Nanos,
        who: Principal,
        connection: u64,
        args: &SequenceArgs,
        bytes: usize,
        operations: u32,
    ) -> Result<Sequenced, Status> {
        let session = self
            .sessions
            .get_mut(&args.session)
            .ok_or(Status::BadSession)?;
        if session.back.as_mut().is_some_and(BackChannel::named) {
            self.calling.insert(session.client);
        }
        let (fore, target) = (session.fore, session.target);
        let number = session.client;
        let count = session.slots.len() as u32;
        let before = session.cached_bytes();
        let slot = session
            .slots
            .get_mut(args.slot as usize)
            .ok_or(Status::BadSlot)?;
        if args.sequence == slot.sequence {
            if slot.busy {
                return Err(Status::Delay);
            }
            // The slot was never used.
            if !slot.kept && slot.sequence == 0 {
                return Err(Status::SeqMisordered);
            }
            if slot.who != who {
                return Err(Status::SeqFalseRetry);
            }
            let kept = slot.kept.then(|| Arc::from(&slot.reply[..]));
            if kept.is_none() {
                // The client hears this with SEQUENCE's result.
                slot.told = target;
            }
            if let Some(client) = self.clients.get_mut(&number) {
                client.renewed = now;
            }
            self.bind(connection, &args.session);
            if let Some(kept) = kept {
                return Ok(Sequenced::Replay(kept));
            }
            let ok = self.sequence_result(&args.session, args.slot);
            return Ok(Sequenced::NotKept(ok.ok_or(Status::ServerFault)?));
        }
        if slot.busy || args.sequence != slot.sequence.wrapping_add(1) {
            return Err(Status::SeqMisordered);
        }
        if args.highest_slot >= count {
            return Err(Status::BadHighSlot);
        }
        if bytes > fore.max_request as usize {
            return Err(Status::ReqTooBig);
        }
        if operations > fore.max_operations {
            return Err(Status::TooManyOps);
        }
        if args.cache && fore.max_response_cached < MESSAGE_BYTES_MIN {
            return Err(Status::RepTooBigToCache);
        }
        // A slot that was to keep nothing is used again.
        let keeping = session.keeping.max(args.slot + 1);
        let more = cached_bytes(&fore, keeping) - cached_bytes(&fore, session.keeping);
        if more > 0 && self.cached_bytes + more > self.limits.all_cached_bytes {
            return Err(Status::Delay);
        }
        // The client has the reply to the slot's last compound, and so what the SEQUENCE in it said.
        let knows = std::mem::replace(&mut slot.told, target) == target;
        slot.sequence = args.sequence;
        slot.busy = true;
        session.keeping = keeping;
        if knows && args.highest_slot <= target {
            session.give_up_slots();
        }
        self.cached_bytes = self.cached_bytes + session.cached_bytes() - before;
        self.slot_used(&args.session, args.slot, knows);
        if let Some(client) = self.clients.get_mut(&number) {
            client.renewed = now;
            client.under_way += 1;
        }
        self.bind(connection, &args.session);
        let slot = Slot {
            client: self.id(number),
            who,
            session: args.session,
            number: args.slot,
            cache: args.cache,
            reply_bytes: fore.max_response,
            cached_bytes: fore.max_response_cached,
        };
        let ok = self.sequence_ok(&slot).ok_or(Status::ServerFault)?;
        Ok(Sequenced::Execute(slot, ok))
    }

    /// The result of SEQUENCE in the compound that holds this slot. `None`: its session was destroyed meanwhile.
    pub fn sequence_ok(&self, slot: &Slot) -> Option<SequenceOk> {
        self.sequence_result(&slot.session, slot.number)
    }

    fn sequence_result(&self, id: &SessionId, number: u32) -> Option<SequenceOk> {
        let session = self.sessions.get(id)?;
        let slot = session.slots.get(number as usize)?;
        let flags = self.back_status(id) | self.delegation_status(session.client);
        Some(SequenceOk {
            session: *id,
            sequence: slot.sequence,
            slot: number,
            highest_slot: session.slots.len() as u32 - 1,
            target_highest_slot: session.target,
            status_flags: flags,
        })
    }

    /// Ends the compound of a slot, and renews the client's lease as of `renewed`. Returns the slot, unless its session was
    /// destroyed meanwhile.
    fn end_compound(&mut self, renewed: Nanos, slot: &Slot) -> Option<&mut SlotState> {
        let client = self.number(slot.client);
        if let Some(client) = client.and_then(|number| self.clients.get_mut(&number)) {
            client.under_way = client.under_way.saturating_sub(1);
            client.renewed = client.renewed.max(renewed);
        }
        let session = self.sessions.get_mut(&slot.session)?;
        session.slots.get_mut(slot.number as usize)
    }

    /// The compound of a slot was executed. Its reply is kept if it is given and is no longer than [`Slot::keeps`]. Renews the
    /// lease again: the compound may have taken longer than a lease.
    pub fn finish(&mut self, now: Nanos, slot: &Slot, reply: Option<&[u8]>) {
        let reply = reply.filter(|reply| reply.len() <= slot.keeps());
        let Some(state) = self.end_compound(now, slot) else {
            return;
        };
        state.busy = false;
        state.who = slot.who;
        state.kept = reply.is_some();
        state.reply.clear();
        state.reply.extend_from_slice(reply.unwrap_or_default());
    }

    /// The compound of a slot was not executed, and comes again. The slot still keeps the reply before it.
    pub fn abandon(&mut self, slot: &Slot) {
        if let Some(state) = self.end_compound(Nanos(0), slot) {
            state.busy = false;
            state.sequence = state.sequence.wrapping_sub(1);
            // The client does not get what SEQUENCE said.
            state.told = u32::MAX;
        }
    }
}
