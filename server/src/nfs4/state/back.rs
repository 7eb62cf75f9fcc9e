//! The way from the server to its clients: back channels of sessions, and what goes over them (RFC 8881, sections 2.10.3.1,
//! 2.10.6 and 20). Each session has one callback under way at a time.

use odafs_common::wire::nfs4::{
    BackchannelCtlArgs, CallbackSecurities, CallbackSecurity, SessionId, StateId, Status,
    sequence_status,
};
use odafs_common::wire::rpc::{Auth, EncodedAuth};
use odafs_fabric::clock::Nanos;

use super::clients::Kind;
use super::copies::{Copied, Copies};
use super::delegations::Delegations;
use super::stateids::words;
use super::{Origin, State, Way};
use crate::vfs::ObjectId;

/// The most that waits to be said to one client, besides recalls and what became of copies; beyond it the client finds out for
/// itself.
const CALLBACKS_MAX: usize = 1024;

/// What a client is told or asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callback {
    /// A lock that was denied may be free.
    NotifyLock {
        /// Of this file.
        file: ObjectId,
        /// The owner that was denied.
        owner: Vec<u8>,
    },
    /// A delegation is to be returned.
    Recall {
        /// The delegation.
        state: StateId,
        /// Of this file.
        file: ObjectId,
        /// The compound that brought it.
        origin: Option<Origin>,
    },
    /// What is the file like that the client may have changed?
    GetAttributes {
        /// For [`State::answer`].
        question: u64,
        /// The file.
        file: ObjectId,
        /// The compound that brought its delegation.
        origin: Option<Origin>,
    },
    /// The client should use no slot of this session above one.
    RecallSlot {
        /// The highest that it should use.
        target: u32,
    },
    /// Delegations are to be returned, whichever.
    RecallAny {
        /// The client may keep so many.
        keep: u32,
    },
    /// A copy is over.
    Offload {
        /// The copy.
        state: StateId,
        /// Into this file.
        file: ObjectId,
        /// The compound that began it.
        origin: Option<Origin>,
        /// What became of it.
        copied: Copied,
    },
}

impl Callback {
    /// Whether the server goes on keeping something until the client has heard this. Others are hints.
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Recall { .. } | Self::Offload { .. })
    }
}

/// A callback to send.
#[derive(Clone, Debug)]
pub struct Send {
    /// Over this connection.
    pub connection: u64,
    /// To this client.
    pub client: u64,
    /// In this session.
    pub session: SessionId,
    /// Counts the callbacks of the session's only slot.
    pub sequence: u32,
    /// The RPC program.
    pub program: u32,
    /// The minor version of the compound that made the session. Callbacks are of that one, whichever the compounds in the session are
    /// of (RFC 8881, section 19.2).
    pub minor: u32,
    /// With these credentials.
    pub credential: EncodedAuth,
    /// What to say.
    pub callback: Callback,
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The client has seen it.
    Seen,
    /// The client has seen it and says which change attribute and which size, in bytes, the file has.
    Told(u64, u64),
    /// The client asks for it again, later.
    Later,
    /// The client has seen it, and can do nothing about it yet.
    NotYet,
    /// The client has seen it, and does not know what is recalled, perhaps not yet.
    Unknown,
    /// The client has seen it and answered, and what it said was lost.
    Somehow,
    /// The connection is gone. The client may have seen it.
    Lost,
    /// The client does not take callbacks in this session, or not so.
    Refused,
}

/// The back channel of a session.
#[derive(Debug)]
pub(super) struct BackChannel {
    program: u32,
    minor: u32,
    credential: EncodedAuth,
    /// Of the last callback that the client has seen.
    sequence: u32,
    under_way: Option<UnderWay>,
    /// What had the next number, if the client may have seen it and its answer did not come. No other callback may have that
    /// number (RFC 8881, section 2.10.6.1).
    again: Option<Callback>,
    /// The connections over which callbacks may go.
    connections: Vec<u64>,
    /// The client did not take a callback. It is told so until it binds a connection anew.
    fault: bool,
    /// The highest slot of the session that the client should use, if it is to be told that.
    slots: Option<u32>,
}

#[derive(Debug)]
struct UnderWay {
    callback: Callback,
    connection: u64,
    since: Nanos,
}

impl BackChannel {
    /// Over no connection yet. `None`: the client takes no credential that there is.
    pub fn new(program: u32, minor: u32, securities: &CallbackSecurities<'_>) -> Option<Self> {
        Some(Self {
            program,
            minor,
            credential: credential(securities)?,
            sequence: 0,
            under_way: None,
            again: None,
            connections: Vec::new(),
            fault: false,
            slots: None,
        })
    }

