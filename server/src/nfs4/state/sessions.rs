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

use super::back::BackChannel;
use super::clients::{Client, Kind};
use super::{Principal, Sequenced, Slot, State, StateLimits, Way};

/// Calls and replies that are shorter than this, in bytes, carry nothing: a session with less is refused.
const MESSAGE_BYTES_MIN: u32 = 128;
/// Replies up to this length, in bytes, are kept whether that was asked for or not.
const SHORT_BYTES: usize = 512;
/// Callbacks are no longer than this, in bytes.
const CALLBACK_BYTES: u32 = 2048;
/// No session is asked to do with fewer slots than this.
const SLOTS_MIN: u32 = 8;
/// Sessions are asked to use fewer slots at most so often.
const ASKING: Nanos = Nanos::from_secs(10);
/// The most connections that a session knows.
const CONNECTIONS_MAX: usize = 64;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub client: u32,
    fore: ChannelAttributes,
    slots: Vec<SlotState>,
    /// So many of the first slots may keep replies; the others have none.
    keeping: u32,
    /// The highest slot that the client should use.
    target: u32,
    connections: Vec<u64>,
    /// If there was to be one.
    pub back: Option<BackChannel>,
}

#[derive(Debug, Default)]
struct SlotState {
    /// Of the last compound.
    sequence: u32,
    /// It is being executed.
    busy: bool,
    /// Its reply was asked to be kept.
    cache: bool,
    /// Its reply is in `reply`.
    kept: bool,
    /// The highest slot that the client should use, as its last reply said.
    told: u32,
    reply: Vec<u8>,
}

impl Session {
    /// Bytes that its slots may keep.
    fn cached_bytes(&self) -> usize {
        cached_bytes(&self.fore, self.keeping)
    }

    /// The client has seen how many slots it should use, and uses no more: the others keep nothing.
    fn give_up_slots(&mut self) {
        let (keeping, rest) = (self.target + 1, self.target as usize + 1);
        if keeping >= self.keeping || self.slots[rest..].iter().any(|slot| slot.busy) {
            return;
        }
        self.keeping = keeping;
        for slot in &mut self.slots[rest..] {
            slot.kept = false;
            slot.reply = Vec::new();
        }
    }
}

/// Bytes that so many slots of such a channel may keep.
fn cached_bytes(fore: &ChannelAttributes, slots: u32) -> usize {
    let each = (fore.max_response_cached as usize).max(SHORT_BYTES);
    each.saturating_mul(slots as usize)
}

/// What a channel is granted of what is asked for.
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

