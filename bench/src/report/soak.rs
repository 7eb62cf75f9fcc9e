//! `bench soak`: rate, latency and memory along a run, and whether every byte was right.

use serde_json::Value;

use super::drawing::{capital, word, words};
use super::{Axis, Line, Lines, Page, Point, Scale, Series, Unit};
use crate::table;

/// A plot for each kind of figure, with its samples along the run.
pub(super) fn draw(page: &mut Page, report: &Value, rows: &[Value]) {
    page.paragraph(
        "Does anything grow, or slow down, or return a wrong byte, while clients of every route read files that others \
         write, truncate, remove and create again, and further clients come and go?",
    );
    let count = |key: &str| report[key].as_u64().unwrap_or(0);
    let checked = table::count(count("checked"));
    match count("wrong") + count("failed") {
        0 => page.paragraph(&format!(
            "All {checked} reads were checked: none returned a wrong byte, and no operation failed."
        )),
        _ => page.warning(&format!(
            "Of {checked} reads {} returned wrong data, and {} operations failed.",
            table::count(count("wrong")),
            table::count(count("failed"))
        )),
    }
    page.lines(&[
        plot(
            "Reads of all clients together",
            ("Reads a second", Unit::Number, 1.0),
            &[("reads_per_second", "all clients", 0)],
            rows,
        ),
        plot(
            "The 99th percentile of reads",
            ("Latency", Unit::Nanoseconds, 1.0),
            &[("read_p99_ns", "all clients", 0)],
            rows,
        ),
        plot(
            "Private memory",
            ("Memory (MiB)", Unit::Number, 1.0 / f64::from(1 << 20)),
            &[
                ("server_bytes", "server", 0),
                ("client_bytes", "all clients", 1),
            ],
            rows,
        ),
        plot(
            "Files and sockets that are open",
            ("Files and sockets", Unit::Number, 1.0),
            &[
                ("server_descriptors", "server", 0),
                ("client_descriptors", "all clients", 1),
            ],
            rows,
        ),
    ]);
    growth(page, report);
}

/// Figures along the run: name in the rows, name of the line, look. The axis has a title, a unit, and a factor.
fn plot(
    title: &str,
    (axis, unit, factor): (&str, Unit, f64),
    figures: &[(&str, &str, usize)],
    rows: &[Value],
) -> Lines {
    let lines = figures.iter().map(|(key, name, look)| {
        let points = rows.iter().filter_map(|row| {
            Some(Point {
                x: row["seconds"].as_f64()?,
                y: row[*key].as_f64()? * factor,
                spread: None,
            })
        });
        Line {
            series: Series::numbered(*look, name),
            points: points.collect(),
        }
    });
    Lines {
        title: title.to_owned(),
        x: Axis::new("Seconds since the run began", Unit::Number, Scale::Linear),
        y: Axis::new(axis, unit, Scale::Linear),
        lines: lines.collect(),
        references: Vec::new(),
    }
}

/// How each figure changed from the first quarter of the run to the last.
fn growth(page: &mut Page, report: &Value) {
    let rows = report["growth"].as_array().into_iter().flatten();
    let rows = rows.map(|row| {
        let figure = word(row, "figure");
        let mean = |key: &str| {
            let mean = row[key].as_f64().unwrap_or(0.0);
            match () {
                _ if figure.ends_with("_bytes") => table::bytes(mean as u64),
                _ if figure.ends_with("_ns") => Unit::Nanoseconds.show(mean),
                _ => table::count(mean as u64),
            }
        };
        let percent = row["percent"].as_f64();
        vec![
            capital(&words(&figure.replace("_bytes", "_memory"))),
            mean("first"),
            mean("last"),
            percent.map_or("-".to_owned(), |percent| format!("{percent:+.0} %")),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let heading = ["<Mean of", "first quarter", "last quarter", "change"];
    page.subheading("The first quarter of the run and the last");
    page.table(&[vec![heading.map(str::to_owned).to_vec()], rows].concat());
}
