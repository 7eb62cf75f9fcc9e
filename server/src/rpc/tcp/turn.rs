//! Turns of a thread's connections: round robin by time. A connection owes the time that a call or a write takes beyond its
//! turn, and passes turns for it. So long calls get no more of a thread than short ones.

use std::time::Duration;

use tokio::time::Instant;

/// How long a connection is served before the others of its thread have their turns. A call that is being served by then
/// is finished.
const TURN: Duration = Duration::from_micros(50);
/// The most that a connection owes. A longer overrun was hardly its doing: something else took the processor.
const DEBT_MAX: Duration = Duration::from_millis(2);

/// The turns of one connection.
#[derive(Debug)]
pub struct Turn {
    began: Instant,
    /// The length of this turn.
    budget: Duration,
    /// The time that earlier turns took too long.
    debt: Duration,
}

impl Turn {
    /// The first turn.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            budget: TURN,
            debt: Duration::ZERO,
        }
    }

    /// Begins the next turn, or goes on with the one that began after `round` did. False: the connection passes it, because of
    /// what it owes, or has had it in this round.
    pub fn begin(&mut self, now: Instant, round: Instant) -> bool {
        if self.began > round {
            return !self.is_over(now);
        }
        self.began = now;
        if self.debt >= TURN {
            self.debt -= TURN;
            return false;
        }
        self.budget = TURN - std::mem::take(&mut self.debt);
        true
    }

    /// Whether it is the turn of others.
    pub fn is_over(&self, now: Instant) -> bool {
        now - self.began >= self.budget
    }

    /// The turn ends with something left to do.
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
            while !turn.begin(now, now) {
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
        let passed = (0..).take_while(|_| !turn.begin(now, now)).count();
        assert_eq!(
            passed as u32,
            (DEBT_MAX.as_micros() / TURN.as_micros()) as u32
        );
        assert!(turn.begin(now, now) && !turn.is_over(now));
    }

    #[test]
    fn a_turn_is_not_begun_anew_in_the_same_round() {
        let round = Instant::now();
        let mut turn = Turn::new(round);
        for eighth in [1, 5, 8] {
            assert!(turn.begin(round + TURN * eighth / 8, round));
        }
        let late = round + TURN * 9 / 8;
        assert!(!turn.begin(late, round));
        assert!(turn.begin(late, late) && !turn.is_over(late + TURN / 2));
    }
}
