//! The order of the data cache beside others, on traces. They may count hits as they like; ours only stores a use now and then.

use super::shadow::Shadow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// A cache of names: reads one, which comes if it is not there, and tells whether it was.
type Cache = Box<dyn FnMut(u64) -> bool>;

/// Pages of the cache.
const C: u64 = 4096;
/// Reads of a trace; those of the first quarter are not counted.
const READS: usize = 160_000;

fn ours(capacity: usize) -> Cache {
    let mut shadow = Shadow::new(capacity as u32);
    Box::new(move |page| shadow.read(page.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn lru(capacity: usize) -> Cache {
    let mut pages = lru::LruCache::new(capacity.try_into().unwrap());
    Box::new(move |page| pages.put(page, ()).is_some())
}

fn clock(capacity: usize) -> Cache {
    let (mut at, mut slots, mut hand) = (HashMap::new(), Vec::<(u64, bool)>::new(), 0);
    Box::new(move |page| {
        if let Some(slot) = at.get(&page) {
            let slot: &usize = slot;
            slots[*slot].1 = true;
            return true;
        }
        if slots.len() < capacity {
            at.insert(page, slots.len());
            slots.push((page, false));
            return false;
        }
        while std::mem::take(&mut slots[hand].1) {
            hand = (hand + 1) % capacity;
        }
        at.remove(&slots[hand].0);
        at.insert(page, hand);
        slots[hand].0 = page;
        hand = (hand + 1) % capacity;
        false
    })
}

/// SIEVE (Zhang et al., NSDI 2024), its list a map by the time of coming.
fn sieve(capacity: usize) -> Cache {
    let mut at = HashMap::<u64, u64>::new();
    let mut list = BTreeMap::<u64, (u64, bool)>::new();
    let (mut now, mut hand) = (0, 0);
    Box::new(move |page| {
        if let Some(came) = at.get(&page) {
            list.get_mut(came).unwrap().1 = true;
            return true;
        }
        while at.len() >= capacity {
            let Some((came, (old, used))) = list.range_mut(hand..).next() else {
                hand = 0;
                continue;
            };
            let came = *came;
            hand = came + 1;
            if !std::mem::take(used) {
                at.remove(old);
                list.remove(&came);
            }
        }
        now += 1;
        at.insert(page, now);
        list.insert(now, (page, false));
        false
    })
}

/// S3-FIFO as published: one use takes a page to the main queue, however new it is.
fn s3_fifo(capacity: usize) -> Cache {
    let small_most = capacity / 10;
    let (mut small, mut main) = (VecDeque::<u64>::new(), VecDeque::<u64>::new());
    let mut uses = HashMap::<u64, u8>::new();
    // When a page went, by how many went before.
    let (mut gone, mut now) = (HashMap::<u64, usize>::new(), 0);
    Box::new(move |page| {
        if let Some(uses) = uses.get_mut(&page) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while uses.len() >= capacity {
            let from_small = small.len() >= small_most || main.is_empty();
            let queue = if from_small { &mut small } else { &mut main };
            let first = queue.pop_front().unwrap();
            let used = uses.get_mut(&first).unwrap();
            if *used > 0 {
                *used = if from_small { 0 } else { *used - 1 };
                main.push_back(first);
                continue;
            }
            uses.remove(&first);
            if from_small {
                now += 1;
                gone.insert(first, now);
            }
        }
        let returns = gone
            .remove(&page)
            .is_some_and(|then| now - then < capacity * 9 / 10);
        if returns { &mut main } else { &mut small }.push_back(page);
        uses.insert(page, 0);
        false
    })
}

/// TinyLFU (Einziger et al., TOS 2017): a window of a hundredth, and what leaves it comes in if it was read more often of late
/// than the one that would go.
fn tiny_lfu(capacity: usize) -> Cache {
    let mut window = lru::LruCache::<u64, ()>::unbounded();
    let mut main = lru::LruCache::<u64, ()>::unbounded();
    let sketch_bytes = (capacity * 8).next_power_of_two();
    let (mut sketch, mut reads) = (vec![0u8; sketch_bytes], 0);
    let cells = move |page: u64| {
        (1..5u64).map(move |row| {
            let mixed = Dice(page ^ row << 58).roll() as usize;
            mixed % sketch_bytes
        })
    };
    Box::new(move |page| {
        cells(page).for_each(|cell| sketch[cell] = (sketch[cell] + 1).min(15));
        reads += 1;
        if reads == capacity * 10 {
            sketch.iter_mut().for_each(|count| *count /= 2);
            reads /= 2;
        }
        if main.get(&page).is_some() || window.get(&page).is_some() {
            return true;
        }
        window.put(page, ());
        if window.len() > capacity / 100 {
            let (comes, ()) = window.pop_lru().unwrap();
            let count = |page| cells(page).map(|cell| sketch[cell]).min();
            let room = main.len() < capacity - capacity / 100;
            let goes = main.peek_lru().map(|(page, ())| *page);
            if room || count(comes) > goes.and_then(count) {
                if !room {
                    main.pop_lru();
                }
                main.put(comes, ());
            }
        }
        false
    })
}

/// Hits of whoever knows what comes: the page goes that is not needed for longest.
fn belady(trace: &[u64], capacity: usize) -> f64 {
    let mut next = vec![usize::MAX; trace.len()];
    let mut last = HashMap::new();
    for (at, page) in trace.iter().enumerate().rev() {
        next[at] = last.insert(*page, at).unwrap_or(usize::MAX);
    }
    let (mut held, mut order) = (HashMap::new(), BTreeSet::<(usize, u64)>::new());
    let mut hits = 0;
    for (at, page) in trace.iter().enumerate() {
        if let Some(now) = held.remove(page) {
            order.remove(&(now, *page));
            hits += usize::from(at >= trace.len() / 4);
        } else if held.len() >= capacity {
            let latest = *order.last().unwrap();
            if latest.0 < next[at] {
                continue;
            }
            order.remove(&latest);
            held.remove(&latest.1);
        }
        held.insert(*page, next[at]);
        order.insert((next[at], *page));
    }
    hits as f64 / (trace.len() - trace.len() / 4) as f64
}

fn hits(mut cache: Cache, trace: &[u64]) -> f64 {
    let (warm, counted) = trace.split_at(trace.len() / 4);
    warm.iter().for_each(|page| _ = cache(*page));
    let hits = counted.iter().filter(|page| cache(**page)).count();
    hits as f64 / counted.len() as f64
}

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(n)) >> 64) as u64
    }
}

