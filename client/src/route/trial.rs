//! What the routes of one size class cost at one server, and the trials that compare them.
//!
//! In a trial, two routes take turns of a few reads each, all timed alike. The first reads after each change of route
//! are not measured, because no route shall pay for a server that sleeps, a cold cache or a new connection.
//!
//! Where it is in doubt whether keeping pages pays, the reads of a trial bypass the data cache, so that its worth can be told
//! from the costs of the routes. Elsewhere only its misses take part: a read that follows many hits costs more than one
//! that follows another read by the same route, and not each route pays as much for the pause.

use super::{
    config::Config,
    cost::{Cost, Mean, clipped},
    order::Choice,
};

/// Number of consecutive reads by one route during a trial.
const TURN: u32 = 8;
/// Number of reads at the start of a turn that are not measured: in the first turn, and in the others.
const WARM_UP: [u32; 2] = [4, 2];
/// Number of reads in a trial.
pub const TRIAL_READS: u32 = 4 * TURN;
/// A trial ends when more reads than this could not take the route that they were to take.
const MISSED_MAX: u32 = 2 * TRIAL_READS;
/// What a hit costs more while it has to ask the policy for its order, in nanoseconds.
const ASKED_NS: u64 = 200;
/// A trial of misses ends when so many reads were hits.
const HITS_MAX: u32 = 64 * TRIAL_READS;
/// A trial that is not finished after this time ends.
const TRIAL_NS_MAX: u64 = 2_000_000_000;
/// A trial ends after half of its reads if the challenger takes this many times as long.
const HOPELESS: u64 = 4;
/// The standing route has changed when its time is off by this factor, in this many samples more than it is not.
const DRIFT: (f64, u32) = (1.5, 6);

/// A value for each route.
type ByRoute<T> = [T; Choice::ALL.len()];

/// A size class at one server.
#[derive(Debug, Default)]
pub struct Class {
    /// The cheapest route, without regard to refusals.
    best: Choice,
    granted: ByRoute<bool>,
    /// The measurements of trials.
    costs: ByRoute<Cost>,
    /// The summaries of those measurements at the last judgement.
    judged_ns: ByRoute<Option<f64>>,
    /// The times of other reads, which are good enough until there is a trial.
    rough: ByRoute<Mean>,
    due: ByRoute<Due>,
    trial: Option<Trial>,
    /// The time of reads by the standing route outside of the last trial, if those keep pages and the trial's did not.
    usual_ns: Option<f64>,
    /// Number of samples of the standing route that were off, less the number of those that were not.
    drift: u32,
    /// What the measurements are of.
    of: Tried,
}

/// Which reads a trial measures.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// All reads, which bypass the data cache.
    #[default]
    All,
    /// The misses of the data cache.
    Misses,
}

/// When to try a route next, in nanoseconds of time spent reading.
#[derive(Debug, Default, Clone, Copy)]
struct Due {
    left_ns: u64,
    interval_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Trial {
    challenger: Choice,
    standing: Choice,
    began_ns: u64,
    given: u32,
    missed: u32,
    hits: u32,
    measured: ByRoute<u32>,
    measured_ns: ByRoute<u64>,
    /// How long each read would have taken without the trial, if that is not the time of the standing route.
    instead_ns: Option<u64>,
    /// The time of all reads, and their number.
    took_ns: u64,
    reads: u32,
}

impl Class {
    /// Sets the available routes. `first` is taken until trials have shown that another is cheaper: the most direct
    /// one, or one that is known to be better. In the latter case, the others can wait.
    pub fn grant(&mut self, most: Choice, first: Choice, config: &Config) {
        let (shortest_ns, longest_ns) = config.trial_interval_ns;
        let first_ns = if first == most {
            shortest_ns
        } else {
            longest_ns
        };
        self.granted = Choice::ALL.map(|choice| choice.index() <= most.index());
        let tried = self.judged_ns.iter().flatten().count() > 1;
        if !tried || !self.granted[self.best.index()] {
            self.best = first;
        }
        self.trial = None;
        self.usual_ns = None;
        self.due = [Due {
            left_ns: first_ns,
            interval_ns: first_ns,
        }; Choice::ALL.len()];
    }

