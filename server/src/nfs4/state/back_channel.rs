//! The back channels of sessions, and the callbacks that go over them (RFC 8881, sections 2.10.3.1, 2.10.6 and 20). Each session
//! has one callback under way at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use odafs_common::wire::nfs4::{
    BackchannelCtlArgs, CallbackSecurities, CallbackSecurity, SessionId, StateId, Status,
    sequence_status,
};
use odafs_common::wire::rpc::{Auth, EncodedAuth};
use odafs_fabric::clock::Nanos;

use super::clients::Kind;
use super::copies::{Copied, Copies};
use super::delegations::Delegations;
use super::sessions::Session;
use super::stateids::key_of;
use super::{Arrival, Origin, State};
use crate::vfs::ObjectId;

/// Clients have a quarter of the lease for the answer to a callback, and at least this long.
const ANSWER_MIN: Nanos = Nanos::from_secs(2);
/// The most callbacks that wait for one client. More are dropped if they are hints, which the client can do without.
const CALLBACKS_MAX: usize = 1024;

/// What a client is told or asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callback {
    /// CB_NOTIFY_LOCK: a lock that was denied may be free.
    NotifyLock {
        /// The file.
        file: ObjectId,
        /// The owner that was denied the lock.
        owner: Vec<u8>,
    },
    /// CB_RECALL: the client is to return a delegation.
    Recall {
        /// The delegation.
        stateid: StateId,
        /// Its file.
        file: ObjectId,
        /// The compound that brought it.
        origin: Option<Origin>,
    },
    /// CB_GETATTR: the client is asked for the attributes of a file that it may have changed.
    GetAttributes {
        /// The number of the question, for [`State::answer`].
        question: u64,
        /// The file.
        file: ObjectId,
        /// The compound that brought its delegation.
        origin: Option<Origin>,
    },
    /// CB_RECALL_SLOT: the client should use fewer slots of this session.
    RecallSlot {
        /// The highest slot that it should use.
        target: u32,
    },
    /// CB_RECALL_ANY: the client should return delegations of its choice.
    RecallAny {
        /// How many it may keep.
        keep: u32,
    },
    /// CB_OFFLOAD: a copy has ended.
    Offload {
        /// The copy.
        stateid: StateId,
        /// The file into which it copied.
        file: ObjectId,
        /// The compound that began it.
        origin: Option<Origin>,
        /// How it ended.
        copied: Copied,
    },
}

impl Callback {
    /// The file that it is about.
    pub fn file(&self) -> Option<ObjectId> {
        match self {
            Self::NotifyLock { file, .. }
            | Self::Recall { file, .. }
            | Self::GetAttributes { file, .. }
            | Self::Offload { file, .. } => Some(*file),
            Self::RecallSlot { .. } | Self::RecallAny { .. } => None,
        }
    }

    /// The compound whose reply it may overtake.
    pub fn origin(&self) -> Option<Origin> {
        match self {
            Self::Recall { origin, .. }
            | Self::GetAttributes { origin, .. }
            | Self::Offload { origin, .. } => *origin,
            Self::NotifyLock { .. } | Self::RecallSlot { .. } | Self::RecallAny { .. } => None,
        }
    }

    /// Whether the server keeps something until the client has received this. Other callbacks are hints.
    fn is_awaited(&self) -> bool {
        self.is_recall() || matches!(self, Self::Offload { .. })
    }

    fn is_recall(&self) -> bool {
        matches!(self, Self::Recall { .. })
    }
}

/// What tells apart callbacks that were sent, and two sends of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The xid of its call.
    pub xid: u32,
    /// The connection over which it went.
    pub connection: u64,
}

/// A callback to send.
#[derive(Clone, Debug)]
pub struct Send {
    /// Its xid, and the connection over which it goes.
    pub sent: Sent,
    /// The client's id.
    pub client: u64,
    /// The session.
    pub session: SessionId,
    /// The sequence number in the only slot of the back channel.
    pub sequence: u32,
    /// The number of the RPC program.
    pub program: u32,
    /// The minor version of the compound that made the session. The session's callbacks are of that version, whatever its
    /// compounds are (RFC 8881, section 19.2).
    pub minor: u32,
    /// The credential that the client asked for.
    pub credential: EncodedAuth,
    /// The callback.
    pub callback: Callback,
}

