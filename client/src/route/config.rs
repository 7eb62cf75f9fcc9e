//! Constants of the policy.

/// Constants of the policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Direct tries after which a count has decayed to 1/e.
    pub horizon_tries: f64,
    /// Direct tries of a probe.
    pub probe_tries: u8,
    /// Thousandths of the time of reads that trials and probes may cost.
    pub trial_permille: u64,
    /// A challenger must be cheaper by so many thousandths.
    pub better_permille: u64,
    /// Time spent reading between two trials: at first, and at most while nothing changes.
    pub trial_interval_ns: (u64, u64),
    /// Longest interval between probes, in nanoseconds of RPC time.
    pub probe_interval_ns_max: u64,
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
            trial_permille: 10,
            better_permille: 30,
            trial_interval_ns: (1_000_000, 25_000_000),
            probe_interval_ns_max: 1_000_000_000,
            idle_ns: 10_000_000_000,
            return_ratio: 1.25,
        }
    }
}

/// From 0 to 1, so that many files and clients do not probe in step (splitmix64).
#[derive(Debug)]
pub struct Jitter(pub u64);

impl Jitter {
    /// The next one.
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
