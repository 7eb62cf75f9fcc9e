//! Costs: a summary of the last timed runs of something, on which a preempted thread or a cold start has little
//! influence.

/// Number of samples to keep.
const WINDOW: usize = 64;
/// A sample counts as at most this many times the median.
const CLIP: u32 = 8;
/// Number of samples that a judgement needs.
const ENOUGH: usize = 6;

/// A time, limited to a few times the mean, so that one preempted read does not count as much time spent reading.
pub fn clipped(ns: u64, mean_ns: Option<f64>) -> u64 {
    mean_ns.map_or(ns, |mean_ns| ns.min(mean_ns as u64 * u64::from(CLIP)))
}

/// The last timed runs.
#[derive(Debug, Clone)]
pub struct Cost {
    samples: [u32; WINDOW],
    held: usize,
    next: usize,
}

/// The summary of a [`Cost`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean in nanoseconds.
    pub mean_ns: f64,
    /// The standard error of the mean.
    pub error_ns: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            samples: [0; WINDOW],
            held: 0,
            next: 0,
        }
    }
}

impl Cost {
    /// Adds a run that took this long.
    pub fn add(&mut self, ns: u64) {
        self.samples[self.next] = u32::try_from(ns).unwrap_or(u32::MAX);
        self.next = (self.next + 1) % WINDOW;
        self.held = (self.held + 1).min(WINDOW);
    }

    /// Forgets runs older than the last `fresh` ones if these took longer or shorter by this factor, because the older
    /// ones then belong to the past. Both halves of the fresh runs must say so: if a busy neighbour slows down one turn
    /// of a trial, that is no change.
    pub fn forget_if_changed(&mut self, fresh: usize, factor: f64) {
        let fresh = fresh.min(self.held);
        let first = fresh / 2;
        let older = self.median(fresh, self.held);
        let Some(older) = older.filter(|_| first > 0) else {
            return;
        };
        let top = older.saturating_mul(CLIP);
        let [first, second, older] = [(first, fresh), (0, first), (fresh, self.held)]
            .map(|(from, to)| self.mean(from, to, top));
        let (lower, higher) = (first.min(second), first.max(second));
        if lower > older * factor || higher * factor < older {
            let mut kept = Self::default();
            (0..fresh)
                .rev()
                .for_each(|ago| kept.add(self.nth_last(ago).into()));
            *self = kept;
        }
    }

    fn nth_last(&self, ago: usize) -> u32 {
        self.samples[(self.next + 2 * WINDOW - 1 - ago) % WINDOW]
    }

    /// The median of the runs before the last `from` ones, back to the last `to` ones.
    fn median(&self, from: usize, to: usize) -> Option<u32> {
        let mut sorted = [0; WINDOW];
        let sorted = &mut sorted[..to - from];
        for (sample, ago) in sorted.iter_mut().zip(from..to) {
            *sample = self.nth_last(ago);
        }
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// Their mean, where none counts as more than `top`.
    fn mean(&self, from: usize, to: usize, top: u32) -> f64 {
        let sum: f64 = (from..to)
            .map(|ago| f64::from(self.nth_last(ago).min(top)))
            .sum();
        sum / (to - from) as f64
    }

    /// The clipped mean, once there are enough samples. It leaves out the highest in sixteen, and counts none as more
    /// than eight times the median. So one outlier has no influence, however high it is, and a persistent tail does.
    pub fn estimate(&self) -> Option<Estimate> {
        if self.held < ENOUGH {
            return None;
        }
        let mut sorted = self.samples;
        let sorted = &mut sorted[..self.held];
        sorted.sort_unstable();
        let top = sorted[self.held / 2].saturating_mul(CLIP);
        let counted = &sorted[..self.held - self.held.div_ceil(16)];
        let n = counted.len() as f64;
        let value = |sample: &u32| f64::from((*sample).min(top));
        let mean_ns = counted.iter().map(value).sum::<f64>() / n;
        let squares: f64 = counted.iter().map(|s| (value(s) - mean_ns).powi(2)).sum();
        Some(Estimate {
            mean_ns,
            error_ns: (squares / (n - 1.0) / n).sqrt(),
        })
    }
}

/// The decayed mean of something that is timed now and then. The first sample and outliers give way to later samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean {
    ns: f64,
    samples: u32,
    faded: u32,
}

/// Number of samples that make a reliable mean.
const SETTLED: u32 = 4;
/// Number of looks without a sample after which a mean is outdated.
const FADED: u32 = 256;

