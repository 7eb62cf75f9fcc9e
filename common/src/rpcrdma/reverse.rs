//! Calls in the reverse direction (RFC 8167): a responder calls its requester over the connection by which that calls.
//! They go inline, without chunks, and have xids and credits of their own. A call that is never answered never gives its
//! credit back, so whoever calls has to watch [`Responder::unanswered_since`](super::Responder::unanswered_since).

use std::time::Duration;

/// Why a call in the reverse direction cannot be made. Nothing has happened then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReverseError {
    /// As many are under way as the peer grants: take replies first.
    #[error("all credits of the reverse direction are in use")]
    NoCredit,
    /// It does not go inline, or is no call. It never will be.
    #[error("a message in the reverse direction is no call, or does not go inline")]
    Unfit,
}

/// The calls that a responder has under way.
#[derive(Debug)]
pub(super) struct Reverse {
    /// Never more, whatever the peer grants.
    most: u32,
    /// What the peer grants, in replies of this direction alone (RFC 8167, section 4).
    granted: u32,
    /// Their xids, and when they began. As many as credits are in use, at most `most`.
    calls: Vec<(u32, Duration)>,
}

impl Reverse {
    /// At first the peer grants one credit, as in the forward direction (RFC 8166, section 3.3.1).
    pub fn new(most: u32) -> Self {
        Self {
            most,
            granted: 1,
            calls: Vec::new(),
        }
    }

    /// What is asked for.
    pub fn most(&self) -> u32 {
        self.most
    }

    pub fn under_way(&self) -> u32 {
        self.calls.len() as u32
    }

    pub fn may_call(&self) -> bool {
        self.under_way() < self.granted.min(self.most)
    }

    /// A call with this xid begins.
    pub fn begin(&mut self, xid: u32, now: Duration) {
        self.calls.push((xid, now));
    }

    /// When the oldest call under way began.
    pub fn oldest(&self) -> Option<Duration> {
        self.calls.iter().map(|(_, since)| *since).min()
    }

    /// An answer has come to a call with this xid. `false`: there is none.
    pub fn end(&mut self, xid: u32) -> bool {
        let call = self.calls.iter().position(|(known, _)| *known == xid);
        call.map(|call| self.calls.swap_remove(call)).is_some()
    }

    /// A grant of 0 is taken as 1.
    pub fn grant(&mut self, credits: u32) {
        self.granted = credits.max(1);
    }
}

/// Whether an RPC message is a call: its `msg_type` follows the xid, and tells its direction (RFC 8167, section 4).
pub(super) fn is_call(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0; 4])
}

/// Whether an RPC message is a reply.
pub(super) fn is_reply(message: &[u8]) -> bool {
    message.get(4..8) == Some(&[0, 0, 0, 1])
}

/// Whether an RPC message has this xid.
pub(super) fn is_of(message: &[u8], xid: u32) -> bool {
    message.first_chunk() == Some(&xid.to_be_bytes())
}
