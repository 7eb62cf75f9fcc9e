//! How a thread waits for an answer: it polls for a bounded time, then sleeps in the kernel.

use crate::{options::Wait, transport::Broken};
use odafs_fabric::{
    PostError, QueuePair,
    clock::{self, Nanos},
    sync::thread,
};

/// The waits of one connection: the mode that was asked for, and what was learned.
#[derive(Debug)]
pub struct Waits {
    wait: Wait,
    learned: [Learned; 2],
    awaited: Awaited,
}

/// How a server answers a call. The two have nothing to learn from each other: polling for the one kind may pay where
/// the other always comes too late.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// Likely on the thread that took the call.
    #[default]
    AtOnce,
    /// Likely by another thread, to which it hands the call because that may block.
    HandedOn,
}

/// One wait. It rarely reads the clock.
pub struct Patience {
    deadline: Nanos,
    spin: Option<Nanos>,
    yields: bool,
    polls: u32,
    sleep_from: Option<Nanos>,
    slept: bool,
}

impl Waits {
    /// Waits as `wait` says.
    pub fn new(wait: Wait) -> Self {
        Self {
            wait,
            learned: Default::default(),
            awaited: Awaited::default(),
        }
    }

    /// The next waits are for answers of this kind.
    #[inline]
    pub fn expect(&mut self, awaited: Awaited) {
        self.awaited = awaited;
    }

    /// Begins a wait, which ends at `deadline` at the latest.
    pub fn begin(&mut self, deadline: Nanos) -> Patience {
        let learned = &mut self.learned[self.awaited as usize];
        let spin = match self.wait {
            Wait::Spin => None,
            Wait::Block { spin } => Some(spin.into()),
            Wait::Adaptive => Some(learned.spin(clock::now)),
        };
        Patience {
            deadline,
            spin,
            yields: self.wait == Wait::Adaptive && learned.rouse.is_some(),
            polls: 0,
            sleep_from: None,
            slept: false,
        }
    }

    /// Whether the next wait polls before it sleeps.
    #[cfg(test)]
    pub fn polls(&self) -> bool {
        self.learned[self.awaited as usize].asleep == 0
    }

    /// The awaited event has come.
    #[inline]
    pub fn ended(&mut self, patience: &Patience) {
        // An event that had already come says nothing about how long it took.
        if self.wait == Wait::Adaptive && patience.polls > 0 {
            let slept = || Slept {
                from: patience.sleep_from.unwrap_or_default(),
                until: clock::now(),
            };
            self.learned[self.awaited as usize].answered(patience.slept.then(slept));
        }
    }
}

impl Patience {
    /// Number of polls between two looks at the clock.
    const POLLS: u32 = 64;

    /// Call this after a poll that found something else than the awaited event, so that a peer that sends without end
    /// does not make the wait endless. Returns false if the deadline has passed.
    pub fn goes_on(&mut self) -> bool {
        self.polls += 1;
        !self.polls.is_multiple_of(Self::POLLS) || clock::now() < self.deadline
    }

    /// Call this after a poll of `pair` that found nothing. Returns false if the deadline has passed.
    pub fn rest(&mut self, pair: &mut dyn QueuePair) -> Result<bool, Broken> {
        if !(self.polls + 1).is_multiple_of(Self::POLLS) && self.spin != Some(Nanos(0)) {
            self.polls += 1;
            odafs_fabric::sync::hint::spin_loop();
            return Ok(true);
        }
        self.rest_by(|left| match pair.wait(Some(left)) {
            Ok(()) | Err(PostError::Closed) => Ok(()),
            Err(error) => Err(Broken::new(error)),
        })
    }

    /// As [`Patience::rest`], after a poll that took longer than a look at the clock. `sleep` sleeps until something comes,
    /// for so long at most.
    pub fn rest_by(
        &mut self,
        sleep: impl FnOnce(Nanos) -> Result<(), Broken>,
    ) -> Result<bool, Broken> {
        self.polls += 1;
        let now = clock::now();
        if now >= self.deadline {
            return Ok(false);
        }
        let Some(spin) = self.spin else {
            return Ok(true);
        };
        if now < *self.sleep_from.get_or_insert(now + spin) {
            if self.yields {
                thread::yield_now();
            }
            return Ok(true);
        }
        self.slept = true;
        sleep(self.deadline.since(now)).map(|()| true)
    }
}