    /// What the client may not have seen.
    pub fn unsaid(self) -> Option<Callback> {
        self.under_way.map(|under_way| under_way.callback)
    }

    /// The client should use no slot above this one.
    pub fn ask_for_slots(&mut self, target: u32) {
        self.slots = Some(target);
    }

    fn is_up(&self) -> bool {
        !self.fault && !self.connections.is_empty()
    }
}

fn credential(securities: &CallbackSecurities<'_>) -> Option<EncodedAuth> {
    let mut known = securities.0.iter().filter_map(|security| match security {
        CallbackSecurity::None => Some(EncodedAuth::new(&Auth::None)),
        CallbackSecurity::Sys(caller) => Some(EncodedAuth::new(&Auth::Sys(*caller))),
        CallbackSecurity::Gss(_) => None,
    });
    known.next()
}

/// Whether a callback is still to be said. What was returned meanwhile needs no recall, what nobody waits for no answer, and
/// of what was cancelled nothing is told.
fn is_due(callback: &Callback, delegations: &Delegations, copies: &Copies) -> bool {
    match callback {
        Callback::Offload { state, .. } => {
            let [_, client, number] = words(&state.other);
            copies.has((client, number))
        }
        Callback::Recall { state, .. } => {
            let [_, client, number] = words(&state.other);
            delegations.is_recalled((client, number))
        }
        Callback::GetAttributes { question, .. } => delegations.is_awaited(*question),
        // SEQUENCE tells it too, and no other session is concerned.
        Callback::RecallSlot { .. } => false,
        Callback::NotifyLock { .. } | Callback::RecallAny { .. } => true,
    }
}