    /// The cheapest route, without regard to refusals.
    pub fn best(&self) -> Choice {
        self.best
    }

    /// The available routes.
    pub fn granted(&self) -> impl Iterator<Item = Choice> + use<'_> {
        Choice::ALL
            .into_iter()
            .filter(|choice| self.granted[choice.index()])
    }

    /// The cheapest direct route, or RPC if none is granted.
    pub fn best_direct(&self) -> Choice {
        if self.best.is_direct() {
            return self.best;
        }
        let granted = |choice: &Choice| choice.is_direct() && self.granted[choice.index()];
        let known = |choice: &Choice| self.cost_ns(*choice).unwrap_or(0.0);
        let all = Choice::ALL.into_iter().rev().filter(granted);
        all.min_by(|a, b| known(a).total_cmp(&known(b)))
            .unwrap_or(Choice::Rpc)
    }

    /// The time of a read by this route, in nanoseconds, as far as is known.
    pub fn cost_ns(&self, choice: Choice) -> Option<f64> {
        self.judged_ns[choice.index()].or_else(|| self.rough[choice.index()].known())
    }

    /// Whether a trial is under way.
    pub fn on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// The route of the trial's next read, and whether its time counts.
    pub fn next_of_trial(&mut self) -> Option<(Choice, bool)> {
        self.trial.as_mut().map(Trial::next)
    }

    /// Ends a trial that takes too long. Its measurements count.
    pub fn expired(&mut self, now_ns: u64) -> Option<FinishedTrial> {
        let trial = self.trial?;
        let lasts_ns = now_ns.saturating_sub(trial.began_ns);
        (lasts_ns >= TRIAL_NS_MAX).then_some(FinishedTrial(trial))
    }

    /// A read of the trial took this long.
    pub fn tried(&mut self, choice: Choice, measured: bool, ns: u64) -> Option<FinishedTrial> {
        // A thread that was suspended would have been so without the trial.
        let paid_ns = clipped(ns, self.cost_ns(choice));
        let trial = self.trial.as_mut()?;
        trial.took(choice, measured, (ns, paid_ns));
        if measured {
            self.costs[choice.index()].add(ns);
        }
        let trial = *trial;
        trial.is_over().then_some(FinishedTrial(trial))
    }

    /// A read of the trial could not take its route.
    pub fn missed(&mut self) -> Option<FinishedTrial> {
        let trial = self.trial.as_mut()?;
        trial.missed += 1;
        trial.given = trial.given.saturating_sub(1);
        let trial = *trial;
        (trial.missed >= MISSED_MAX).then_some(FinishedTrial(trial))
    }

    /// `count` reads took this route, and one of them took this long. Returns true if a trial may begin.
    pub fn took(&mut self, choice: Choice, count: u32, ns: u64) -> bool {
        self.rough[choice.index()].add(ns);
        if self.best != choice {
            // The standing route could not be taken. That is no reason to try no other.
            return self.passed(clipped(ns, self.cost_ns(choice)) * u64::from(count));
        }
        let judged_ns = self.judged_ns[choice.index()];
        if let Some(judged_ns) = judged_ns {
            let usual_ns = judged_ns.max(self.usual_ns.unwrap_or(0.0));
            if ns as f64 > usual_ns * DRIFT.0 {
                self.drift += 1;
            } else {
                self.drift = self.drift.saturating_sub(1);
            }
            if self.drift >= DRIFT.1 {
                self.drift = 0;
                for due in &mut self.due {
                    due.left_ns = due.left_ns.min(due.interval_ns / 16);
                }
            }
        }
        self.passed(clipped(ns, judged_ns) * u64::from(count))
    }

    /// Reads took this long. Returns true if a trial may begin.
    pub fn passed(&mut self, ns: u64) -> bool {
        for due in &mut self.due {
            due.left_ns = due.left_ns.saturating_sub(ns);
        }
        self.trial.is_none()
    }

    /// Which reads the trial under way measures.
    pub fn tries(&self) -> Option<Tried> {
        self.trial.map(|_| self.of)
    }

