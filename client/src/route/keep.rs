//! Whether to keep a page that was read in the data cache.
//!
//! ```text
//! keep where  saved x (T_route - T_hit)  >  (1 - saved) x (T_look + T_whole)  +  (1 - found) x T_put
//! ```
//!
//! `found` is the chance that a page would be found if all pages were kept, and `saved` the chance that this saves the
//! read: [`whole_chance`] for a call, `found` for a direct read. A hit saves the time of the route. A miss costs a
//! lookup, the copy into the cache, and the extra time to fetch the whole page if less was wanted. A read of several
//! pages looks each of them up and copies those that it missed. Memory for the cache is paid for once and separately:
//! [`super::growth`].

use super::{
    cost::Mean,
    growth::Growth,
    order::{CLASSES, Choice},
};

/// Time of a hit for each page, until one was timed: a copy of a page from memory.
const HIT_NS: f64 = 500.0;
/// Time to keep a page, until one was timed: another copy.
const PUT_NS: f64 = 250.0;
/// Time of a lookup that finds nothing: one cache line from memory.
const LOOK_NS: f64 = 60.0;
/// The chance of a hit, until it is known.
const CHANCE: f64 = 0.25;
/// How much must be won or lost before the choice changes, as a part of the route's time.
const MARGIN: f64 = 0.05;
/// How many times as long as a hit a read takes if keeping its page is beyond doubt.
const FAR: f64 = 4.0;
/// Misses are rare from this chance of a hit on.
const OFTEN: f64 = 0.97;

/// The chance that all of so many pages of a read are found, if one of them is with the chance `page`. Pages that were
/// read together leave the cache apart: each has its own place in the order, and in what is remembered of evicted pages.
/// The power is that of reads at random of 4 to 64 pages, from 1.5 to 8 times what the cache holds.
pub fn whole_chance(page: f64, pages: f64) -> f64 {
    page.powf(1.0 + pages.max(1.0).log2() / 6.0)
}

/// What is known about the data cache.
#[derive(Debug)]
pub struct Keep {
    page_bytes: usize,
    hits: [Mean; CLASSES],
    put: Mean,
    /// Number of pages of a read, or none if that is not known.
    pages: [Mean; CLASSES],
    keeps: [bool; CLASSES],
    chance: Option<f64>,
    growth: Growth,
}

impl Keep {
    /// Nothing is known yet about a cache with pages of this size in bytes.
    pub fn of_pages(page_bytes: usize) -> Self {
        Self {
            page_bytes,
            hits: Default::default(),
            put: Mean::default(),
            pages: Default::default(),
            keeps: Default::default(),
            chance: None,
            growth: Growth::default(),
        }
    }

    /// A hit of this class took this long.
    pub fn hit(&mut self, class: usize, ns: u64) {
        self.hits[class].add(ns);
    }

    /// Keeping a page took this long, in memory that the cache already had.
    pub fn put(&mut self, ns: u64) {
        self.put.add(ns);
    }

    /// A read of this class had this many pages.
    pub fn spans(&mut self, class: usize, pages: u32) {
        // A read of no pages says nothing.
        if pages > 0 {
            self.pages[class].add(pages.into());
        }
    }

    /// Number of pages of a read of this class. While none came, the likely number.
    pub fn pages(&self, class: usize) -> f64 {
        // That of the longest read of the class. The last class has no longest read; assume four times the class
        // before.
        let likely = || ((256usize << (2 * class)) / self.page_bytes.max(1)).max(1) as f64;
        self.pages[class].known().unwrap_or_else(likely)
    }

    /// `count` reads of this class, whose pages are kept, missed and took this long each by this route.
    pub fn missed(&mut self, class: usize, choice: Choice, count: u32, read_ns: u64) {
        if self.keeps[class] {
            let read_ns = read_ns as f64;
            let saved_ns = read_ns - self.hit_guess_ns(class, read_ns);
            let saved = self.chance.map(|_| self.saved(class, choice));
            self.growth.missed(count, read_ns, saved_ns, saved);
        }
    }

    /// The cache took memory for this many frames in this time.
    pub fn grew(&mut self, frames: u32, ns: u64) {
        self.growth.took(frames, ns);
    }

    /// Number of frames for which the cache may take memory now.
    pub fn may_grow(&mut self) -> u32 {
        self.growth.frames()
    }

    fn hit_guess_ns(&self, class: usize, route_ns: f64) -> f64 {
        let timed = self.hits[class].settled();
        timed.unwrap_or_else(|| route_ns.min(HIT_NS * self.pages(class)))
    }

    /// The chance that kept pages save a read by this route. Of direct reads each page costs a request, so each page that
    /// is found saves its part. A call takes as long for some of its pages, or there are several calls for what lies
    /// between those that were found.
    fn saved(&self, class: usize, choice: Choice) -> f64 {
        match (self.chance, choice) {
            (None, _) => CHANCE,
            (Some(page), Choice::Rpc) => whole_chance(page, self.pages(class)),
            (Some(page), Choice::Guarded | Choice::OneSided) => page,
        }
    }

    /// The chance of a hit if all pages were kept, or `None` while it is not known.
    pub fn set_chance(&mut self, chance: Option<f64>) {
        self.chance = chance;
    }

    /// Whether a miss that takes `route_ns` takes so much longer than a hit that keeping pages is beyond doubt.
    pub fn is_far_from_hit(&self, class: usize, route_ns: f64) -> bool {
        route_ns > FAR * self.hit_guess_ns(class, route_ns)
    }

    /// Whether misses are no rare event.
    pub fn misses_often(&self) -> bool {
        self.chance.is_some_and(|chance| chance < OFTEN)
    }

