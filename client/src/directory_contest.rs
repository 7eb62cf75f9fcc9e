//! Which chunk of references goes first: the directory beside other orders, on traces of pages that are read, while some of
//! their references become stale.

use super::*;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Chunks that there is room for.
const C: usize = 128;
/// Pages of as many chunks.
const D: u64 = (C * CHUNK) as u64;
/// Reads of a trace; those of the first quarter are not counted.
const READS: usize = 400_000;
/// References of neighbours that a call brings, all in one lot of pages.
const NEIGHBOURS: u64 = 8;
const LOT: u64 = 64;

/// Who says which chunk goes. Chunks have places, from 0 on.
trait Order {
    /// A chunk has come to a place.
    fn came(&mut self, place: usize, chunk: u64);
    /// A reference of it was looked up, or learned.
    fn used(&mut self, place: usize);
    /// It went by itself: it has no references left.
    fn went(&mut self, place: usize);
    /// The place whose chunk goes; `held` says how many references each holds.
    fn victim(&mut self, held: &[u32]) -> usize;
}

/// By the time of the last use, or of coming.
struct ByTime {
    used: Vec<u64>,
    now: u64,
    counts_uses: bool,
}

impl ByTime {
    fn make(counts_uses: bool) -> Box<dyn Order> {
        Box::new(Self {
            used: vec![0; C],
            now: 0,
            counts_uses,
        })
    }
}

impl Order for ByTime {
    fn came(&mut self, place: usize, _: u64) {
        self.now += 1;
        self.used[place] = self.now;
    }

    fn used(&mut self, place: usize) {
        if self.counts_uses {
            self.came(place, 0);
        }
    }

    fn went(&mut self, _: usize) {}

    fn victim(&mut self, _: &[u32]) -> usize {
        (0..C).min_by_key(|place| self.used[*place]).unwrap()
    }
}

/// CLOCK, of which every use or one in some sets the bit; of so many without it the one with the fewest references goes.
struct Clock {
    used: [bool; C],
    hand: usize,
    uses: u32,
    one_in: u32,
    among: usize,
}

impl Clock {
    fn make(one_in: u32, among: usize) -> Box<dyn Order> {
        Box::new(Self {
            used: [false; C],
            hand: 0,
            uses: 0,
            one_in,
            among,
        })
    }
}

impl Order for Clock {
    fn came(&mut self, place: usize, _: u64) {
        self.used[place] = true;
    }

    fn used(&mut self, place: usize) {
        self.uses += 1;
        if self.uses.is_multiple_of(self.one_in) {
            self.used[place] = true;
        }
    }

    fn went(&mut self, _: usize) {}

    fn victim(&mut self, held: &[u32]) -> usize {
        let mut found = Vec::new();
        for _ in 0..2 * C {
            let place = self.hand;
            self.hand = (place + 1) % C;
            if !std::mem::take(&mut self.used[place]) {
                found.push(place);
            }
            if found.len() == self.among {
                break;
            }
        }
        found
            .into_iter()
            .min_by_key(|place| held[*place])
            .unwrap_or(self.hand)
    }
}

/// SIEVE (Zhang et al., NSDI 2024).
struct BySieve {
    used: [bool; C],
    came: [u64; C],
    list: BTreeMap<u64, usize>,
    now: u64,
    hand: u64,
}

impl BySieve {
    fn make() -> Box<dyn Order> {
        Box::new(Self {
            used: [false; C],
            came: [0; C],
            list: BTreeMap::new(),
            now: 0,
            hand: 0,
        })
    }
}

impl Order for BySieve {
    fn came(&mut self, place: usize, _: u64) {
        self.now += 1;
        self.came[place] = self.now;
        self.used[place] = false;
        self.list.insert(self.now, place);
    }

    fn used(&mut self, place: usize) {
        self.used[place] = true;
    }

    fn went(&mut self, place: usize) {
        self.list.remove(&self.came[place]);
    }

    fn victim(&mut self, _: &[u32]) -> usize {
        loop {
            let Some((came, place)) = self.list.range(self.hand..).next() else {
                self.hand = 0;
                continue;
            };
            self.hand = came + 1;
            if !std::mem::take(&mut self.used[*place]) {
                return *place;
            }
        }
    }
}

