//! How many reads of many pages find all of them.

use super::*;
use crate::route::whole_chance;

const FRAMES: u64 = 4096;

/// Reads so many pages at a time, at random from so many pages. Returns the share of pages that were found, and of reads
/// that found all of theirs.
fn found(span: u64, pages: u64) -> (f64, f64) {
    let bytes = FRAMES * Core::BYTES as u64;
    let cache = DataCache::new(bytes, bytes);
    let mut dice = 88_172_645_463_325_252u64;
    let (mut reads, mut found, mut whole) = (0, 0, 0);
    let rounds = 40 * FRAMES / span;
    for round in 0..rounds {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let first = dice % (pages / span) * span;
        let stretches = (first..first + span).map(|page| Stretch {
            file: 1,
            generation: 0,
            offset: page * BLOCK as u64,
        });
        let mut data = [0; BLOCK];
        let (there, missing): (Vec<_>, Vec<_>) =
            stretches.partition(|page| cache.get(*page, true, &mut data).is_some());
        for page in &missing {
            cache.put(*page, PageSize::MIN, &data, || true);
        }
        if round >= rounds / 4 {
            reads += 1;
            found += there.len();
            whole += u32::from(missing.is_empty());
        }
    }
    let reads = f64::from(reads);
    (found as f64 / reads / span as f64, f64::from(whole) / reads)
}

/// Prints the pages of a read, the pages that are read by the size of the cache, and the shares of pages and of whole reads
/// that were found and of those that the policy expects.
#[test]
fn whole_reads_are_found_as_rarely_as_the_policy_expects() {
    for span in [4, 16, 64] {
        for times in [1.5, 2.0, 4.0, 8.0] {
            let (page, whole) = found(span, (FRAMES as f64 * times) as u64);
            let expected = whole_chance(page, span as f64);
            let off = (whole - expected).abs();
            let line = format!("{span} pages, {times}: {page:.3} {whole:.3} {expected:.3}");
            println!("{line}");
            assert!(off < 0.04 + 0.1 * whole, "{line}");
        }
    }
}
