//! How much memory the data cache may take for now.
//!
//! Memory is an investment: taking it costs once, its frame is used again and again, and nobody knows for how long. So it
//! is bought on the savings that it would have brought. Each read that misses earns a share of what a hit would have
//! saved it, times the chance of one; memory is taken while that pays for it, at the price that it had of late. Growth so
//! costs no more than that share of what the reads before would have saved, however dear the memory turns out to be.

/// Part of what hits would have saved that growth may take.
const OF_SAVED: f64 = 0.5;
/// Part of the time of reads, while nobody knows the chance of a hit: over a network that pays for each page that is read.
const OF_READS: f64 = 0.125;
/// What a frame of memory costs, until it was taken.
const FRAME_NS: f64 = 2_500.0;
/// Frames that may be taken before anything was read: a small file is kept from its first read on.
const FIRST: f64 = 256.0;
/// Frames after which one has decayed to half in the price.
const HALF: f64 = 256.0;
/// Frames that may be taken at once, until so many were.
const TRIED: u32 = 64;
/// Growth waits until it can pay for so many frames, and then takes them one after another: neighbours in a file that is
/// read in order become neighbours in memory, where the processor fetches the next one ahead.
const RUN: u32 = 128;
/// It waits no longer than until it has earned this.
const RUN_NS: f64 = 1_000_000.0;
/// A run ends with this part of it left over: what is earned meanwhile would draw it out, a few frames now and a few then.
const REST: u32 = 4;
/// Frames of the largest page, 64 KiB.
const PAGE_FRAMES: u32 = 16;
/// A frame that took longer was not dear: its thread was suspended.
const FRAME_NS_MAX: f64 = 1_000_000.0;
/// More than this is neither saved up, for it was earned in another time, nor owed, for a thread that was suspended says
/// nothing of the price.
const BALANCE_NS_MAX: f64 = 20_000_000.0;

/// What growth has earned and spent.
#[derive(Debug)]
pub struct Growth {
    balance_ns: f64,
    /// Frames taken of late, and what they took.
    frames: f64,
    frames_ns: f64,
    /// Frames that may still be taken as a trial of the price.
    untried: u32,
    /// A run of frames is being taken.
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
    /// `count` reads missed and took `read_ns` each. With this chance, if it is known, each would have saved `saved_ns`.
    pub fn missed(&mut self, count: u32, read_ns: f64, saved_ns: f64, chance: Option<f64>) {
        let each_ns = match chance {
            Some(chance) => chance * saved_ns.max(0.0) * OF_SAVED,
            None => read_ns * OF_READS,
        };
        self.balance_ns = (self.balance_ns + each_ns * f64::from(count)).min(BALANCE_NS_MAX);
    }

    /// So many frames were taken, in so long.
    pub fn took(&mut self, frames: u32, ns: u64) {
        self.untried = self.untried.saturating_sub(frames);
        let (frames, ns) = (f64::from(frames), ns as f64);
        self.balance_ns = (self.balance_ns - ns).max(-BALANCE_NS_MAX);
        let keep = (-frames / HALF).exp2();
        self.frames = self.frames * keep + frames;
        self.frames_ns = self.frames_ns * keep + ns.min(frames * FRAME_NS_MAX);
    }

    /// Frames that may be taken now.
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
            // Never less than the largest page takes.
            untried => frames.min(untried.max(PAGE_FRAMES)),
        }
    }

    /// Does the balance, which is good for so many frames, pay for this part of a run?
    fn pays_for(&self, frames: u32, part: u32) -> bool {
        frames >= RUN / part || (frames > 0 && self.balance_ns >= RUN_NS / f64::from(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What growth took of the time of so many reads of 1 us, where a hit saves half of it, at this price of a frame.
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

    /// A reader that goes on and on: which of the pages that it missed were kept.
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

    /// One frame in 500 waits for 10 ms.
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

    /// Whatever is left to try, a page finds room for all its frames at once.
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
