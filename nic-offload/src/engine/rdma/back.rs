//! Calls to the client (RFC 8167): any thread hands them over, the engine sends them as far as the client grants credits.
//! A call that the client leaves unanswered keeps its credit, and after a while closes the way: the client then connects
//! or binds anew.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use odafs_common::wire::rpc;
use odafs_common::wire::xdr::Writer;
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::{Arc, Mutex};
use odafs_fabric::wake::WakeSet;

use super::RdmaLine;
use crate::calls::Back;
use crate::engine::Now;
use crate::engine::outbox::QueuedReply;

/// Calls that may wait for a credit.
const WAITING_MAX: usize = 64;

/// The way back to the client of a connection.
pub(super) struct WayBack {
    calls: Mutex<Waiting>,
    /// Some wait: spares the engine the lock in every turn.
    there: AtomicBool,
    wake: Arc<WakeSet>,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    closed: bool,
}

impl WayBack {
    pub fn new(wake: Arc<WakeSet>) -> WayBack {
        WayBack {
            calls: Mutex::default(),
            there: AtomicBool::new(false),
            wake,
        }
    }

    fn is_empty(&self) -> bool {
        !self.there.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Vec<u8>> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = self.calls.lock();
        let message = waiting.messages.pop_front();
        let more = !waiting.messages.is_empty();
        self.there.store(more, Ordering::Release);
        message
    }

    /// The way is over: what waits is not sent, and nothing more is taken.
    pub fn close(&self) {
        let mut waiting = self.calls.lock();
        waiting.closed = true;
        waiting.messages.clear();
        self.there.store(false, Ordering::Release);
    }
}

impl fmt::Debug for WayBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WayBack").finish_non_exhaustive()
    }
}

impl Back for WayBack {
    fn send(&self, message: Vec<u8>) -> bool {
        let mut waiting = self.calls.lock();
        let taken = !waiting.closed && waiting.messages.len() < WAITING_MAX;
        if taken {
            waiting.messages.push_back(message);
            self.there.store(true, Ordering::Release);
        }
        drop(waiting);
        if taken {
            self.wake.wake();
        }
        taken
    }

    fn is_open(&self) -> bool {
        !self.calls.lock().closed
    }
}

impl RdmaLine {
    /// A call to the client waits, and could go.
    pub(super) fn has_call_back(&self) -> bool {
        !self.back.is_empty() && self.responder.may_call_back() && self.out.is_clear()
    }

    /// Sends calls to the client, up to a batch. How many.
    pub(super) fn call_back(&mut self, now: &Now<'_>) -> u32 {
        let mut sent = 0;
        while sent < now.config.batch
            && !now.draining
            && !self.out.dead
            && self.has_call_back()
            && let Some(message) = self.back.take()
        {
            sent += 1;
            let mut head = Vec::new();
            let time = Duration::from_nanos(now.time.0);
            if let Err(error) = self.responder.call_back(&message, time, &mut head) {
                let bytes = message.len();
                tracing::debug!(peer = %self.caller.peer, %error, bytes, "a call to the client is not sent");
                if let Some(xid) = message.first_chunk() {
                    self.fail_back(u32::from_be_bytes(*xid), now);
                }
                continue;
            }
            let call = QueuedReply {
                head,
                body: message,
                ..QueuedReply::default()
            };
            // The receive for its reply comes first.
            self.post_receives();
            self.out.send(call, now);
        }
        sent
    }

    /// Closes the way back if the client has left a call unanswered for too long. The connection carries its calls as
    /// before.
    pub(super) fn close_unanswered(&mut self, now: &Now<'_>) {
        let Some(since) = self.responder.unanswered_since() else {
            return;
        };
        let limit = Duration::from_nanos(now.config.rdma.back_time_max.0);
        let waited = Duration::from_nanos(now.time.0).saturating_sub(since);
        if waited > limit && self.caller.back.take().is_some() {
            tracing::debug!(peer = %self.caller.peer, ?waited, "a call to the client is not answered: no more are sent");
            self.back.close();
            now.serves.calls.back_closed(self.number());
        }
    }

    /// Whether [`RdmaLine::close_unanswered`] may have something to do without an event.
    pub(super) fn awaits_answer(&self) -> bool {
        self.caller.back.is_some() && self.responder.called_back() > 0
    }

    /// The client has answered a call. `reply`: room for what nobody wants to know.
    pub(super) fn answered_back(
        &mut self,
        message: Range<usize>,
        reply: &mut Vec<u8>,
        now: &Now<'_>,
    ) {
        let message = &self.out.qp.message()[message];
        reply.clear();
        drop(now.serves.calls.call(&self.caller, message, reply));
    }

    /// A call to the client will not be answered: whoever made it is told so by an error of RPC.
    pub(super) fn fail_back(&mut self, xid: u32, now: &Now<'_>) {
        let (mut message, mut reply) = (Vec::new(), Vec::new());
        rpc::system_err(&mut Writer::new(&mut message), xid);
        drop(now.serves.calls.call(&self.caller, &message, &mut reply));
    }
}
