//! What the interface costs: one small range beside `File::read_at`, many beside `LocalFileSystem` and beside copies
//! within this process, in one run.
//!
//! `cargo run --release --example bench -- URL DIRECTORY`: the URL of a server on this machine, and the directory that it
//! serves. It makes a file of 256 MiB there, and removes it.

use object_store::{ObjectStore as _, ObjectStoreExt as _, local::LocalFileSystem, path::Path};
use odafs_object_store::OdafsStore;
use std::{
    hint::black_box,
    ops::Range,
    thread,
    time::{Duration, Instant},
};

const SIZE: u64 = 256 << 20;
const PAGE: u64 = 4096;
const SINGLE: usize = 100_000;
const RANGES: usize = 10_000;
const ROUNDS: usize = 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("bench URL DIRECTORY: a server on this machine, and what it serves".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()?;
    runtime.block_on(run(&url, &directory))
}

async fn run(url: &str, directory: &str) -> Result<(), Box<dyn std::error::Error>> {
    let store = OdafsStore::connect(url).await?;
    let local = LocalFileSystem::new_with_prefix(directory)?;
    let at = Path::from("odafs-object-store-bench");
    store.put(&at, vec![1; SIZE as usize].into()).await?;
    let measured = measure(&store, &local, &at).await;
    store.delete(&at).await?;
    measured
}

async fn measure(
    store: &OdafsStore,
    local: &LocalFileSystem,
    at: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut random = 1_u64;
    let mut range = || -> Range<u64> {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let start = (random >> 33) % (SIZE / PAGE) * PAGE;
        start..start + PAGE
    };
    let file = store.client().open(at.as_ref())?;
    // Both in turn, so that what disturbs one disturbs the other.
    let (mut by_file, mut by_range) = (Vec::new(), Vec::new());
    for turn in 0..SINGLE {
        let wanted = range();
        let began = Instant::now();
        let mut page = vec![0; PAGE as usize];
        file.read_at(&mut page, wanted.start)?;
        black_box(page);
        let took = began.elapsed();
        let wanted = range();
        let began = Instant::now();
        black_box(store.get_range(at, wanted).await?);
        if turn >= SINGLE / 2 {
            by_file.push(took);
            by_range.push(began.elapsed());
        }
    }
    let p50 = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_nanos()
    };
    let (file_ns, range_ns) = (p50(&mut by_file), p50(&mut by_range));
    println!("4 KiB, p50: File::read_at {file_ns} ns, get_range {range_ns} ns");

    let mut floor = Floor::new();
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let ranges: Vec<_> = (0..RANGES).map(|_| range()).collect();
        let mut took = [Duration::ZERO; 4];
        let began = Instant::now();
        black_box(store.get_ranges(at, &ranges).await?);
        took[0] = began.elapsed();
        let began = Instant::now();
        black_box(local.get_ranges(at, &ranges).await?);
        took[1] = began.elapsed();
        took[2] = floor.copy(&ranges, 1);
        took[3] = floor.copy(&ranges, 2);
        for (times, took) in times.iter_mut().zip(took) {
            times.push(took);
        }
    }
    println!("{RANGES} ranges of 4 KiB, in turns; p50 (lowest, highest):");
    let local = times[1].clone();
    let rows = [
        "get_ranges",
        "LocalFileSystem",
        "copy in this process, 1 thread",
        "copy in this process, 2 threads",
    ];
    for (name, times) in rows.iter().zip(&times) {
        let mut ratios: Vec<f64> = local
            .iter()
            .zip(times)
            .map(|(local, time)| local.as_secs_f64() / time.as_secs_f64())
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_unstable_by(f64::total_cmp);
        println!(
            "  {name:32} {:6.2} ms ({:.2}, {:.2}); LocalFileSystem / this {:.1} ({:.1}, {:.1})",
            ms[ROUNDS / 2],
            ms[0],
            ms[ROUNDS - 1],
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1],
        );
    }
    Ok(())
}

/// What bounds it: copies of the same ranges from memory of this process to memory that was used before.
struct Floor {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Floor {
    fn new() -> Self {
        Self {
            from: vec![1; SIZE as usize],
            to: vec![1; RANGES * PAGE as usize],
        }
    }

    fn copy(&mut self, ranges: &[Range<u64>], threads: usize) -> Duration {
        let began = Instant::now();
        let from = &self.from;
        let part = ranges.len().div_ceil(threads);
        let parts = ranges.chunks(part);
        let rooms = self.to.chunks_mut(part * PAGE as usize);
        thread::scope(|scope| {
            for (ranges, room) in parts.zip(rooms) {
                scope.spawn(move || {
                    for (range, room) in ranges.iter().zip(room.chunks_exact_mut(PAGE as usize)) {
                        room.copy_from_slice(&from[range.start as usize..range.end as usize]);
                    }
                });
            }
        });
        black_box(&self.to);
        began.elapsed()
    }
}