    /// A read of the trial was a hit in the data cache, and takes no turn.
    pub fn hit_on_trial(&mut self) -> Option<FinishedTrial> {
        let trial = self.trial.as_mut()?;
        trial.given = trial.given.saturating_sub(1);
        trial.hits += 1;
        trial.took_ns = trial.took_ns.saturating_add(ASKED_NS);
        let trial = *trial;
        (trial.hits >= HITS_MAX).then_some(FinishedTrial(trial))
    }

    /// Begins a trial if one is due. `instead_ns` is the time of a read now, if that is not the time of the best route.
    pub fn begin_trial(&mut self, of: Tried, instead_ns: Option<u64>, now_ns: u64) -> bool {
        let due = |choice: &Choice| {
            let waited = self.due[choice.index()].left_ns == 0;
            *choice != self.best && self.granted[choice.index()] && waited
        };
        // The route with the shortest interval has been tried least.
        let interval = |choice: &Choice| self.due[choice.index()].interval_ns;
        let challenger = Choice::ALL.into_iter().filter(due).min_by_key(interval);
        let trial = challenger.map(|challenger| Trial {
            instead_ns,
            ..Trial::new(challenger, self.best, now_ns)
        });
        self.trial = trial;
        if trial.is_some() && self.of != of {
            self.of = of;
            self.costs = Default::default();
        }
        trial.is_some()
    }

    /// Ends a trial: decides which route is cheaper and when the next trial is due. `jitter` is from 0 to 1. Returns
    /// true if the best route has changed.
    pub fn conclude(
        &mut self,
        FinishedTrial(trial): FinishedTrial,
        config: &Config,
        jitter: f64,
    ) -> bool {
        self.trial = None;
        let pair = [trial.challenger, trial.standing];
        let [challenger, standing] = pair.map(|choice| {
            let fresh = trial.measured[choice.index()] as usize;
            let cost = &mut self.costs[choice.index()];
            cost.forget_if_changed(fresh, DRIFT.0);
            let estimate = cost.estimate();
            if let Some(estimate) = estimate {
                self.judged_ns[choice.index()] = Some(estimate.mean_ns);
            }
            estimate
        });
        let wins = challenger
            .zip(standing)
            .is_some_and(|(challenger, standing)| {
                let won_ns = standing.mean_ns - challenger.mean_ns;
                let by_chance_ns = 1.5 * challenger.error_ns.hypot(standing.error_ns);
                let margin_ns = standing.mean_ns * config.better_permille as f64 / 1000.0;
                won_ns > margin_ns.max(by_chance_ns)
            });
        let mut loser = trial.challenger;
        if wins {
            self.best = trial.challenger;
            self.drift = 0;
            loser = trial.standing;
        }
        let keeps = trial.instead_ns.is_some() && !wins;
        self.usual_ns = self.rough[self.best.index()].known().filter(|_| keeps);
        let (first_ns, longest_ns) = config.trial_interval_ns;
        let fair_ns = trial.excess_ns() * 1000 / config.trial_permille;
        let last_ns = self.due[loser.index()].interval_ns;
        let interval_ns = match wins {
            true => first_ns.max(fair_ns),
            false => (last_ns * 2).clamp(first_ns.max(fair_ns), longest_ns.max(fair_ns)),
        };
        let interval_ns = (interval_ns as f64 * (1.0 + jitter / 8.0)) as u64;
        self.due[loser.index()] = Due {
            left_ns: interval_ns,
            interval_ns,
        };
        wins
    }
}

/// A finished trial, which [`Class::conclude`] evaluates.
#[derive(Debug)]
pub struct FinishedTrial(Trial);

impl Trial {
    fn new(challenger: Choice, standing: Choice, now_ns: u64) -> Self {
        Self {
            challenger,
            standing,
            began_ns: now_ns,
            given: 0,
            missed: 0,
            hits: 0,
            measured: Default::default(),
            measured_ns: Default::default(),
            instead_ns: None,
            took_ns: 0,
            reads: 0,
        }
    }

    /// The route of the next read, and whether its time counts. The challenger has the first turn.
    fn next(&mut self) -> (Choice, bool) {
        let (turn, at) = (self.given / TURN, self.given % TURN);
        self.given += 1;
        let choice = match turn % 2 {
            0 => self.challenger,
            _ => self.standing,
        };
        (choice, at >= WARM_UP[usize::from(turn > 0)])
    }

