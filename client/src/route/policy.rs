//! Which route pays: the cost-benefit policy of paper 004, section III-B, with costs that are compared side by side.
//!
//! The policy keeps two questions apart.
//!
//! - **What does each route cost?** The answer is kept for each server and size class ([`super::trial`]). Now and then
//!   a trial compares the standing route with a challenger. The challenger wins if it is cheaper by more than
//!   [`Config::better_permille`] and by more than chance explains. A trial costs the extra time of the slower route.
//!   The next one comes when that is at most [`Config::trial_permille`] of the time spent reading; later while nothing
//!   changes, and soon when the standing route has become slower.
//! - **Does a file's memory change too often?** The answer is kept for each file ([`super::refusals`]). Refusals are
//!   counted, and direct reads go on while the paper's ratio is above one.
//!
//! Against reading by RPC alone, the policy can lose: at each change for the worse, at most what
//! [`Config::horizon_tries`] direct reads save (`W ln(1 + G/S) S <= W G`, with G the gain of a direct read and S the
//! cost of a refusal); the reads between two trials; and the share of time of trials and probes.
//!
//! The policy does no IO. It is told the time, and its jitter comes from a seed, so the same inputs give the same
//! choices.

use super::{
    config::{Config, Jitter},
    cost::{Mean, clipped},
    keep::Keep,
    order::{CLASSES, Choice, Purpose, RouteOrder, SizeClass},
    refusals::{Known, Leave, Refusals},
    trial::{Class, FinishedTrial, Tried},
};
use odafs_common::direct::Feedback;

/// One-sided reads that take no longer than this for a page are loads from memory.
const LOADS_NS: f64 = 2_000.0;
/// Number of pages of a small file.
const SMALL_PAGES: f64 = 16.0;

/// The terms of the policy for one file and size class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Explanation {
    /// Benefit / cost. Infinite while nothing was refused.
    pub ratio: f64,
    /// Decayed count of direct reads that completed.
    pub completed: f64,
    /// Decayed count of direct reads that were refused.
    pub refused: f64,
    /// Time of a read by RPC, in nanoseconds.
    pub rpc_ns: f64,
    /// Time of a read by the best direct route, in nanoseconds.
    pub direct_ns: f64,
    /// Time of a direct read up to its refusal, in nanoseconds.
    pub stale_ns: f64,
}

/// The policy for one server.
#[derive(Debug)]
pub struct Policy {
    config: Config,
    classes: [Class; CLASSES],
    stale: [Mean; CLASSES],
    server: Record,
    /// The data cache, if there is one: which pages to keep, and the class of a page.
    cache: Option<(Keep, SizeClass)>,
    jitter: Jitter,
    settled: Settled,
    switches: u64,
    probes: u64,
    trials: u64,
}

/// The policy's record of one file.
#[derive(Debug, Clone, Default)]
pub struct Record {
    refusals: [Refusals; CLASSES],
    /// [`Settled::generation`] at the last look.
    settled_seen: u32,
}

#[derive(Debug, Default)]
struct Settled {
    restless: bool,
    generation: u32,
}

impl Record {
    /// The server has references of the file.
    pub fn referenced(&mut self) {
        self.refusals.iter_mut().for_each(Refusals::referenced);
    }
}

impl Policy {
    /// A policy that knows nothing yet. `cached` is the size of the data cache's pages in bytes, or `None` without a
    /// cache.
    pub fn new(config: Config, seed: u64, cached: Option<usize>) -> Self {
        let mut policy = Self {
            config,
            classes: Default::default(),
            stale: Default::default(),
            server: Record::default(),
            cache: cached.map(|page_bytes| (Keep::of_pages(page_bytes), SizeClass::of(page_bytes))),
            jitter: Jitter(seed),
            settled: Settled::default(),
            switches: 0,
            probes: 0,
            trials: 0,
        };
        policy.grant(Choice::Rpc, false);
        policy
    }

