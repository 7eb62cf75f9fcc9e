//! What the data cache takes, alone: prints figures of docs/FIGURES.md.
//!
//! `cargo test --release -p odafs --lib cache::speed -- --ignored --nocapture`

use super::{contest::Dice, *};
use rustix::time::{ClockId, clock_gettime};
use std::{hint::black_box, time::Instant};

/// Reads of a round.
const READS: u64 = 50_000;
/// Rounds, of which the fastest counts: the machine has other work.
const ROUNDS: usize = 15;

/// The least processor time that one of `READS` calls takes in the mean of a round, in nanoseconds.
fn least_ns(mut each: impl FnMut(u64)) -> f64 {
    let round = |_| {
        let began = thread_ns();
        (0..READS).for_each(&mut each);
        (thread_ns() - began) as f64 / READS as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Processor time of this thread.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn page(number: u64) -> Stretch {
    Stretch {
        file: 1,
        generation: 1,
        offset: number * BLOCK as u64,
    }
}

#[test]
#[ignore = "prints figures of docs/BENCHMARKS.md"]
fn speed() {
    for mib in [64u64, 256] {
        let pages = (mib << 20) / Core::BYTES as u64;
        let cache = DataCache::new(mib << 20, mib << 20);
        let data = vec![1; BLOCK];
        let mut into = vec![0; BLOCK];
        let mut dice = Dice(mib);
        let keep = |page: Stretch| _ = cache.put(page, PageSize::MIN, &data, || true);
        let began = thread_ns();
        (0..pages).for_each(|n| keep(page(n)));
        let grow = (thread_ns() - began) as f64 / pages as f64;
        let hit = least_ns(|_| _ = black_box(cache.get(page(dice.below(pages)), true, &mut into)));
        let hit_64 =
            least_ns(|_| _ = black_box(cache.get(page(dice.below(pages)), true, &mut into[..64])));
        // Half of the memory is read in order, the frames of which lie anywhere.
        let mixed = DataCache::new(mib << 20, mib << 20);
        let mut left: Vec<u64> = (0..pages / 2).collect();
        while !left.is_empty() {
            let number = left.swap_remove(dice.below(left.len() as u64) as usize);
            mixed.put(page(number), PageSize::MIN, &data, || true);
        }
        let mut in_order = |follow: bool| {
            least_ns(|n| {
                let (this, next) = (page(n % (pages / 2)), page((n + 1) % (pages / 2)));
                if follow {
                    mixed.fetch_ahead(next);
                }
                black_box(mixed.get(this, true, &mut into));
            })
        };
        let (alone, followed) = (in_order(false), in_order(true));
        println!(
            "{mib} MiB, in order: hit {alone:.0} ns, the next one fetched ahead {followed:.0}"
        );
        let plain = vec![1; pages as usize * BLOCK];
        let copy = least_ns(|_| {
            let at = dice.below(pages) as usize * BLOCK;
            into.copy_from_slice(black_box(&plain[at..at + BLOCK]));
        });
        let copy_64 = least_ns(|_| {
            let at = dice.below(pages) as usize * BLOCK;
            into[..64].copy_from_slice(black_box(&plain[at..at + 64]));
        });
        let mut next = pages;
        let evict_in_order = least_ns(|_| {
            next += 1;
            keep(page(next));
        });
        // Frames come free in the order in which they were filled: mixed by hits, and pages of twice the cache.
        let mut random = || page(dice.below(2 * pages));
        let mut at_random = |_| {
            let page = random();
            if cache.get(page, true, &mut into).is_none() {
                keep(page);
            }
        };
        (0..8 * pages).for_each(&mut at_random);
        let mut took = Vec::new();
        for _ in 0..4 * READS {
            let page = random();
            if cache.get(page, true, &mut into).is_none() {
                let began = Instant::now();
                keep(page);
                took.push(began.elapsed().as_nanos());
            }
        }
        took.sort_unstable();
        let evict_at_random = took[took.len() / 2];
        println!(
            "{mib} MiB: first fill {grow:.0} ns; hit {hit:.0} ns, of 64 B {hit_64:.0}; a copy {copy:.0}, of 64 B {copy_64:.0}; \
             fill and evict in order {evict_in_order:.0}, at random {evict_at_random} (p50, with a look at the clock)"
        );
    }
}
