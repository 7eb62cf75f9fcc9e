//! Operations on names and small files: each by every way.

use serde_json::Value;

use super::drawing::{capital, distinct, word};
use super::{Axis, Dots, DotsRow, Mark, Page, Series, Unit, published};

pub(super) fn draw(page: &mut Page, rows: &[Value]) {
    page.paragraph(
        "What does it take to make, find, change and remove names and small files, by our client over shared memory (shm), \
         iWARP (tcp) and NFS, beside system calls on the same directory (local)? A transaction of postmark makes or deletes \
         a small file, and reads or appends to another.",
    );
    let panel = |row: &Value| {
        let clients = match row["clients"].as_u64() {
            Some(1) | None => "one client".to_owned(),
            Some(n) => format!("{n} clients at once"),
        };
        format!("{}, {clients}", word(row, "mix"))
    };
    for wanted in distinct(rows, panel) {
        let of: Vec<&Value> = rows.iter().filter(|row| panel(row) == wanted).collect();
        page.dots(&plot(&wanted, &of));
    }
}

fn plot(title: &str, rows: &[&Value]) -> Dots {
    let operations = distinct(rows.iter().copied(), |row| word(row, "operation"));
    let drawn = operations.iter().map(|operation| {
        let of = || rows.iter().filter(|row| row["operation"] == **operation);
        let marks = of().filter_map(|row| {
            let ends = |low: &str, high: &str| row[low].as_f64().zip(row[high].as_f64());
            Some(Mark {
                spread: ends("p50_ns_lowest", "p50_ns_highest"),
                ..Mark::new(look(&word(row, "fabric")), row["p50_ns"].as_f64()?)
            })
        });
        let figure = |fabric: &str| {
            let row = of().find(|row| row["fabric"] == fabric);
            let ratio = row.and_then(|row| row["p50_to_local"].as_f64());
            ratio.map_or("-".to_owned(), |ratio| Unit::Ratio.show(ratio))
        };
        DotsRow {
            group: String::new(),
            label: operation.clone(),
            marks: marks.collect(),
            figures: ["shm", "tcp", "nfs"].map(figure).to_vec(),
        }
    });
    Dots {
        title: capital(title),
        axis: Axis::time("Median of an operation"),
        value: String::new(),
        spread: "medians of the rounds".to_owned(),
        tail: String::new(),
        columns: ["shm / local", "tcp / local", "nfs / local"]
            .map(str::to_owned)
            .to_vec(),
        rows: drawn.collect(),
        // Of whole transactions, as one client makes them.
        references: match title.starts_with("postmark, one") {
            true => published::transactions(),
            false => Vec::new(),
        },
    }
}

fn look(fabric: &str) -> Series {
    match fabric {
        "local" => Series::of("mmap").named(fabric),
        _ => Series::of(fabric),
    }
}
