use super::*;
use odafs_fabric::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};
use proptest::prelude::*;
use std::collections::HashMap;

const SIZE: PageSize = PageSize::MIN;

fn page(number: u64, generation: u64) -> Stretch {
    Stretch {
        file: 1,
        generation,
        offset: number * BLOCK as u64,
    }
}

fn put(cache: &DataCache, number: u64, generation: u64, data: &[u8]) -> Put {
    cache.put(page(number, generation), SIZE, data, || true)
}

/// The page's bytes, if it is kept.
fn get(cache: &DataCache, number: u64, generation: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0xee; BLOCK];
    let there = cache.get(page(number, generation), false, &mut bytes)?;
    bytes.truncate(there);
    Some(bytes)
}

/// A cache for so many blocks.
fn of_blocks(blocks: u64) -> DataCache {
    DataCache::new(blocks * Core::BYTES as u64, blocks * Core::BYTES as u64)
}

#[test]
fn a_page_of_another_generation_is_gone() {
    let cache = of_blocks(4);
    put(&cache, 1, 5, b"five");
    assert_eq!(get(&cache, 1, 5).unwrap(), b"five");
    assert_eq!(get(&cache, 1, 4), None, "as the file was before");
    assert_eq!(get(&cache, 1, 5).unwrap(), b"five");
    assert_eq!(get(&cache, 1, 6), None);
    assert_eq!(get(&cache, 1, 5), None);
    assert_eq!(cache.bytes(), 0);
}

#[test]
fn what_was_used_twice_stays_and_what_was_evicted_of_late_is_told() {
    let cache = of_blocks(16);
    (0..16).for_each(|n| assert_eq!(put(&cache, n, 1, &[n as u8; BLOCK]), Put::InNewMemory));
    (0..2).for_each(|_| assert_eq!(get(&cache, 0, 1).unwrap(), [0; BLOCK]));
    put(&cache, 16, 1, &[16; BLOCK]);
    assert_eq!(get(&cache, 1, 1), None);
    assert_eq!(get(&cache, 0, 1).unwrap(), [0; BLOCK]);
    let returns = put(&cache, 1, 1, &[1; BLOCK]);
    assert_eq!(returns, Put::InPlace { returns: true });
    assert_eq!(get(&cache, 1, 1).unwrap(), [1; BLOCK]);
    assert_eq!(cache.bytes(), 16 * Core::BYTES as u64);
}

#[test]
fn the_limit_holds_both_ways() {
    let cache = DataCache::new(1 << 20, 1 << 19);
    let fill = |pages| (0..pages).for_each(|n| _ = put(&cache, n, 1, &[n as u8; BLOCK]));
    for (limit, most) in [
        (1 << 19, 1 << 19),
        (1 << 20, 1 << 20),
        (9000, 9000),
        (0, 0),
        (1 << 30, 1 << 20),
    ] {
        cache.set_limit(limit);
        assert!(cache.bytes() <= most);
        fill(300);
        let there = (0..300).filter_map(|n| get(&cache, n, 1).map(|data| (n, data)));
        let right = |(n, data): &(u64, Vec<u8>)| assert_eq!(*data, [*n as u8; BLOCK]);
        let there = there.inspect(right).count() as u64;
        assert_eq!(cache.bytes(), there * Core::BYTES as u64);
        // A set of the index that is full may cost a frame.
        let frames = most / Core::BYTES as u64;
        assert!((frames - frames / 50..=frames).contains(&there));
    }
}

#[test]
fn who_keeps_nothing_has_no_memory() {
    let cache = of_blocks(100);
    assert_eq!(get(&cache, 0, 1), None);
    cache.remove(1, SIZE, 0, 10);
    assert!(cache.core.get().is_none());
    assert_eq!(of_blocks(0).bytes(), 0);
    assert_eq!(put(&of_blocks(0), 0, 1, b"x"), Put::Not);
}

