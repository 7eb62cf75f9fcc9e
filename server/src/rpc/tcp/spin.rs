//! A connection that makes one call after the other is polled for a while before its thread sleeps: to be woken takes
//! longer than most calls. Where that does not pay, it is tried more and more rarely.

use std::time::Duration;

/// Calls in a row before the next one is expected.
const IN_A_ROW: u32 = 3;
/// Looks at the socket before others have their turn.
pub const LOOKS: u32 = 8;
/// The most waits that are not polled through after polls that were for nothing.
const PAUSE_MAX: u32 = 1023;

/// When to poll, for one connection.
#[derive(Debug)]
pub struct Spin {
    limit: Duration,
    /// Waits that are slept through.
    pause: u32,
    /// That many the next time that a poll is for nothing.
    next_pause: u32,
    /// It polls.
    polling: bool,
}

impl Spin {
    /// For so long at a time.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            pause: 0,
            next_pause: 1,
            polling: false,
        }
    }

    /// Whether to look once more, `idle` after the last call, of which `in_a_row` came from this connection alone.
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
