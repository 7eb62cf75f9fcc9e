//! What the interface costs: one small range beside `File::read_at`, many beside `LocalFileSystem`, in one run.
//!
//! `cargo run --release --example bench -- URL DIRECTORY`: the URL of a server on this machine, and the directory that it
//! serves. It makes a file of 256 MiB there, and removes it.

use object_store::{ObjectStore as _, ObjectStoreExt as _, local::LocalFileSystem, path::Path};
use odafs_object_store::OdafsStore;
use std::{hint::black_box, ops::Range, time::Instant};

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
    let p50 = |times: &mut Vec<std::time::Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_nanos()
    };
    let (file_ns, range_ns) = (p50(&mut by_file), p50(&mut by_range));
    println!("4 KiB, p50: File::read_at {file_ns} ns, get_range {range_ns} ns");

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let ranges: Vec<_> = (0..RANGES).map(|_| range()).collect();
        let began = Instant::now();
        black_box(store.get_ranges(at, &ranges).await?);
        ours.push(began.elapsed());
        let began = Instant::now();
        black_box(local.get_ranges(at, &ranges).await?);
        theirs.push(began.elapsed());
    }
    let (ours, theirs) = (p50(&mut ours), p50(&mut theirs));
    println!(
        "get_ranges, {RANGES} of 4 KiB, p50: {:.2} ms, LocalFileSystem {:.2} ms: {:.1} times",
        ours as f64 / 1e6,
        theirs as f64 / 1e6,
        theirs as f64 / ours as f64
    );
    Ok(())
}
