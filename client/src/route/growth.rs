//! How much memory the data cache may take.
//!
//! Memory is an investment. Taking it costs once, its frame is used again and again, and nobody knows for how long. So
//! the cache pays for memory with the savings that it would have brought. Each read that misses earns a share of what a
//! hit would have saved, times the chance of a hit. The cache takes memory as far as that pays for it at the recent
//! price. So growth costs no more than that share of what earlier reads would have saved, however expensive memory
//! turns out to be.

/// The part of the possible savings by hits that growth may spend.
const OF_SAVED: f64 = 0.5;
/// The part of the time of reads that growth may spend while the chance of a hit is unknown. Over a network, this pays
/// for each page that is read.
const OF_READS: f64 = 0.125;
/// The assumed cost of a frame of memory, in nanoseconds, until one has been taken.
const FRAME_NS: f64 = 2_500.0;
/// Number of frames that may be taken before anything was read, so that a small file is kept from its first read on.
const FIRST: f64 = 256.0;
/// Number of frames after which one has decayed to half in the price.
const HALF: f64 = 256.0;
/// Number of frames that may be taken at once, until so many have been.
const TRIED: u32 = 64;
/// Growth waits until it can pay for this many frames, and then takes them one after another. Neighbours in a file that
/// is read in order so become neighbours in memory, where the processor prefetches the next one.
const RUN: u32 = 128;
/// Growth waits no longer than until it has earned this.
const RUN_NS: f64 = 1_000_000.0;
/// A run ends when this part of it is left. Otherwise the earnings of the meantime would prolong it by a few frames at
/// a time.
const REST: u32 = 4;
/// Number of frames of the largest page, 64 KiB.
const PAGE_FRAMES: u32 = 16;
/// A frame that took longer than this was not expensive: its thread was suspended.
const FRAME_NS_MAX: f64 = 1_000_000.0;
/// The largest balance, in either direction. More savings would belong to the past; more debts would come from a
/// suspended thread, which says nothing about the price.
const BALANCE_NS_MAX: f64 = 20_000_000.0;

/// What growth has earned and spent.
#[derive(Debug)]
pub struct Growth {
    balance_ns: f64,
    /// Frames taken lately, and how long they took.
    frames: f64,
    frames_ns: f64,
    /// Number of frames that may still be taken to find out the price.
    untried: u32,
    /// Whether a run of frames is being taken.
    running: bool,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            balance_ns: FRAME_NS * (FIRST + f64::from(RUN / REST)),
            frames: 1.0,
            frames_ns: FRAME_NS,
            untried: TRIED,
            running: true,
        }
    }
}

impl Growth {
    /// Records `count` reads that missed and took `read_ns` each. With this chance of a hit, if it is known, a hit
    /// would have saved `saved_ns`.
    pub fn missed(&mut self, count: u32, read_ns: f64, saved_ns: f64, chance: Option<f64>) {
        let each_ns = match chance {
            Some(chance) => chance * saved_ns.max(0.0) * OF_SAVED,
            None => read_ns * OF_READS,
        };
        self.balance_ns = (self.balance_ns + each_ns * f64::from(count)).min(BALANCE_NS_MAX);
    }

    /// Records that this many frames were taken, in this time.
    pub fn took(&mut self, frames: u32, ns: u64) {
        self.untried = self.untried.saturating_sub(frames);
        let (frames, ns) = (f64::from(frames), ns as f64);
        self.balance_ns = (self.balance_ns - ns).max(-BALANCE_NS_MAX);
        let keep = (-frames / HALF).exp2();
        self.frames = self.frames * keep + frames;
        self.frames_ns = self.frames_ns * keep + ns.min(frames * FRAME_NS_MAX);
    }

    /// Number of frames that may be taken now.
    pub fn frames(&mut self) -> u32 {
        let price_ns = (self.frames_ns / self.frames).max(1.0);
        let frames = (self.balance_ns / price_ns).max(0.0) as u32;
        self.running = match self.running {
            true => self.pays_for(frames, REST),
            false => self.pays_for(frames, 1),
        };
        if !self.running {
            return 0;
        }
        match self.untried {
            0 => frames,
            // Never fewer than the largest page needs.
            untried => frames.min(untried.max(PAGE_FRAMES)),
        }
    }

