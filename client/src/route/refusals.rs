//! How often direct reads of a file are refused, and whether they still pay.
//!
//! ```text
//! benefit / cost = N_completed x (T_rpc - T_direct) / (N_stale x T_stale)
//!
//!            ratio < 1                    RPC time spent >= interval, or the server's cache has settled
//!   Free   ------------> Rpc(interval) ---------------------------------------------> Probing
//!     ^                       ^                                                         |
//!     |                       +---------- ratio of the probe <= 1.25: interval x 2 -----+
//!     +---------------------------------- ratio of the probe >  1.25 -------------------+
//! ```
//!
//! A file for which the server has no references leaves `Free` and `Probing` as one whose reads are refused does: when
//! many reads had none, and none came meanwhile.

use super::config::{Config, Jitter};

/// Direct reads may go on until this many reports in a row tell of a read without a reference.
const UNREFERENCED_MAX: u32 = 16;

/// The direct reads of one file in one size class.
#[derive(Debug, Clone, Copy)]
pub struct Refusals {
    /// Decayed count of direct reads that completed.
    pub completed: f64,
    /// Decayed count of direct reads that were refused.
    pub refused: f64,
    /// Number of reports in a row of a read that had no reference, while none came.
    unreferenced: u32,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Free,
    Rpc {
        spent_ns: u64,
        interval_ns: u64,
        since_ns: u64,
    },
    /// `granted` more reads may try, and the results of `left` are not known yet.
    Probing {
        granted: u8,
        left: u8,
        completed: u8,
        refused: u8,
        interval_ns: u64,
        /// RPC time since the probe began. It ends the probe even if the result of a try never comes.
        spent_ns: u64,
    },
}

/// The routes that refusals leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Any route.
    Any,
    /// RPC only.
    Rpc,
    /// Some reads are to try a direct route.
    Probe,
}

/// The times of reads, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// By RPC.
    pub rpc_ns: f64,
    /// By the cheapest direct route.
    pub direct_ns: f64,
    /// Of a direct read, up to its refusal.
    pub stale_ns: f64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self {
            completed: 8.0,
            refused: 0.0,
            unreferenced: 0,
            mode: Mode::Free,
        }
    }
}

impl Refusals {
    /// Counts with the same ratio, but from few tries.
    #[must_use]
    pub fn scaled(self) -> Self {
        let scale = (8.0 / (self.completed + self.refused).max(1e-9)).min(1.0);
        Self {
            completed: self.completed * scale,
            refused: self.refused * scale,
            ..self
        }
    }

    /// The routes that refusals leave now.
    pub fn leave(&self) -> Leave {
        match self.mode {
            Mode::Free => Leave::Any,
            Mode::Rpc { .. } => Leave::Rpc,
            Mode::Probing { .. } => Leave::Probe,
        }
    }

    /// Whether the next read shall be one of the probe's tries.
    pub fn take_try(&mut self) -> bool {
        match &mut self.mode {
            Mode::Probing { granted, .. } if *granted > 0 => {
                *granted -= 1;
                true
            }
            _ => false,
        }
    }

    /// A try had no result, because there was no reference.
    pub fn give_back_try(&mut self) {
        if let Mode::Probing { granted, left, .. } = &mut self.mode {
            *granted = (*granted + 1).min(*left);
        }
    }

    /// The server has references of the file.
    pub fn referenced(&mut self) {
        self.unreferenced = 0;
    }

    /// A read that was to be direct had no reference. Returns true if direct reads were given up for that.
    pub fn went_without(
        &mut self,
        known: &Known,
        config: &Config,
        jitter: &mut Jitter,
        now_ns: u64,
    ) -> bool {
        self.unreferenced += 1;
        if self.unreferenced < UNREFERENCED_MAX {
            return false;
        }
        let (last_ns, changed) = match self.mode {
            Mode::Free => (None, true),
            Mode::Probing { interval_ns, .. } => (Some(interval_ns), false),
            Mode::Rpc { .. } => return false,
        };
        self.unreferenced = 0;
        self.mode = back_to_rpc(last_ns, known, config, jitter, now_ns);
        changed
    }

    /// Benefit / cost. Without a refusal there is no cost.
    pub fn ratio(&self, known: &Known) -> f64 {
        ratio(self.completed, self.refused, known)
    }