/// The outcome of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The client has received it.
    Seen,
    /// The client has answered CB_GETATTR with this change attribute and this size in bytes.
    Told(u64, u64),
    /// The client has not looked at it and wants it sent again (CB_SEQUENCE failed with DELAY).
    Later,
    /// The client has received it and can do nothing about it yet (DELAY).
    NotYet,
    /// The client has received a recall and does not know the delegation, perhaps because it has not got it yet.
    Unknown,
    /// The client has received it, but its answer was lost (RETRY_UNCACHED_REP).
    AnswerLost,
    /// The connection is gone. The client may have received it.
    Lost,
    /// The client takes no callbacks in this session, or not this one.
    Refused,
}

/// The sessions of the callbacks under way, by xid.
#[derive(Debug, Default)]
pub(super) struct Calls {
    sessions: HashMap<u32, SessionId>,
    last_xid: u32,
    /// How many were left unanswered, since this was last asked for.
    unanswered: u64,
}

impl Calls {
    /// The xid of the next callback, which goes over the back channel of this session.
    fn begin(&mut self, session: SessionId) -> u32 {
        loop {
            self.last_xid = self.last_xid.wrapping_add(1);
            if let Entry::Vacant(free) = self.sessions.entry(self.last_xid) {
                free.insert(session);
                return self.last_xid;
            }
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }
}

/// The back channel of a session.
#[derive(Debug)]
pub(super) struct BackChannel {
    program: u32,
    minor: u32,
    credential: EncodedAuth,
    /// The sequence number of the last callback that the client has received.
    sequence: u32,
    under_way: Option<UnderWay>,
    /// The callback that had the next sequence number, if the client may have received it and did not answer. No other callback
    /// may have that number (RFC 8881, section 2.10.6.1).
    again: Option<Callback>,
    /// The connections that are bound to it. The last was bound last.
    connections: Vec<u64>,
    /// From when on callbacks may go. None should overtake the reply by which the client learns of the session, so they wait until
    /// it names it, or for a second or two.
    from: Nanos,
    /// Whether the client has asked for it. Until then SEQUENCE says nothing of it.
    wanted: bool,
    /// The client did not take a callback. SEQUENCE says so until the client binds a connection anew.
    fault: bool,
    /// The highest slot of the session that the client should use, if a callback is to tell it.
    slots: Option<u32>,
}

/// How long callbacks wait for a client to name a session.
const UNHEARD: Nanos = Nanos::from_secs(1);

#[derive(Debug)]
struct UnderWay {
    callback: Callback,
    sent: Sent,
    since: Nanos,
}

impl BackChannel {
    /// Without a connection. `None`: the client offers no credential that the server can use.
    pub fn new(
        now: Nanos,
        program: u32,
        minor: u32,
        securities: &CallbackSecurities<'_>,
    ) -> Option<Self> {
        Some(Self {
            program,
            minor,
            credential: credential(securities)?,
            sequence: 0,
            under_way: None,
            again: None,
            connections: Vec::new(),
            from: now + UNHEARD,
            wanted: false,
            fault: false,
            slots: None,
        })
    }

    /// The client asks for it, even if there may be no connection yet.
    pub fn asked_for(mut self) -> Self {
        self.wanted = true;
        self
    }

    /// The client has named the session. Returns whether callbacks had to wait for that.
    pub fn named(&mut self) -> bool {
        std::mem::replace(&mut self.from, Nanos(0)) > Nanos(0)
    }

    /// Has the client told that it should use no slot above this one.
    pub fn ask_for_slots(&mut self, target: u32) {
        self.slots = Some(target);
    }

    fn is_up(&self) -> bool {
        !self.fault && !self.connections.is_empty()
    }

