//! Per-thread shards of counters: a thread counts its reads without waiting for others and without locked instructions.
//!
//! Each live thread has its own number. Each of the first few threads has its own shard, on which it counts by plain
//! loads and stores. The others share the last shard and pay for an atomic addition.

use crate::{statistics::Statistics, trace::RouteTaken};
use odafs_common::exception::Exception;
use odafs_fabric::memory::prefetch_would_pay;
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of shards of a client. The last one is shared.
pub const SHARDS: usize = 16;

/// This thread's shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard(usize);

/// A number for each live thread: the smallest free one.
#[cfg(not(shuttle))]
mod numbers {
    use std::sync::atomic::{AtomicU64, Ordering::*};

    static TAKEN: AtomicU64 = AtomicU64::new(0);

    struct Number(usize);

    impl Number {
        fn take() -> Self {
            let free = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
            match TAKEN.fetch_update(Acquire, Relaxed, free) {
                Ok(before) => Self(before.trailing_ones() as usize),
                Err(_) => Self(usize::MAX),
            }
        }
    }

    impl Drop for Number {
        /// The next thread with this number sees what this one stored on its shard.
        fn drop(&mut self) {
            if self.0 < 64 {
                TAKEN.fetch_and(!(1 << self.0), Release);
            }
        }
    }

    thread_local! {
        static MINE: Number = Number::take();
    }

    /// This thread's number, or `usize::MAX` if too many threads live, or while the thread ends.
    pub fn mine() -> usize {
        MINE.try_with(|mine| mine.0).unwrap_or(usize::MAX)
    }
}

impl Shard {
    /// The shard of this thread.
    #[cfg(not(shuttle))]
    pub fn mine() -> Self {
        Self(numbers::mine().min(SHARDS - 1))
    }

    /// Under shuttle all tasks share a thread, and so a shard.
    #[cfg(shuttle)]
    pub fn mine() -> Self {
        Self(SHARDS - 1)
    }

    /// The index of the shard.
    pub fn index(self) -> usize {
        self.0
    }

    fn is_mine_alone(self) -> bool {
        self.0 < SHARDS - 1
    }
}

/// A counter of one shard.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the counter.
    pub fn add(&self, shard: Shard, by: u64) {
        if shard.is_mine_alone() {
            self.0.store(self.0.load(Relaxed) + by, Relaxed);
        } else {
            self.0.fetch_add(by, Relaxed);
        }
    }
}

/// Reads that were counted and not yet reported, in their own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Tick {
    /// Reads by the standing route since the last timed one.
    pub reads: Untold,
    /// Of those, the ones that were reported already.
    pub told: Untold,
    /// Reads from the data cache.
    pub hits: Untold,
    /// Pages that were looked up in the data cache.
    pub looks: Nearness,
    /// Pages that were loaded from the server's memory, one at a time.
    pub loads: Nearness,
}

/// How near the pages are that are copied one at a time. A page of 4 KiB is worth prefetching if pages like it are far away,
/// and it does not follow the last one, as the processor expects.
#[derive(Debug, Default)]
pub struct Nearness {
    /// The page after the last one.
    next: AtomicU64,
    far: AtomicBool,
}

impl Nearness {
    /// A page is copied. Returns whether it follows the last one.
    #[inline]
    pub fn follows(&self, page: u64) -> bool {
        let follows = self.next.load(Relaxed) == page;
        self.next.store(page + 1, Relaxed);
        follows
    }

    /// Whether the last page of 4 KiB whose copy was timed had to come from memory.
    #[inline]
    pub fn are_far(&self) -> bool {
        self.far.load(Relaxed)
    }

    /// To copy a page of 4 KiB took so many nanoseconds.
    pub fn took(&self, ns: u64) {
        self.far.store(prefetch_would_pay(ns), Relaxed);
    }
}

/// A number of events that were not reported yet.
#[derive(Debug, Default)]
pub struct Untold(AtomicU32);