/// S3-FIFO (Yang et al., SOSP 2023) over chunks.
struct S3Fifo {
    uses: [u8; C],
    chunk: [u64; C],
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    gone: HashMap<u64, usize>,
    now: usize,
}

impl S3Fifo {
    fn make() -> Box<dyn Order> {
        Box::new(Self {
            uses: [0; C],
            chunk: [0; C],
            small: VecDeque::new(),
            main: VecDeque::new(),
            gone: HashMap::new(),
            now: 0,
        })
    }
}

impl Order for S3Fifo {
    fn came(&mut self, place: usize, chunk: u64) {
        let returns = self
            .gone
            .remove(&chunk)
            .is_some_and(|then| self.now - then < C * 9 / 10);
        let queue = match returns {
            true => &mut self.main,
            false => &mut self.small,
        };
        queue.push_back(place);
        self.uses[place] = 0;
        self.chunk[place] = chunk;
    }

    fn used(&mut self, place: usize) {
        self.uses[place] = (self.uses[place] + 1).min(3);
    }

    fn went(&mut self, place: usize) {
        self.small.retain(|other| *other != place);
        self.main.retain(|other| *other != place);
    }

    fn victim(&mut self, _: &[u32]) -> usize {
        loop {
            let from_small = self.small.len() >= C / 10 || self.main.is_empty();
            let queue = match from_small {
                true => &mut self.small,
                false => &mut self.main,
            };
            let place = *queue.front().unwrap();
            let uses = &mut self.uses[place];
            if *uses == 0 {
                if from_small {
                    self.now += 1;
                    self.gone.insert(self.chunk[place], self.now);
                }
                return place;
            }
            *uses = if from_small { 0 } else { *uses - 1 };
            queue.pop_front();
            self.main.push_back(place);
        }
    }
}

/// What holds references: told of reads, it says whether it had a good one.
trait Holder {
    fn look(&mut self, page: u64, version: u32) -> bool;
    fn learn(&mut self, page: u64, version: u32);
}

/// One with an order of chunks.
struct Ordered {
    order: Box<dyn Order>,
    places: HashMap<u64, usize>,
    chunks: Vec<(u64, [u32; CHUNK])>,
    held: Vec<u32>,
    free: Vec<usize>,
}

impl Ordered {
    fn new(order: Box<dyn Order>) -> Self {
        Self {
            order,
            places: HashMap::new(),
            chunks: vec![(0, [0; CHUNK]); C],
            held: vec![0; C],
            free: (0..C).collect(),
        }
    }
}

impl Holder for Ordered {
    fn look(&mut self, page: u64, version: u32) -> bool {
        let Some(place) = self.places.get(&(page / CHUNK as u64)).copied() else {
            return false;
        };
        let known = &mut self.chunks[place].1[page as usize % CHUNK];
        if *known == 0 {
            return false;
        }
        self.order.used(place);
        if *known == version {
            return true;
        }
        *known = 0;
        self.held[place] -= 1;
        if self.held[place] == 0 {
            self.order.went(place);
            self.places.remove(&(page / CHUNK as u64));
            self.free.push(place);
        }
        false
    }

    fn learn(&mut self, page: u64, version: u32) {
        let chunk = page / CHUNK as u64;
        let place = match self.places.get(&chunk) {
            Some(place) => *place,
            None => {
                let place = self.free.pop().unwrap_or_else(|| {
                    let place = self.order.victim(&self.held);
                    self.order.went(place);
                    self.places.remove(&self.chunks[place].0);
                    place
                });
                self.chunks[place] = (chunk, [0; CHUNK]);
                self.held[place] = 0;
                self.places.insert(chunk, place);
                self.order.came(place, chunk);
                place
            }
        };
        let known = &mut self.chunks[place].1[page as usize % CHUNK];
        self.held[place] += u32::from(*known == 0);
        *known = version;
    }
}

/// The directory itself.
struct Ours(Directory, Arc<Tree>);

impl Ours {
    fn new() -> Self {
        let directory = Directory::new((C * CHUNK_BYTES) as u64);
        directory.begin(1, PageSize::DEFAULT);
        Self(directory, Arc::default())
    }
}

impl Holder for Ours {
    fn look(&mut self, page: u64, version: u32) -> bool {
        match self.0.locate(&self.1, page, 1, PageSize::DEFAULT) {
            Some(known) if known.epoch.0 == u64::from(version) => true,
            Some(known) => {
                self.0.forget(&self.1, page, known.epoch);
                false
            }
            None => false,
        }
    }