impl State {
    /// Callbacks of the session may go over this connection from now on. False: they may not.
    pub(super) fn bind_back(&mut self, way: Way, id: &SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(id).filter(|_| way.back) else {
            return false;
        };
        let client = session.client;
        let Some(back) = &mut session.back else {
            return false;
        };
        if !back.connections.contains(&way.connection) {
            back.connections.push(way.connection);
        }
        back.fault = false;
        self.calling.insert(client);
        true
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

    /// The connection is none of the session's any more. A callback that is under way over it goes over another.
    pub(super) fn unbind_back(&mut self, connection: u64, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let client = session.client;
        let Some(back) = &mut session.back else {
            return;
        };
        back.connections.retain(|known| *known != connection);
        if let Some(lost) = back.under_way.take_if(|way| way.connection == connection) {
            back.again = Some(lost.callback.clone());
            self.put_back(client, lost.callback);
        }
    }

    /// Whether callbacks reach a client.
    pub(super) fn hears(&self, client: u32) -> bool {
        let Some(Kind::Sessions { sessions, .. }) = self.clients.get(&client).map(|c| &c.kind)
        else {
            return false;
        };
        let mut sessions = sessions.iter().filter_map(|id| self.sessions.get(id));
        sessions.any(|session| session.back.as_ref().is_some_and(BackChannel::is_up))
    }

    /// Whether callbacks of minor version 2 reach a client.
    pub(super) fn hears_of_copies(&self, client: u32) -> bool {
        let Some(Kind::Sessions { sessions, .. }) = self.clients.get(&client).map(|c| &c.kind)
        else {
            return false;
        };
        let sessions = sessions.iter().filter_map(|id| self.sessions.get(id));
        let mut backs = sessions.filter_map(|session| session.back.as_ref());
        backs.any(|back| back.is_up() && back.minor >= 2)
    }

    /// What SEQUENCE says of the way back of a session: nothing, unless there was to be one.
    pub(super) fn back_status(&self, id: &SessionId) -> u32 {
        let Some(session) = self.sessions.get(id) else {
            return 0;
        };
        match &session.back {
            Some(back) if !back.is_up() => {
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

    /// To be said to a client as soon as that can be.
    pub(super) fn say(&mut self, client: u32, callback: Callback) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        if known.callbacks.len() >= CALLBACKS_MAX {
            // A recall that is not said costs the client its delegations. There are no more of those than delegations.
            let (delegations, copies) = (&self.delegations, &self.copies);
            (known.callbacks).retain(|said| is_due(said, delegations, copies));
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

    /// The callbacks that can be sent now. Each is to be answered for by [`State::called`].
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
                let Some(back) = self
                    .sessions
                    .get_mut(session)
                    .and_then(|s| s.back.as_mut())
                    .filter(|back| back.is_up() && back.under_way.is_none())
                else {
                    continue;
                };
                let (delegations, copies) = (&self.delegations, &self.copies);
                let again = back.again.is_some();
                let slots = back.slots.take_if(|_| !again);
                let slots = slots.map(|target| Callback::RecallSlot { target });
                let mut waiting = std::iter::from_fn(|| client.callbacks.pop_front());
                let due = || waiting.find(|next| is_due(next, delegations, copies));
                let Some(mut callback) = slots.or_else(due) else {
                    continue;
                };
                if let Some(again) = back.again.take().filter(|again| *again != callback) {
                    client
                        .callbacks
                        .push_front(std::mem::replace(&mut callback, again));
                }
                let connection = back.connections[back.connections.len() - 1];
                back.under_way = Some(UnderWay {
                    callback: callback.clone(),
                    connection,
                    since: now,
                });
                sends.push(Send {
                    connection,
                    client: id,
                    session: *session,
                    sequence: back.sequence.wrapping_add(1),
                    program: back.program,
                    minor: back.minor,
                    credential: back.credential.clone(),
                    callback,
                });
            }
        }
        sends
    }

    /// What became of the callback of a session that had this number.
    pub fn called(&mut self, id: &SessionId, sequence: u32, called: Called) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let client = session.client;
        let Some(back) = &mut session.back else {
            return;
        };
        if sequence != back.sequence.wrapping_add(1) {
            return;
        }
        let Some(under_way) = back.under_way.take() else {
            return;
        };
        if let Callback::GetAttributes { question, .. } = under_way.callback {
            self.delegations.hear(question, called);
        }
        match called {
            Called::Seen | Called::Told(..) => {
                back.sequence = sequence;
                match &under_way.callback {
                    Callback::Recall { state, .. } => {
                        let [_, client, number] = words(&state.other);
                        self.delegations.answered((client, number), true);
                    }
                    Callback::Offload { state, .. } => self.forget_copy(state),
                    Callback::NotifyLock { .. }
                    | Callback::RecallAny { .. }
                    | Callback::RecallSlot { .. }
                    | Callback::GetAttributes { .. } => {}
                }
                self.calling.insert(client);
            }
            Called::Lost => {
                let lost = under_way.connection;
                back.connections.retain(|known| *known != lost);
                back.again = Some(under_way.callback.clone());
                self.put_back(client, under_way.callback);
            }
            Called::Refused => {
                back.fault = true;
                // A hint that this client can never take, too long for its transport say, would be in the way.
                if under_way.callback.is_awaited() {
                    self.put_back(client, under_way.callback);
                }
            }
            Called::Somehow if !matches!(under_way.callback, Callback::Recall { .. }) => {
                back.sequence = sequence;
                if let Callback::Offload { state, .. } = &under_way.callback {
                    self.forget_copy(state);
                }
                self.calling.insert(client);
            }
            Called::NotYet | Called::Unknown | Called::Somehow => {
                back.sequence = sequence;
                if let Callback::Recall { state, .. } = &under_way.callback {
                    let [_, client, number] = words(&state.other);
                    let knows = called != Called::Unknown;
                    self.delegations.answered((client, number), knows);
                }
                let known = self.clients.get_mut(&client);
                if let Some(known) = known {
                    known.callbacks.push_back(under_way.callback);
                    self.later.insert(client);
                }
            }
            Called::Later => {
                let known = self.clients.get_mut(&client);
                if let Some(known) = known {
                    known.callbacks.push_front(under_way.callback);
                    self.later.insert(client);
                }
            }
        }
    }

    /// A second or so has passed: what clients asked for again goes again, and who has not answered for as long as a lease
    /// is not asked over that connection any more.
    pub(super) fn tick_callbacks(&mut self, now: Nanos) {
        self.calling.extend(std::mem::take(&mut self.later));
        let lease = self.limits.lease;
        let silent = self.sessions.iter().filter_map(|(id, session)| {
            let back = session.back.as_ref()?;
            let under_way = back.under_way.as_ref()?;
            (now.since(under_way.since) > lease).then_some((*id, back.sequence.wrapping_add(1)))
        });
        for (id, sequence) in Vec::from_iter(silent) {
            let back = self
                .sessions
                .get_mut(&id)
                .and_then(|session| session.back.as_mut());
            if let Some(back) = back {
                back.again = back
                    .under_way
                    .as_ref()
                    .map(|silent| silent.callback.clone());
            }
            self.called(&id, sequence, Called::Refused);
        }
    }
}
