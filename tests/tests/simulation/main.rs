//! The whole system in one process: clients, NIC and server over the simulated fabric. Another thread may go on at every lock,
//! atomic and piece of a copy. One seed decides everything. A checker compares what clients saw of each page with a register
//! (`odafs_tests::linear`).
//!
//!     RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle ODAFS_SECONDS=120 \
//!         cargo test --release -p odafs-tests --test simulation -- --nocapture
//!
//! A failure prints its seed; `ODAFS_SEED=N` runs that one alone.
#![cfg(shuttle)]

mod attacker;
mod client;
mod history;
mod life;
mod losses;
mod mortal;
mod nfs4;
mod outside;
mod tally;
mod tap;
mod world;

use odafs_fabric::sim;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tally::Tally;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
    )
}

/// Runs one seed, and returns its trace.
fn run(seed: u64) -> (String, Tally) {
    let found = Arc::new(Mutex::new(None));
    let place = Arc::clone(&found);
    let run = move || *place.lock().expect("one thread") = Some(world::run(seed));
    match world::is_in_time(seed) {
        true => sim::explore_in_time(seed, 1, run),
        false => sim::explore(seed, 1, run),
    }
    let mut found = found.lock().expect("one thread");
    found.take().expect("the run has ended")
}

/// Of so many runs, everything that is counted happens in some.
const MANY: u64 = 1000;
/// What may happen in none of a few.
const RARE: &[&str] = &[
    "lost_writes",
    "delegated_hits",
    "one_sided_hits",
    "recalled",
    "reconnects",
    "lost_reads",
    "losing_kills",
    "direct_after_kill",
    "lost_by_disk",
    "heard_of_loss",
    "sessions",
    "legacy",
    "tested_free",
    "tested_held",
    "revoked",
    "looks",
    "told",
    "refused_reclaims",
    "deaf",
    "slots_recalled",
    "fewer",
    "more",
];

#[test]
fn every_read_is_explained() {
    if let Some(seed) = number("ODAFS_SEED") {
        let (trace, tally) = run(seed);
        println!("{trace}{tally:?}");
        return;
    }
    let seconds = number("ODAFS_SECONDS").unwrap_or(10);
    let least = number("ODAFS_SEEDS").unwrap_or(20);
    let base = number("ODAFS_FIRST_SEED").unwrap_or(1);
    let step = number("ODAFS_SEED_STEP").unwrap_or(1);
    let until = Instant::now() + Duration::from_secs(seconds);
    let next = Arc::new(AtomicU64::new(0));
    let total = Arc::new(Mutex::new(Tally::default()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= least && Instant::now() >= until {
                        break;
                    }
                    let (_, tally) = run(base + n * step);
                    total.lock().expect("no panic").add(&tally);
                }
            });
        }
    });
    let total = total.lock().expect("no panic");
    let runs = total.all.runs;
    let last = base + (runs - 1) * step;
    println!("seeds {base} to {last}: {total:?}");
    assert!(runs >= least);
    // A simulation in which nothing went wrong proves nothing.
    let mut missing = total.missing();
    if runs < MANY {
        missing.retain(|name| !RARE.contains(name));
    }
    assert!(missing.is_empty(), "none of {missing:?} in {total:?}");
}

#[test]
fn one_seed_reproduces_a_run_to_the_byte() {
    for seed in [7, 8, 9, 13] {
        let (first, _) = run(seed);
        let (second, _) = run(seed);
        assert!(first.lines().count() > 10, "a trace of nothing");
        assert_eq!(first, second, "seed {seed}");
    }
}
