//! Calls that took long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Mutex;

use super::seldom::Seldom;

/// How many calls of each interval are kept: the slowest.
const KEPT: usize = 16;
/// The length of an interval. The calls of this one and of the last are reported.
const INTERVAL: Nanos = Nanos::from_secs(60);

/// A call that took long.
#[derive(Clone, Debug)]
pub struct SlowCall {
    /// The program's name.
    pub program: &'static str,
    /// The procedure's name.
    pub procedure: &'static str,
    /// The fabric's name.
    pub fabric: &'static str,
    /// Who made the call.
    pub client: String,
    /// The file, and the name in it if there is one. Empty if it was about no file.
    pub about: String,
    /// How long it took.
    pub took: Nanos,
    /// When the reply was complete.
    pub at: SystemTime,
}

/// The slow calls of the last two intervals.
pub struct Slow {
    /// A call that takes longer is slow. In nanoseconds.
    threshold: AtomicU64,
    count: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    began: Nanos,
    now: Vec<SlowCall>,
    before: Vec<SlowCall>,
    log: Seldom,
}

impl Default for Slow {
    fn default() -> Self {
        Self {
            threshold: AtomicU64::new(u64::MAX),
            count: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }
}

impl Slow {
    /// A call that takes longer than this is slow.
    pub fn report(&self, from: Nanos) {
        self.threshold.store(from.0, Ordering::Relaxed);
    }

    pub fn is_slow(&self, took: Nanos) -> bool {
        took.0 > self.threshold.load(Ordering::Relaxed)
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Keeps a call, and logs it unless there was a line just before.
    pub fn keep(&self, call: SlowCall) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let now = clock::now();
        let mut kept = self.kept.lock();
        kept.turn(now);
        let untold = kept.log.untold(now);
        kept.put(call.clone());
        drop(kept);
        if let Some(untold) = untold {
            let microseconds = call.took.0 / 1000;
            tracing::warn!(
                program = call.program,
                procedure = call.procedure,
                client = %call.client,
                file = %call.about,
                microseconds,
                untold,
                "slow call"
            );
        }
    }

    /// The calls of this interval and of the last, the slowest first.
    pub fn all(&self) -> Vec<SlowCall> {
        let mut kept = self.kept.lock();
        kept.turn(clock::now());
        let mut all = [&kept.now[..], &kept.before[..]].concat();
        drop(kept);
        all.sort_by_key(|call| std::cmp::Reverse(call.took));
        all
    }
}

impl Kept {
    fn turn(&mut self, now: Nanos) {
        let since = now.since(self.began);
        if since >= INTERVAL {
            self.before = std::mem::take(&mut self.now);
            if since.0 >= 2 * INTERVAL.0 {
                self.before.clear();
            }
            self.began = now;
        }
    }

    fn put(&mut self, call: SlowCall) {
        if self.now.len() < KEPT {
            self.now.push(call);
        } else if let Some(fastest) = self.now.iter_mut().min_by_key(|kept| kept.took)
            && fastest.took < call.took
        {
            *fastest = call;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(millis: u64) -> SlowCall {
        SlowCall {
            program: "nfs3",
            procedure: "READ",
            fabric: "tcp",
            client: "10.0.0.1:700".to_owned(),
            about: String::new(),
            took: Nanos::from_millis(millis),
            at: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn the_slowest_are_kept_for_two_intervals() {
        let mut kept = Kept::default();
        let start = Nanos::from_secs(1000);
        kept.turn(start);
        (0..100).for_each(|millis| kept.put(call(millis)));
        assert_eq!(kept.now.len(), KEPT);
        assert!(
            kept.now
                .iter()
                .all(|call| call.took >= Nanos::from_millis(84))
        );
        kept.turn(start + INTERVAL);
        assert_eq!((kept.now.len(), kept.before.len()), (0, KEPT));
        kept.turn(start + Nanos(3 * INTERVAL.0));
        assert_eq!((kept.now.len(), kept.before.len()), (0, 0));
    }

    #[test]
    fn nothing_is_slow_until_somebody_says_what_is() {
        let slow = Slow::default();
        assert!(!slow.is_slow(Nanos::from_secs(1 << 30)));
        slow.report(Nanos::from_millis(100));
        assert!(!slow.is_slow(Nanos::from_millis(100)));
        assert!(slow.is_slow(Nanos::from_millis(101)));
        slow.keep(call(200));
        assert_eq!((slow.count(), slow.all().len()), (1, 1));
    }
}