    /// A read took `ns`, of which `paid_ns` count as costs of the trial.
    fn took(&mut self, choice: Choice, measured: bool, (ns, paid_ns): (u64, u64)) {
        self.took_ns = self.took_ns.saturating_add(paid_ns);
        self.reads += 1;
        if measured {
            let measured_ns = &mut self.measured_ns[choice.index()];
            *measured_ns = measured_ns.saturating_add(ns);
            self.measured[choice.index()] += 1;
        }
    }

    fn mean_ns(&self, choice: Choice) -> Option<u64> {
        self.measured_ns[choice.index()].checked_div(self.measured[choice.index()].into())
    }

    /// Whether all reads have been given out, or the result is already plain.
    fn is_over(&self) -> bool {
        let means = self
            .mean_ns(self.challenger)
            .zip(self.mean_ns(self.standing));
        let hopeless = means.is_some_and(|(challenger, standing)| challenger > HOPELESS * standing);
        self.given >= TRIAL_READS || self.given >= 2 * TURN && hopeless
    }

    /// How much longer the trial's reads took than without it.
    fn excess_ns(&self) -> u64 {
        let standing_ns = || self.mean_ns(self.standing).unwrap_or(0);
        let instead_ns = self.instead_ns.unwrap_or_else(standing_ns);
        self.took_ns
            .saturating_sub(instead_ns * u64::from(self.reads))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::config::Jitter, *};

    /// A trial of calls against guarded reads, of which one takes `outlier_ns`: how long until the next.
    fn interval_ns(outlier_ns: u64) -> u64 {
        let config = Config::default();
        let mut class = Class::default();
        class.grant(Choice::Guarded, Choice::Guarded, &config);
        for trial in 0..2 {
            class.passed(u64::MAX);
            assert!(class.begin_trial(Tried::All, None, 0));
            for read in 0.. {
                let (choice, measured) = class.next_of_trial().expect("a trial is on");
                let ns = match (trial, read) {
                    (1, 9) => outlier_ns,
                    _ => 45_000,
                };
                if let Some(verdict) = class.tried(choice, measured, ns) {
                    class.conclude(verdict, &config, 0.0);
                    break;
                }
            }
        }
        class.due[Choice::Rpc.index()].interval_ns
    }

    #[test]
    fn a_suspended_thread_does_not_put_off_the_next_trial() {
        let (calm_ns, outlier_ns) = (interval_ns(45_000), interval_ns(50_000_000));
        assert!(outlier_ns < 32 * calm_ns, "{outlier_ns} for {calm_ns}");
    }

    /// Runs a trial. Read `n` of it by this route takes `ns(n, route)`. Returns whether the best route has changed.
    fn try_once(class: &mut Class, ns: impl Fn(u32, Choice) -> u64) -> bool {
        try_instead_of(class, None, ns)
    }

    /// Without the trial, its reads would have taken `instead_ns`.
    fn try_instead_of(
        class: &mut Class,
        instead_ns: Option<u64>,
        ns: impl Fn(u32, Choice) -> u64,
    ) -> bool {
        class.passed(u64::MAX);
        assert!(class.begin_trial(Tried::All, instead_ns, 0));
        for read in 0.. {
            let (choice, measured) = class.next_of_trial().expect("a trial is on");
            if let Some(verdict) = class.tried(choice, measured, ns(read, choice)) {
                return class.conclude(verdict, &Config::default(), 0.0);
            }
        }
        unreachable!("it ends")
    }

    /// Calls have won eight trials against guarded reads.
    fn calls_stand() -> Class {
        let mut class = Class::default();
        class.grant(Choice::Guarded, Choice::Rpc, &Config::default());
        for _ in 0..8 {
            assert!(!try_once(&mut class, |_, choice| long_ns(choice)));
        }
        class
    }

    /// As measured over tcp.
    fn long_ns(choice: Choice) -> u64 {
        match choice {
            Choice::Rpc => 45_000,
            _ => 52_000,
        }
    }

