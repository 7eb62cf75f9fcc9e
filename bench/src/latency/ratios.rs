//! Rows against each other, round by round.

use serde::Serialize;

use super::{Round, Row};
use crate::spread::Spread;
use crate::table;

/// One row's figure over another's, of the same rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What over what.
    pub name: String,
    /// Bytes of one read.
    pub size_bytes: usize,
    /// The median of the rounds.
    pub ratio: f64,
    /// The lowest round.
    pub lowest: f64,
    /// The highest round.
    pub highest: f64,
}

/// Picks a row: fabric (rows of this machine itself have none), route, how both wait, MAC or kind of RPC ("" for any), depth.
struct Pick {
    fabric: &'static str,
    route: &'static str,
    wait: &'static str,
    kind: &'static str,
    depth: u32,
}

const fn pick(route: &'static str, wait: &'static str, kind: &'static str) -> Pick {
    Pick {
        fabric: "shm",
        route,
        wait,
        kind,
        depth: 1,
    }
}

const fn deep(route: &'static str, wait: &'static str, kind: &'static str) -> Pick {
    Pick {
        depth: 8,
        ..pick(route, wait, kind)
    }
}

const fn tcp(pick: Pick) -> Pick {
    Pick {
        fabric: "tcp",
        ..pick
    }
}

const fn verbs(pick: Pick) -> Pick {
    Pick {
        fabric: "verbs",
        ..pick
    }
}

type Figure = fn(&Round) -> u64;

const P50: Figure = |round| round.p50_ns;
const PER_READ: Figure = |round| round.per_read_ns;