#[test]
fn memory_is_taken_as_far_as_it_is_allowed() {
    let cache = of_blocks(8);
    cache.allow_growth(0);
    assert!(!cache.has_room());
    assert_eq!(put(&cache, 0, 1, b"0"), Put::Not);
    cache.allow_growth(3);
    assert!(cache.has_room());
    assert_eq!(
        (0..5)
            .filter(|n| put(&cache, *n, 1, b"") != Put::Not)
            .count(),
        3
    );
    assert!(!cache.has_room());
    assert_eq!(
        get(&cache, 0, 1).unwrap(),
        b"",
        "nothing gives way to one that comes later"
    );
    assert_eq!(cache.take_growth().0, 3);
    assert_eq!(cache.take_growth().0, 0);
    // A page that goes leaves its frame.
    cache.remove(1, SIZE, 1, 1);
    assert_eq!(put(&cache, 6, 1, b"6"), Put::InPlace { returns: false });
    // Two frames are no room for three blocks.
    cache.allow_growth(2);
    let large = cache.put(page(8, 1), PageSize::MAX, &[7; 2 * BLOCK + 1], || true);
    assert_eq!(large, Put::Not);
    assert_eq!(cache.take_growth().0, 0);
    cache.allow_growth(100);
    assert!((10..15).all(|n| put(&cache, n, 1, b"") == Put::InNewMemory));
    let full = put(&cache, 15, 1, b"");
    assert_eq!(full, Put::InPlace { returns: false });
    // At its limit it needs no more.
    cache.allow_growth(0);
    assert!(cache.has_room());
    assert_eq!(put(&cache, 16, 1, b""), Put::InPlace { returns: false });
    assert_eq!(cache.bytes(), 8 * Core::BYTES as u64);
}

#[test]
fn what_is_not_the_files_any_more_is_not_kept() {
    let cache = of_blocks(4);
    put(&cache, 0, 1, b"old");
    let put_late = cache.put(page(0, 1), SIZE, b"new", || false);
    assert_eq!(put_late, Put::Not);
    assert_eq!(get(&cache, 0, 1).unwrap(), b"old");
    cache.remove(1, SIZE, 0, 0);
    assert_eq!(get(&cache, 0, 1), None);
    // The frames that were filled in vain are there for others.
    (0..4).for_each(|n| _ = put(&cache, n, 1, &[n as u8]));
    (0..4).for_each(|n| assert_eq!(get(&cache, n, 1).unwrap(), [n as u8]));
}

#[test]
fn large_pages_are_whole_or_not_there() {
    let size = PageSize::MAX;
    let cache = of_blocks(40);
    let data: Vec<u8> = (0..size.bytes()).map(|at| (at / 100) as u8).collect();
    let whole = |number: u64| Stretch {
        file: 9,
        generation: 1,
        offset: size.start(number),
    };
    let read = |at: usize, bytes: usize| {
        let mut into = vec![0; bytes];
        let from = Stretch {
            offset: at as u64,
            ..whole(0)
        };
        cache
            .get(from, false, &mut into)
            .map(|there| into[..there].to_vec())
    };
    cache.put(whole(0), size, &data, || true);
    for (at, bytes) in [
        (0, 65536),
        (1, 65535),
        (4095, 2),
        (4096, 4096),
        (5000, 10_000),
        (65535, 1),
    ] {
        assert_eq!(read(at, bytes).unwrap(), data[at..at + bytes]);
    }
    cache.remove(9, SIZE, 3, 3);
    assert_eq!(read(0, 12_288).unwrap(), data[..12_288]);
    assert_eq!(read(0, 12_289), None);
    // A page that ends within a block, and one that ends with one.
    for end in [10_000, 8192, 0] {
        cache.put(whole(0), size, &data[..end], || true);
        assert_eq!(read(0, 65536).unwrap(), data[..end]);
        assert_eq!(read(end, 1).unwrap(), b"");
        assert_eq!(read(30_000, 1), None, "what was there before is not");
    }
    cache.remove(9, size, 0, 0);
    assert_eq!(cache.bytes(), 0);
}