    /// Another client had the processor for the length of a turn.
    #[test]
    fn one_slow_turn_is_no_change() {
        for slow in [2, 3, 10] {
            for turn in 0..4 {
                let mut class = calls_stand();
                let changed = try_once(&mut class, |read, choice| {
                    long_ns(choice) * if read / TURN == turn { slow } else { 1 }
                });
                assert!(!changed, "turn {turn} took {slow} times as long");
            }
        }
    }

    #[test]
    fn a_route_that_slows_down_loses_the_next_trial() {
        let mut class = calls_stand();
        let slow = |_, choice| match choice {
            Choice::Rpc => 2 * long_ns(choice),
            _ => long_ns(choice),
        };
        assert!(try_once(&mut class, slow));
        assert_eq!(class.best(), Choice::Guarded);
    }

    /// How many trials there are while calls stand, keep pages, and take this many times as long as in a trial, a quarter
    /// more or less.
    fn trials_of(factor: f64) -> u32 {
        let mut class = calls_stand();
        let (mut trials, mut dice) = (0, Jitter(7));
        for _ in 0..20_000 {
            let spread = 0.75 + dice.next() / 2.0;
            let ns = long_ns(Choice::Rpc) as f64 * spread * factor;
            if class.took(Choice::Rpc, 1, ns as u64) && class.due[1].left_ns == 0 {
                let instead_ns = Some(long_ns(Choice::Rpc));
                try_instead_of(&mut class, instead_ns, |_, choice| long_ns(choice));
                trials += 1;
            }
        }
        trials
    }

    #[test]
    fn what_keeping_pages_costs_is_no_drift() {
        let (bare, keeping) = (trials_of(1.0), trials_of(1.45));
        assert!(keeping <= 2 * bare, "{keeping} trials instead of {bare}");
    }

    /// Runs a trial of guarded reads, which stand, against calls, all of which take this long. Each read follows so many
    /// hits. Returns the number of reads.
    fn play(class: &mut Class, of: Tried, hits: u32, read_ns: u64) -> u32 {
        class.passed(u64::MAX);
        assert!(class.begin_trial(of, None, 0));
        for reads in 1.. {
            for _ in 0..hits {
                class.next_of_trial();
                assert!(class.hit_on_trial().is_none());
            }
            let (choice, measured) = class.next_of_trial().expect("a trial is on");
            if let Some(verdict) = class.tried(choice, measured, read_ns) {
                class.conclude(verdict, &Config::default(), 0.0);
                return reads;
            }
        }
        unreachable!("it ends")
    }

    #[test]
    fn hits_take_no_turn_of_a_trial() {
        let mut class = Class::default();
        class.grant(Choice::Guarded, Choice::Guarded, &Config::default());
        for hits in [0, 1, 15] {
            assert_eq!(play(&mut class, Tried::Misses, hits, 9_000), TRIAL_READS);
        }
    }

    #[test]
    fn a_trial_whose_reads_all_hit_ends_and_comes_seldom() {
        let mut class = Class::default();
        class.grant(Choice::Guarded, Choice::Guarded, &Config::default());
        class.passed(u64::MAX);
        assert!(class.begin_trial(Tried::Misses, None, 0));
        let mut hits = 1;
        let verdict = loop {
            class.next_of_trial();
            match class.hit_on_trial() {
                Some(verdict) => break verdict,
                None => hits += 1,
            }
        };
        assert_eq!(hits, HITS_MAX);
        let config = Config::default();
        assert!(!class.conclude(verdict, &config, 0.0));
        let cost_ns = u64::from(HITS_MAX) * ASKED_NS;
        let interval_ns = class.due[Choice::Rpc.index()].interval_ns;
        assert!(interval_ns >= cost_ns * 1000 / config.trial_permille);
    }

    /// A read between hits takes longer than one of many in a row, by whatever route.
    #[test]
    fn times_of_misses_and_of_all_reads_are_not_mixed() {
        let mut class = Class::default();
        class.grant(Choice::Guarded, Choice::Guarded, &Config::default());
        for (of, ns) in [
            (Tried::All, 10_000),
            (Tried::Misses, 12_000),
            (Tried::All, 10_000),
        ] {
            play(&mut class, of, 0, ns);
            assert_eq!(class.cost_ns(Choice::Guarded), Some(ns as f64));
        }
    }
}
