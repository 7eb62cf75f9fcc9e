//! The clock that latencies are taken with, and what reading it costs.

use std::time::Instant;

/// What one reading of the clock adds to a measured interval, in nanoseconds:
/// the median of many pairs of readings with nothing in between.
///
/// Timed operations have this subtracted. An operation below a microsecond
/// would otherwise show mostly the clock.
pub fn overhead_ns() -> u64 {
    crate::histogram::median((0..10_000).map(|_| {
        let start = Instant::now();
        nanos(start, Instant::now())
    }))
}

/// Nanoseconds from `start` to `end`.
pub fn nanos(start: Instant, end: Instant) -> u64 {
    end.duration_since(start).as_nanos() as u64
}