    /// Sets the available routes: this one and those before it in [`Choice::ALL`]. With `mapped`, one-sided reads are
    /// loads from memory; otherwise each page that is read directly costs a request.
    pub fn grant(&mut self, most: Choice, mapped: bool) {
        for (n, class) in self.classes.iter_mut().enumerate() {
            // One call brings many pages.
            let by_call = n + 1 == CLASSES && !(mapped && most == Choice::OneSided);
            let first = if by_call { Choice::Rpc } else { most };
            class.grant(most, first, &self.config);
        }
    }

    /// The record of a newly opened file. It starts from what is known about its server.
    pub fn record(&self) -> Record {
        Record {
            refusals: self.server.refusals.map(Refusals::scaled),
            settled_seen: self.server.settled_seen,
        }
    }

    /// The standing order of a file, or `None` if each read must ask.
    pub fn standing(&mut self, file: &Record, class: SizeClass) -> Option<RouteOrder> {
        let costs = &self.classes[class.index()];
        let choice = match file.refusals[class.index()].leave() {
            Leave::Any if !costs.on_trial() => costs.best(),
            Leave::Rpc => Choice::Rpc,
            Leave::Any | Leave::Probe => return None,
        };
        Some(RouteOrder::standing(choice, self.keeps(class, choice)))
    }

    /// The order of a read of this class, if there is no standing order.
    pub fn order(&mut self, file: &mut Record, class: SizeClass, now_ns: u64) -> RouteOrder {
        let refusals = &mut file.refusals[class.index()];
        let leave = refusals.leave();
        if leave == Leave::Any {
            let expired = self.classes[class.index()].expired(now_ns);
            self.conclude(class, expired);
        }
        let costs = &mut self.classes[class.index()];
        let (choice, purpose) = match leave {
            Leave::Any => match costs.next_of_trial() {
                Some((choice, measured)) => (choice, Purpose::Trial { measured }),
                None => (costs.best(), Purpose::Standing),
            },
            Leave::Probe if refusals.take_try() => (costs.best_direct(), Purpose::Probe),
            Leave::Probe | Leave::Rpc => (Choice::Rpc, Purpose::Standing),
        };
        let keeps = match costs.tries() {
            Some(Tried::All) if matches!(purpose, Purpose::Trial { .. }) => false,
            _ => self.keeps(class, choice),
        };
        RouteOrder {
            choice,
            keeps,
            // A probe needs fresh references.
            learns: choice.is_direct() || leave == Leave::Probe,
            purpose,
        }
    }

    /// The order of a read of this class that goes together with a read of another file, which has the order `first`.
    /// If the policy is comparing routes, it takes that one's route. Its own time does not count.
    pub fn order_beside(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        first: &RouteOrder,
        now_ns: u64,
    ) -> RouteOrder {
        if file.refusals[class.index()].leave() != Leave::Any {
            return self.order(file, class, now_ns);
        }
        let (choice, keeps) = match first.purpose {
            Purpose::Trial { .. } => (first.choice, first.keeps),
            Purpose::Standing | Purpose::Probe | Purpose::Together => {
                let best = self.classes[class.index()].best();
                (best, self.keeps(class, best))
            }
        };
        RouteOrder {
            choice,
            keeps,
            learns: choice.is_direct(),
            purpose: Purpose::Together,
        }
    }

    /// `count` reads were completed by a direct route. `sample_ns` is the time of one of them, if it was timed.
    pub fn completed(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        by: (Choice, Purpose),
        count: u32,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        self.count(file, class, count, 0);
        self.took(file, class, by, count, sample_ns, now_ns);
        self.judge(file, class, now_ns);
    }

    /// A direct read was refused. `sample_ns` is how long that took, if it was timed.
    pub fn refused(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        purpose: Purpose,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        if let Some(ns) = sample_ns {
            self.refusal_took(class, ns);
        }
        self.count(file, class, 0, 1);
        if let Purpose::Trial { .. } = purpose {
            let verdict = self.classes[class.index()].missed();
            self.conclude(class, verdict);
        }
        self.judge(file, class, now_ns);
    }