    /// The mean time of a read where pages are kept and a miss takes `route_ns` by this route.
    pub fn mean_ns(&self, class: usize, choice: Choice, route_ns: f64) -> f64 {
        let (saved, found) = (self.saved(class, choice), self.chance.unwrap_or(CHANCE));
        let hit_ns = self.hit_guess_ns(class, route_ns);
        let put_ns = self.put.settled().unwrap_or(PUT_NS) * self.pages(class);
        saved * hit_ns + (1.0 - saved) * route_ns + (1.0 - found) * put_ns
    }

    /// The time of a hit, if one was timed.
    pub fn hit_ns(&self, class: usize) -> Option<f64> {
        self.hits[class].known()
    }

    /// The time to keep a page, if one was timed.
    pub fn put_ns(&self) -> Option<f64> {
        self.put.known()
    }

    /// Whether to keep a page that a read of this class gets by this route, which takes `route_ns`, or `page_ns` for a
    /// whole page.
    pub fn decide(&mut self, class: usize, choice: Choice, route_ns: f64, page_ns: f64) -> bool {
        let hit_ns = self.hit_guess_ns(class, route_ns);
        let put_ns = self.put.settled().unwrap_or(PUT_NS);
        let pages = self.pages(class);
        let (saved, found) = (self.saved(class, choice), self.chance.unwrap_or(CHANCE));
        let whole_ns = (page_ns - route_ns).max(0.0);
        let won = saved * (route_ns - hit_ns);
        let lost = (1.0 - saved) * (pages * LOOK_NS + whole_ns) + (1.0 - found) * pages * put_ns;
        let margin = MARGIN * route_ns;
        let keeps = &mut self.keeps[class];
        *keeps = won - lost > if *keeps { -margin } else { margin };
        if !*keeps {
            // Neither is measured while nothing is kept, and old values may come from a busy minute.
            self.hits[class].fade();
            self.put.fade();
        }
        self.keeps[class]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_chance(chance: f64) -> Keep {
        Keep {
            chance: Some(chance),
            ..Keep::of_pages(4096)
        }
    }

    fn keeps(route_ns: f64, chance: f64) -> bool {
        with_chance(chance).decide(2, Choice::Rpc, route_ns, route_ns)
    }

    #[test]
    fn what_is_as_near_as_the_cache_is_not_kept() {
        assert!(!keeps(550.0, 0.9));
    }

    #[test]
    fn what_comes_over_a_network_is_kept_if_it_is_read_again() {
        assert!(keeps(11_000.0, 0.2));
        assert!(!keeps(11_000.0, 0.01));
    }

    #[test]
    fn a_few_bytes_of_a_page_must_pay_for_all_of_it() {
        let mut keep = with_chance(0.3);
        assert!(keep.decide(2, Choice::Rpc, 2000.0, 2000.0));
        assert!(!keep.decide(0, Choice::Rpc, 1000.0, 2000.0));
    }

    #[test]
    fn each_page_of_a_long_read_must_pay() {
        let long = |chance: f64, choice: Choice, route_ns: f64| {
            let mut keep = with_chance(chance);
            keep.spans(5, 256);
            keep.decide(5, choice, route_ns, route_ns)
        };
        // 1 MiB by RPC over a network, 1.2 us a page.
        assert!(!long(0.25, Choice::Rpc, 300_000.0));
        assert!(long(0.9, Choice::Rpc, 300_000.0));
        // Each page by its own request.
        assert!(long(0.25, Choice::Guarded, 2_000_000.0));
    }

    /// Kept from a time when that seemed cheap: whether pages of reads of 64 KiB still are.
    fn stays(chance: f64, choice: Choice, route_ns: f64) -> bool {
        let mut keep = with_chance(chance);
        keep.spans(4, 16);
        keep.keeps[4] = true;
        (0..16).for_each(|_| keep.put(600));
        keep.decide(4, choice, route_ns, route_ns)
    }

    /// As measured over tcp, where reads of four times the cache take 1.2 to 1.3 times as long by calls if pages are kept:
    /// one read in ten finds all of its pages, though one page in four is there.
    #[test]
    fn a_call_is_saved_by_reads_that_find_all_of_their_pages() {
        assert!(!stays(0.25, Choice::Rpc, 36_200.0));
        assert!(stays(0.9, Choice::Rpc, 36_200.0));
        assert!(stays(0.25, Choice::Guarded, 45_000.0));
    }

    #[test]
    fn pages_of_a_read_are_those_of_its_cache() {
        let pages = |bytes| -> [f64; CLASSES] {
            let keep = Keep::of_pages(bytes);
            std::array::from_fn(|class| keep.pages(class))
        };
        assert_eq!(pages(4096), [1.0, 1.0, 1.0, 4.0, 16.0, 64.0]);
        assert_eq!(pages(65536), [1.0, 1.0, 1.0, 1.0, 1.0, 4.0]);
        let mut keep = Keep::of_pages(4096);
        keep.spans(4, 0);
        assert_eq!(keep.pages(4), 16.0);
    }

    #[test]
    fn a_choice_stands_while_little_is_to_be_won() {
        let mut keep = with_chance(0.5);
        assert!(keep.decide(2, Choice::Rpc, 2000.0, 2000.0));
        // If both cost the same, the earlier choice stays.
        let even_ns = HIT_NS + PUT_NS + LOOK_NS;
        assert!(keep.decide(2, Choice::Rpc, even_ns, even_ns));
        assert!(!Keep::of_pages(4096).decide(3, Choice::Rpc, even_ns, even_ns));
    }
}