    /// Puts a callback under way, over the connection that was bound last.
    fn send(
        &mut self,
        now: Nanos,
        xid: u32,
        (client, session): (u64, SessionId),
        callback: Callback,
    ) -> Send {
        let connection = self.connections[self.connections.len() - 1];
        let sent = Sent { xid, connection };
        self.under_way = Some(UnderWay {
            callback: callback.clone(),
            sent,
            since: now,
        });
        Send {
            sent,
            client,
            session,
            sequence: self.sequence.wrapping_add(1),
            program: self.program,
            minor: self.minor,
            credential: self.credential.clone(),
            callback,
        }
    }
}

/// The back channel of a session, and its client.
fn back_of<'s>(
    sessions: &'s mut HashMap<SessionId, Session>,
    id: &SessionId,
) -> Option<(u32, &'s mut BackChannel)> {
    let session = sessions.get_mut(id)?;
    Some((session.client, session.back.as_mut()?))
}

fn credential(securities: &CallbackSecurities<'_>) -> Option<EncodedAuth> {
    let mut known = securities.0.iter().filter_map(|security| match security {
        CallbackSecurity::None => Some(EncodedAuth::new(&Auth::None)),
        CallbackSecurity::Sys(caller) => Some(EncodedAuth::new(&Auth::Sys(*caller))),
        CallbackSecurity::Gss(_) => None,
    });
    known.next()
}

/// Whether a callback still has to be sent. Meanwhile the delegation may have been returned, the copy cancelled, and nobody may
/// be waiting for the answer any more.
fn is_due(callback: &Callback, delegations: &Delegations, copies: &Copies) -> bool {
    match callback {
        Callback::Offload { stateid, .. } => copies.has(key_of(stateid)),
        Callback::Recall { stateid, .. } => delegations.is_recalled(key_of(stateid)),
        Callback::GetAttributes { question, .. } => delegations.is_awaited(*question),
        // It is about one session only. The results of SEQUENCE say it too.
        Callback::RecallSlot { .. } => false,
        Callback::NotifyLock { .. } | Callback::RecallAny { .. } => true,
    }
}

impl State {
    /// Binds a connection to the back channel of a session: callbacks go over this one from now on. False: the connection or the
    /// session takes no callbacks.
    pub(super) fn bind_back(&mut self, arrival: Arrival, id: &SessionId) -> bool {
        let back = back_of(&mut self.sessions, id);
        let Some((client, back)) = back.filter(|_| arrival.calls_back) else {
            return false;
        };
        back.connections
            .retain(|known| *known != arrival.connection);
        back.connections.push(arrival.connection);
        (back.wanted, back.fault) = (true, false);
        self.calling.insert(client);
        true
    }

    /// The client has named this session. What had to wait for that can be sent.
    pub(super) fn knows_session(&mut self, id: &SessionId) {
        if let Some((client, back)) = back_of(&mut self.sessions, id)
            && back.named()
        {
            self.calling.insert(client);
        }
    }

    /// BACKCHANNEL_CTL
    pub fn back_channel_ctl(
        &mut self,
        id: &SessionId,
        args: &BackchannelCtlArgs<'_>,
    ) -> Result<(), Status> {
        let session = self.sessions.get_mut(id).ok_or(Status::BadSession)?;
        let credential = credential(&args.callback_security).ok_or(Status::Inval)?;
        if let Some(back) = &mut session.back {
            back.program = args.callback_program;
            back.credential = credential;
            back.fault = false;
            self.calling.insert(session.client);
        }
        Ok(())
    }

    /// Takes a connection from the back channel of a session. A callback that is under way over it goes over another one.
    pub(super) fn unbind_back(&mut self, connection: u64, id: &SessionId) {
        let Some((client, back)) = back_of(&mut self.sessions, id) else {
            return;
        };
        back.connections.retain(|known| *known != connection);
        let lost = back
            .under_way
            .take_if(|under_way| under_way.sent.connection == connection);
        if let Some(lost) = lost {
            self.calls.sessions.remove(&lost.sent.xid);
            back.again = Some(lost.callback.clone());
            self.put_back(client, lost.callback);
        }
    }

    /// The back channel goes with its session. Another session of the client says what this one has not.
    pub(super) fn drop_back(&mut self, client: u32, back: BackChannel) {
        if let Some(lost) = back.under_way {
            self.calls.sessions.remove(&lost.sent.xid);
            self.say(client, lost.callback);
        }
    }

