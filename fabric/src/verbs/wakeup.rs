//! Soft iWARP may leave what came in its socket until more comes: `siw` (Linux 6.12) answers a connection request first and
//! looks at what the connection receives then, so that a message or an RDMA Read which came in between is not seen; nor is one
//! that comes while its queue pair is modified. A client that waits for an answer on iWARP and hears nothing therefore writes
//! nothing now and then: an RDMA Write of no bytes takes no receive and no tag (RFC 5040 section 5.2), is what peers greet each
//! other with (RFC 6581 section 9.2), and is more.

use crate::clock::Nanos;

/// From a message, or from when it is first waited for, to the first wake-up.
const FIRST: Nanos = Nanos::from_millis(100);

/// The longest time between two wake-ups.
const LAST: Nanos = Nanos::from_secs(1);

/// When a client has to wake a silent peer by an empty RDMA Write.
pub struct WakeUp {
    /// Whether this connection may need it.
    needed: bool,
    /// Whether a message was sent, and none has come since.
    asked: bool,
    /// RDMA Reads under way. Their ends say nothing of a message, which may have been sent after them.
    reads: u32,
    /// The next wake-up and the time before it, once somebody waits.
    next: Option<(Nanos, Nanos)>,
}

impl WakeUp {
    pub fn new(needed: bool) -> WakeUp {
        WakeUp {
            needed,
            asked: false,
            reads: 0,
            next: None,
        }
    }

    /// A message was sent.
    pub fn sent(&mut self) {
        self.asked = true;
    }

    /// A message has come.
    pub fn heard(&mut self) {
        self.asked = false;
        self.next = None;
    }

    /// An RDMA Read was posted.
    pub fn read_posted(&mut self) {
        self.reads += 1;
    }

    /// An RDMA Read has ended.
    pub fn read_ended(&mut self) {
        self.reads -= 1;
        self.next = None;
    }

    /// Whether a wait that begins now may have to wake the peer.
    pub fn is_awaited(&self) -> bool {
        self.needed && (self.asked || self.reads > 0)
    }

    /// Time until the next wake-up; `None`: now.
    pub fn left(&mut self, now: Nanos) -> Option<Nanos> {
        let (left, next) = match self.next {
            Some((at, span)) if at <= now => {
                let span = Nanos(span.0 * 2).min(LAST);
                (None, (now + span, span))
            }
            Some((at, span)) => (Some(at.since(now)), (at, span)),
            None => (Some(FIRST), (now + FIRST, FIRST)),
        };
        self.next = Some(next);
        left
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
    #[test]
    fn a_read_is_waited_for_as_a_message_is_and_its_end_answers_no_message() {
        let mut wakeup = WakeUp::new(true);
        let now = Nanos::from_secs(9);
        wakeup.read_posted();
        wakeup.read_posted();
        assert!(wakeup.is_awaited());
        assert_eq!(wakeup.left(now), Some(FIRST));
        assert_eq!(wakeup.left(now + FIRST), None);
        // The peer has looked: the other read has all the time again.
        wakeup.read_ended();
        assert!(wakeup.is_awaited());
        assert_eq!(wakeup.left(now), Some(FIRST));
        wakeup.read_ended();
        assert!(!wakeup.is_awaited());
        wakeup.sent();
        wakeup.read_posted();
        wakeup.read_ended();
        assert!(wakeup.is_awaited());
        wakeup.read_posted();
        wakeup.heard();
        assert!(wakeup.is_awaited());
        wakeup.read_ended();
        assert!(!wakeup.is_awaited());
        let mut never = WakeUp::new(false);
        never.read_posted();
        assert!(!never.is_awaited());
    }
}