/// Whether polling pays, judged by whether answers come in time. They do not if the server takes longer, nor if there
/// are more threads than processors: then the polling client keeps the server from running, or is suspended itself and
/// finds its time over.
///
/// The server sleeps too if the next request does not come soon. Where a wake-up takes longer than either side polls (a
/// processor was idle for long, or a host has taken it back), each side would find the other asleep, for ever. So the
/// first wait after a pause polls for long enough to see the server awake, and lets other threads run meanwhile.
#[derive(Debug)]
struct Learned {
    /// Grows with each answer in time, and shrinks with each late one.
    credit: i32,
    /// Number of waits since the last pause.
    polled: u32,
    /// Number of waits still to be made without polling.
    asleep: u32,
    /// Length of the last pause, in waits.
    pause: u32,
    /// When the pause began, and the time slept since.
    paused_at: Nanos,
    slept_ns: u64,
    /// How long the next wait polls, if longer than others.
    rouse: Option<Nanos>,
}

/// When the present wait began to sleep.
struct Slept {
    from: Nanos,
    until: Nanos,
}

impl Learned {
    /// How long to poll, if at all.
    const SPIN: Nanos = Nanos::from_micros(50);
    /// The most credit, with which a trial begins.
    const CREDIT_MAX: i32 = 16;
    const TRIAL: i32 = 8;
    /// Number of answers in time that make up for a late one, which costs about five times the time of a sleep.
    const LATE: i32 = 4;
    /// Length of a pause in waits. If fewer waits follow a pause than it had, the next one is twice as long.
    const PAUSES: (u32, u32) = (64, 8192);
    /// A pause ends when it has lasted this many times as long as its waits would take one after the other. Otherwise a
    /// connection that is rarely used, such as one on trial, would stay in it long after a busy one has left.
    const IDLE: u64 = 4;
    /// A wait of a pause that took longer says nothing about wake-ups.
    const ROUSE: Nanos = Nanos::from_millis(1);

    #[inline]
    fn spin(&mut self, now: impl FnOnce() -> Nanos) -> Nanos {
        if self.asleep > 0 && self.is_over(now()) {
            self.resume();
        }
        if self.asleep > 0 {
            return Nanos(0);
        }
        self.rouse.unwrap_or(Self::SPIN)
    }

    /// Whether the pause has lasted too long.
    fn is_over(&self, now: Nanos) -> bool {
        let Some(wait_ns) = self.slept_ns.checked_div((self.pause - self.asleep).into()) else {
            return false;
        };
        now.since(self.paused_at).0 > wait_ns * u64::from(self.pause) * Self::IDLE
    }

    #[inline]
    fn answered(&mut self, slept: Option<Slept>) {
        if self.asleep > 0 {
            self.asleep -= 1;
            self.slept_ns += slept.map_or(0, |slept| slept.until.since(slept.from).0);
            if self.asleep == 0 {
                self.resume();
            }
            return;
        }
        self.polled = self.polled.saturating_add(1);
        let roused = self.rouse.take().is_some();
        let Some(slept) = slept else {
            // An answer in time for a longer wait says nothing about the others.
            if !roused {
                self.credit = (self.credit + 1).min(Self::CREDIT_MAX);
            }
            return;
        };
        if self.credit > Self::LATE {
            self.credit -= Self::LATE;
        } else {
            self.give_up();
            (self.paused_at, self.slept_ns) = (slept.until, 0);
        }
    }