    /// Whether the balance, which pays for this many frames, pays for this part of a run.
    fn pays_for(&self, frames: u32, part: u32) -> bool {
        frames >= RUN / part || (frames > 0 && self.balance_ns >= RUN_NS / f64::from(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of the time of these reads growth took. Reads take 1 us, a hit saves half of that, and a frame has this
    /// price.
    fn spent_ns(reads: u32, chance: Option<f64>, price_ns: impl Fn(u32) -> u64) -> (f64, u32) {
        let mut growth = Growth::default();
        let (mut spent_ns, mut taken) = (0, 0);
        for _ in 0..reads / 16 {
            growth.missed(16, 1000.0, 500.0, chance);
            for _ in 0..growth.frames().min(16) {
                let ns = price_ns(taken);
                growth.took(1, ns);
                spent_ns += ns;
                taken += 1;
            }
        }
        (spent_ns as f64, taken)
    }

    #[test]
    fn growth_takes_its_share_whatever_it_costs() {
        for (chance, share) in [(Some(1.0), 0.25), (Some(0.1), 0.025), (None, 0.125)] {
            for price_ns in [700, 2_500, 16_000, 200_000] {
                let (spent_ns, taken) = spent_ns(100_000, chance, |_| price_ns);
                let first = FIRST + f64::from(RUN / REST);
                let may_ns = 100_000.0 * 1000.0 * share + first * FRAME_NS;
                assert!(spent_ns <= may_ns + 16.0 * price_ns as f64, "{spent_ns}");
                assert!(spent_ns >= may_ns * 0.8 - price_ns as f64, "{spent_ns}");
                assert!(taken > 0);
            }
        }
    }

    /// A reader that never stops: which of the pages that it missed were kept.
    #[test]
    fn what_is_read_in_order_is_kept_in_runs() {
        for chance in [Some(1.0), Some(0.2), None] {
            let mut growth = Growth::default();
            let (mut kept, mut runs, mut ran) = (0, 0, false);
            for _ in 0..20_000 {
                let allowed = growth.frames().min(16);
                for read in 0..16 {
                    let keeps = read < allowed;
                    runs += u32::from(keeps && !ran);
                    (kept, ran) = (kept + u32::from(keeps), keeps);
                }
                growth.took(allowed, 1_000 * u64::from(allowed));
                growth.missed(16 - allowed, 1000.0, 500.0, chance);
            }
            assert!(kept / runs >= RUN / 2, "{kept} in {runs} runs");
        }
    }

    /// One frame in 500 takes 10 ms.
    #[test]
    fn what_is_dear_now_and_then_is_paid_for_in_full() {
        let dear_at_times = |n: u32| if n % 500 == 7 { 10_000_000 } else { 200 };
        let (spent_ns, _) = spent_ns(1_000_000, Some(1.0), dear_at_times);
        assert!(spent_ns <= 250e6 + 10e6 + FIRST * FRAME_NS, "{spent_ns}");
    }

    #[test]
    fn nothing_grows_where_nothing_is_read_again() {
        let (_, taken) = spent_ns(1_000_000, Some(0.0), |_| FRAME_NS as u64);
        assert_eq!(f64::from(taken), FIRST);
    }

    /// However few frames are left for trying, a page finds room for all its frames at once.
    #[test]
    fn large_pages_get_on() {
        let mut growth = Growth::default();
        growth.took(TRIED - 1, 1);
        assert!(growth.frames() >= PAGE_FRAMES);
    }

    #[test]
    fn frames_that_are_dear_together_are_as_dear() {
        let mut growth = Growth::default();
        growth.took(1024, 1024 * 16_000);
        growth.missed(1_000_000, 10_000.0, 9_000.0, Some(1.0));
        let affordable = BALANCE_NS_MAX / 16_000.0;
        assert!(f64::from(growth.frames()) < affordable * 1.2);
    }

    #[test]
    fn a_suspended_thread_does_not_end_it() {
        let mut growth = Growth::default();
        growth.took(1, 60_000_000_000);
        for _ in 0..100_000 {
            growth.missed(1, 1000.0, 500.0, Some(1.0));
        }
        assert!(growth.frames() > 0);
    }
}
