//! Soft iWARP may leave what came in its socket until more comes: `siw` (Linux 6.12) answers a connection request first and
//! looks at what the connection receives then, so that a message which came in between is not seen; nor is one that comes
//! while its queue pair is modified. A client that waits for an answer on iWARP and hears nothing therefore writes nothing
//! now and then: an RDMA Write of no bytes takes no receive and no tag (RFC 5040 section 5.2), is what peers greet each
//! other with (RFC 6581 section 9.2), and is more.

use crate::clock::Nanos;

/// From a message, or from when it is first waited for, to the first nudge.
const FIRST: Nanos = Nanos::from_millis(100);

/// Between nudges at most.
const LAST: Nanos = Nanos::from_secs(1);

/// When a client nudges.
pub struct Nudge {
    state: State,
}

enum State {
    /// This connection has no need of it.
    Never,
    /// All that was sent was answered, as far as is known.
    Heard,
    /// Something was sent, and nobody has waited since.
    Sent,
    Waiting {
        next: Nanos,
        span: Nanos,
    },
}

impl Nudge {
    pub fn new(needed: bool) -> Nudge {
        let state = match needed {
            true => State::Heard,
            false => State::Never,
        };
        Nudge { state }
    }

    /// A message was sent.
    pub fn sent(&mut self) {
        if matches!(self.state, State::Heard) {
            self.state = State::Sent;
        }
    }

    /// A message has come.
    pub fn heard(&mut self) {
        if !matches!(self.state, State::Never) {
            self.state = State::Heard;
        }
    }

    /// Whether somebody who waits now may have to nudge.
    pub fn is_awaited(&self) -> bool {
        !matches!(self.state, State::Never | State::Heard)
    }

    /// Time until the next nudge; none: now.
    pub fn left(&mut self, now: Nanos) -> Option<Nanos> {
        match self.state {
            State::Waiting { next, span } if next <= now => {
                let span = Nanos(span.0 * 2).min(LAST);
                let next = now + span;
                self.state = State::Waiting { next, span };
                None
            }
            State::Waiting { next, .. } => Some(next.since(now)),
            _ => {
                let (next, span) = (now + FIRST, FIRST);
                self.state = State::Waiting { next, span };
                Some(span)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_hears_nothing_nudges_and_ever_more_rarely() {
        let mut nudge = Nudge::new(true);
        assert!(!nudge.is_awaited());
        nudge.sent();
        assert!(nudge.is_awaited());
        let mut now = Nanos::from_secs(9);
        let mut spans = Vec::new();
        for _ in 0..6 {
            let left = nudge.left(now).unwrap();
            spans.push(left.0 / 1_000_000);
            assert!(nudge.left(now + Nanos(left.0 - 1)).is_some());
            now = now + left;
            assert_eq!(nudge.left(now), None);
        }
        assert_eq!(spans, [100, 200, 400, 800, 1000, 1000]);
        nudge.heard();
        assert!(!nudge.is_awaited());
        nudge.sent();
        assert_eq!(nudge.left(now), Some(FIRST));
        let mut never = Nudge::new(false);
        never.sent();
        assert!(!never.is_awaited());
    }
}