/// The ratios that are printed, as (name, above, below, figure).
const RATIOS: [(&str, Pick, Pick, Figure); 30] = [
    (
        "one-sided / mmap",
        pick("one-sided", "spin", ""),
        pick("mmap", "spin", ""),
        P50,
    ),
    (
        "one-sided / pread",
        pick("one-sided", "spin", ""),
        pick("pread", "spin", ""),
        P50,
    ),
    (
        "guarded blake3 / floor",
        pick("guarded", "spin", "blake3"),
        pick("floor", "spin", ""),
        P50,
    ),
    (
        "guarded hmac-sha256 / floor",
        pick("guarded", "spin", "hmac-sha256"),
        pick("floor", "spin", ""),
        P50,
    ),
    (
        "rpc inline / floor",
        pick("rpc", "spin", "inline"),
        pick("floor", "spin", ""),
        P50,
    ),
    (
        "one-sided / rpc inline",
        pick("one-sided", "spin", ""),
        pick("rpc", "spin", "inline"),
        P50,
    ),
    (
        "guarded blake3 / rpc inline",
        pick("guarded", "spin", "blake3"),
        pick("rpc", "spin", "inline"),
        P50,
    ),
    (
        "guarded hmac-sha256 / rpc inline",
        pick("guarded", "spin", "hmac-sha256"),
        pick("rpc", "spin", "inline"),
        P50,
    ),
    (
        "guarded blake3 / rpc direct",
        pick("guarded", "spin", "blake3"),
        pick("rpc", "spin", "direct"),
        P50,
    ),
    (
        "guarded blake3 / rpc worker",
        pick("guarded", "spin", "blake3"),
        pick("rpc", "spin", "worker"),
        P50,
    ),
    (
        "rpc, time a read: with references / without",
        pick("rpc", "spin", "references"),
        pick("rpc", "spin", "inline"),
        PER_READ,
    ),
    (
        "blocking: rpc inline / floor",
        pick("rpc", "block", "inline"),
        pick("floor", "block", ""),
        P50,
    ),
    (
        "blocking: guarded blake3 / rpc inline",
        pick("guarded", "block", "blake3"),
        pick("rpc", "block", "inline"),
        P50,
    ),
    (
        "one-sided, time a read: depth 8 / 1",
        deep("one-sided", "spin", ""),
        pick("one-sided", "spin", ""),
        PER_READ,
    ),
    (
        "one-sided depth 8, time a read / mmap",
        deep("one-sided", "spin", ""),
        pick("mmap", "spin", ""),
        PER_READ,
    ),
    (
        "guarded blake3, time a read: depth 8 / 1",
        deep("guarded", "spin", "blake3"),
        pick("guarded", "spin", "blake3"),
        PER_READ,
    ),
    (
        "rpc inline, time a read: depth 8 / 1",
        deep("rpc", "spin", "inline"),
        pick("rpc", "spin", "inline"),
        PER_READ,
    ),
    (
        "tcp: one-sided / floor",
        tcp(pick("one-sided", "spin", "")),
        tcp(pick("floor", "spin", "")),
        P50,
    ),
    (
        "tcp: guarded blake3 / floor",
        tcp(pick("guarded", "spin", "blake3")),
        tcp(pick("floor", "spin", "")),
        P50,
    ),
    (
        "tcp: rpc / floor",
        tcp(pick("rpc", "spin", "")),
        tcp(pick("floor", "spin", "")),
        P50,
    ),
    (
        "tcp: guarded blake3 / rpc",
        tcp(pick("guarded", "spin", "blake3")),
        tcp(pick("rpc", "spin", "")),
        P50,
    ),
    (
        "tcp, blocking: guarded blake3 / floor",
        tcp(pick("guarded", "block", "blake3")),
        tcp(pick("floor", "block", "")),
        P50,
    ),
    (
        "tcp, blocking: rpc / floor",
        tcp(pick("rpc", "block", "")),
        tcp(pick("floor", "block", "")),
        P50,
    ),
    (
        "tcp: guarded blake3, time a read: depth 8 / 1",
        tcp(deep("guarded", "spin", "blake3")),
        tcp(pick("guarded", "spin", "blake3")),
        PER_READ,
    ),
    (
        "tcp: rpc, time a read: depth 8 / 1",
        tcp(deep("rpc", "spin", "")),
        tcp(pick("rpc", "spin", "")),
        PER_READ,
    ),
    (
        "tcp: rpc, time a read: with references / without",
        tcp(pick("rpc", "spin", "references")),
        tcp(pick("rpc", "spin", "")),
        PER_READ,
    ),
    (
        "verbs: one-sided / rpc",
        verbs(pick("one-sided", "spin", "")),
        verbs(pick("rpc", "spin", "")),
        P50,
    ),
    (
        "verbs: guarded blake3 / rpc",
        verbs(pick("guarded", "spin", "blake3")),
        verbs(pick("rpc", "spin", "")),
        P50,
    ),
    (
        "verbs, blocking: one-sided / rpc",
        verbs(pick("one-sided", "block", "")),
        verbs(pick("rpc", "block", "")),
        P50,
    ),
    (
        "verbs, blocking: guarded blake3 / rpc",
        verbs(pick("guarded", "block", "blake3")),
        verbs(pick("rpc", "block", "")),
        P50,
    ),
];

/// All ratios for which both rows were measured, from memory of the same page size; and in words those for which only rows of
/// different page sizes were.
pub fn of(rows: &[Row]) -> (Vec<Ratio>, Vec<String>) {
    let mut sizes: Vec<usize> = rows.iter().map(|r| r.spec.size_bytes).collect();
    sizes.dedup();
    let (mut ratios, mut left_out) = (Vec::new(), Vec::new());
    for size in sizes {
        for (name, above, below, figure) in &RATIOS {
            let (above, below) = (above.of(rows, size), below.of(rows, size));
            let alike = above.iter().find_map(|above| {
                let same = |below: &&&Row| below.backing_bytes == above.backing_bytes;
                Some((above, below.iter().find(same)?))
            });
            match alike {
                Some((above, below)) => ratios.extend(ratio(name, above, below, *figure)),
                None if above.is_empty() || below.is_empty() => {}
                None => left_out.push(format!(
                    "{name}, {}: the rows are of pages of {} and of {}",
                    table::bytes(size as u64),
                    pages(&above),
                    pages(&below)
                )),
            }
        }
    }
    (ratios, left_out)
}

