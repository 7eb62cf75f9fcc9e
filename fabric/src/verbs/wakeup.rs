//! Soft iWARP may leave what came in its socket until more comes: `siw` (Linux 6.12) answers a connection request first and
//! looks at what the connection receives then, so that a message which came in between is not seen; nor is one that comes
//! while its queue pair is modified. A client that waits for an answer on iWARP and hears nothing therefore writes nothing
//! now and then: an RDMA Write of no bytes takes no receive and no tag (RFC 5040 section 5.2), is what peers greet each
//! other with (RFC 6581 section 9.2), and is more.

use crate::clock::Nanos;

/// From a message, or from when it is first waited for, to the first wake-up.
const FIRST: Nanos = Nanos::from_millis(100);

/// The longest time between two wake-ups.
const LAST: Nanos = Nanos::from_secs(1);

/// When a client has to wake a silent peer by an empty RDMA Write.
pub struct WakeUp {
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

impl WakeUp {
    pub fn new(needed: bool) -> WakeUp {
        let state = match needed {
            true => State::Heard,
            false => State::Never,
        };
        WakeUp { state }
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

    /// Whether a wait that begins now may have to wake the peer.
    pub fn is_awaited(&self) -> bool {
        !matches!(self.state, State::Never | State::Heard)
    }

    /// Time until the next wake-up; `None`: now.
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
    fn only_a_client_that_hears_nothing_wakes_its_peer_and_ever_more_rarely() {
        let mut wakeup = WakeUp::new(true);
        assert!(!wakeup.is_awaited());
        wakeup.sent();
        assert!(wakeup.is_awaited());
        let mut now = Nanos::from_secs(9);
        let mut spans = Vec::new();
        for _ in 0..6 {
            let left = wakeup.left(now).unwrap();
            spans.push(left.0 / 1_000_000);
            assert!(wakeup.left(now + Nanos(left.0 - 1)).is_some());
            now = now + left;
            assert_eq!(wakeup.left(now), None);
        }
        assert_eq!(spans, [100, 200, 400, 800, 1000, 1000]);
        wakeup.heard();
        assert!(!wakeup.is_awaited());
        wakeup.sent();
        assert_eq!(wakeup.left(now), Some(FIRST));
        let mut never = WakeUp::new(false);
        never.sent();
        assert!(!never.is_awaited());
    }
}
