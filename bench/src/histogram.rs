//! Latencies as an HDR histogram: three significant digits from a nanosecond
//! to ten seconds.

use hdrhistogram::Histogram;

const HIGHEST_NS: u64 = 10_000_000_000;

/// A histogram of latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Counts one operation; longer than ten seconds counts as ten seconds.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Counts the operations of another.
    pub fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many operations were counted.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The latency that `quantile` (0 to 1) of the operations did not exceed.
    pub fn at(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }
}

/// The middle one of `values`, or the mean of the two in the middle, rounded; 0 if there is none.
pub fn median(values: impl IntoIterator<Item = u64>) -> u64 {
    let mut values: Vec<f64> = values.into_iter().map(|value| value as f64).collect();
    crate::spread::median(&mut values).map_or(0, |middle| middle.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_set() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ns| latencies.record(ns));
        assert_eq!(latencies.len(), 1000);
        assert_eq!(latencies.at(0.5), 500);
        assert_eq!(latencies.at(0.99), 990);
        let mut twice = latencies.clone();
        twice.add(&latencies);
        assert_eq!((twice.len(), twice.at(0.5)), (2000, 500));
        latencies.record(u64::MAX);
        assert!(latencies.at(1.0) >= HIGHEST_NS);
    }

    #[test]
    fn the_median_of_none_one_and_some() {
        assert_eq!(median([]), 0);
        assert_eq!(median([9]), 9);
        assert_eq!(median([3, 1, 2]), 2);
        assert_eq!(median([7, 1, 2, 4]), 3);
    }
}
