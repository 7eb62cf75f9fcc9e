//! CB_COMPOUND (RFC 8881, section 20): what [`super::state`] wants said is sent over the connections that clients have
//! bound, and their replies are told to it.

use std::collections::HashMap;

use odafs_common::wire::nfs4::{
    AtMostOne, Attribute, AttributeValues, Attributes, Bitmap, CallWriter,
    CallbackGetAttributesArgs, CallbackOperation, CallbackResult, CallbackSequenceArgs, FileHandle,
    List, NotifyLockArgs, OffloadArgs, OffloadInfo, Opaque, Procedure, RawAttributes,
    RecallAnyArgs, RecallArgs, RecallSlotArgs, ReferringCall, ReferringCalls, Results, SessionId,
    Stable, StateOwner, Status, WriteResponse, recall_any,
};
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::Writer;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::Back;

use super::Nfs4;
use super::recalls::Messenger;
use super::state::{Callback, Called, Copied, Origin, Send};
use crate::vfs::export::Exports;
use crate::vfs::metrics::counter;

/// The version of the callback program.
const CALLBACK_VERSION: u32 = 1;

/// The ways back, and what is under way on them.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    /// By connection.
    ways: HashMap<u64, Arc<dyn Back>>,
    /// By the xid of the call.
    under_way: HashMap<u32, UnderWay>,
    last_xid: u32,
    sent: u64,
    failed: u64,
}

#[derive(Debug)]
struct UnderWay {
    connection: u64,
    session: SessionId,
    sequence: u32,
}

impl Callbacks {
    /// Callbacks may go this way.
    pub fn know(&mut self, connection: u64, way: &Arc<dyn Back>) {
        self.ways
            .entry(connection)
            .or_insert_with(|| Arc::clone(way));
    }

    /// The connection is gone.
    pub fn forget(&mut self, connection: u64) {
        if self.ways.remove(&connection).is_some() {
            self.under_way.retain(|_, way| way.connection != connection);
        }
    }

    /// Forgets connections that ended before they were known.
    pub fn tick(&mut self) {
        self.ways.retain(|_, way| way.is_open());
    }

    pub fn append_text(&self, out: &mut String) {
        let figures = [
            ("callbacks", "Callbacks that were sent.", self.sent),
            (
                "callbacks_failed",
                "Callbacks that clients refused, or whose connection was lost.",
                self.failed,
            ),
        ];
        for (name, help, count) in figures {
            counter(out, &format!("nfs4_{name}"), help, count);
        }
    }

    /// Sends a callback. False: its connection is gone.
    fn send(&mut self, send: &Send, export: &Exports) -> bool {
        self.last_xid = self.last_xid.wrapping_add(1);
        let xid = self.last_xid;
        let Some(way) = self.ways.get(&send.connection) else {
            return false;
        };
        let gone = way.send(message(xid, send, export));
        if gone {
            self.sent += 1;
            // A session has one under way at a time: an answer to an earlier one, which was given up, tells nothing of this.
            self.under_way
                .retain(|_, given_up| given_up.session != send.session);
            let under_way = UnderWay {
                connection: send.connection,
                session: send.session,
                sequence: send.sequence,
            };
            self.under_way.insert(xid, under_way);
        }
        gone
    }
}

fn message(xid: u32, send: &Send, export: &Exports) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let procedure = Procedure::Compound.code();
    let credential = &send.credential;
    rpc::call_as(
        &mut w,
        xid,
        send.program,
        CALLBACK_VERSION,
        procedure,
        credential,
    );
    let sequence = CallbackOperation::Sequence(CallbackSequenceArgs {
        session: send.session,
        sequence: send.sequence,
        slot: 0,
        highest_slot: 0,
        cache: false,
        referring: referring(&send.callback),
    });
    let call = CallWriter::callback(&mut w, Opaque(b""), send.minor, 0).push(&sequence);
    match &send.callback {
        Callback::NotifyLock { file, owner } => {
            let handle = export.handle(*file);
            call.push(&CallbackOperation::NotifyLock(NotifyLockArgs {
                file: FileHandle(&handle),
                owner: StateOwner {
                    client_id: send.client,
                    owner: Opaque(owner),
                },
            }))
        }
        Callback::Recall { state, file, .. } => {
            let handle = export.handle(*file);
            call.push(&CallbackOperation::Recall(RecallArgs {
                state: *state,
                truncate: false,
                file: FileHandle(&handle),
            }))
        }
        Callback::GetAttributes { file, .. } => {
            let handle = export.handle(*file);
            call.push(&CallbackOperation::GetAttributes(
                CallbackGetAttributesArgs {
                    file: FileHandle(&handle),
                    asked: Bitmap::of(&[Attribute::Change, Attribute::Size]),
                },
            ))
        }
        Callback::RecallSlot { target } => {
            call.push(&CallbackOperation::RecallSlot(RecallSlotArgs {
                target_highest_slot: *target,
            }))
        }
        Callback::RecallAny { keep } => call.push(&CallbackOperation::RecallAny(RecallAnyArgs {
            keep: *keep,
            types: Bitmap::EMPTY
                .with(recall_any::READ_DELEGATIONS)
                .with(recall_any::WRITE_DELEGATIONS),
        })),
        Callback::Offload {
            state,
            file,
            copied,
            ..
        } => {
            let handle = export.handle(*file);
            call.push(&CallbackOperation::Offload(OffloadArgs {
                file: FileHandle(&handle),
                state: *state,
                info: told(copied),
            }))
        }
    }
    .finish();
    bytes
}