    /// Records how long a refusal took, where the policy does not choose the route.
    pub fn refusal_took(&mut self, class: SizeClass, ns: u64) {
        self.stale[class.index()].add(ns);
    }

    /// `count` reads went by RPC. `sample_ns` is the time of one of them, if it was timed. Those that had another order
    /// had no reference.
    pub fn by_rpc(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        ordered: (Choice, Purpose),
        count: u32,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        match ordered {
            (Choice::Rpc, purpose) | (_, purpose @ Purpose::Standing) => {
                let by = (Choice::Rpc, purpose);
                self.took(file, class, by, count, sample_ns, now_ns);
            }
            (_, Purpose::Trial { .. }) => {
                let verdict = self.classes[class.index()].missed();
                self.conclude(class, verdict);
            }
            (_, Purpose::Together) => {}
            // There was no reference to try.
            (_, Purpose::Probe) => file.refusals[class.index()].give_back_try(),
        }
        if let (choice, Purpose::Standing | Purpose::Probe) = ordered
            && choice.is_direct()
        {
            let known = self.known(class);
            let (config, jitter) = (&self.config, &mut self.jitter);
            let refusals = &mut file.refusals[class.index()];
            let changed = refusals.went_without(&known, config, jitter, now_ns);
            self.switches += u64::from(changed);
        }
        let settled = file.settled_seen != self.settled.generation;
        file.settled_seen = self.settled.generation;
        if file.refusals[class.index()].leave() == Leave::Any {
            return;
        }
        let known = self.known(class);
        let took_ns = sample_ns.unwrap_or(known.rpc_ns as u64) * u64::from(count);
        let (config, jitter) = (&self.config, &mut self.jitter);
        let refusals = &mut file.refusals[class.index()];
        let probes = refusals.by_rpc(took_ns, settled, &known, config, jitter, now_ns);
        self.probes += u64::from(probes);
    }

    /// The data cache had the pages of `count` reads. `sample_ns` is the time of one of them, if it was timed.
    pub fn hit(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        purpose: Purpose,
        count: u32,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        if let (Some((keep, _)), Some(ns)) = (&mut self.cache, sample_ns) {
            keep.hit(class.index(), ns);
        }
        if purpose == Purpose::Probe {
            file.refusals[class.index()].give_back_try();
        }
        let hit_ns = self.hit_ns(class);
        if let Purpose::Trial { .. } = purpose {
            let verdict = self.classes[class.index()].hit_on_trial();
            self.conclude(class, verdict);
        }
        let ns = sample_ns.or(hit_ns.map(|ns| ns as u64)).unwrap_or(0);
        let passed_ns = clipped(ns, hit_ns) * u64::from(count);
        if self.classes[class.index()].passed(passed_ns) {
            self.begin_trial(file, class, now_ns);
        }
    }

    /// A read of this class had this many pages.
    pub fn spans(&mut self, class: SizeClass, pages: u32) {
        if let Some((keep, _)) = &mut self.cache {
            keep.spans(class.index(), pages);
        }
    }

    /// Keeping a page took this long, in memory that the cache already had.
    pub fn put(&mut self, ns: u64) {
        if let Some((keep, _)) = &mut self.cache {
            keep.put(ns);
        }
    }

    /// The data cache took memory for this many frames, in this time. Returns for how many more it may take memory now.
    pub fn grew(&mut self, frames: u32, ns: u64) -> u32 {
        let Some((keep, _)) = &mut self.cache else {
            return 0;
        };
        if frames > 0 {
            keep.grew(frames, ns);
        }
        keep.may_grow()
    }

    /// The chance that a read would hit if all pages were kept.
    pub fn set_chance(&mut self, chance: Option<f64>) {
        if let Some((keep, _)) = &mut self.cache {
            keep.set_chance(chance);
        }
    }

