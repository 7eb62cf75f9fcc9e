//! How long clients may reclaim what they held before the server restarted.

use odafs_fabric::clock::Nanos;

/// How long the period lasts at least after a reclaim.
const PROLONGED: Nanos = Nanos::from_secs(2);

/// The time in which the clients of a protocol may reclaim: a lease, and up to another one while they do.
#[derive(Clone, Copy, Debug)]
pub struct GracePeriod {
    until: Nanos,
    /// When it ends whatever they do.
    latest: Nanos,
}

impl GracePeriod {
    /// Begins now.
    pub fn new(now: Nanos, lease: Nanos) -> Self {
        Self {
            until: now + lease,
            latest: now + lease + lease,
        }
    }

    /// When it ends, unless clients reclaim.
    pub fn until(&self) -> Nanos {
        self.until
    }

    /// A client reclaims, and may have more to reclaim: the period does not end in the next moments. Returns whether it now ends
    /// later than before.
    pub fn prolong(&mut self, now: Nanos) -> bool {
        let until = (now + PROLONGED).min(self.latest);
        let later = until > self.until;
        self.until = self.until.max(until);
        later
    }
}
