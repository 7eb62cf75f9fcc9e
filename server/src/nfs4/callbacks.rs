//! CB_COMPOUND (RFC 8881, section 20). This sends the callbacks of [`super::state`] over the connections that clients have bound,
//! and takes the outcomes to it.

use std::collections::HashMap;

use odafs_common::wire::nfs4::{
    AtMostOne, Attribute, AttributeValues, Attributes, Bitmap, CallWriter,
    CallbackGetAttributesArgs, CallbackOperation, CallbackResult, CallbackSequenceArgs, FileHandle,
    List, NotifyLockArgs, OffloadArgs, OffloadInfo, Opaque, Procedure, RawAttributes,
    RecallAnyArgs, RecallArgs, RecallSlotArgs, ReferringCall, ReferringCalls, Results, Stable,
    StateOwner, Status, WriteResponse, recall_any,
};
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::Writer;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::Back;

use super::Nfs4;
use super::recalls::Messenger;
use super::state::{Callback, Called, Copied, Send, Sent};
use crate::vfs::export::Exports;
use crate::vfs::metrics::counter;

/// The version of the callback program.
const CALLBACK_VERSION: u32 = 1;
/// The attributes that CB_GETATTR asks for.
const ASKED: Bitmap = Bitmap::of(&[Attribute::Change, Attribute::Size]);

/// The connections that carry callbacks.
#[derive(Debug, Default)]
pub(super) struct Callbacks {
    /// By number.
    connections: HashMap<u64, Arc<dyn Back>>,
    sent: u64,
    failed: u64,
}

impl Callbacks {
    /// Adds a connection.
    pub fn add(&mut self, connection: u64, back: &Arc<dyn Back>) {
        let known = self.connections.entry(connection);
        known.or_insert_with(|| Arc::clone(back));
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    /// Forgets connections that had ended before they were added. Counts callbacks that were left `unanswered`.
    pub fn tick(&mut self, unanswered: u64) {
        self.failed += unanswered;
        self.connections.retain(|_, back| back.is_open());
    }

    pub fn append_text(&self, out: &mut String) {
        let figures = [
            ("callbacks", "Callbacks that were sent.", self.sent),
            (
                "callbacks_failed",
                "Callbacks that clients refused or did not answer, or whose connection was lost.",
                self.failed,
            ),
        ];
        for (name, help, count) in figures {
            counter(out, &format!("nfs4_{name}"), help, count);
        }
    }

    /// Sends a callback. False: its connection is gone.
    fn send(&mut self, send: &Send, export: &Exports) -> bool {
        let Some(back) = self.connections.get(&send.sent.connection) else {
            return false;
        };
        let sent = back.send(message(send, export));
        self.sent += u64::from(sent);
        sent
    }
}

fn message(send: &Send, export: &Exports) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let procedure = Procedure::Compound.code();
    let credential = &send.credential;
    rpc::call_as(
        &mut w,
        send.sent.xid,
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
    let handle = send.callback.file().map(|file| export.handle(file));
    let file = FileHandle(handle.as_deref().unwrap_or_default());
    let operation = match &send.callback {
        Callback::NotifyLock { owner, .. } => CallbackOperation::NotifyLock(NotifyLockArgs {
            file,
            owner: StateOwner {
                client_id: send.client,
                owner: Opaque(owner),
            },
        }),
        Callback::Recall { stateid, .. } => CallbackOperation::Recall(RecallArgs {
            state: *stateid,
            truncate: false,
            file,
        }),
        Callback::GetAttributes { .. } => {
            CallbackOperation::GetAttributes(CallbackGetAttributesArgs { file, asked: ASKED })
        }
        Callback::RecallSlot { target } => CallbackOperation::RecallSlot(RecallSlotArgs {
            target_highest_slot: *target,
        }),
        Callback::RecallAny { keep } => CallbackOperation::RecallAny(RecallAnyArgs {
            keep: *keep,
            types: Bitmap::EMPTY
                .with(recall_any::READ_DELEGATIONS)
                .with(recall_any::WRITE_DELEGATIONS),
        }),
        Callback::Offload {
            stateid, copied, ..
        } => CallbackOperation::Offload(OffloadArgs {
            file,
            state: *stateid,
            info: offload_info(copied),
        }),
    };
    let call = CallWriter::callback(&mut w, Opaque(b""), send.minor, 0).push(&sequence);
    call.push(&operation).finish();
    bytes
}

/// How a copy ended. It does not go on, so there is no stateid in this.
fn offload_info(copied: &Copied) -> OffloadInfo {
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
    let calls = callback.origin().map(|origin| ReferringCalls {
        session: origin.session,
        calls: List(vec![ReferringCall {
            sequence: origin.sequence,
            slot: origin.slot,
        }]),
    });
    List(calls.into_iter().collect())
}

/// The outcome of a callback with this reply.
fn outcome(reply: &rpc::Reply<'_>) -> Called {
    let Ok(body) = &reply.body else {
        return Called::Refused;
    };
    let Ok(mut results) = Results::begin(body.clone()) else {
        return Called::Refused;
    };
    match results.next_as::<CallbackResult<'_>>() {
        Some(Ok(CallbackResult::Sequence(Ok(_)))) => match results.next_as() {
            // Linux' client says it here, and not with CB_SEQUENCE (RFC 8881, section 2.10.6.1.3).
            Some(Ok(result)) if result.status() == Status::RetryUncachedRep => Called::AnswerLost,
            Some(Ok(
                CallbackResult::Recall(Err(Status::Delay))
                | CallbackResult::Offload(Err(Status::Delay)),
            )) => Called::NotYet,
            // The reply that brings the delegation may still be on its way.
            Some(Ok(CallbackResult::Recall(Err(Status::BadHandle | Status::BadStateId)))) => {
                Called::Unknown
            }
            Some(Ok(CallbackResult::GetAttributes(Ok(raw)))) => told(&raw),
            // Nothing depends on what it answers otherwise.
            _ => Called::Seen,
        },
        Some(Ok(CallbackResult::Sequence(Err(Status::RetryUncachedRep)))) => Called::AnswerLost,
        Some(Ok(CallbackResult::Sequence(Err(Status::Delay)))) => Called::Later,
        _ => Called::Refused,
    }
}

/// The answer to CB_GETATTR: the attributes that were asked for, which come before any others.
fn told(raw: &RawAttributes<'_>) -> Called {
    const BYTES: usize = 16;
    let (Some(values), true) = (
        raw.values.0.get(..BYTES),
        raw.mask.iter().take(2).eq(ASKED.iter()),
    ) else {
        return Called::Seen;
    };
    let told = RawAttributes {
        mask: ASKED,
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
    /// Sends the callbacks that can be sent now.
    pub fn call_back(&self) {
        let now = odafs_fabric::clock::awake();
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
                    self.state.lock().called(now, send.sent, Called::Lost);
                }
            }
        }
    }
}

impl Nfs4 {
    /// Takes the reply to a callback.
    pub(super) fn called(&self, connection: u64, message: &[u8]) {
        let Ok(reply) = rpc::parse_reply(message) else {
            return;
        };
        let sent = Sent {
            xid: reply.xid,
            connection,
        };
        let called = outcome(&reply);
        let now = odafs_fabric::clock::awake();
        if !self.state.lock().called(now, sent, called) {
            return;
        }
        if called == Called::Refused {
            self.callbacks.lock().failed += 1;
            tracing::debug!(connection, ?reply, "a callback was refused");
        }
        self.messenger.answered.notify_all();
        self.messenger.call_back();
    }
}