impl State {
    /// CREATE_SESSION; a repetition gets the same result again. Only what succeeds is counted.
    pub fn create_session(
        &mut self,
        now: Nanos,
        who: Principal,
        way: Way,
        args: &CreateSessionArgs<'_>,
    ) -> Result<CreateSessionOk, Status> {
        let number = self.number(args.client_id).ok_or(Status::StaleClientId)?;
        let client = self.clients.get(&number).ok_or(Status::StaleClientId)?;
        let Kind::Sessions {
            sequence,
            last,
            sessions,
            ..
        } = &client.kind
        else {
            return Err(Status::StaleClientId);
        };
        if args.sequence == *sequence
            && let Some(last) = last
        {
            return Ok(*last);
        }
        if args.sequence != sequence.wrapping_add(1) {
            return Err(Status::SeqMisordered);
        }
        if !client.confirmed && client.who != who {
            return Err(Status::ClidInUse);
        }
        let known = create_session_flag::PERSIST
            | create_session_flag::BACK_CHANNEL
            | create_session_flag::RDMA;
        if args.flags & !known != 0 {
            return Err(Status::Inval);
        }
        let mut fore = granted(&args.fore, &self.limits)?;
        let back = granted(&args.back, &self.limits)?;
        if sessions.len() >= self.limits.sessions {
            return Err(Status::NoSpc);
        }
        // The silent keep their sessions only while nobody else wants what these take.
        let wanted = cached_bytes(&fore, fore.max_requests).saturating_mul(4);
        let hold = |_, silent: &Client| !silent.legacy();
        self.expel_silent(now, number, hold, |state| {
            state.cached_bytes.saturating_add(wanted) <= state.limits.all_cached_bytes
        });
        let left = self
            .limits
            .all_cached_bytes
            .saturating_sub(self.cached_bytes);
        // One session must not take what is left for all.
        while fore.max_requests > 1 && cached_bytes(&fore, fore.max_requests) > left / 4 {
            fore.max_requests /= 2;
        }
        if left < self.limits.all_cached_bytes / 8 {
            self.ask_for_slots(now);
        }
        if cached_bytes(&fore, fore.max_requests) > left {
            return Err(Status::Delay);
        }
        let id = self.session_id(number);
        let asks_back = args.flags & create_session_flag::BACK_CHANNEL != 0;
        // If the connection has ended meanwhile, the client hears that the path is down, and binds another.
        let back_channel = if asks_back && way.carries && back.max_request >= CALLBACK_BYTES {
            BackChannel::new(args.callback_program, way.minor, &args.callback_security)
        } else {
            None
        };
        let made = CreateSessionOk {
            session: id,
            sequence: args.sequence,
            // Replies do not outlive the server.
            flags: match back_channel {
                Some(_) => create_session_flag::BACK_CHANNEL,
                None => 0,
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
            connections: Vec::new(),
            back: back_channel,
        };
        self.cached_bytes += session.cached_bytes();
        self.sessions.insert(id, session);
        self.bind(way.connection, &id);
        self.bind_back(way, &id);
        if let Some(client) = self.clients.get_mut(&number) {
            client.renewed = now;
            if let Kind::Sessions {
                sequence,
                last,
                sessions,
                ..
            } = &mut client.kind
            {
                *sequence = args.sequence;
                *last = Some(made);
                sessions.push(id);
            }
            if !client.confirmed {
                self.confirm_client(number);
            }
        }
        Ok(made)
    }

    /// Asks clients to use half of their slots, because little is left of what slots may keep (RFC 8881, section 20.8).
    /// SEQUENCE tells them too. A client that goes on as before loses nothing.
    fn ask_for_slots(&mut self, now: Nanos) {
        if self
            .asked_for_slots
            .is_some_and(|at| now.since(at) < ASKING)
        {
            return;
        }
        self.asked_for_slots = Some(now);
        for session in self.sessions.values_mut() {
            let slots = session.target.div_ceil(2);
            if slots >= SLOTS_MIN {
                session.target = slots - 1;
                if let Some(back) = &mut session.back {
                    back.ask_for_slots(session.target);
                    self.calling.insert(session.client);
                }
            }
        }
    }

    /// A second or so has passed: if there is plenty again, clients may use all of their slots.
    pub(super) fn tick_slots(&mut self) {
        if self.asked_for_slots.is_none() || self.cached_bytes > self.limits.all_cached_bytes / 2 {
            return;
        }
        self.asked_for_slots = None;
        for session in self.sessions.values_mut() {
            session.target = session.fore.max_requests - 1;
        }
    }

    /// Others cannot guess it.
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
        way: Way,
        args: &BindConnectionArgs,
    ) -> Result<BindConnectionOk, Status> {
        let session = self.sessions.get(&args.session).ok_or(Status::BadSession)?;
        let client = session.client;
        if let Some(client) = self.clients.get_mut(&client) {
            client.renewed = now;
        }
        let back = args.channel != WantedChannel::Fore && self.bind_back(way, &args.session);
        let channel = match args.channel {
            WantedChannel::Back if back => GrantedChannel::Back,
            _ if back => GrantedChannel::Both,
            WantedChannel::Fore | WantedChannel::ForeOrBoth => GrantedChannel::Fore,
            // Nothing was bound.
            WantedChannel::Back | WantedChannel::BackOrBoth => return Err(Status::Inval),
        };
        // Calls are taken over every connection of a session.
        self.bind(way.connection, &args.session);
        Ok(BindConnectionOk {
            session: args.session,
            channel,
            rdma: false,
        })
    }

    /// The connection belongs to the session. Of more than a session can know, the oldest is forgotten.
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

