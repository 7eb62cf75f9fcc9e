//! When direct reads pay: the cost-benefit policy of paper 004, section III-B.
//!
//! ```text
//! benefit / cost = N_completed x (T_rpc - T_direct) / (N_stale x T_stale)
//!
//!            ratio < 1                    RPC time spent >= interval, or the server's cache has settled
//!   Direct ------------> Rpc(interval) ---------------------------------------------> Probing
//!     ^                       ^                                                         |
//!     |                       +---------- ratio of the probe <= 1.25: interval x 2 -----+
//!     +---------------------------------- ratio of the probe >  1.25 -------------------+
//!   Direct ---- direct time spent >= interval ----> Checking ---- one RPC, interval x 2 ----> Direct
//! ```
//!
//! The counts are decayed averages per file and size class, the times per server and size class. A file of which
//! little is known goes by what its server is known for.
//!
//! What it can lose against reading by RPC alone: at each change for the worse at most what
//! [`Config::horizon_tries`] direct reads save (`W ln(1 + G/S) S <= W G`, with G the gain of a direct read and S the
//! cost of a refusal), and for probes at most [`Config::probe_permille`] of the time that RPCs take. Checks of what an
//! RPC costs by now take at most the same share of the time of direct reads; an RPC that has become the faster of the
//! two is noticed at the next check, so after no longer than direct reads have been on, and than a second.
//!
//! Sans-IO: it is told the time, and its jitter comes from a seed. The same inputs give the same choices.

use odafs_common::direct::Feedback;

/// Size classes, by bytes of a read: up to 256, 1 Ki, 4 Ki, 16 Ki, 64 Ki, and above.
pub const CLASSES: usize = 6;

/// A size class: an index below [`CLASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The class of reads of so many bytes.
    pub fn of(bytes: usize) -> Self {
        let above_256 = (bytes.saturating_sub(1) >> 8) as u64;
        let class = (u64::BITS - above_256.leading_zeros()).div_ceil(2);
        Self(class.min(CLASSES as u32 - 1) as u8)
    }

    /// The class with this index.
    pub fn nth(index: usize) -> Self {
        Self(index.min(CLASSES - 1) as u8)
    }

    /// Its index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Constants of the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Direct tries after which a count has decayed to 1/e.
    pub horizon_tries: f64,
    /// Direct tries of a probe.
    pub probe_tries: u8,
    /// Thousandths of the time that RPCs take which probes may cost.
    pub probe_permille: u64,
    /// Longest interval between probes, in nanoseconds of RPC time.
    pub interval_ns_max: u64,
    /// Idle files probe after this time, however few RPCs they made.
    pub idle_ns: u64,
    /// A probe must show this ratio.
    pub return_ratio: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            horizon_tries: 32.0,
            probe_tries: 4,
            probe_permille: 10,
            interval_ns_max: 1_000_000_000,
            idle_ns: 10_000_000_000,
            return_ratio: 1.25,
        }
    }
}

/// What a read with a reference shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Read directly.
    Direct,
    /// Read directly, to see whether that pays again.
    Probe,
    /// Read by RPC.
    Rpc,
    /// Read by RPC, to see what that costs by now.
    Check,
}

/// What the policy knows, for one file and size class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Explanation {
    /// Benefit over cost; infinite while nothing was refused.
    pub ratio: f64,
    /// Decayed count of direct reads that completed.
    pub completed: f64,
    /// Decayed count of direct reads that were refused.
    pub refused: f64,
    /// Mean time of a read by RPC, in nanoseconds.
    pub rpc_ns: f64,
    /// Mean time of a direct read that completed.
    pub direct_ns: f64,
    /// Mean time of a direct read that was refused.
    pub stale_ns: f64,
}

/// The policy towards one server.
#[derive(Debug)]
pub struct Policy {
    config: Config,
    times: [Times; CLASSES],
    server: Record,
    jitter: u64,
    settled: Settled,
    switches: u64,
    probes: u64,
}