    /// What the server reports about its cache. Once the cache has settled after evictions, files on RPC are probed at
    /// once.
    pub fn feedback(&mut self, feedback: Feedback) {
        if feedback.evictions_per_second > 0 {
            self.settled.restless = true;
        } else if self.settled.restless && feedback.settled_seconds > 0 {
            self.settled.restless = false;
            self.settled.generation = self.settled.generation.wrapping_add(1);
        }
    }

    /// The terms behind the choice for this file and class.
    pub fn explain(&self, file: &Record, class: SizeClass) -> Explanation {
        let refusals = &file.refusals[class.index()];
        let known = self.known(class);
        Explanation {
            ratio: refusals.ratio(&known),
            completed: refusals.completed,
            refused: refusals.refused,
            rpc_ns: known.rpc_ns,
            direct_ns: known.direct_ns,
            stale_ns: known.stale_ns,
        }
    }

    /// What is known about the server as a whole.
    pub fn explain_server(&self, class: SizeClass) -> Explanation {
        self.explain(&self.server, class)
    }

    /// The time of a read by this route, in nanoseconds, as far as is known.
    pub fn cost_ns(&self, class: SizeClass, choice: Choice) -> Option<f64> {
        self.classes[class.index()].cost_ns(choice)
    }

    /// The time of a hit in the data cache, in nanoseconds.
    pub fn hit_ns(&self, class: SizeClass) -> Option<f64> {
        self.cache.as_ref()?.0.hit_ns(class.index())
    }

    /// The time to keep a page in place of another, in nanoseconds.
    pub fn put_ns(&self) -> Option<f64> {
        self.cache.as_ref()?.0.put_ns()
    }

    /// How often the cheapest route changed, or a file went to RPC because of refusals, or came back.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Number of probes: attempts at direct reads of files that were refused too often.
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Number of trials: comparisons of two routes.
    pub fn trials(&self) -> u64 {
        self.trials
    }

    fn count(&mut self, file: &mut Record, class: SizeClass, completed: u32, refused: u32) {
        let horizon = self.config.horizon_tries;
        for record in [&mut self.server, file] {
            record.refusals[class.index()].count(horizon, completed, refused);
        }
    }

    /// Adds a time, and lets the time until the next trial pass.
    fn took(
        &mut self,
        file: &Record,
        class: SizeClass,
        (choice, purpose): (Choice, Purpose),
        count: u32,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        let costs = &mut self.classes[class.index()];
        match (purpose, sample_ns) {
            (Purpose::Trial { measured }, Some(ns)) => {
                let verdict = costs.tried(choice, measured, ns);
                self.conclude(class, verdict);
            }
            // Part of the time belongs to another route.
            (Purpose::Trial { .. }, None) => {
                let verdict = costs.missed();
                self.conclude(class, verdict);
            }
            (Purpose::Probe | Purpose::Together, _) => {}
            (Purpose::Standing, _) => {
                let known_ns = costs.cost_ns(choice).map(|ns| ns as u64);
                if let (Some((keep, _)), Some(ns)) = (&mut self.cache, sample_ns.or(known_ns)) {
                    keep.missed(class.index(), choice, count, ns);
                }
                if sample_ns.is_some_and(|ns| costs.took(choice, count, ns)) {
                    self.begin_trial(file, class, now_ns);
                }
            }
        }
    }

    /// Begins a trial, if one is due and the file may be read by any route.
    fn begin_trial(&mut self, file: &Record, class: SizeClass, now_ns: u64) {
        if file.refusals[class.index()].leave() != Leave::Any {
            return;
        }
        let best = self.classes[class.index()].best();
        let kept = self.keeps(class, best);
        let route_ns = self.cost_ns(class, best);
        let instead_ns = match (&self.cache, route_ns) {
            (Some((keep, _)), Some(ns)) if kept => {
                Some(keep.mean_ns(class.index(), best, ns) as u64)
            }
            _ => None,
        };
        let tried = match kept && self.may_try_misses(class) {
            true => Tried::Misses,
            false => Tried::All,
        };
        let instead_ns = instead_ns.filter(|_| tried == Tried::All);
        let begins = self.classes[class.index()].begin_trial(tried, instead_ns, now_ns);
        self.trials += u64::from(begins);
    }