/// What became of a copy, as the wire tells it. It goes on no more, so there is no stateid in it.
fn told(copied: &Copied) -> OffloadInfo {
    match copied.status {
        Status::Ok => OffloadInfo::Done(WriteResponse {
            callback: AtMostOne(None),
            count: copied.count,
            committed: Stable::Unstable,
            verifier: copied.verifier,
        }),
        failed => OffloadInfo::Failed(failed, copied.count),
    }
}

/// The compound whose reply a callback may overtake (RFC 8881, section 2.10.6.3).
fn referring<const MOST: u32>(callback: &Callback) -> List<ReferringCalls, MOST> {
    let origin = match callback {
        Callback::Recall { origin, .. }
        | Callback::GetAttributes { origin, .. }
        | Callback::Offload { origin, .. } => *origin,
        Callback::NotifyLock { .. } | Callback::RecallAny { .. } | Callback::RecallSlot { .. } => {
            None
        }
    };
    let calls = origin.map(|origin: Origin| ReferringCalls {
        session: origin.session,
        calls: List(vec![ReferringCall {
            sequence: origin.sequence,
            slot: origin.slot,
        }]),
    });
    List(calls.into_iter().collect())
}

/// What became of a callback, by its reply.
fn outcome(reply: &rpc::Reply<'_>) -> Called {
    let Ok(body) = &reply.body else {
        return Called::Refused;
    };
    let Ok(mut results) = Results::begin(body.clone()) else {
        return Called::Refused;
    };
    match results.next_as::<CallbackResult<'_>>() {
        Some(Ok(CallbackResult::Sequence(Ok(_)))) => match results.next_as() {
            Some(Ok(
                CallbackResult::Recall(Err(Status::Delay))
                | CallbackResult::Offload(Err(Status::Delay)),
            )) => Called::NotYet,
            // Perhaps the delegation is on its way still.
            Some(Ok(CallbackResult::Recall(Err(Status::BadHandle | Status::BadStateId)))) => {
                Called::Unknown
            }
            Some(Ok(CallbackResult::GetAttributes(Ok(raw)))) => heard(&raw),
            // What the client makes of the rest is its own business.
            _ => Called::Seen,
        },
        Some(Ok(CallbackResult::Sequence(Err(Status::RetryUncachedRep)))) => Called::Somehow,
        Some(Ok(CallbackResult::Sequence(Err(Status::Delay)))) => Called::Later,
        _ => Called::Refused,
    }
}

/// The attributes that a client was asked for. If it tells others too, these are behind them.
fn heard(raw: &RawAttributes<'_>) -> Called {
    const BYTES: usize = 16;
    let asked = Bitmap::of(&[Attribute::Change, Attribute::Size]);
    let (Some(values), true) = (
        raw.values.0.get(..BYTES),
        raw.mask.iter().take(2).eq(asked.iter()),
    ) else {
        return Called::Seen;
    };
    let told = RawAttributes {
        mask: asked,
        values: AttributeValues(values),
    };
    match Attributes::parse(&told) {
        Ok(Attributes {
            change: Some(change),
            size: Some(size),
            ..
        }) => Called::Told(change, size),
        _ => Called::Seen,
    }
}

impl Messenger {
    /// Sends the callbacks that wait.
    pub fn call_back(&self) {
        let now = odafs_fabric::clock::now();
        loop {
            let mut state = self.state.lock();
            if !state.has_callbacks() {
                return;
            }
            let sends = state.take_callbacks(now);
            drop(state);
            for send in sends {
                let mut callbacks = self.callbacks.lock();
                if !callbacks.send(&send, &self.export) {
                    callbacks.failed += 1;
                    drop(callbacks);
                    let mut state = self.state.lock();
                    state.called(&send.session, send.sequence, Called::Lost);
                }
            }
        }
    }
}

impl Nfs4 {
    /// A reply came over a connection.
    pub(super) fn called(&self, connection: u64, message: &[u8]) {
        let Ok(reply) = rpc::parse_reply(message) else {
            return;
        };
        let mut callbacks = self.callbacks.lock();
        let ours = |way: &UnderWay| way.connection == connection;
        if !callbacks.under_way.get(&reply.xid).is_some_and(ours) {
            return;
        }
        let Some(under_way) = callbacks.under_way.remove(&reply.xid) else {
            return;
        };
        let called = outcome(&reply);
        callbacks.failed += u64::from(called == Called::Refused);
        drop(callbacks);
        if called == Called::Refused {
            tracing::debug!(connection, ?reply, "a callback was refused");
        }
        let mut state = self.state.lock();
        state.called(&under_way.session, under_way.sequence, called);
        drop(state);
        self.messenger.answered.notify_all();
        self.messenger.call_back();
    }
}