    fn learn(&mut self, page: u64, version: u32) {
        let reference = Reference {
            address: page % 1000 * 4096,
            length: 1,
            handle: Handle(0),
            key: AccessKey(0),
            epoch: Epoch(version.into()),
        };
        self.0.learn(&self.1, 1, [(page, reference)]);
    }
}

/// A trace: what is read, and after how many reads each of its restless pages changes.
struct Trace {
    name: &'static str,
    pages: Vec<u64>,
    /// A page, which changes behind each read.
    changes: Vec<Option<u64>>,
}

/// The next read of a trace, by its number: its page, and one that changes.
type Next<'a> = dyn FnMut(u64, &mut Dice) -> (u64, Option<u64>) + 'a;

/// Reads in a hundred that found a good reference.
fn good(holder: &mut dyn Holder, trace: &Trace) -> f64 {
    let mut versions = HashMap::<u64, u32>::new();
    let version = |versions: &HashMap<u64, u32>, page: u64| versions.get(&page).map_or(1, |v| *v);
    let mut good = 0;
    for (at, (page, change)) in trace.pages.iter().zip(&trace.changes).enumerate() {
        if holder.look(*page, version(&versions, *page)) {
            good += usize::from(at >= READS / 4);
        } else {
            let lot = page / LOT * LOT;
            let near = (page + 1..lot + LOT).chain(lot..*page);
            for near in near.take(NEIGHBOURS as usize).chain([*page]) {
                holder.learn(near, version(&versions, near));
            }
        }
        if let Some(page) = change {
            *versions.entry(*page).or_insert(1) += 1;
        }
    }
    100.0 * good as f64 / (READS - READS / 4) as f64
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(n)) >> 64) as u64
    }
}

/// Zipf, exponent 0.99, over so many: the sums of their weights.
fn zipf(many: u64) -> impl Fn(&mut Dice) -> u64 {
    let mut sum = 0.0;
    let weigh = |rank: u64| {
        sum += (rank as f64).powf(-0.99);
        sum
    };
    let sums: Vec<f64> = (1..=many).map(weigh).collect();
    move |dice| {
        let at = dice.below(1 << 53) as f64 / (1u64 << 53) as f64 * sum;
        sums.partition_point(|sum| *sum < at) as u64
    }
}

fn traces() -> Vec<Trace> {
    let mut dice = Dice(1);
    let chunks = zipf(4 * C as u64);
    let pages = zipf(4 * D);
    let mut scanned = 1 << 30;
    let mut scan = move || {
        scanned += 1;
        scanned
    };
    let mut of = |name, page: &mut Next<'_>| {
        let reads = (0..READS as u64).map(|at| page(at, &mut dice));
        let (pages, changes) = reads.unzip();
        Trace {
            name,
            pages,
            changes,
        }
    };
    let chunk = CHUNK as u64;
    vec![
        of("uniform over 2 directories", &mut |_, dice| {
            (dice.below(2 * D), None)
        }),
        of("Zipf over 4, hot pages side by side", &mut |_, dice| {
            (chunks(dice) * chunk + dice.below(chunk), None)
        }),
        of("Zipf over 4, hot pages anywhere", &mut |_, dice| {
            (pages(dice).wrapping_mul(0x9e37_79b1) % (4 * D), None)
        }),
        of("half at random, and a scan", &mut |at, dice| match at % 2 {
            0 => (dice.below(D / 2), None),
            _ => (scan(), None),
        }),
        of("a loop of 1.1", &mut |at, _| (at % (D * 11 / 10), None)),
        of("0.9 at random, others after 4", &mut |at, dice| {
            ((at / (4 * D)) << 24 | dice.below(D * 9 / 10), None)
        }),
        // What is in the second half changes as often as it is read.
        of("uniform over 2, half of it written", &mut |_, dice| {
            (dice.below(2 * D), Some(D + dice.below(D)))
        }),
        of("the same, each file in a few pages", &mut |_, dice| {
            let page = |dice: &mut Dice| dice.below(4 * C as u64) * chunk + dice.below(32);
            (page(dice), Some(4 * C as u64 / 2 * chunk + page(dice) / 2))
        }),
    ]
}