    /// Direct reads were completed or refused.
    pub fn count(&mut self, horizon_tries: f64, completed: u32, refused: u32) {
        self.unreferenced = 0;
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

    /// Whether to judge the mode, because a count has changed.
    pub fn is_at_issue(&self) -> bool {
        match self.mode {
            Mode::Free => self.refused > 1e-6,
            Mode::Rpc { .. } => false,
            Mode::Probing { left, .. } => left == 0,
        }
    }

    /// Changes the mode if it must. Returns true if direct reads were given up or taken up again.
    pub fn judge(
        &mut self,
        known: &Known,
        config: &Config,
        jitter: &mut Jitter,
        now_ns: u64,
    ) -> bool {
        match self.mode {
            Mode::Free if self.ratio(known) < 1.0 => {
                self.mode = back_to_rpc(None, known, config, jitter, now_ns);
                true
            }
            Mode::Probing {
                left: 0,
                completed,
                refused,
                interval_ns,
                ..
            } => {
                let (completed, refused) = (f64::from(completed), f64::from(refused));
                if ratio(completed, refused, known) > config.return_ratio {
                    *self = Self {
                        completed: completed * 2.0,
                        refused: refused * 2.0,
                        unreferenced: 0,
                        mode: Mode::Free,
                    };
                    return true;
                }
                self.mode = back_to_rpc(Some(interval_ns), known, config, jitter, now_ns);
                false
            }
            _ => false,
        }
    }

    /// RPCs took this long. `settled` says whether the server's cache has settled since the last ones. Returns true if
    /// a probe begins.
    pub fn by_rpc(
        &mut self,
        took_ns: u64,
        settled: bool,
        known: &Known,
        config: &Config,
        jitter: &mut Jitter,
        now_ns: u64,
    ) -> bool {
        match &mut self.mode {
            Mode::Free => false,
            Mode::Rpc {
                spent_ns,
                interval_ns,
                since_ns,
            } => {
                *spent_ns = spent_ns.saturating_add(took_ns);
                let idle = now_ns.saturating_sub(*since_ns) >= config.idle_ns;
                if *spent_ns < *interval_ns && !settled && !idle {
                    return false;
                }
                self.mode = Mode::Probing {
                    granted: config.probe_tries,
                    left: config.probe_tries,
                    completed: 0,
                    refused: 0,
                    interval_ns: *interval_ns,
                    spent_ns: 0,
                };
                true
            }
            Mode::Probing {
                spent_ns,
                interval_ns,
                ..
            } => {
                *spent_ns = spent_ns.saturating_add(took_ns);
                if *spent_ns >= *interval_ns {
                    let last_ns = Some(*interval_ns);
                    self.mode = back_to_rpc(last_ns, known, config, jitter, now_ns);
                }
                false
            }
        }
    }
}

/// RPC, with an interval that is twice the last one and makes the next probe cost no more than its share.
fn back_to_rpc(
    last_ns: Option<u64>,
    known: &Known,
    config: &Config,
    jitter: &mut Jitter,
    now_ns: u64,
) -> Mode {
    let probe_ns = (known.stale_ns + known.direct_ns) * f64::from(config.probe_tries);
    let fair_ns = probe_ns * 1000.0 / config.trial_permille as f64;
    let longest_ns = (config.probe_interval_ns_max as f64).max(fair_ns);
    let wanted_ns = last_ns.map_or(fair_ns, |last| {
        (last as f64 * 2.0).clamp(fair_ns, longest_ns)
    });
    Mode::Rpc {
        spent_ns: 0,
        interval_ns: (wanted_ns * (1.0 + jitter.next() / 8.0)) as u64,
        since_ns: now_ns,
    }
}

fn ratio(completed: f64, refused: f64, known: &Known) -> f64 {
    let benefit = completed * (known.rpc_ns - known.direct_ns);
    let cost = refused * known.stale_ns;
    match (benefit > 0.0, cost > 0.0) {
        (_, false) => f64::INFINITY,
        (false, true) => 0.0,
        (true, true) => benefit / cost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_many_at_once_is_counting_them_one_by_one() {
        let fresh = Refusals {
            completed: 3.0,
            refused: 5.0,
            ..Refusals::default()
        };
        let (mut one_by_one, mut at_once) = (fresh, fresh);
        (0..64).for_each(|_| one_by_one.count(32.0, 1, 0));
        at_once.count(32.0, 64, 0);
        assert!((one_by_one.completed - at_once.completed).abs() < 1e-9);
        assert!((one_by_one.refused - at_once.refused).abs() < 1e-9);
    }
}
