//! Begins calls that have waited for room or memory.

use std::io;

use odafs_common::rpcrdma::Ticket;
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::Writer;
use odafs_fabric::sync::atomic::Ordering;

use super::RdmaLine;
use super::config::count;
use super::pull::Pulling;
use crate::calls::Outcome;
use crate::engine::Now;
use crate::registration::{Lease, NoLease};

/// Why a call whose data must be read does not begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    None,
    /// There is no memory.
    Memory,
    /// The most calls are having their data read.
    Others,
}

impl RdmaLine {
    /// Begins calls as long as there is room, in the order of their arrival. A call that needs no memory does not wait
    /// behind one that does. Returns how many began.
    pub(super) fn start_parked(&mut self, at: usize, reply: &mut Vec<u8>, now: &Now<'_>) -> u32 {
        let mut started = 0;
        let mut wait = WaitsFor::None;
        let mut place = 0;
        while self.has_room(now)
            && let Some(bytes) = self.parked.pull_bytes(place)
        {
            let begun = match wait {
                _ if bytes == 0 => Some(None),
                WaitsFor::None => self.lease(bytes, &mut wait, now).map(Some),
                _ => None,
            };
            let Some(lease) = begun else {
                if wait == WaitsFor::Memory {
                    self.parked.finds_no_memory(place, now);
                }
                place += 1;
                continue;
            };
            let Some(arrived) = self.parked.take(place, now) else {
                break;
            };
            match lease {
                None => {
                    reply.clear();
                    self.prepare(&arrived.ticket);
                    let message = arrived.message.into_bytes();
                    let calls = &now.serves.calls;
                    let syncs = calls.may_sync(&message);
                    let outcome = calls.call_owned(&self.caller, message, reply);
                    self.served((outcome, syncs), arrived.ticket, reply, at, now);
                }
                Some(Ok(lease)) => {
                    self.pulling
                        .push_back(Pulling::new(arrived, lease, now.time));
                }
                Some(Err(error)) => self.fail(arrived.ticket, &error, now),
            }
            started += 1;
        }
        if wait != WaitsFor::Memory {
            // With no room for calls, ask for no memory, so that others have their turn. The deadline of a call that
            // found none still runs.
            self.registrar.waits_no_longer();
        }
        started
    }

    /// Finds memory for the data of a call, or a reason why there will never be any. Returns `None` if the call must
    /// `wait`.
    fn lease(
        &mut self,
        bytes: usize,
        wait: &mut WaitsFor,
        now: &Now<'_>,
    ) -> Option<io::Result<Lease>> {
        if self.pulling.len() >= now.config.rdma.pulls_max {
            *wait = WaitsFor::Others;
            return None;
        }
        match self.registrar.lease(&mut *self.out.qp, bytes) {
            Ok(lease) => Some(Ok(lease)),
            Err(NoLease::Never(error)) if !self.out.qp.is_closed() => Some(Err(error)),
            Err(_) => {
                *wait = WaitsFor::Memory;
                None
            }
        }
    }

    /// Answers the call with an error of RPC, because there will be no memory for its data.
    pub(super) fn fail(&mut self, ticket: Ticket, error: &io::Error, now: &Now<'_>) {
        let failed = &now.serves.rdma.registration.failed;
        count(failed);
        let failures = failed.load(Ordering::Relaxed);
        // Logs less and less often while nothing changes.
        if failures.is_power_of_two() {
            tracing::warn!(peer = %self.caller.peer, %error, failures, "no memory for the data of a call: it failed");
        }
        let mut reply = Vec::new();
        rpc::system_err(&mut Writer::new(&mut reply), ticket.xid());
        self.answer(Outcome::Replied, ticket, &mut reply, now);
    }
}
