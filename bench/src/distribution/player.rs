//! A client of one route, with the whole file's references to begin with.

use std::time::{Duration, Instant};

use anyhow::Result;
use odafs::{Cache, Eager, File, Options, Route, Statistics};

use super::plan::{PAGE, Pattern, Plan};
use super::row::Slice;
use crate::clock;
use crate::histogram::Latencies;
use crate::random::Random;
use crate::served::{Served, Way};
use crate::zipf::{Zipf, shuffled};

/// Reads until a sequence begins again.
const READS: usize = 1 << 19;

/// Shares of fewer say nothing: a slice is longer where a machine is so slow.
const LEAST_READS: u64 = 200;

/// Where reads go, drawn before anything is timed: places in units of a read's size.
pub fn draw(pattern: Pattern, file_bytes: u64, size: u64, seed: u64) -> Vec<u32> {
    let (pages, in_page) = (file_bytes / PAGE, PAGE / size);
    let mut random = Random::new(seed);
    let wanted: Vec<u32> = match pattern {
        Pattern::Uniform => (0..READS).map(|_| random.below(pages) as u32).collect(),
        Pattern::Zipf => {
            let (law, order) = (Zipf::new(pages as usize), shuffled(pages, &mut random));
            (0..READS).map(|_| order[law.rank(&mut random)]).collect()
        }
    };
    let place = |page: u32| page * in_page as u32 + random.below(in_page) as u32;
    wanted.into_iter().map(place).collect()
}

/// A client of one route.
pub struct Player<'a> {
    file: File,
    places: &'a [u32],
    next: usize,
    buffer: Vec<u8>,
}

impl<'a> Player<'a> {
    /// Connects and opens the file, whose references come with that.
    ///
    /// # Errors
    /// The server refused it.
    pub fn new(
        plan: &Plan,
        (way, route): (Way, Route),
        served: &Served,
        places: &'a [u32],
    ) -> Result<Self> {
        let options = Options {
            route,
            eager: match route {
                Route::Rpc => Eager::Lazy,
                _ => Eager::OnOpen,
            },
            ..match plan.client_bytes() {
                0 => Options {
                    cache: Cache::Off,
                    ..Options::default()
                },
                memory_bytes => Options {
                    memory_bytes: memory_bytes as _,
                    ..Options::default()
                },
            }
        };
        Ok(Self {
            file: served.open(way, options)?,
            places,
            next: 0,
            buffer: vec![0; plan.size as usize],
        })
    }

    /// Reads for this long, but at least about 200 reads. Each is timed.
    ///
    /// # Errors
    /// A read failed.
    pub fn slice(&mut self, time: Duration, clock_ns: u64) -> Result<Slice> {
        let (mut latencies, mut sum_ns) = (Latencies::default(), 0);
        let counted = self.file.client().statistics();
        let begin = Instant::now();
        loop {
            let offset = u64::from(self.places[self.next]) * self.buffer.len() as u64;
            self.next = (self.next + 1) % self.places.len();
            let before = Instant::now();
            self.file.read_at(&mut self.buffer, offset)?;
            let after = Instant::now();
            std::hint::black_box(&mut self.buffer);
            let took = clock::nanos(before, after).saturating_sub(clock_ns);
            latencies.record(took);
            sum_ns += took;
            if after.duration_since(begin) >= time && latencies.len() >= LEAST_READS {
                break;
            }
        }
        let now = self.file.client().statistics();
        let since = |of: fn(&Statistics) -> u64| of(&now) - of(&counted);
        Ok(Slice {
            reads: latencies.len(),
            sum_ns,
            p50_ns: latencies.at(0.5),
            p99_ns: latencies.at(0.99),
            cache_hits: since(|s| s.cache_hits),
            direct_hits: since(|s| s.direct_hits),
            rpc_reads: since(|s| s.rpc_reads),
            stale_hits: since(|s| s.stale_hits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_in_the_file_and_reads_in_a_page() {
        for pattern in [Pattern::Uniform, Pattern::Zipf] {
            for size in [64, PAGE] {
                let places = draw(pattern, 10 * PAGE, size, 3);
                assert_eq!(places.len(), READS);
                let pages: std::collections::BTreeSet<u64> = places
                    .iter()
                    .map(|place| u64::from(*place) * size / PAGE)
                    .collect();
                assert_eq!(
                    pages.into_iter().collect::<Vec<_>>(),
                    (0..10).collect::<Vec<_>>()
                );
            }
        }
    }
}
