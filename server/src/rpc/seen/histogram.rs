//! Times in buckets.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use odafs_fabric::clock::Nanos;

/// Upper bounds in nanoseconds, from 1 µs to 10 s: three a decade, which people read at sight. A percentile between two
/// bounds is off by a factor of 2.5 at most, and a procedure takes 24 series. (Powers of four would take 15, and be off by 4.)
pub const BOUNDS: [(u64, &str); 22] = [
    (1_000, "0.000001"),
    (2_500, "0.0000025"),
    (5_000, "0.000005"),
    (10_000, "0.00001"),
    (25_000, "0.000025"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// How many times fell into each bucket. The last bucket is for those above all bounds.
#[derive(Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    /// Adds a time.
    pub fn add(&self, took: Nanos) {
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < took.0);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(took.0, Ordering::Relaxed);
    }

    /// Appends it in the text format of Prometheus. The count is the sum of the buckets, whatever is added meanwhile.
    pub fn append_text(&self, out: &mut String, name: &str, labels: &str) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            count += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let nanos = self.nanos.load(Ordering::Relaxed);
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {seconds}.{nanos:09}");
        let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_as_they_are_written_and_belong_to_what_is_below() {
        for (bound, written) in BOUNDS {
            let seconds: f64 = written.parse().expect("a number");
            assert_eq!((seconds * 1e9).round() as u64, bound);
        }
        let histogram = Histogram::default();
        for nanos in [1, 1_000, 1_001, 10_000_000_000, 10_000_000_001] {
            histogram.add(Nanos(nanos));
        }
        let mut text = String::new();
        histogram.append_text(&mut text, "t", "a=\"b\"");
        for line in [
            "t_bucket{a=\"b\",le=\"0.000001\"} 2",
            "t_bucket{a=\"b\",le=\"0.0000025\"} 3",
            "t_bucket{a=\"b\",le=\"10\"} 4",
            "t_bucket{a=\"b\",le=\"+Inf\"} 5",
            "t_sum{a=\"b\"} 20.000002003",
            "t_count{a=\"b\"} 5",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    }
}