    /// The back channels over which callbacks reach a client.
    fn back_channels(&self, client: u32) -> impl Iterator<Item = &BackChannel> {
        let sessions = match self.clients.get(&client).map(|client| &client.kind) {
            Some(Kind::Sessions { sessions, .. }) => &sessions[..],
            Some(Kind::Legacy { .. }) | None => &[],
        };
        let sessions = sessions.iter().filter_map(|id| self.sessions.get(id));
        let backs = sessions.filter_map(|session| session.back.as_ref());
        backs.filter(|back| back.is_up())
    }

    /// Whether callbacks reach a client.
    pub(super) fn hears(&self, client: u32) -> bool {
        self.back_channels(client).next().is_some()
    }

    /// Whether callbacks of minor version 2 reach a client.
    pub(super) fn hears_of_copies(&self, client: u32) -> bool {
        self.back_channels(client).any(|back| back.minor >= 2)
    }

    /// The status bits of SEQUENCE about the back channel of a session, if the client asked for one.
    pub(super) fn back_status(&self, id: &SessionId) -> u32 {
        let Some(session) = self.sessions.get(id) else {
            return 0;
        };
        match &session.back {
            Some(back) if back.wanted && !back.is_up() => {
                let path_down = if self.hears(session.client) {
                    0
                } else {
                    sequence_status::CALLBACK_PATH_DOWN
                };
                path_down | sequence_status::CALLBACK_PATH_DOWN_SESSION
            }
            _ => 0,
        }
    }

