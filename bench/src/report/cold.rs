//! `bench cold`: the first and the second pass over a file that was in no cache.

use serde_json::Value;

use super::drawing::{distinct, size, word};
use super::latency::fabric;
use super::{Axis, Dots, DotsRow, Mark, Page, Series, Unit};

/// A plot for each order of reads and size of the page cache.
pub(super) fn draw(page: &mut Page, rows: &[Value]) {
    page.paragraph(
        "What does a read cost whose page is on the disk? A new client of a new server reads a file twice that the kernel \
         has in no cache. Where the server's page cache holds the file, the second pass reads from memory. Where it does \
         not, the second pass reads from the disk again. The peer (pread) makes system calls on the same file.",
    );
    let panel = |row: &Value| {
        let order = match row["pattern"].as_str() {
            Some("sequential") => "from front to back",
            _ => "in random order",
        };
        let cache = row["cache_to_file"].as_f64().unwrap_or(0.0);
        let of = size(row, "size_bytes");
        format!("Reads of {of} {order}, page cache of {cache} x the file")
    };
    for wanted in distinct(rows, panel) {
        let of: Vec<&Value> = rows.iter().filter(|row| panel(row) == wanted).collect();
        page.dots(&plot(wanted, &of));
    }
}

fn plot(title: String, rows: &[&Value]) -> Dots {
    const PASSES: [(&str, &str, usize); 2] =
        [("first", "first pass", 0), ("second", "second pass", 1)];
    let caller = |row: &Value| format!("{}\n{}", word(row, "fabric"), word(row, "route"));
    let callers = distinct(rows.iter().copied(), caller);
    let drawn = callers.iter().filter_map(|wanted| {
        let (fabric_name, route) = wanted.split_once('\n')?;
        let of = |pass: &str| {
            let found = rows
                .iter()
                .find(|row| row["pass"] == pass && caller(row) == *wanted);
            found.copied()
        };
        let marks = PASSES.iter().filter_map(|(pass, name, look)| {
            let row = of(pass)?;
            let figure = |key: &str| row[key].as_f64();
            Some(Mark {
                spread: figure("mean_ns_lowest").zip(figure("mean_ns_highest")),
                ..Mark::new(Series::numbered(*look, name), figure("mean_ns")?)
            })
        });
        let ratio = |pass: &str| {
            let ratio = of(pass).and_then(|row| row["mean_to_pread"].as_f64());
            ratio.map_or("-".to_owned(), |ratio| Unit::Ratio.show(ratio))
        };
        Some(DotsRow {
            group: fabric(fabric_name),
            label: route.to_owned(),
            marks: marks.collect(),
            figures: PASSES.map(|(pass, ..)| ratio(pass)).to_vec(),
        })
    });
    Dots {
        title,
        axis: Axis::time("Mean time of a read"),
        value: String::new(),
        spread: "means of the rounds".to_owned(),
        tail: String::new(),
        columns: ["first / pread", "second / pread"]
            .map(str::to_owned)
            .to_vec(),
        rows: drawn.collect(),
        references: Vec::new(),
    }
}