    /// Whether a trial may measure misses alone: keeping pages is beyond doubt, as every route takes far longer than a hit;
    /// misses are not so rare that it would take long; and a read is of one page, as those of several hit in part.
    fn may_try_misses(&self, class: SizeClass) -> bool {
        let Some((keep, _)) = &self.cache else {
            return false;
        };
        let costs = &self.classes[class.index()];
        let far = |ns: Option<f64>| ns.is_some_and(|ns| keep.is_far_from_hit(class.index(), ns));
        let alone = keep.pages(class.index()) < 1.5;
        alone && keep.misses_often() && costs.granted().all(|choice| far(costs.cost_ns(choice)))
    }

    fn conclude(&mut self, class: SizeClass, verdict: Option<FinishedTrial>) {
        if let Some(verdict) = verdict {
            let jitter = self.jitter.next();
            let changed = self.classes[class.index()].conclude(verdict, &self.config, jitter);
            self.switches += u64::from(changed);
        }
    }

    fn judge(&mut self, file: &mut Record, class: SizeClass, now_ns: u64) {
        if file.refusals[class.index()].is_at_issue() {
            let known = self.known(class);
            let (config, jitter) = (&self.config, &mut self.jitter);
            let changed = file.refusals[class.index()].judge(&known, config, jitter, now_ns);
            self.switches += u64::from(changed);
        }
    }

    /// Whether to keep pages that this route reads.
    fn keeps(&mut self, class: SizeClass, choice: Choice) -> bool {
        let cost = |class| self.cost_ns(class, choice);
        let Some((keep, page)) = &self.cache else {
            return false;
        };
        let pages = keep.pages(class.index());
        let guess_ns = match choice {
            Choice::OneSided => 600.0 * pages,
            // Keep a small file from its first read on. A longer one must show its cost first.
            Choice::Guarded | Choice::Rpc if pages <= SMALL_PAGES => 5_000.0 * pages,
            Choice::Guarded | Choice::Rpc => 800.0 * pages,
        };
        let route_ns = cost(class).unwrap_or(guess_ns);
        // The memory of this host is as near as the cache, whatever the first access to it takes.
        if choice == Choice::OneSided && route_ns < LOADS_NS * pages {
            return false;
        }
        let page_ns = match class.index() < page.index() {
            true => cost(*page).unwrap_or(route_ns + 200.0),
            false => route_ns,
        };
        self.cache
            .as_mut()
            .is_some_and(|(keep, _)| keep.decide(class.index(), choice, route_ns, page_ns))
    }

    /// The times of a class. A time that has not been measured yet comes from the nearest class, or is guessed so that
    /// direct reads are tried.
    fn known(&self, class: SizeClass) -> Known {
        let here = class.index();
        let nearest = |pick: &dyn Fn(SizeClass) -> Option<f64>| {
            let below = |distance: usize| here.checked_sub(distance);
            let above = |distance: usize| Some(here + distance).filter(|n| *n < CLASSES);
            (0..CLASSES)
                .flat_map(|distance| [below(distance), above(distance)])
                .flatten()
                .find_map(|n| pick(SizeClass::nth(n)))
        };
        let direct = self.classes[here].best_direct();
        let direct_ns = match direct.is_direct() {
            true => nearest(&|class| self.cost_ns(class, direct)),
            false => None,
        };
        let rpc_ns = nearest(&|class| self.cost_ns(class, Choice::Rpc))
            .or(direct_ns.map(|ns| ns * 4.0))
            .unwrap_or(20_000.0);
        let direct_ns = direct_ns.unwrap_or(rpc_ns / 4.0);
        let stale = |class: SizeClass| self.stale[class.index()].known();
        Known {
            rpc_ns,
            direct_ns,
            stale_ns: nearest(&stale).unwrap_or(direct_ns),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