/// What the policy keeps for one file.
#[derive(Debug, Clone)]
pub struct Record {
    classes: [Standing; CLASSES],
    /// [`Settled::generation`] when this record last looked.
    settled_seen: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Times {
    rpc: Mean,
    direct: Mean,
    stale: Mean,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    completed: f64,
    refused: f64,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Direct {
        spent_ns: u64,
        interval_ns: u64,
    },
    Checking {
        interval_ns: u64,
    },
    Rpc {
        spent_ns: u64,
        interval_ns: u64,
        since_ns: u64,
    },
    /// `granted` tries may still begin, `left` have not been heard of yet.
    Probing {
        granted: u8,
        left: u8,
        completed: u8,
        refused: u8,
        interval_ns: u64,
        /// RPC time since it began: a try that is never heard of must not keep it open.
        spent_ns: u64,
    },
}

impl Mode {
    /// Direct, and the first check soon.
    const FRESH: Self = Self::Direct {
        spent_ns: 0,
        interval_ns: 0,
    };
}

#[derive(Debug, Default)]
struct Settled {
    restless: bool,
    generation: u32,
}

/// A decayed mean. One outlier (a preempted thread) moves it by no more than half its value.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    ns: f64,
    samples: u32,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.samples = self.samples.saturating_add(1);
        let weight = 1.0 / f64::from(self.samples.min(16));
        let sample = if self.samples > 4 {
            (ns as f64).min(self.ns * 8.0 + 1.0)
        } else {
            ns as f64
        };
        self.ns += (sample - self.ns) * weight;
    }

    fn known(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.ns)
    }
}

impl Policy {
    /// A policy that knows nothing yet, and so reads directly where it can.
    pub fn new(config: Config, seed: u64) -> Self {
        let fresh = Standing {
            completed: 8.0,
            refused: 0.0,
            mode: Mode::FRESH,
        };
        Self {
            config,
            times: [Times::default(); CLASSES],
            server: Record {
                classes: [fresh; CLASSES],
                settled_seen: 0,
            },
            jitter: seed,
            settled: Settled::default(),
            switches: 0,
            probes: 0,
        }
    }

    /// The record of a file just opened: it starts from what its server is known for.
    pub fn record(&self) -> Record {
        let mut record = self.server.clone();
        for standing in &mut record.classes {
            let weight = standing.completed + standing.refused;
            let scale = (8.0 / weight.max(1e-9)).min(1.0);
            standing.completed *= scale;
            standing.refused *= scale;
        }
        record
    }

    /// What a read of this class, for which there is a reference, shall do.
    pub fn choose(&mut self, file: &mut Record, class: SizeClass, now_ns: u64) -> Choice {
        let settled = file.settled_seen != self.settled.generation;
        file.settled_seen = self.settled.generation;
        let idle_ns = self.config.idle_ns;
        let standing = &mut file.classes[class.index()];
        match standing.mode {
            Mode::Direct { .. } => Choice::Direct,
            Mode::Checking { .. } => Choice::Check,
            Mode::Probing {
                ref mut granted, ..
            } => {
                if *granted == 0 {
                    return Choice::Rpc;
                }
                *granted -= 1;
                Choice::Probe
            }
            Mode::Rpc {
                spent_ns,
                interval_ns,
                since_ns,
            } => {
                let idle = now_ns.saturating_sub(since_ns) >= idle_ns;
                if spent_ns < interval_ns && !settled && !idle {
                    return Choice::Rpc;
                }
                self.probes += 1;
                let left = self.config.probe_tries;
                standing.mode = Mode::Probing {
                    granted: left - 1,
                    left,
                    completed: 0,
                    refused: 0,
                    interval_ns,
                    spent_ns: 0,
                };
                Choice::Probe
            }
        }
    }

    /// Are reads of this class direct as things stand? For a bit that readers test without asking the policy.
    pub fn is_direct(&self, file: &Record, class: SizeClass) -> bool {
        matches!(file.classes[class.index()].mode, Mode::Direct { .. })
    }

    /// `count` direct reads completed; `sample_ns` is how long one of them took, if it was timed.
    pub fn completed(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        count: u32,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        if let Some(ns) = sample_ns {
            self.times[class.index()].direct.add(ns);
        }
        let horizon = self.config.horizon_tries;
        self.server.classes[class.index()].count(horizon, count, 0);
        file.classes[class.index()].count(horizon, count, 0);
        self.judge(file, class, now_ns);
        self.check(file, class, count);
    }