/// Zipf, exponent 0.99, over so many pages: the sums of their weights.
fn zipf(pages: u64) -> impl Fn(&mut Dice) -> u64 {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=pages)
        .map(|rank| {
            sum += (rank as f64).powf(-0.99);
            sum
        })
        .collect();
    move |dice| {
        let at = (dice.roll() >> 11) as f64 / (1u64 << 53) as f64 * sum;
        sums.partition_point(|sum| *sum < at) as u64
    }
}

fn traces() -> Vec<(&'static str, Vec<u64>)> {
    let mut dice = Dice(1);
    let draw = zipf(4 * C);
    let mut scanned = 1 << 40;
    let mut scan = move || {
        scanned += 1;
        scanned
    };
    let mut of = |page: &mut dyn FnMut(u64, &mut Dice) -> u64| -> Vec<u64> {
        (0..READS as u64).map(|at| page(at, &mut dice)).collect()
    };
    let mut page_in_pieces = 0;
    let mut all = vec![
        (
            "uniform over 2 caches",
            of(&mut |_, dice| dice.below(2 * C)),
        ),
        ("Zipf over 4 caches", of(&mut |_, dice| draw(dice))),
        (
            "half a cache at random, and a scan",
            of(&mut |at, dice| match at % 2 {
                0 => dice.below(C / 2),
                _ => scan(),
            }),
        ),
        (
            "the same, the scan by quarter pages",
            of(&mut |at, dice| match at % 5 {
                0 => dice.below(C / 2),
                step => {
                    if step == 1 {
                        page_in_pieces = scan();
                    }
                    page_in_pieces
                }
            }),
        ),
        (
            "Zipf, and scans of 2 caches",
            of(&mut |at, dice| match at % (6 * C) < 4 * C {
                true => draw(dice),
                false => scan(),
            }),
        ),
        ("a loop of 1.1 caches", of(&mut |at, _| at % (C * 11 / 10))),
        (
            "half a cache at random, then a loop of 1.07",
            of(&mut |at, dice| match at < READS as u64 / 8 {
                true => dice.below(C / 2),
                false => at % (C * 107 / 100),
            }),
        ),
        ("a loop of 1.5 caches", of(&mut |at, _| at % (3 * C / 2))),
        ("a loop of 2 caches", of(&mut |at, _| at % (2 * C))),
    ];
    let moved = |at: u64| (at / (8 * C)) << 32;
    all.extend([
        (
            "0.9 caches at random, others after 8",
            of(&mut |at, dice| moved(at) + dice.below(C * 9 / 10)),
        ),
        (
            "Zipf, other pages after 8",
            of(&mut |at, dice| moved(at) + draw(dice)),
        ),
    ]);
    all
}

#[test]
#[ignore = "prints the table of docs/BENCHMARKS.md"]
fn contest() {
    type Order = (&'static str, fn(usize) -> Cache);
    let orders: [Order; 6] = [
        ("LRU", lru),
        ("CLOCK", clock),
        ("SIEVE", sieve),
        ("S3-FIFO", s3_fifo),
        ("TinyLFU", tiny_lfu),
        ("ours", ours),
    ];
    print!("| hits in a hundred reads |");
    orders.iter().for_each(|(name, _)| print!(" {name} |"));
    println!(" who knows what comes |");
    for (name, trace) in traces() {
        print!("| {name} |");
        for (_, order) in orders {
            print!(" {:.1} |", 100.0 * hits(order(C as usize), &trace));
        }
        println!(" {:.1} |", 100.0 * belady(&trace, C as usize));
    }
}

/// In each trace, what is asked of the order: parts of what could be had.
#[test]
fn every_trace_is_served() {
    let asked = [0.6, 0.9, 0.98, 0.98, 0.85, 0.85, 0.85, 0.8, 0.0, 0.84, 0.85];
    for ((name, trace), asked) in traces().into_iter().zip(asked) {
        let (had, best) = (hits(ours(C as usize), &trace), belady(&trace, C as usize));
        assert!(had >= asked * best, "{name}: {had} of {best}");
    }
}
