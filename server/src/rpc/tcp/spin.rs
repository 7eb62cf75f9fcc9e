//! Before a thread sleeps, it polls a connection that makes one call after the other, because a wake-up takes longer than
//! most calls. Where polling does not pay, it is tried more and more rarely. It does not pay where no call comes in time, nor
//! where others want the processor: the scheduler takes it from a thread that polls, and gives it back much later than it
//! would have woken a thread that sleeps.

use std::time::Duration;

/// Calls in a row before the next one is expected.
const IN_A_ROW: u32 = 3;
/// How often to look at the socket before others have their turn.
pub const LOOKS: u32 = 8;
/// The most waits without polling after polls that did not pay.
const PAUSE_MAX: u32 = 1 << 14;
/// What a poll saves that finds a call: about a wake-up.
const SAVED: Duration = Duration::from_micros(10);

/// When to poll, for one connection.
#[derive(Debug)]
pub struct Spin {
    limit: Duration,
    /// How many waits go without polling.
    pause: u32,
    /// How many will, the next time that polling does not pay.
    next_pause: u32,
    /// Polls that found a call since the last one that did not.
    found: u32,
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
            found: 0,
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
        let polled = std::mem::replace(&mut self.polling, idle < self.limit);
        if polled && !self.polling {
            self.lost(idle);
        }
        self.polling
    }

    /// A call has come. `idle` tells the time since the last one.
    pub fn came(&mut self, idle: impl FnOnce() -> Duration) {
        self.pause = self.pause.saturating_sub(1);
        if std::mem::take(&mut self.polling) {
            let idle = idle();
            if idle < self.limit {
                self.found = self.found.saturating_add(1);
            } else {
                self.lost(idle);
            }
        }
    }

    /// A poll found nothing within the limit. It took `idle`: the limit, or longer if the thread lost its processor.
    fn lost(&mut self, idle: Duration) {
        // So many polls that find a call make up for this one.
        let worth = (idle.as_nanos() / SAVED.as_nanos()).min(PAUSE_MAX.into()) as u32;
        self.pause = match self.found >= worth {
            true => 1,
            false => self.next_pause.max(worth),
        };
        self.next_pause = (self.pause * 2).min(PAUSE_MAX);
        self.found = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);
    const SOON: Duration = Duration::from_micros(20);

    /// Whether a wait polls. If it does, a call comes after `idle`.
    fn polls(spin: &mut Spin, idle: Duration) -> bool {
        let polls = spin.goes_on(IN_A_ROW, Duration::ZERO);
        spin.came(|| idle);
        polls
    }

    #[test]
    fn polls_for_calls_that_follow_each_other() {
        let mut spin = Spin::new(LIMIT);
        assert!(!spin.goes_on(1, Duration::ZERO));
        for _ in 0..100 {
            spin.came(|| SOON);
            assert!(spin.goes_on(IN_A_ROW, Duration::ZERO));
            assert!(spin.goes_on(IN_A_ROW, LIMIT / 2));
        }
    }

    #[test]
    fn gives_up_what_does_not_pay() {
        let mut spin = Spin::new(LIMIT);
        let mut polled = 0;
        for _ in 0..1000 {
            spin.came(|| LIMIT * 20);
            if spin.goes_on(IN_A_ROW, Duration::ZERO) {
                polled += 1;
                assert!(!spin.goes_on(IN_A_ROW, LIMIT));
            }
        }
        assert!(polled < 15, "{polled} of 1000");
    }

    #[test]
    fn goes_on_where_a_burst_ends_now_and_then() {
        let mut spin = Spin::new(LIMIT);
        let polled =
            (1..1001).filter(|call| polls(&mut spin, if call % 20 == 0 { LIMIT } else { SOON }));
        let polled = polled.count();
        assert!(polled > 900, "{polled} of 1000");
    }

    #[test]
    fn leaves_the_processor_to_others_that_want_it() {
        let mut spin = Spin::new(LIMIT);
        // After a hundred polls the scheduler gives the processor to others for 10 ms.
        let (mut polled, mut waits) = (0, 0);
        while waits < 100_000 {
            waits += 1;
            if polls(
                &mut spin,
                if polled % 100 == 99 {
                    LIMIT * 200
                } else {
                    SOON
                },
            ) {
                polled += 1;
            }
        }
        assert!(polled < 1500, "{polled} of {waits}");
        // They are gone.
        let until = (0..2 * PAUSE_MAX).position(|_| polls(&mut spin, SOON));
        assert!(until.is_some());
        assert!((0..1000).all(|_| polls(&mut spin, SOON)));
    }

    #[test]
    fn never_polls_where_it_shall_not() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..10 {
            spin.came(|| SOON);
            assert!(!spin.goes_on(IN_A_ROW, Duration::ZERO));
        }
    }
}
