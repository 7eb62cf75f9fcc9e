//! Turns of a thread's connections: round robin by time. What a call or a write takes beyond its turn is owed, and turns
//! are passed until that is made up for, so that long calls get no more of a thread than short ones.

use std::time::Duration;

use tokio::time::Instant;

/// How long a connection is served, but for the call that is being served by then, before the others of its thread have
/// their turns.
const TURN: Duration = Duration::from_micros(100);
/// The most that is owed: more was hardly its doing, but that of who took the processor from the thread.
const DEBT_MAX: Duration = Duration::from_millis(2);

/// The turns of one connection.
#[derive(Debug)]
pub struct Turn {
    began: Instant,
    /// How long this one is.
    budget: Duration,
    /// What earlier ones took too long.
    debt: Duration,
}

impl Turn {
    /// The first.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            budget: TURN,
            debt: Duration::ZERO,
        }
    }

    /// The next. False: it is owed to the others.
    pub fn begin(&mut self, now: Instant) -> bool {
        self.began = now;
        if self.debt >= TURN {
            self.debt -= TURN;
            return false;
        }
        self.budget = TURN - std::mem::take(&mut self.debt);
        true
    }

    /// Whether others are to have theirs.
    pub fn is_over(&self, now: Instant) -> bool {
        now - self.began >= self.budget
    }

    /// It ends with something left to do.
    pub fn end(&mut self, now: Instant) {
        let took = now - self.began;
        self.debt = took.saturating_sub(self.budget).min(DEBT_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_long_passes_turns_until_the_others_have_had_as_much() {
        let mut now = Instant::now();
        let mut turn = Turn::new(now);
        let mut passed = 0;
        for _ in 0..10 {
            while !turn.begin(now) {
                passed += 1;
            }
            assert!(!turn.is_over(now));
            now += TURN * 7 / 2;
            assert!(turn.is_over(now));
            turn.end(now);
        }
        // What nine turns took is 31.5 turns: so many went by until the tenth.
        assert_eq!(passed + 9, 31);
    }

    #[test]
    fn a_preempted_thread_owes_no_more_than_so_much() {
        let now = Instant::now();
        let mut turn = Turn::new(now);
        turn.end(now + Duration::from_secs(9));
        let passed = (0..).take_while(|_| !turn.begin(now)).count();
        assert_eq!(passed as u32, DEBT_MAX.as_micros() as u32 / 100);
        assert!(turn.begin(now) && !turn.is_over(now));
    }
}
