//! The constants of the policy.

/// The constants of the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Number of direct reads after which a count has decayed to 1/e.
    pub horizon_tries: f64,
    /// Number of direct reads in a probe.
    pub probe_tries: u8,
    /// How much of the time of reads trials and probes may cost, in thousandths.
    pub trial_permille: u64,
    /// How much cheaper a challenger must be to win, in thousandths.
    pub better_permille: u64,
    /// Time spent reading between two trials, in nanoseconds: at first, and at most while nothing changes.
    pub trial_interval_ns: (u64, u64),
    /// Longest interval between probes, in nanoseconds of RPC time.
    pub probe_interval_ns_max: u64,
    /// Time after which an idle file is probed, however few RPCs it had.
    pub idle_ns: u64,
    /// The benefit/cost ratio that a probe must reach, in thousandths.
    pub return_ratio: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            horizon_tries: 32.0,
            probe_tries: 4,
            trial_permille: 10,
            better_permille: 30,
            trial_interval_ns: (1_000_000, 25_000_000),
            probe_interval_ns_max: 1_000_000_000,
            idle_ns: 10_000_000_000,
            return_ratio: 1.25,
        }
    }
}

/// A random number from 0 to 1 (splitmix64), so that files and clients do not all probe at the same time.
#[derive(Debug)]
pub struct Jitter(pub u64);

impl Jitter {
    /// The next random number.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
