//! What was not measured: the plots of `bench simulate`, each of which says so.

use serde_json::Value;

use super::drawing::{capital, distinct, size, word};
use super::{Axis, Line, Lines, Page, Point, Scale, Series, Unit};
use crate::table;

/// What a case may sweep: name, title, unit, scale.
const SWEPT: [(&str, &str, Unit, Scale); 5] = [
    (
        "clients",
        "Clients, each with one read under way",
        Unit::Number,
        Scale::Log,
    ),
    (
        "link_gbit",
        "Link of the server (Gbit/s)",
        Unit::Number,
        Scale::Log,
    ),
    (
        "cores",
        "Processors of the server",
        Unit::Number,
        Scale::Log,
    ),
    (
        "stale_percent",
        "Part of direct reads that is refused",
        Unit::Percent,
        Scale::Linear,
    ),
    (
        "cache_bytes",
        "Page cache of the server, half of which clients read",
        Unit::Bytes,
        Scale::Log,
    ),
];

/// What is plotted of a row: heading, title, unit, scale, and the value.
struct Figure {
    heading: &'static str,
    axis: (&'static str, Unit, Scale),
    value: fn(&Value) -> Option<f64>,
}

const FIGURES: [Figure; 3] = [
    Figure {
        heading: "Reads of all clients together",
        axis: ("Reads a second, simulated", Unit::Number, Scale::Log),
        value: |row| row["reads_per_s"].as_f64(),
    },
    Figure {
        heading: "The 99th percentile of reads",
        axis: ("Latency, simulated", Unit::Nanoseconds, Scale::Log),
        value: |row| row["p99_ns"].as_f64(),
    },
    Figure {
        heading: "What the server's processors are busy",
        axis: (
            "Time of the server's processors, simulated",
            Unit::Percent,
            Scale::Linear,
        ),
        value: |row| Some(row["server_cpu"].as_f64()? * 100.0),
    },
];

pub(super) fn draw(page: &mut Page, report: &Value, rows: &[Value]) {
    page.warning("Simulated: nothing in this section was measured.");
    page.paragraph(
        "What one machine cannot show: up to 10,000 clients, terabytes of cache, fast links. A model of queues (the server's \
         processors, its adapter, its link) plays clients that each have one read under way, with these costs of each \
         step:",
    );
    let costs = report["costs"].as_array().into_iter().flatten();
    for costs in costs {
        // No table: its cells do not wrap, and these are sentences.
        page.small(&format!(
            "{}: {}.",
            capital(&word(costs, "name")),
            word(costs, "source")
        ));
    }
    for case in distinct(rows, |row| word(row, "case")) {
        let of: Vec<&Value> = (rows.iter()).filter(|row| row["case"] == *case).collect();
        page.subheading(&format!("Simulated: {case}"));
        page.small(&fixed(&of));
        // Latency and processors along clients only: elsewhere they follow from the rate.
        let figures = match swept(&of).0 {
            "clients" if of.iter().all(|row| row["link_gbit"] != 0.0) => &FIGURES[..],
            _ => &FIGURES[..1],
        };
        for figure in figures {
            if figures.len() > 1 {
                page.small(&format!("{}:", figure.heading));
            }
            page.lines(&plots(&of, figure));
        }
    }
}

/// What a case sweeps: what has most values.
fn swept(rows: &[&Value]) -> (&'static str, &'static str, Unit, Scale) {
    let values = |key: &str| distinct(rows.iter().copied(), |row| word(row, key)).len();
    let all = SWEPT.into_iter().rev();
    all.max_by_key(|(key, ..)| values(key)).unwrap_or(SWEPT[0])
}

/// What is the same in all rows of a case, in words.
fn fixed(rows: &[&Value]) -> String {
    let Some(row) = rows.first() else {
        return String::new();
    };
    let key = swept(rows).0;
    let number = |key: &str| row[key].as_f64().unwrap_or(0.0);
    let whole = |key: &str| table::count(number(key) as u64);
    let many = |key: &str, noun| table::counted(number(key) as u64, noun);
    let together = number("link_gbit") == 0.0;
    let all = [
        ("clients", many("clients", "client")),
        (
            "link_gbit",
            match together {
                true => {
                    "no link: clients and server share the processors of one machine".to_owned()
                }
                false => format!("a link of {} Gbit/s", whole("link_gbit")),
            },
        ),
        ("cores", many("cores", "processor")),
        (
            "stale_percent",
            format!("{} % of direct reads refused", number("stale_percent")),
        ),
        (
            "cache_bytes",
            format!("a page cache of {}", size(row, "cache_bytes")),
        ),
    ];
    let said = all.into_iter().filter(|(of, _)| *of != key);
    let said: Vec<String> = said.map(|(_, said)| said).collect();
    format!("{}.", capital(&said.join(", ")))
}

/// A plot for each length and costs, with a line for each route.
fn plots(rows: &[&Value], figure: &Figure) -> Vec<Lines> {
    let (key, title, unit, scale) = swept(rows);
    let panel = |row: &Value| {
        let (costs, length) = (word(row, "costs"), size(row, "size_bytes"));
        format!("Simulated, costs {costs}: reads of {length}")
    };
    let plot = |wanted: String| {
        let of = || rows.iter().filter(|row| panel(row) == wanted);
        let routes = distinct(of().copied(), |row| word(row, "route"));
        let lines = routes.iter().map(|route| {
            let points = of()
                .filter(|row| row["route"] == **route)
                .filter_map(|row| {
                    Some(Point {
                        x: row[key].as_f64()?,
                        y: (figure.value)(row)?,
                        spread: None,
                    })
                });
            Line {
                series: Series::of(route),
                points: points.collect(),
            }
        });
        let (axis, of, along) = figure.axis;
        Lines {
            title: wanted.clone(),
            x: Axis::new(title, unit, scale),
            y: Axis::new(axis, of, along),
            lines: lines.collect(),
            references: Vec::new(),
        }
    };
    distinct(rows.iter().copied(), panel)
        .into_iter()
        .map(plot)
        .collect()
}
