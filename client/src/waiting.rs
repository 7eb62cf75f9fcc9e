//! How a thread waits for an answer: it polls for a bounded time, then sleeps in the kernel.

use crate::{options::Wait, transport::Broken};
use odafs_fabric::{
    PostError, QueuePair,
    clock::{self, Nanos},
};

/// The waits of one connection: what was asked for, and what was learned.
#[derive(Debug)]
pub struct Waits {
    wait: Wait,
    learned: Learned,
}

/// One wait. The clock is looked at rarely.
pub struct Patience {
    deadline: Nanos,
    spin: Option<Nanos>,
    polls: u32,
    sleep_from: Option<Nanos>,
    slept: bool,
}

impl Waits {
    /// As `wait` says.
    pub fn new(wait: Wait) -> Self {
        Self {
            wait,
            learned: Learned::default(),
        }
    }

    /// Begins one, which lasts until `deadline` at most.
    pub fn begin(&self, deadline: Nanos) -> Patience {
        let spin = match self.wait {
            Wait::Spin => None,
            Wait::Block { spin } => Some(spin.into()),
            Wait::Adaptive => Some(self.learned.spin()),
        };
        Patience {
            deadline,
            spin,
            polls: 0,
            sleep_from: None,
            slept: false,
        }
    }

    /// What was waited for is there.
    #[inline]
    pub fn ended(&mut self, patience: &Patience) {
        // What was there already says nothing of how long it took.
        if self.wait == Wait::Adaptive && patience.polls > 0 {
            self.learned.answered(patience.slept);
        }
    }
}

impl Patience {
    /// Polls between two looks at the clock.
    const POLLS: u32 = 64;

    /// To be called after a poll that found something, but not what is waited for: who sends that without end is not
    /// waited for without end. False when the deadline has passed.
    pub fn goes_on(&mut self) -> bool {
        self.polls += 1;
        !self.polls.is_multiple_of(Self::POLLS) || clock::now() < self.deadline
    }

    /// To be called after a poll that found nothing. False when the deadline has passed.
    pub fn rest(&mut self, pair: &mut dyn QueuePair) -> Result<bool, Broken> {
        self.polls += 1;
        if !self.polls.is_multiple_of(Self::POLLS) && self.spin != Some(Nanos(0)) {
            odafs_fabric::sync::hint::spin_loop();
            return Ok(true);
        }
        let now = clock::now();
        if now >= self.deadline {
            return Ok(false);
        }
        let Some(spin) = self.spin else {
            return Ok(true);
        };
        if now < *self.sleep_from.get_or_insert(now + spin) {
            return Ok(true);
        }
        self.slept = true;
        match pair.wait(Some(self.deadline.since(now))) {
            Ok(()) | Err(PostError::Closed) => Ok(true),
            Err(error) => Err(Broken::new(error)),
        }
    }
}

/// Whether polling pays, judged by whether answers come within it. They do not where the server takes longer, and they do
/// not where there are more threads than processors: then the server itself waits for who polls, or who polls was put
/// aside and finds its time over.
#[derive(Debug)]
struct Learned {
    /// Grows with each answer in time, shrinks with each late one.
    credit: i32,
    /// Waits since the last pause.
    polled: u32,
    /// Waits that are yet to be made without polling.
    asleep: u32,
    /// How many the last pause had.
    pause: u32,
}

impl Learned {
    /// How long it polls, if it does.
    const SPIN: Nanos = Nanos::from_micros(50);
    /// Most credit, and what a trial begins with.
    const CREDIT_MAX: i32 = 16;
    const TRIAL: i32 = 8;
    /// Answers in time that make up for a late one: the time that one has cost is some five times a sleep's.
    const LATE: i32 = 4;
    /// Waits of a pause. One that was followed by fewer waits than it had is followed by one twice as long.
    const PAUSES: (u32, u32) = (64, 8192);

    fn spin(&self) -> Nanos {
        match self.asleep {
            0 => Self::SPIN,
            _ => Nanos(0),
        }
    }

    #[inline]
    fn answered(&mut self, slept: bool) {
        if self.asleep > 0 {
            self.asleep -= 1;
            return;
        }
        self.polled = self.polled.saturating_add(1);
        if !slept {
            self.credit = (self.credit + 1).min(Self::CREDIT_MAX);
        } else if self.credit > Self::LATE {
            self.credit -= Self::LATE;
        } else {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        let (least, most) = Self::PAUSES;
        self.pause = match self.polled <= self.pause {
            true => (2 * self.pause).min(most),
            false => least,
        };
        (self.asleep, self.credit, self.polled) = (self.pause, Self::TRIAL, 0);
    }
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            credit: Self::TRIAL,
            polled: 0,
            asleep: 0,
            pause: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Learned;

    /// How many of `waits` are made polling, if every `late_in`th answer comes late for who polls.
    fn polled(learned: &mut Learned, waits: u32, late_in: u32) -> u32 {
        let mut polled = 0;
        for _ in 0..waits {
            let polls = learned.asleep == 0;
            polled += u32::from(polls);
            learned.answered(!polls || polled.is_multiple_of(late_in));
        }
        polled
    }

    #[test]
    fn answers_in_time_are_polled_for() {
        let mut learned = Learned::default();
        assert_eq!(polled(&mut learned, 1000, u32::MAX), 1000);
        assert_eq!(polled(&mut learned, 1000, 10), 1000, "a few may be late");
    }

    #[test]
    fn late_answers_are_slept_for() {
        let mut learned = Learned::default();
        polled(&mut learned, 1000, u32::MAX);
        polled(&mut learned, 100, 1);
        assert!(polled(&mut learned, 100_000, 1) < 200);
    }

    #[test]
    fn what_has_changed_is_noticed() {
        let mut learned = Learned::default();
        polled(&mut learned, 1_000_000, 1);
        polled(&mut learned, Learned::PAUSES.1, u32::MAX);
        assert_eq!(polled(&mut learned, 1000, u32::MAX), 1000);
    }
}
