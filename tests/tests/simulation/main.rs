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
mod history;
mod life;
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
    let last = base + (total.runs - 1) * step;
    println!("seeds {base} to {last}: {total:?}");
    assert!(total.runs >= least);
    // A simulation in which nothing went wrong proves nothing.
    assert!(
        total.direct_hits > 0 && total.stale_hits > 0 && total.rpc_reads > 0,
        "{total:?}"
    );
    assert!(
        total.cache_hits > 0 && total.delegated_hits > 0 && total.log > 0,
        "{total:?}"
    );
    assert!(total.rdma_reads > 0 && total.iwarp_reads > 0, "{total:?}");
    assert!(
        total.kills > 0 && total.writes > 0 && total.lost_writes > 0,
        "{total:?}"
    );
    let nfs4 = &total.nfs4;
    assert!(
        nfs4.opens > 0 && nfs4.locks > 0 && nfs4.denied > 0,
        "{total:?}"
    );
    assert!(
        nfs4.delegations > 0 && nfs4.recalls > 0 && nfs4.cached > 0,
        "{total:?}"
    );
    assert!(nfs4.repeated > 0 && nfs4.reclaims > 0, "{total:?}");
    assert!(
        total.attacks_refused > 0 && total.replays_refused > 0,
        "{total:?}"
    );
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
