//! The table of `odafs cat --why`.

use std::collections::BTreeMap;

use anyhow::Result;
use odafs_bench::table::{self, Table, count};

use super::{READ_BYTES, Row};
use crate::output;

/// This many rows are printed at a time, with the same column widths. A summary follows more rows than this.
const ROWS_KEPT: usize = 20;

/// Neighbouring pages of one read that took the same route for the same reason.
struct Part {
    first: Row,
    pages: u64,
    bytes: u64,
    ns: u64,
}

impl Part {
    fn new(first: Row) -> Self {
        let (bytes, ns) = (u64::from(first.length), first.ns);
        Self {
            first,
            pages: 1,
            bytes,
            ns,
        }
    }

    /// Adds a page, if it belongs to this part.
    fn takes(&mut self, row: &Row) -> bool {
        let first = &self.first;
        let is_next = row.offset == first.offset + self.bytes
            && !row.offset.is_multiple_of(READ_BYTES as u64);
        let is_same = (&row.url, row.pass, &row.route, &row.why)
            == (&first.url, first.pass, &first.route, &first.why);
        if is_next && is_same {
            self.pages += 1;
            self.bytes += u64::from(row.length);
            self.ns = self.ns.max(row.ns);
        }
        is_next && is_same
    }
}

/// How much came by a route for a reason.
#[derive(Default)]
struct Sum {
    pages: u64,
    bytes: u64,
}

/// The rows, which are printed as they come, and their summary.
pub struct Lines {
    part: Option<Part>,
    table: Table,
    rows: usize,
    /// By pass, route and reason.
    sums: BTreeMap<(u32, String, String), Sum>,
}

impl Lines {
    /// No rows yet.
    pub fn new() -> Self {
        Self {
            part: None,
            table: Table::new(["pass", "first", "bytes", "<route", "time", "<why"]),
            rows: 0,
            sums: BTreeMap::new(),
        }
    }

    /// Whether there is nothing to print.
    pub fn is_empty(&self) -> bool {
        self.part.is_none() && self.rows == 0
    }

    /// Adds a page.
    pub fn add(&mut self, row: Row) -> Result<()> {
        let key = (row.pass, row.route.clone(), row.why.clone());
        let sum = self.sums.entry(key).or_default();
        sum.pages += 1;
        sum.bytes += u64::from(row.length);
        if let Some(part) = self.part.as_mut()
            && part.takes(&row)
        {
            return Ok(());
        }
        let ended = self.part.replace(Part::new(row));
        self.print(ended)
    }

    /// Prints the rest, and the summary.
    pub fn finish(mut self) -> Result<()> {
        let last = self.part.take();
        self.print(last)?;
        output::text(&self.table.take())?;
        if self.rows <= ROWS_KEPT {
            return Ok(());
        }
        let mut summary = Table::new(["pass", "pages", "bytes", "<route", "<why"]);
        for ((pass, route, why), sum) in self.sums {
            let figures = [pass.to_string(), count(sum.pages), count(sum.bytes)];
            summary.row(figures.into_iter().chain([route, why]).collect());
        }
        output::text(&format!("\nIn all:\n{}", summary.render()))
    }

    fn print(&mut self, part: Option<Part>) -> Result<()> {
        let Some(Part {
            first, bytes, ns, ..
        }) = part
        else {
            return Ok(());
        };
        self.rows += 1;
        self.table.row(vec![
            first.pass.to_string(),
            first.offset.to_string(),
            bytes.to_string(),
            first.route,
            table::time(ns),
            first.why,
        ]);
        match self.table.len() {
            ROWS_KEPT => output::text(&self.table.take()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pass: u32, offset: u64, route: &str) -> Row {
        Row {
            url: "nfs://h/f".to_owned(),
            pass,
            offset,
            length: 4096,
            route: route.to_owned(),
            ns: offset,
            why: "because".to_owned(),
        }
    }

    #[test]
    fn neighbours_by_the_same_route_are_one_part() {
        let mut part = Part::new(row(1, 0, "rpc"));
        assert!(part.takes(&row(1, 4096, "rpc")));
        assert_eq!((part.pages, part.bytes, part.ns), (2, 8192, 4096));
        for other in [
            row(1, 8192, "guarded"),
            row(2, 8192, "rpc"),
            row(1, 12288, "rpc"),
        ] {
            assert!(!part.takes(&other));
        }
        let mut part = Part::new(row(1, READ_BYTES as u64 - 4096, "rpc"));
        assert!(
            !part.takes(&row(1, READ_BYTES as u64, "rpc")),
            "another read"
        );
    }
}