impl Mean {
    /// Adds a run that took this long.
    pub fn add(&mut self, ns: u64) {
        let ns = ns as f64;
        self.faded = 0;
        self.samples = self.samples.saturating_add(1);
        if self.samples == 1 {
            self.ns = ns;
            return;
        }
        // The sample is far below the mean, so the mean is the outlier.
        if self.samples < 16 && ns * 4.0 < self.ns {
            self.ns = ns;
            return;
        }
        let weight = 1.0 / f64::from(self.samples.min(16));
        self.ns += (ns.min(self.ns * 4.0 + 1.0) - self.ns) * weight;
    }

    /// The mean, once there are enough samples.
    pub fn settled(&self) -> Option<f64> {
        (self.samples >= SETTLED).then_some(self.ns)
    }

    /// Records that the mean was used and will not be measured for now. After enough of these, the mean is forgotten.
    pub fn fade(&mut self) {
        self.faded += 1;
        if self.faded >= FADED {
            *self = Self::default();
        }
    }

    /// The mean in nanoseconds.
    pub fn known(&self) -> Option<f64> {
        (self.samples > 0).then_some(self.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost_of(samples: impl IntoIterator<Item = u64>) -> Cost {
        let mut cost = Cost::default();
        samples.into_iter().for_each(|ns| cost.add(ns));
        cost
    }

    #[test]
    fn few_samples_are_no_judgement() {
        assert_eq!(cost_of([1000; ENOUGH - 1]).estimate(), None);
        assert!(cost_of([1000; ENOUGH]).estimate().is_some());
    }

    #[test]
    fn an_outlier_is_nothing_and_a_tail_counts() {
        let calm = cost_of((0..64).map(|n| 1000 + n % 10));
        let outlier = cost_of((0..64).map(|n| if n == 9 { 4_000_000 } else { 1000 + n % 10 }));
        let [calm, outlier] =
            [calm, outlier].map(|cost| cost.estimate().expect("64 samples").mean_ns);
        assert!((calm - outlier).abs() < 10.0, "{calm} {outlier}");
        let tail = cost_of((0..64).map(|n| if n % 4 == 0 { 5000 } else { 1000 }));
        let tail = tail.estimate().expect("64 samples").mean_ns;
        assert!(tail > 1700.0, "{tail}");
    }

    #[test]
    fn what_is_of_another_time_is_forgotten() {
        let mut cost = cost_of((0..100).map(|n| if n < 90 { 10 } else { 1000 + n }));
        assert_eq!(cost.median(0, 5), Some(1097));
        cost.forget_if_changed(10, 1.5);
        let mean_ns = cost.estimate().expect("ten samples").mean_ns;
        assert!(mean_ns > 1000.0, "{mean_ns}");
        cost.add(7);
        assert_eq!(cost.median(0, 1), Some(7));
        let before = cost.estimate();
        cost.forget_if_changed(10, 1.5);
        assert_eq!(cost.estimate(), before);
    }

    #[test]
    fn half_of_the_fresh_is_not_another_time() {
        let turns = |first: u64, second: u64| {
            let mut cost = cost_of((0..64).map(|n| match n {
                ..52 => 1000 + n % 10,
                52..58 => first,
                _ => second,
            }));
            cost.forget_if_changed(12, 1.5);
            cost.held
        };
        for slow in [2000, 10_000] {
            assert_eq!(turns(1000, slow), 64);
            assert_eq!(turns(slow, 1000), 64);
            assert_eq!(turns(slow, slow), 12);
            assert_eq!(
                turns(1000 * 1000 / slow, slow),
                64,
                "up and down is no change"
            );
        }
        assert_eq!(turns(500, 400), 12);
    }

    /// Four reads in ten wait behind others for a while, some for long.
    #[test]
    fn a_skewed_cost_is_not_another_time() {
        let mut cost = cost_of((0..64u64).map(|n| match n % 5 {
            3 => 14_000 + 20_000 * (n % 3),
            4 => 14_000 + 30_000 * (n % 4),
            _ => 14_000,
        }));
        cost.forget_if_changed(12, 1.5);
        assert_eq!(cost.held, 64);
    }

    #[test]
    fn a_cold_start_is_forgotten() {
        let mut mean = Mean::default();
        mean.add(100_000);
        mean.add(1000);
        mean.add(1010);
        let known = mean.known().expect("three samples");
        assert!(known < 1100.0, "{known}");
    }
}