proptest! {
    /// Against a plain map: a hit is always the last thing put, and the limit holds.
    #[test]
    fn behaves_as_a_map_that_may_lose_pages(
        ops in proptest::collection::vec((0u64..20, 0u64..3, 0usize..300, 0u8..10), 1..300),
    ) {
        let cache = of_blocks(30);
        let mut limit = 30;
        let mut model: HashMap<u64, (u64, Vec<u8>)> = HashMap::new();
        for (step, (number, generation, length, what)) in ops.into_iter().enumerate() {
            match what {
                0 => {
                    cache.remove(1, SIZE, number, number + 1);
                    model.remove(&number);
                    model.remove(&(number + 1));
                }
                1 => {
                    limit = [2, 10, 25, 30][length % 4];
                    cache.set_limit(limit * Core::BYTES as u64);
                    model.retain(|number, (generation, _)| get(&cache, *number, *generation).is_some());
                }
                2..5 => {
                    let data = vec![step as u8; length];
                    put(&cache, number, generation, &data);
                    model.insert(number, (generation, data));
                }
                _ => {
                    let expected = model.get(&number).filter(|(kept, _)| *kept == generation);
                    match get(&cache, number, generation) {
                        Some(data) => prop_assert_eq!(Some(&data), expected.map(|(_, data)| data)),
                        None => prop_assert!(limit < 20 || expected.is_none()),
                    }
                    model.retain(|of, (kept, _)| *of != number || *kept >= generation);
                }
            }
            prop_assert!(cache.bytes() <= limit * Core::BYTES as u64);
            prop_assert!(cache.bytes() <= model.len() as u64 * Core::BYTES as u64);
        }
    }
}

/// What a page holds says which it is, and in which state of its file it was put, in every word.
fn content(number: u64, state: u64) -> [u8; BLOCK] {
    let word = (number << 32 | state).to_le_bytes();
    std::array::from_fn(|at| word[at % 8])
}

/// Threads that fill, hit, remove and change the limit of a cache smaller than their pages: each hit is all of the page that was
/// asked for, and of no earlier state than the last that was removed before.
fn many_at_once(threads: u64, rounds: u64, pages: u64, blocks: u64) {
    let cache = Arc::new(of_blocks(blocks));
    // The file's state moves before what is cached of it is removed; then it is settled.
    let state = Arc::new(AtomicU64::new(1));
    let settled = Arc::new(AtomicU64::new(1));
    let worker = |me: u64| {
        let (cache, state, settled) = (cache.clone(), state.clone(), settled.clone());
        move || {
            for round in 0..rounds {
                let number = (round * 7 + me * 3) % pages;
                let mut into = [0; BLOCK];
                let before = settled.load(SeqCst);
                if let Some(there) = cache.get(page(number, 1), true, &mut into) {
                    assert_eq!(there, BLOCK);
                    let seen = u64::from_le_bytes(into[..8].try_into().unwrap());
                    assert_eq!(into, content(number, seen & 0xffff_ffff), "torn");
                    assert_eq!(seen >> 32, number, "another page");
                    assert!(
                        number != 0 || seen & 0xffff_ffff >= before,
                        "an earlier state"
                    );
                } else {
                    let now = state.load(SeqCst);
                    let data = content(number, now);
                    cache.put(page(number, 1), SIZE, &data, || state.load(SeqCst) == now);
                }
                if me == 0 && round % 5 == 0 {
                    let now = state.fetch_add(1, SeqCst) + 1;
                    cache.remove(1, SIZE, 0, 0);
                    settled.store(now, SeqCst);
                }
                if me == 1 && round % 64 == 0 {
                    cache.set_limit([1, blocks][round as usize / 64 % 2] * Core::BYTES as u64);
                }
            }
        }
    };
    let workers: Vec<_> = (0..threads).map(|me| thread::spawn(worker(me))).collect();
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
}

#[test]
#[cfg(not(shuttle))]
fn hits_beside_fills_and_removals_are_whole() {
    many_at_once(4, 10_000, 40, 30);
}

/// Few pages and steps, in as many orders as there is time for: a copy can be left at every 512 bytes.
#[test]
#[cfg(shuttle)]
fn shuttle_hits_beside_fills_and_removals_are_whole() {
    shuttle::check_random(|| many_at_once(3, 6, 2, 1), 20_000);
}