    /// The connection is gone.
    pub fn connection_closed(&mut self, connection: u64) {
        for id in self.connections.remove(&connection).unwrap_or_default() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.connections.retain(|known| *known != connection);
            }
            self.unbind_back(connection, &id);
        }
    }

    /// DESTROY_SESSION, from this connection, which must be one of the session's unless it has none.
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

    /// Forgets a session and where it was bound.
    pub(super) fn drop_session(&mut self, id: &SessionId) {
        if let Some(session) = self.sessions.remove(id) {
            self.cached_bytes -= session.cached_bytes();
            if let Some(lost) = session.back.and_then(BackChannel::unsaid) {
                self.say(session.client, lost);
            }
            for connection in session.connections {
                self.unbind(connection, id);
            }
        }
    }

    /// SEQUENCE, of a call of so many bytes and operations. Renews the lease, and makes the connection one of the session's
    /// (RFC 8881, section 2.10.3.1).
    pub fn sequence(
        &mut self,
        now: Nanos,
        connection: u64,
        args: &SequenceArgs,
        bytes: usize,
        operations: u32,
    ) -> Result<Sequenced, Status> {
        let session = self
            .sessions
            .get_mut(&args.session)
            .ok_or(Status::BadSession)?;
        let (fore, target) = (session.fore, session.target);
        let number = session.client;
        let count = session.slots.len() as u32;
        let before = session.cached_bytes();
        let slot = session
            .slots
            .get_mut(args.slot as usize)
            .ok_or(Status::BadSlot)?;
        if args.sequence == slot.sequence {
            return match (slot.busy, slot.kept) {
                (true, _) => Err(Status::Delay),
                (false, true) => Ok(Sequenced::Replay(Arc::from(&slot.reply[..]))),
                // Nothing was executed yet.
                (false, false) if slot.sequence == 0 => Err(Status::SeqMisordered),
                (false, false) => Err(Status::RetryUncachedRep),
            };
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
        // A slot that was given up is used again.
        let keeping = session.keeping.max(args.slot + 1);
        let more = cached_bytes(&fore, keeping) - before;
        if more > 0 && self.cached_bytes + more > self.limits.all_cached_bytes {
            return Err(Status::Delay);
        }
        // It has the reply to the last one of this slot.
        let knows = std::mem::replace(&mut slot.told, target) == target;
        slot.sequence = args.sequence;
        slot.busy = true;
        slot.cache = args.cache;
        session.keeping = keeping;
        if knows && args.highest_slot <= target {
            session.give_up_slots();
        }
        self.cached_bytes = self.cached_bytes + session.cached_bytes() - before;
        if let Some(client) = self.clients.get_mut(&number) {
            client.renewed = now;
            client.under_way += 1;
        }
        self.bind(connection, &args.session);
        let slot = Slot {
            client: self.id(number),
            session: args.session,
            number: args.slot,
            cache: args.cache,
            reply_bytes: fore.max_response,
            cached_bytes: fore.max_response_cached,
        };
        let ok = self.sequence_ok(&slot).ok_or(Status::ServerFault)?;
        Ok(Sequenced::Execute(slot, ok))
    }

    /// The result of SEQUENCE in the compound of this slot. `None`: its session was destroyed meanwhile.
    pub fn sequence_ok(&self, slot: &Slot) -> Option<SequenceOk> {
        let session = self.sessions.get(&slot.session)?;
        let under_way = session.slots.get(slot.number as usize)?;
        let flags = self.back_status(&slot.session) | self.delegation_status(session.client);
        Some(SequenceOk {
            session: slot.session,
            sequence: under_way.sequence,
            slot: slot.number,
            highest_slot: session.slots.len() as u32 - 1,
            target_highest_slot: session.target,
            status_flags: flags,
        })
    }

    /// The state of a slot whose compound has ended, unless its session was destroyed meanwhile. The client was there until
    /// `renewed`.
    fn end(&mut self, renewed: Nanos, slot: &Slot) -> Option<&mut SlotState> {
        let client = self.number(slot.client);
        if let Some(client) = client.and_then(|number| self.clients.get_mut(&number)) {
            client.under_way = client.under_way.saturating_sub(1);
            client.renewed = client.renewed.max(renewed);
        }
        let session = self.sessions.get_mut(&slot.session)?;
        session.slots.get_mut(slot.number as usize)
    }

    /// The compound of a slot was executed; its reply is kept if that was asked for, or if it is short. A reply that is not
    /// `whole`, since its data went another way, cannot be. Renews the lease, because the compound may have taken longer than one.
    pub fn finish(&mut self, now: Nanos, slot: &Slot, reply: &[u8], whole: bool) {
        let keep = whole
            && if slot.cache {
                reply.len() <= slot.cached_bytes as usize
            } else {
                reply.len() <= SHORT_BYTES
            };
        let Some(state) = self.end(now, slot) else {
            return;
        };
        state.busy = false;
        state.kept = keep;
        state.reply.clear();
        if keep {
            state.reply.extend_from_slice(reply);
        }
    }

    /// The compound of a slot was not executed, and comes again. The reply before it is still there.
    pub fn abandon(&mut self, slot: &Slot) {
        if let Some(state) = self.end(Nanos(0), slot) {
            state.busy = false;
            state.sequence = state.sequence.wrapping_sub(1);
            // Whatever it said, the client has not seen it.
            state.told = u32::MAX;
        }
    }
}