impl Untold {
    /// Its value.
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Sets the value. On the shared shard two threads may undo each other's change, which is acceptable for samples.
    pub fn set(&self, to: u32) {
        self.0.store(to, Relaxed);
    }
}

/// The counters of reads on one shard.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counts {
    /// See [`Statistics`].
    pub cache_hits: Count,
    /// See [`Statistics`].
    pub one_sided_hits: Count,
    /// See [`Statistics`].
    pub guarded_hits: Count,
    /// See [`Statistics`].
    pub rpc_reads: Count,
    /// See [`Statistics`].
    pub directory_hits: Count,
    /// See [`Statistics`].
    pub directory_misses: Count,
    /// See [`Statistics`].
    pub bytes_read: Count,
    refused: [Count; 7],
}

impl Counts {
    /// So many reads were served by this route.
    #[inline]
    pub fn read_by(&self, shard: Shard, taken: RouteTaken, reads: u64) {
        let count = match taken {
            RouteTaken::Cache => &self.cache_hits,
            RouteTaken::OneSided => &self.one_sided_hits,
            RouteTaken::Guarded => &self.guarded_hits,
            RouteTaken::Rpc | RouteTaken::PlainRpc => &self.rpc_reads,
        };
        count.add(shard, reads);
    }

    /// A direct read was refused.
    pub fn refused(&self, shard: Shard, exception: Exception) {
        self.refused[usize::from(exception.code()) - 1].add(shard, 1);
    }

    fn add_to(&self, all: &mut Statistics) {
        let of = |count: &Count| count.0.load(Relaxed);
        all.cache_hits += of(&self.cache_hits);
        all.one_sided_hits += of(&self.one_sided_hits);
        all.guarded_hits += of(&self.guarded_hits);
        all.direct_hits = all.one_sided_hits + all.guarded_hits;
        all.rpc_reads += of(&self.rpc_reads);
        all.directory_hits += of(&self.directory_hits);
        all.directory_misses += of(&self.directory_misses);
        all.bytes_read += of(&self.bytes_read);
        for (all, here) in all.refused.iter_mut().zip(&self.refused) {
            *all += of(here);
        }
        all.stale_hits = all.refused.iter().sum();
    }
}

/// The shards of a client.
#[derive(Debug, Default)]
pub struct Shards([Counts; SHARDS]);

impl Shards {
    /// The counters of a shard.
    pub fn counts(&self, shard: Shard) -> &Counts {
        &self.0[shard.0]
    }

    /// Number of lookups in the directory that found a reference.
    pub fn directory_hits(&self) -> u64 {
        let hits = |counts: &Counts| counts.directory_hits.0.load(Relaxed);
        self.0.iter().map(hits).sum()
    }

    /// Adds up all shards.
    pub fn add_to(&self, all: &mut Statistics) {
        self.0.iter().for_each(|counts| counts.add_to(all));
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_page_follows_if_it_is_the_next_one() {
        let near = Nearness::default();
        assert!(!near.follows(7));
        assert!(near.follows(8));
        assert!(!near.follows(3) && !near.follows(8) && !near.follows(8));
        assert!(near.follows(9));
    }

    #[test]
    fn pages_are_far_while_copies_take_long() {
        let near = Nearness::default();
        assert!(!near.are_far());
        near.took(u64::MAX);
        assert_eq!(near.are_far(), prefetch_would_pay(u64::MAX));
        near.took(0);
        assert!(!near.are_far());
    }

    #[test]
    fn nothing_is_lost_however_many_threads_count() {
        let shards = Shards::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..40 {
                    scope.spawn(|| {
                        let shard = Shard::mine();
                        (0..1000).for_each(|_| shards.counts(shard).cache_hits.add(shard, 1));
                    });
                }
            });
        }
        let mut all = Statistics::default();
        shards.add_to(&mut all);
        assert_eq!(all.cache_hits, 120_000);
    }
}
