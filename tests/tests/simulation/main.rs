//! The whole system in one process: clients, NIC and server over the simulated fabric, every lock, atomic and piece of a
//! copy a place where another thread may go on, all of it from one seed. What clients saw is checked page by page
//! against a register (`odafs_tests::linear`).
//!
//!     RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle ODAFS_SECONDS=120 ODAFS_SEEDS=1000 \
//!         cargo test --release -p odafs-tests --test simulation -- --nocapture
//!
//! A failure prints its seed; `ODAFS_SEED=N` runs that one alone.
#![cfg(shuttle)]

mod attacker;
mod history;
mod life;
mod mortal;
mod outside;
mod tap;
mod world;

use odafs_fabric::sim;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
    )
}

/// Runs one seed; its trace.
fn run(seed: u64) -> (String, world::Tally) {
    let found = Arc::new(Mutex::new(None));
    let place = Arc::clone(&found);
    let run = move || *place.lock().expect("one thread") = Some(world::run(seed));
    match world::is_calm(seed) {
        true => sim::explore_in_time(seed, 1, run),
        false => sim::explore(seed, 1, run),
    }
    let mut found = found.lock().expect("one thread");
    found.take().expect("the run has ended")
}

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
    let until = Instant::now() + Duration::from_secs(seconds);
    let next = Arc::new(AtomicU64::new(0));
    let total = Arc::new(Mutex::new(world::Tally::default()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= least && Instant::now() >= until {
                        break;
                    }
                    let (_, tally) = run(base + n);
                    total.lock().expect("no panic").add(&tally);
                }
            });
        }
    });
    let total = total.lock().expect("no panic");
    println!("seeds {base} to {}: {total:?}", base + total.runs - 1);
    assert!(total.runs >= least);
    // A simulation in which nothing went wrong proves nothing.
    assert!(
        total.direct_hits > 0 && total.stale_hits > 0 && total.rpc_reads > 0,
        "{total:?}"
    );
    assert!(total.cache_hits > 0 && total.log > 0, "{total:?}");
    assert!(total.rdma_reads > 0 && total.iwarp_reads > 0, "{total:?}");
    assert!(
        total.kills > 0 && total.writes > 0 && total.lost_writes > 0,
        "{total:?}"
    );
    assert!(
        total.attacks_refused > 0 && total.replays_refused > 0,
        "{total:?}"
    );
}

#[test]
fn one_seed_reproduces_a_run_to_the_byte() {
    for seed in [7, 8, 9] {
        let (first, _) = run(seed);
        let (second, _) = run(seed);
        assert!(first.lines().count() > 10, "a trace of nothing");
        assert_eq!(first, second, "seed {seed}");
    }
}