#[test]
#[ignore = "prints the table of docs/BENCHMARKS.md"]
fn contest() {
    type Make = fn() -> Box<dyn Holder>;
    let holders: [(&str, Make); 8] = [
        ("FIFO", || Box::new(Ordered::new(ByTime::make(false)))),
        ("LRU", || Box::new(Ordered::new(ByTime::make(true)))),
        ("CLOCK, one use in 64", || {
            Box::new(Ordered::new(Clock::make(64, 1)))
        }),
        ("CLOCK", || Box::new(Ordered::new(Clock::make(1, 1)))),
        ("CLOCK, emptiest of 4", || {
            Box::new(Ordered::new(Clock::make(1, 4)))
        }),
        ("SIEVE", || Box::new(Ordered::new(BySieve::make()))),
        ("S3-FIFO", || Box::new(Ordered::new(S3Fifo::make()))),
        ("ours", || Box::new(Ours::new())),
    ];
    print!("| good references in a hundred reads |");
    holders.iter().for_each(|(name, _)| print!(" {name} |"));
    println!();
    for trace in traces() {
        print!("| {} |", trace.name);
        for (_, make) in &holders {
            print!(" {:.1} |", good(&mut *make(), &trace));
        }
        println!();
    }
}

/// As many references as are asked for: what a reference takes of memory, and what the two ends of its life take of time.
#[test]
#[ignore = "takes 2.4 GB, and prints bytes and nanoseconds"]
fn a_hundred_million() {
    const PAGES: u64 = 100_000_000;
    const FILES: u64 = 100;
    const AT_ONCE: u64 = 9;
    const LOOKS: u64 = 10_000_000;
    let per_file = PAGES / FILES;
    let before = resident();
    // What any table of that size takes.
    let table = vec![1u64; PAGES as usize * 3];
    let (mut dice, mut sum) = (Dice(3), 0);
    let began = std::time::Instant::now();
    (0..LOOKS).for_each(|_| sum += table[dice.below(PAGES * 3) as usize]);
    let loaded = began.elapsed().as_nanos() as f64 / LOOKS as f64;
    assert_eq!(sum, LOOKS);
    drop(table);
    println!("a load from a table of 24 bytes each: {loaded:.0} ns");
    for (what, in_a_row) in [("anywhere", false), ("in a row", true)] {
        let directory = Directory::new(3 << 30);
        directory.begin(1, PageSize::DEFAULT);
        let trees: Vec<Arc<Tree>> = (0..FILES).map(|_| Arc::default()).collect();
        let reference = |page: u64| {
            let frame = match in_a_row {
                true => page,
                false => page.wrapping_mul(0x9e37_79b1) & 0xffff_ffff,
            };
            let reference = Reference {
                address: frame * 4096,
                length: 4096,
                handle: Handle(page as u32),
                key: AccessKey(page),
                epoch: Epoch(7),
            };
            (page % per_file, reference)
        };
        let began = std::time::Instant::now();
        for (file, tree) in (0..FILES).zip(&trees) {
            let mut page = file * per_file;
            while page < (file + 1) * per_file {
                let end = (page + AT_ONCE).min((file + 1) * per_file);
                directory.learn(tree, 1, (page..end).map(reference));
                page = end;
            }
        }
        let learned = began.elapsed();
        let bytes = resident() - before;
        let held = directory.held();
        assert_eq!(held, PAGES);
        let mut dice = Dice(3);
        let mut found = 0;
        let began = std::time::Instant::now();
        for _ in 0..LOOKS {
            let page = dice.below(PAGES);
            let tree = &trees[(page / per_file) as usize];
            let at = page % per_file;
            found += u64::from(directory.locate(tree, at, 1, PageSize::DEFAULT).is_some());
        }
        let looked = began.elapsed();
        assert_eq!(found, LOOKS);
        println!(
            "{what}: {held} references, {:.2} bytes each ({:.2} by the directory's count), {:.0} ns to learn one ({AT_ONCE} at a time), \
             {:.0} ns to find one",
            bytes as f64 / held as f64,
            directory.bytes() as f64 / held as f64,
            learned.as_nanos() as f64 / held as f64,
            looked.as_nanos() as f64 / LOOKS as f64,
        );
    }
}

/// Bytes of this process's memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("its second number");
    pages.parse::<u64>().expect("a number") * 4096
}
