//! How many times longer than the best: the default of each case beside every fixed configuration.

use serde_json::Value;

use super::drawing::{capital, distinct, size, word};
use super::latency::fabric;
use super::{Axis, Dots, DotsRow, Mark, Page, Scale, Series, Unit};

/// Ratios above this are rows that we lose: the product promises the best setting within 5 %.
const LOST: f64 = 1.05;

/// A plot for each fabric and mode.
pub(super) fn draw(page: &mut Page, report: &Value, rows: &[Value]) {
    page.paragraph(
        "Is a client with default options as fast as the best that it could have been told? Each row is a case: the mean \
         time of a read with each fixed configuration, in multiples of the best of them. Those with +cache keep \
         pages in the client. Where the default takes more than 5 % longer than the best, the ratio is bold: we lose \
         there.",
    );
    for skipped in report["skipped"].as_array().into_iter().flatten() {
        let skipped = skipped.as_str().unwrap_or_default();
        page.warning(&format!("A case could not be measured: {skipped}."));
    }
    let panel = |row: &Value| {
        let what = if spins(row) {
            ", several clients on few processors"
        } else {
            ""
        };
        format!("{}, {}{what}", fabric(&word(row, "fabric")), served(row))
    };
    for wanted in distinct(rows, panel) {
        let of: Vec<&Value> = rows.iter().filter(|row| panel(row) == wanted).collect();
        page.dots(&plot(&wanted, &of));
    }
}

/// The direct reads that the server grants.
fn served(row: &Value) -> String {
    match &*word(row, "served") {
        "default" => "server with its defaults".to_owned(),
        served => format!("server that grants {served} reads"),
    }
}

/// Whether the row is of a case that compares ways of waiting.
fn spins(row: &Value) -> bool {
    row["case"] == "short of cores"
}

/// What a line is of.
fn line_of(row: &Value) -> String {
    let set = row["working_set_bytes"].as_f64().unwrap_or(0.0);
    let memory = row["memory_bytes"].as_f64().unwrap_or(1.0).max(1.0);
    let mut line = format!(
        "{} {}, {} = {} x memory",
        word(row, "pattern"),
        size(row, "size_bytes"),
        size(row, "working_set_bytes"),
        (set / memory * 100.0).round() / 100.0,
    );
    if let Some(load @ 1..) = row["load"].as_u64() {
        let shift = row["shift"].as_str().unwrap_or("load");
        line += &format!(", {load} % {shift}");
    }
    if spins(row) {
        line += &format!(", {} at once", row["clients"]);
    }
    line
}

/// Configurations, in the order of the legend: three follow each other on the levels of a row.
const CONFIGS: [&str; 12] = [
    "rpc",
    "mmap",
    "rpc+cache",
    "guarded",
    "policy",
    "guarded+cache",
    "one-sided",
    "default",
    "one-sided+cache",
    "spin-0us",
    "spin-5us",
    "spin-50us",
];

fn plot(title: &str, rows: &[&Value]) -> Dots {
    let lines = distinct(rows.iter().copied(), |row| {
        format!("{}\n{}", word(row, "case"), line_of(row))
    });
    let others = distinct(rows.iter().copied(), |row| word(row, "config"));
    let others = others.iter().map(String::as_str);
    let others = others.filter(|config| !CONFIGS.contains(config));
    let configs: Vec<&str> = CONFIGS.into_iter().chain(others).collect();
    let drawn = lines.iter().filter_map(|wanted| {
        let (case, line) = wanted.split_once('\n')?;
        let of = |config: &str| {
            let here = |row: &&&Value| {
                row["config"] == config && word(row, "case") == case && line_of(row) == line
            };
            rows.iter().find(here)
        };
        let marks = configs.iter().enumerate().filter_map(|(number, config)| {
            let row = of(config)?;
            let ends = |low: &str, high: &str| row[low].as_f64().zip(row[high].as_f64());
            let spread = ends("ratio_lowest", "ratio_highest").filter(|_| *config == "default");
            Some(Mark {
                spread,
                ..Mark::new(
                    Series::of_or_numbered(config, number),
                    row["ratio_to_best"].as_f64()?,
                )
            })
        });
        let best = (rows.iter())
            .filter(|row| word(row, "case") == case && line_of(row) == line)
            .filter(|row| row["is_fixed"] == true)
            .min_by_key(|row| row["mean_ns"].as_u64());
        let ratio = match of("default").and_then(|row| row["ratio_to_best"].as_f64()) {
            Some(ratio) if ratio > LOST => format!("!{}", Unit::Ratio.show(ratio)),
            Some(ratio) => Unit::Ratio.show(ratio),
            None => "-".to_owned(),
        };
        Some(DotsRow {
            group: capital(case),
            label: line.to_owned(),
            marks: marks.collect(),
            figures: vec![ratio, best.map_or(String::new(), |row| word(row, "config"))],
        })
    });
    Dots {
        title: title.to_owned(),
        axis: Axis::new(
            "Mean time of a read / that of the best fixed configuration",
            Unit::Ratio,
            Scale::Log,
        ),
        value: String::new(),
        spread: "default, lowest to highest round".to_owned(),
        tail: String::new(),
        columns: ["default / best", "best"].map(str::to_owned).to_vec(),
        rows: drawn.collect(),
        references: Vec::new(),
    }
}
