//! Where reads go, drawn before anything is timed.

use std::sync::Arc;

use super::plan::{Case, Pattern};
use crate::random::Random;
use crate::zipf::{Zipf, shuffled};

/// Reads until a sequence begins again.
const READS: usize = 1 << 20;

/// The reads of a case, the same for all its configurations.
#[derive(Clone, Debug)]
pub struct Offsets {
    /// In units of the reads' size.
    places: Arc<[u32]>,
    size: u64,
    next: usize,
}

impl Offsets {
    /// The reads of a case.
    pub fn of(case: &Case) -> Self {
        let pages = case.working_set_bytes / case.stride();
        let in_page = case.stride() / case.size_bytes as u64;
        let mut random = Random::new(case.working_set_bytes);
        let places: Vec<u32> = match case.pattern {
            Pattern::Uniform => (0..READS)
                .map(|_| random.below(pages * in_page) as u32)
                .collect(),
            Pattern::Zipf => {
                let (law, pages) = (Zipf::new(pages as usize), shuffled(pages, &mut random));
                let draw = |_| pages[law.rank(&mut random)] * in_page as u32;
                (0..READS).map(draw).collect()
            }
            Pattern::Sequential => (0..(pages * in_page) as u32).collect(),
        };
        Self {
            places: places.into(),
            size: case.size_bytes as u64,
            next: 0,
        }
    }

    /// The same reads, begun elsewhere.
    pub fn from(&self, client: u32) -> Self {
        let next = client as usize * (self.places.len() / 97) % self.places.len();
        Self {
            next,
            ..self.clone()
        }
    }

    /// Where the next read begins.
    pub fn next(&mut self) -> u64 {
        let place = self.places[self.next];
        self.next += 1;
        if self.next == self.places.len() {
            self.next = 0;
        }
        u64::from(place) * self.size
    }
}

/// Where reads begin that touch each page once: in order for sequential reads, else at random.
pub fn each_page(case: &Case) -> Vec<u64> {
    let pages = case.working_set_bytes / case.stride();
    let order = match case.pattern {
        Pattern::Sequential => (0..pages as u32).collect(),
        _ => shuffled(pages, &mut Random::new(pages)),
    };
    order
        .into_iter()
        .map(|page| u64::from(page) * case.stride())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::plan::{Filter, Plan};

    #[test]
    fn reads_lie_in_the_working_set_and_follow_their_pattern() {
        let plan = Plan::built_in().unwrap();
        for case in plan.cases(&Filter::default()) {
            if case.working_set_bytes > 32 << 20 || case.case != "patterns" {
                continue;
            }
            let mut offsets = Offsets::of(&case);
            let (mut counts, mut last) = (vec![0u32; (case.working_set_bytes >> 12) as usize], 0);
            for number in 0..READS as u64 / 4 {
                let offset = offsets.next();
                let end = offset + case.size_bytes as u64;
                assert!(end <= case.working_set_bytes);
                assert_eq!(offset >> 12, (end - 1) >> 12, "within a page");
                if case.pattern == Pattern::Sequential && number > 0 {
                    assert!(offset == last || offset == 0);
                }
                last = end;
                counts[(offset >> 12) as usize] += 1;
            }
            counts.sort_unstable();
            let top = f64::from(counts[counts.len() - 1]) / (READS / 4) as f64;
            let fair = 1.0 / counts.len() as f64;
            match case.pattern {
                Pattern::Zipf => assert!(top > 20.0 * fair, "{top}"),
                _ => assert!(top < 3.0 * fair, "{top}"),
            }
        }
    }

    #[test]
    fn each_page_comes_once() {
        let plan = Plan::built_in().unwrap();
        let case = &plan.cases(&Filter::default())[0];
        let mut pages = each_page(case);
        pages.sort_unstable();
        assert_eq!(pages.len() as u64, case.working_set_bytes >> 12);
        let each = |(at, page): (usize, &u64)| *page == (at as u64) << 12;
        assert!(pages.iter().enumerate().all(each));
    }
}
