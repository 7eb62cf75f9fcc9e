//! If a peer disappears without a word (its host or its network has lost power), nobody notices while nothing is sent
//! to it. So a server sometimes sends an empty RDMA Write to a client that has been silent. It takes no receive and no
//! memory (InfiniBand Architecture Specification, C9-88; RFC 5040 section 5.2), and the client's device acknowledges it
//! by itself. If no acknowledgement comes, the connection ends after the device's retries, or TCP's.

use crate::clock::Nanos;

/// How long a client may be silent.
pub const QUIET: Nanos = Nanos::from_secs(15);

/// When a server asks whether its client is still there.
pub struct Keepalive {
    /// `None` if this end does not ask.
    asked: Option<Nanos>,
    heard: bool,
}

impl Keepalive {
    pub fn new(needed: bool, now: Nanos) -> Keepalive {
        Keepalive {
            asked: needed.then_some(now),
            heard: false,
        }
    }

    /// A message has come.
    pub fn heard(&mut self) {
        self.heard = true;
    }

    /// Whether to ask now.
    pub fn is_due(&mut self, now: Nanos) -> bool {
        let Some(asked) = &mut self.asked else {
            return false;
        };
        let due = now.since(*asked) >= QUIET;
        if due || std::mem::take(&mut self.heard) {
            *asked = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_says_nothing_is_asked() {
        let start = Nanos::from_secs(9);
        let (early, late) = (Nanos(QUIET.0 - 1), QUIET);
        let mut keepalive = Keepalive::new(true, start);
        assert!(!keepalive.is_due(start + early));
        keepalive.heard();
        assert!(!keepalive.is_due(start + early));
        assert!(!keepalive.is_due(start + early + early));
        assert!(keepalive.is_due(start + early + late));
        assert!(!keepalive.is_due(start + early + late + early));
        assert!(keepalive.is_due(start + early + late + late));
        assert!(!Keepalive::new(false, start).is_due(Nanos::from_secs(999)));
    }
}
