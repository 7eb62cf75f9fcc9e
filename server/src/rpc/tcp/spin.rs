//! Before a thread sleeps, it polls a connection that makes one call after the other, because a wake-up takes longer than
//! most calls. Where polling does not pay, it is tried more and more rarely.

use std::time::Duration;

/// Calls in a row before the next one is expected.
const IN_A_ROW: u32 = 3;
/// How often to look at the socket before others have their turn.
pub const LOOKS: u32 = 8;
/// The most waits without polling after polls that found nothing.
const PAUSE_MAX: u32 = 1023;

/// When to poll, for one connection.
#[derive(Debug)]
pub struct Spin {
    limit: Duration,
    /// How many waits go without polling.
    pause: u32,
    /// How many will, the next time that a poll finds nothing.
    next_pause: u32,
    /// Whether it is polling.
    polling: bool,
}

impl Spin {
    /// Polls for up to `limit` at a time.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            pause: 0,
            next_pause: 1,
            polling: false,
        }
    }

    /// Whether to look once more. `idle` is the time since the last call, and `in_a_row` is how many calls in a row came from
    /// this connection.
    pub fn goes_on(&mut self, in_a_row: u32, idle: Duration) -> bool {
        if in_a_row < IN_A_ROW || self.pause > 0 {
            self.polling = false;
            return false;
        }
        self.polling = idle < self.limit || !self.polling && !self.limit.is_zero();
        if !self.polling {
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
        }
        self.polling
    }

    /// A call has come.
    pub fn came(&mut self) {
        self.pause = self.pause.saturating_sub(1);
        if self.polling {
            self.next_pause = 1;
        }
        self.polling = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    #[test]
    fn polls_for_calls_that_follow_each_other() {
        let mut spin = Spin::new(LIMIT);
        assert!(!spin.goes_on(1, Duration::ZERO));
        for _ in 0..100 {
            spin.came();
            assert!(spin.goes_on(IN_A_ROW, Duration::ZERO));
            assert!(spin.goes_on(IN_A_ROW, LIMIT / 2));
        }
    }

    #[test]
    fn gives_up_what_does_not_pay() {
        let mut spin = Spin::new(LIMIT);
        let mut polled = 0;
        for _ in 0..1000 {
            spin.came();
            if spin.goes_on(IN_A_ROW, Duration::ZERO) {
                polled += 1;
                assert!(!spin.goes_on(IN_A_ROW, LIMIT));
            }
        }
        assert!(polled < 15, "{polled} of 1000");
    }

    #[test]
    fn never_polls_where_it_shall_not() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..10 {
            spin.came();
            assert!(!spin.goes_on(IN_A_ROW, Duration::ZERO));
        }
    }
}