    /// Ends a pause. The next wait polls for as long as one of the pause took on average, if that is not too long.
    fn resume(&mut self) {
        let waits = self.pause - self.asleep;
        let wait = Nanos(self.slept_ns / u64::from(waits.max(1)));
        self.rouse = (Self::SPIN..Self::ROUSE).contains(&wait).then_some(wait);
        self.asleep = 0;
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
            paused_at: Nanos(0),
            slept_ns: 0,
            rouse: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a wait that sleeps.
    const ASLEEP: Nanos = Nanos::from_micros(30);

    /// How many of `waits` are made with polling if every `late_in`th answer is late for a client that polls.
    fn polled(learned: &mut Learned, waits: u32, late_in: u32) -> u32 {
        polled_at(learned, waits, late_in, Nanos(0))
    }

    /// As above, with this time between two waits.
    fn polled_at(learned: &mut Learned, waits: u32, late_in: u32, idle: Nanos) -> u32 {
        let (mut polled, mut from) = (0, learned.paused_at);
        for _ in 0..waits {
            let polls = learned.spin(|| from) > Nanos(0);
            polled += u32::from(polls);
            let until = from + ASLEEP;
            let late = !polls || polled.is_multiple_of(late_in);
            learned.answered(late.then_some(Slept { from, until }));
            from = until + idle;
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

    /// Of how many waits for answers in time there is no polling, if each follows a late answer of this kind.
    fn slept_beside(late: Awaited) -> usize {
        let mut waits = Waits::new(Wait::Adaptive);
        let mut wait = |awaited, slept| {
            waits.expect(awaited);
            let mut patience = waits.begin(Nanos(u64::MAX));
            let polls = patience.spin != Some(Nanos(0));
            (patience.polls, patience.slept) = (1, slept || !polls);
            waits.ended(&patience);
            polls
        };
        (0..1000)
            .filter(|_| {
                wait(late, true);
                !wait(Awaited::AtOnce, false)
            })
            .count()
    }

    #[test]
    fn what_is_handed_on_says_nothing_about_what_is_answered_at_once() {
        assert_eq!(slept_beside(Awaited::HandedOn), 0);
        assert!(slept_beside(Awaited::AtOnce) > 0, "it learns nothing");
    }

    /// A server that answers within 10 us while it is awake, and sleeps if it has waited for 50 us.
    struct Server {
        /// How long a wake-up takes, here and there.
        wake_up: Nanos,
        asleep: bool,
        now: Nanos,
    }

    impl Server {
        /// Whether an answer comes while the client polls for it. The next request follows it at once.
        fn answers_in_time(&mut self, learned: &mut Learned) -> bool {
            let (polls, began) = (learned.spin(|| self.now), self.now);
            let answer = Nanos::from_micros(10) + if self.asleep { self.wake_up } else { Nanos(0) };
            let slept = answer > polls;
            self.now = began + answer + if slept { self.wake_up } else { Nanos(0) };
            self.asleep = slept && self.wake_up > Nanos::from_micros(50);
            learned.answered(slept.then_some(Slept {
                from: began + polls,
                until: self.now,
            }));
            !slept
        }
    }

    /// Once either has slept, each wakes up too late for the other.
    #[test]
    fn slow_wake_ups_do_not_follow_one_another_for_ever() {
        for micros in [40, 60, 100, 200, 400] {
            for silent in [1, 4, 20] {
                let mut learned = Learned::default();
                let mut server = Server {
                    wake_up: Nanos::from_micros(micros),
                    asleep: false,
                    now: Nanos(0),
                };
                (0..100).for_each(|_| assert!(server.answers_in_time(&mut learned)));
                // The host has taken the processor back for a while.
                for _ in 0..silent {
                    server.asleep = true;
                    server.wake_up = Nanos::from_micros(5_000);
                    server.answers_in_time(&mut learned);
                }
                server.wake_up = Nanos::from_micros(micros);
                let late = (0..1000).filter(|_| !server.answers_in_time(&mut learned));
                let late = late.count();
                assert!(
                    late <= 200,
                    "{late} with wake-ups of {micros} us after {silent}"
                );
            }
        }
    }

    /// Eight waits in a trial, a trial every 25 ms, and as many answers in time as on a busy connection.
    #[test]
    fn who_waits_now_and_then_does_not_sleep_for_long() {
        let mut learned = Learned::default();
        polled(&mut learned, 3, 1);
        let idle = Nanos::from_micros(3_000);
        assert!(polled_at(&mut learned, 64, u32::MAX, idle) >= 60);
        // If answers stay late, the client polls a few times between pauses that grow longer and longer.
        assert!(polled_at(&mut learned, 10_000, 1, idle) < 400);
    }

    #[test]
    fn what_has_changed_is_noticed() {
        let mut learned = Learned::default();
        polled(&mut learned, 1_000_000, 1);
        polled(&mut learned, Learned::PAUSES.1, u32::MAX);
        assert_eq!(polled(&mut learned, 1000, u32::MAX), 1000);
    }
}
