//! Which references of a file to fetch ahead of its reads.
//!
//! A read of a page without a reference is a call, whose reply brings references of that page and a few neighbours. So
//! a sequential reader would make a call for every few pages. Such a run shows in its misses: each is a little behind
//! the one before. Then the client fetches the references of a whole window at once. The window doubles while the run
//! goes on and the server has most of its pages in memory.
//!
//! This does no IO. It says which pages to ask for, and is told what came.

use odafs_fabric::sync::Mutex;
use std::ops::Range;

/// Number of consecutive misses that make a run.
const RUN: u32 = 3;
/// The most pages between a miss and the next one of a run: as many as have their references looked up together.
const REACH: u64 = 64;
/// Number of pages of the first window, and of the longest.
const WINDOW: (u64, u64) = (64, 1024);
/// If this part of a window came, another may be asked for soon.
const ENOUGH: u64 = 4;
/// After a window of which less came, number of misses for which none is asked for.
const REST: u64 = 8 * WINDOW.1;

/// The runs of one file. Threads share one record, so threads that read in different places see no run.
#[derive(Debug, Default)]
pub struct Ahead(Mutex<Run>);

#[derive(Debug, Default)]
struct Run {
    /// The next miss of the run lies from here on, at most [`REACH`] behind the end.
    expected: Range<u64>,
    misses: u32,
    /// Number of pages of the next window, as a power of two times the first one.
    window: u64,
    /// Number of misses, of this run or another, until there is another window.
    rest: u64,
}

impl Ahead {
    /// The first of these pages, which belong to one read, had no reference. Returns the pages whose references to ask
    /// for now, from that one on.
    pub fn missed(&self, pages: Range<u64>) -> Option<Range<u64>> {
        let page = pages.start;
        let mut run = self.0.lock();
        run.rest = run.rest.saturating_sub(1);
        let within = run.expected.contains(&page);
        let goes_on = within || (run.expected.end..run.expected.end + REACH).contains(&page);
        if !goes_on {
            *run = Run {
                expected: pages,
                misses: 1,
                window: 0,
                rest: run.rest,
            };
            return None;
        }
        run.misses = run.misses.saturating_add(1);
        // The server had none of the file when it was asked.
        if within {
            return None;
        }
        run.expected = pages;
        if run.misses < RUN || run.rest > 0 {
            return None;
        }
        let window = page.saturating_add(run.window.max(WINDOW.0));
        run.expected.end = run.expected.end.max(window);
        Some(run.expected.clone())
    }

    /// References of this many of those pages came.
    pub fn came(&self, asked: &Range<u64>, references: u64) {
        let mut run = self.0.lock();
        if run.expected != *asked {
            return;
        }
        let pages = asked.end - asked.start;
        if references < pages / ENOUGH {
            run.window = 0;
            run.rest = REST;
        } else {
            run.window = (pages * 2).min(WINDOW.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is read from front to back, with calls that bring references of the page and of `near` pages behind
    /// it. Returns the numbers of calls and of questions.
    fn front_to_back(pages: u64, near: u64, resident: bool) -> (u64, u64) {
        let ahead = Ahead::default();
        let (mut known, mut calls, mut questions) = (0, 0, 0);
        for page in 0..pages {
            if page < known {
                continue;
            }
            if let Some(asked) = ahead.missed(page..page + 1) {
                questions += 1;
                assert_eq!(asked.start, page);
                let came = if resident { asked.end - page } else { 0 };
                ahead.came(&asked, came);
                known = page + came;
            }
            if page >= known {
                calls += 1;
                known = page + 1 + if resident { near } else { 0 };
            }
        }
        (calls, questions)
    }

    #[test]
    fn a_run_asks_for_more_and_more() {
        let (calls, questions) = front_to_back(100_000, 8, true);
        assert_eq!(calls, u64::from(RUN) - 1);
        assert!(questions <= 100_000 / WINDOW.1 + 5, "{questions}");
    }

    #[test]
    fn what_the_server_does_not_have_is_seldom_asked_for() {
        let (calls, questions) = front_to_back(100_000, 8, false);
        assert_eq!(calls, 100_000);
        assert!(questions <= 100_000 / REST + 1, "{questions}");
    }

    #[test]
    fn who_reads_here_and_there_asks_for_nothing() {
        let ahead = Ahead::default();
        for at in 0..10_000u64 {
            let page = at.wrapping_mul(0x9e37_79b9) % (1 << 32);
            assert_eq!(ahead.missed(page..page + 1), None);
            assert_eq!(
                ahead.missed(page..page + 4),
                None,
                "the same, of more pages"
            );
        }
    }

    #[test]
    fn long_reads_in_order_are_a_run() {
        let ahead = Ahead::default();
        let asked = (0..4).find_map(|read| ahead.missed(read * 256..(read + 1) * 256));
        assert_eq!(asked, Some(512..768));
    }

    /// Runs in two places share a pause, because the server has little of the file.
    #[test]
    fn a_rest_outlasts_a_jump() {
        let ahead = Ahead::default();
        let run = |from: u64| (from..from + 8).find_map(|page| ahead.missed(page..page + 1));
        let asked = run(0).expect("a run");
        ahead.came(&asked, 0);
        assert_eq!(run(1 << 20), None);
        assert_eq!(run(1 << 30), None);
    }

    #[test]
    fn the_end_of_numbers_is_no_panic() {
        let ahead = Ahead::default();
        let last = u64::MAX >> 12;
        (last - 10..last).for_each(|page| _ = ahead.missed(page..page + 1));
    }
}