    /// A direct read was refused; `sample_ns` is how long that took, if it was timed.
    pub fn refused(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        if let Some(ns) = sample_ns {
            self.refusal_took(class, ns);
        }
        let horizon = self.config.horizon_tries;
        self.server.classes[class.index()].count(horizon, 0, 1);
        file.classes[class.index()].count(horizon, 0, 1);
        self.judge(file, class, now_ns);
    }

    /// How long a refusal took, where the route is not the policy's to choose.
    pub fn refusal_took(&mut self, class: SizeClass, ns: u64) {
        self.times[class.index()].stale.add(ns);
    }

    /// A read went by RPC; `sample_ns` is how long that took, if it is known.
    pub fn by_rpc(
        &mut self,
        file: &mut Record,
        class: SizeClass,
        sample_ns: Option<u64>,
        now_ns: u64,
    ) {
        if let Some(ns) = sample_ns {
            self.times[class.index()].rpc.add(ns);
        }
        let took_ns = sample_ns.unwrap_or(self.times_of(class).rpc_ns as u64);
        match &mut file.classes[class.index()].mode {
            Mode::Rpc { spent_ns, .. } => *spent_ns = spent_ns.saturating_add(took_ns),
            mode @ Mode::Checking { .. } => {
                if let Mode::Checking { interval_ns } = *mode {
                    *mode = Mode::Direct {
                        spent_ns: 0,
                        interval_ns,
                    };
                }
                self.judge(file, class, now_ns);
            }
            Mode::Probing {
                spent_ns,
                interval_ns,
                ..
            } => {
                *spent_ns = spent_ns.saturating_add(took_ns);
                if *spent_ns >= *interval_ns {
                    let interval_ns = *interval_ns;
                    let times = self.times_of(class);
                    file.classes[class.index()].mode =
                        self.back_to_rpc(Some(interval_ns), &times, now_ns);
                }
            }
            Mode::Direct { .. } => {}
        }
    }