/// The page sizes behind some rows.
fn pages(rows: &[&Row]) -> String {
    let pages = rows.iter().map(|row| match row.backing_bytes {
        Some(bytes) => table::bytes(bytes),
        None => "an unknown size".to_owned(),
    });
    pages.collect::<Vec<_>>().join(" or ")
}

impl Pick {
    /// The rows, in their order: one for each page size behind them.
    fn of<'a>(&self, rows: &'a [Row], size: usize) -> Vec<&'a Row> {
        let fits = |row: &&Row| {
            let s = &row.spec;
            [self.fabric, "local"].contains(&s.fabric)
                && (s.route, s.wait, s.depth, s.size_bytes)
                    == (self.route, self.wait, self.depth, size)
                && ["", s.mac, s.rpc.unwrap_or("")].contains(&self.kind)
        };
        rows.iter().filter(fits).collect()
    }
}

fn ratio(name: &str, above: &Row, below: &Row, figure: Figure) -> Option<Ratio> {
    let rounds = above.rounds.iter().zip(&below.rounds);
    let each = Spread::exact(rounds.map(|(a, b)| figure(a) as f64 / figure(b).max(1) as f64))?;
    Some(Ratio {
        name: name.to_owned(),
        size_bytes: above.spec.size_bytes,
        ratio: each.median,
        lowest: each.lowest,
        highest: each.highest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::plan::{Filter, Plan, Spec};
    use std::time::Duration;

    #[test]
    fn every_ratio_names_rows_that_exist() {
        let plan = Plan {
            program: "odafs".into(),
            file_bytes: 1 << 20,
            sizes: vec![4096],
            reads: None,
            time: Duration::ZERO,
            rounds: 3,
            filter: Filter::default(),
            verbs: Some([10, 0, 0, 1].into()),
            url: None,
        };
        let round = |p50_ns| Round {
            p50_ns,
            per_read_ns: p50_ns,
            ..Round::default()
        };
        let rounds = || vec![round(2), round(4), round(6)];
        let rows: Vec<Row> = plan
            .specs()
            .into_iter()
            .map(|spec| super::super::row(spec, rounds()))
            .collect();
        let (ratios, left_out) = of(&rows);
        assert_eq!((ratios.len(), left_out.len()), (RATIOS.len(), 0));
        assert!(
            ratios
                .iter()
                .all(|r| (r.ratio, r.lowest, r.highest) == (1.0, 1.0, 1.0))
        );
    }

    #[test]
    fn rows_of_other_pages_have_no_ratio() {
        let row = |route, backing_bytes, p50_ns| {
            let spec = Spec {
                fabric: "shm",
                route,
                wait: "spin",
                mac: "none",
                rpc: None,
                size_bytes: 4096,
                depth: 1,
                backing: backing_bytes,
                pattern: "random",
            };
            let round = Round {
                p50_ns,
                backing_bytes: Some(backing_bytes),
                ..Round::default()
            };
            super::super::row(spec, vec![round; 3])
        };
        let large = 2 << 20;
        let (ratios, left_out) = of(&[row("one-sided", large, 2), row("mmap", 4096, 4)]);
        assert!(ratios.is_empty());
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert!(left_out[0].starts_with("one-sided / mmap"), "{left_out:?}");
        assert!(left_out[0].contains("2 MiB"), "{left_out:?}");
        // The pages that both have.
        let (ratios, left_out) = of(&[
            row("one-sided", large, 2),
            row("one-sided", 4096, 6),
            row("mmap", 4096, 4),
        ]);
        assert_eq!((ratios[0].ratio, left_out.len()), (1.5, 0));
    }
}
