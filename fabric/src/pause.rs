//! How long a listener rests after a failed accept. A failure for lack of a resource would repeat at once.

use crate::clock::Nanos;

/// The first pause, and the longest. Each is twice as long as the one before.
const FIRST: Nanos = if cfg!(test) {
    Nanos::from_secs(60)
} else {
    Nanos::from_millis(10)
};
const LONGEST: Nanos = if cfg!(test) {
    Nanos::from_secs(300)
} else {
    Nanos::from_secs(1)
};

/// Number of consecutive failures, and the pause after the last of them.
#[derive(Default)]
pub struct Pause {
    failures: u32,
    until: Option<Nanos>,
}

impl Pause {
    /// An accept has failed, and a pause begins.
    pub fn failed(&mut self, now: Nanos) {
        let span = FIRST.0.saturating_mul(1 << self.failures.min(30));
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + Nanos(span.min(LONGEST.0)));
    }

    /// A connection was accepted.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// The end of the pause, if there is one.
    pub fn until(&self) -> Option<Nanos> {
        self.until
    }

    /// Ends a pause that has been long enough. Returns whether there was one.
    pub fn end(&mut self, now: Nanos) -> bool {
        self.until.take_if(|until| now >= *until).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut pause = Pause::default();
        let mut now = Nanos(7);
        let mut spans = Vec::new();
        for _ in 0..40 {
            pause.failed(now);
            let until = pause.until().unwrap();
            assert!(!pause.end(Nanos(until.0 - 1)) && pause.end(until) && !pause.end(until));
            spans.push(until.since(now));
            now = until;
        }
        assert_eq!(spans[..3], [FIRST, Nanos(2 * FIRST.0), Nanos(4 * FIRST.0)]);
        assert_eq!(spans[39], LONGEST);
        pause.succeeded();
        pause.failed(now);
        assert_eq!(pause.until(), Some(now + FIRST));
    }
}