    /// What the server said about its cache. Once it has settled after evictions, files on RPC probe at once.
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
        let standing = &file.classes[class.index()];
        let times = self.times_of(class);
        Explanation {
            ratio: ratio(standing.completed, standing.refused, &times),
            completed: standing.completed,
            refused: standing.refused,
            rpc_ns: times.rpc_ns,
            direct_ns: times.direct_ns,
            stale_ns: times.stale_ns,
        }
    }

    /// What the server as a whole is known for.
    pub fn explain_server(&self, class: SizeClass) -> Explanation {
        self.explain(&self.server, class)
    }

    /// Times that a file and class went from direct reads to RPC or back.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Probes begun.
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Moves the file's mode on after a count has changed.
    fn judge(&mut self, file: &mut Record, class: SizeClass, now_ns: u64) {
        let times = self.times_of(class);
        let standing = &mut file.classes[class.index()];
        match standing.mode {
            Mode::Rpc { .. } | Mode::Checking { .. } => {}
            Mode::Direct { .. } => {
                if ratio(standing.completed, standing.refused, &times) < 1.0 {
                    standing.mode = self.back_to_rpc(None, &times, now_ns);
                    self.switches += 1;
                }
            }
            Mode::Probing { left, .. } if left > 0 => {}
            Mode::Probing {
                completed,
                refused,
                interval_ns,
                ..
            } => {
                let (completed, refused) = (f64::from(completed), f64::from(refused));
                if ratio(completed, refused, &times) > self.config.return_ratio {
                    *standing = Standing {
                        completed: completed * 2.0,
                        refused: refused * 2.0,
                        mode: Mode::FRESH,
                    };
                    self.switches += 1;
                } else {
                    standing.mode = self.back_to_rpc(Some(interval_ns), &times, now_ns);
                }
            }
        }
    }

    /// Asks for one RPC once direct reads have taken long enough to pay for it.
    fn check(&mut self, file: &mut Record, class: SizeClass, count: u32) {
        let times = self.times_of(class);
        let Mode::Direct {
            spent_ns,
            interval_ns,
        } = &mut file.classes[class.index()].mode
        else {
            return;
        };
        let fair_ns = (times.rpc_ns * 1000.0 / self.config.probe_permille as f64) as u64;
        let due_ns = (*interval_ns).max(fair_ns);
        *spent_ns = spent_ns.saturating_add((times.direct_ns * f64::from(count)) as u64);
        if *spent_ns >= due_ns {
            let interval_ns = due_ns
                .saturating_mul(2)
                .min(self.config.interval_ns_max.max(fair_ns));
            file.classes[class.index()].mode = Mode::Checking { interval_ns };
        }
    }

    /// RPC, with an interval that makes the next probe cost no more than its share, and twice the last one.
    fn back_to_rpc(&mut self, last_ns: Option<u64>, times: &Known, now_ns: u64) -> Mode {
        let probe_ns = (times.stale_ns + times.direct_ns) * f64::from(self.config.probe_tries);
        let fair_ns = probe_ns * 1000.0 / self.config.probe_permille as f64;
        let longest_ns = (self.config.interval_ns_max as f64).max(fair_ns);
        let wanted_ns = last_ns.map_or(fair_ns, |last| {
            (last as f64 * 2.0).clamp(fair_ns, longest_ns)
        });
        let interval_ns = (wanted_ns * (1.0 + self.next_jitter() / 8.0)) as u64;
        Mode::Rpc {
            spent_ns: 0,
            interval_ns,
            since_ns: now_ns,
        }
    }

    /// From 0 to 1, so that many files and clients do not probe in step (splitmix64).
    fn next_jitter(&mut self) -> f64 {
        self.jitter = self.jitter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.jitter;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The class's times; what was not measured yet is taken from the nearest class, then guessed so that direct
    /// reads are tried.
    fn times_of(&self, class: SizeClass) -> Known {
        let nearest = |pick: fn(&Times) -> &Mean| {
            let here = class.index() as isize;
            let distance = |i: &usize| (*i as isize - here).unsigned_abs();
            let measured = (0..CLASSES).filter(|i| pick(&self.times[*i]).samples > 0);
            measured
                .min_by_key(distance)
                .and_then(|i| pick(&self.times[i]).known())
        };
        let direct_ns = nearest(|t| &t.direct);
        let rpc_ns = nearest(|t| &t.rpc)
            .or(direct_ns.map(|d| d * 4.0))
            .unwrap_or(20_000.0);
        let direct_ns = direct_ns.unwrap_or(rpc_ns / 4.0);
        let stale_ns = nearest(|t| &t.stale).unwrap_or(direct_ns);
        Known {
            rpc_ns,
            direct_ns,
            stale_ns,
        }
    }
}

struct Known {
    rpc_ns: f64,
    direct_ns: f64,
    stale_ns: f64,
}

/// Benefit over cost. Without a refusal the sign of the benefit alone decides.
fn ratio(completed: f64, refused: f64, times: &Known) -> f64 {
    let benefit = completed * (times.rpc_ns - times.direct_ns);
    let cost = refused * times.stale_ns;
    match (benefit > 0.0, cost > 0.0) {
        (false, _) => 0.0,
        (true, false) => f64::INFINITY,
        (true, true) => benefit / cost,
    }
}

impl Standing {
    fn count(&mut self, horizon_tries: f64, completed: u32, refused: u32) {
        let keep = (-1.0 / horizon_tries).exp();
        let kept = keep.powi((completed + refused).min(1 << 20) as i32);
        let fresh = (1.0 - kept) / (1.0 - keep);
        let share = |part: u32| fresh * f64::from(part) / f64::from((completed + refused).max(1));
        self.completed = self.completed * kept + share(completed);
        self.refused = self.refused * kept + share(refused);
        if let Mode::Probing {
            left,
            completed: good,
            refused: bad,
            ..
        } = &mut self.mode
        {
            *left = left.saturating_sub((completed + refused).min(255) as u8);
            *good = good.saturating_add(completed.min(255) as u8);
            *bad = bad.saturating_add(refused.min(255) as u8);
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