    /// Has a callback sent to a client as soon as that is possible.
    pub(super) fn say(&mut self, client: u32, callback: Callback) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        if known.callbacks.len() >= CALLBACKS_MAX {
            // Recalls are never dropped: the client would lose its delegations. They are no more than there are delegations.
            let (delegations, copies) = (&self.delegations, &self.copies);
            (known.callbacks).retain(|waiting| is_due(waiting, delegations, copies));
            if !callback.is_awaited() && known.callbacks.len() >= CALLBACKS_MAX {
                return;
            }
        }
        known.callbacks.push_back(callback);
        self.calling.insert(client);
    }

    fn put_back(&mut self, client: u32, callback: Callback) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.callbacks.push_front(callback);
            self.calling.insert(client);
        }
    }

    /// Whether there may be callbacks to send.
    pub fn has_callbacks(&self) -> bool {
        !self.calling.is_empty()
    }

    /// The callbacks that can be sent now. [`State::called`] is to be told the outcome of each.
    pub fn take_callbacks(&mut self, now: Nanos) -> Vec<Send> {
        let mut sends = Vec::new();
        for number in std::mem::take(&mut self.calling) {
            let id = self.id(number);
            let Some(client) = self.clients.get_mut(&number) else {
                continue;
            };
            let Kind::Sessions { sessions, .. } = &client.kind else {
                continue;
            };
            for session in sessions {
                let back = back_of(&mut self.sessions, session).map(|(_, back)| back);
                let is_free =
                    |back: &&mut BackChannel| back.from <= now && back.under_way.is_none();
                let Some(back) = back.filter(|back| back.is_up() && is_free(back)) else {
                    continue;
                };
                let (delegations, copies) = (&self.delegations, &self.copies);
                // The next sequence number may belong to an earlier callback, which goes first then.
                let again = back.again.is_some();
                let slots = back.slots.take_if(|_| !again);
                let slots = slots.map(|target| Callback::RecallSlot { target });
                let mut waiting = std::iter::from_fn(|| client.callbacks.pop_front());
                let due = || waiting.find(|next| is_due(next, delegations, copies));
                let Some(mut callback) = slots.or_else(due) else {
                    continue;
                };
                let again = back.again.clone();
                if let Some(again) = again.filter(|again| *again != callback) {
                    let later = std::mem::replace(&mut callback, again);
                    client.callbacks.push_front(later);
                }
                let xid = self.calls.begin(*session);
                sends.push(back.send(now, xid, (id, *session), callback));
            }
        }
        sends
    }

    /// Takes the outcome of a callback. False: it is not under way any more. It was given up, or its connection was lost, and
    /// then it may be under way again over another one: whatever became of it here says nothing of that.
    pub fn called(&mut self, now: Nanos, sent: Sent, called: Called) -> bool {
        let id = self.calls.sessions.get(&sent.xid);
        let Some((client, back)) = id.and_then(|id| back_of(&mut self.sessions, id)) else {
            return false;
        };
        let Some(under_way) = back.under_way.take_if(|under_way| under_way.sent == sent) else {
            return false;
        };
        self.calls.sessions.remove(&sent.xid);
        let sequence = back.sequence.wrapping_add(1);
        if let Callback::GetAttributes { question, .. } = under_way.callback {
            self.delegations.hear(question, called);
        }
        let called = match (called, &under_way.callback) {
            // Whatever it answered to anything but a recall, there is nothing to do about it.
            (Called::AnswerLost, callback) if !callback.is_recall() => Called::Seen,
            (called, _) => called,
        };
        match called {
            Called::Seen | Called::Told(..) => {
                back.sequence = sequence;
                back.again = None;
                match &under_way.callback {
                    Callback::Recall { stateid, .. } => {
                        self.delegations.answered(now, key_of(stateid), true);
                    }
                    Callback::Offload { stateid, .. } => self.forget_copy(stateid),
                    Callback::NotifyLock { .. }
                    | Callback::RecallAny { .. }
                    | Callback::RecallSlot { .. }
                    | Callback::GetAttributes { .. } => {}
                }
                self.calling.insert(client);
            }
            Called::Lost => {
                back.connections.retain(|known| *known != sent.connection);
                back.again = Some(under_way.callback.clone());
                self.put_back(client, under_way.callback);
            }
            Called::Refused => {
                back.fault = true;
                back.again = None;
                // A hint is dropped: this client may never be able to take it, and it would keep others back.
                if under_way.callback.is_awaited() {
                    self.put_back(client, under_way.callback);
                }
            }
            Called::NotYet | Called::Unknown | Called::AnswerLost => {
                back.sequence = sequence;
                back.again = None;
                if let Callback::Recall { stateid, .. } = &under_way.callback {
                    let knows = called != Called::Unknown;
                    self.delegations.answered(now, key_of(stateid), knows);
                }
                if let Some(known) = self.clients.get_mut(&client) {
                    known.callbacks.push_back(under_way.callback);
                    self.later.insert(client);
                }
            }
            Called::Later => {
                if let Some(known) = self.clients.get_mut(&client) {
                    known.callbacks.push_front(under_way.callback);
                    self.later.insert(client);
                }
            }
        }
        true
    }

    /// How many callbacks clients have left unanswered for too long, since this was last called.
    pub fn take_unanswered(&mut self) -> u64 {
        std::mem::take(&mut self.calls.unanswered)
    }

    /// To be called every second or so. Sends again what clients asked to be sent again. A client that has not answered in
    /// time is sent nothing more before it binds a connection anew. SEQUENCE tells it so, early enough to return what is recalled.
    /// If it has bound one meanwhile, the callback goes over that.
    pub(super) fn tick_callbacks(&mut self, now: Nanos) {
        for session in self.sessions.values_mut() {
            if let Some(back) = &mut session.back
                && back.from <= now
                && back.named()
            {
                self.calling.insert(session.client);
            }
        }
        self.calling.extend(std::mem::take(&mut self.later));
        let limit = Nanos(self.limits.lease.0 / 4).max(ANSWER_MIN);
        let mut silent = Vec::new();
        for id in self.calls.sessions.values() {
            let Some((_, back)) = back_of(&mut self.sessions, id) else {
                continue;
            };
            let under_way = back.under_way.as_ref();
            if let Some(under_way) = under_way.filter(|sent| now.since(sent.since) > limit) {
                let newest = back.connections.last();
                let outcome = match newest.is_some_and(|it| *it != under_way.sent.connection) {
                    true => Called::Lost,
                    false => Called::Refused,
                };
                silent.push((*id, under_way.sent, under_way.callback.clone(), outcome));
            }
        }
        self.calls.unanswered += silent.len() as u64;
        for (id, sent, callback, outcome) in silent {
            self.called(now, sent, outcome);
            if let Some((_, back)) = back_of(&mut self.sessions, &id) {
                back.again = Some(callback);
            }
        }
    }
}
