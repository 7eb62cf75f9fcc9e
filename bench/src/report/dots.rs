//! How many times longer than the best: a line for each case, a dot for each configuration, on a logarithmic axis.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Page, escape};
use crate::table;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 350.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 14.0;
const LINE: f64 = 24.0;

/// Names, colours that colour-blind readers tell apart (Okabe, Ito 2008), and how they are drawn.
const MARKS: [(&str, &str, Mark); 12] = [
    ("mmap", "#8a8f98", Mark::Tick),
    ("rpc", "#d55e00", Mark::Ring),
    ("guarded", "#0072b2", Mark::Ring),
    ("one-sided", "#009e73", Mark::Ring),
    ("rpc+cache", "#d55e00", Mark::Dot),
    ("guarded+cache", "#0072b2", Mark::Dot),
    ("one-sided+cache", "#009e73", Mark::Dot),
    ("policy", "#1c2430", Mark::Ring),
    ("spin-0us", "#56b4e9", Mark::Dot),
    ("spin-5us", "#e69f00", Mark::Dot),
    ("spin-50us", "#cc79a7", Mark::Dot),
    ("default", "#1c2430", Mark::Diamond),
];

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    /// A short line.
    Tick,
    /// No pages are kept.
    Ring,
    /// Pages are kept.
    Dot,
    /// What is judged.
    Diamond,
}

/// A plot for each fabric and mode.
pub fn draw(page: &mut Page, rows: &[Value]) {
    page.paragraph(
        "Whether a client with default options is as fast as the best that it could have been told: the mean time of a \
         read, in multiples of that of the best fixed configuration of the case. Rings keep no pages, dots do; the line \
         through a diamond is the spread of the rounds.",
    );
    let panel = |row: &Value| (text(row, "fabric"), text(row, "served"), spins(row));
    let mut panels: Vec<_> = Vec::new();
    for found in rows.iter().map(panel) {
        if !panels.contains(&found) {
            panels.push(found);
        }
    }
    for wanted in panels {
        let (fabric, served, spins) = &wanted;
        let what = if *spins { ", waiting" } else { "" };
        page.subheading(&format!("{fabric}, {served}{what}"));
        let rows: Vec<&Value> = rows.iter().filter(|row| panel(row) == wanted).collect();
        page.plot(&svg(&rows));
    }
}

/// Whether the row is of a case that compares ways of waiting.
fn spins(row: &Value) -> bool {
    row["case"] == "short of cores"
}

fn text(row: &Value, key: &str) -> String {
    row[key].as_str().unwrap_or("").to_owned()
}

/// What a line is of.
fn line_of(row: &Value) -> String {
    let size = |key: &str| table::bytes(row[key].as_u64().unwrap_or(0));
    let set = row["working_set_bytes"].as_f64().unwrap_or(0.0);
    let memory = row["memory_bytes"].as_f64().unwrap_or(1.0).max(1.0);
    let mut line = format!(
        "{} {}, {} = {} x memory",
        text(row, "pattern"),
        size("size_bytes"),
        size("working_set_bytes"),
        (set / memory * 100.0).round() / 100.0,
    );
    if let Some(load @ 1..) = row["load"].as_u64() {
        let _ = write!(
            line,
            ", {load} % {}",
            row["shift"].as_str().unwrap_or("load")
        );
    }
    if spins(row) {
        let _ = write!(line, ", {} at once", row["clients"]);
    }
    line
}

fn svg(rows: &[&Value]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in rows.iter().map(|row| line_of(row)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let scale = Scale::of(rows);
    let used: Vec<_> = MARKS
        .iter()
        .filter(|(name, ..)| rows.iter().any(|row| row["config"] == *name))
        .collect();
    let bottom = TOP + LINE * lines.len().max(used.len()) as f64;
    let height = bottom + 46.0;
    let mut svg = format!(
        "<svg viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' role='img'>\n"
    );
    for tick in scale.ticks() {
        let (x, dark) = (scale.x(tick), tick == 1.0);
        let stroke = if dark { "#8a8f98" } else { "#dde2e8" };
        let _ = writeln!(
            svg,
            "<line x1='{x:.1}' x2='{x:.1}' y1='{TOP}' y2='{bottom}' stroke='{stroke}'/>\
             <text x='{x:.1}' y='{:.1}' text-anchor='middle'>{tick}</text>",
            bottom + 16.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x='{:.1}' y='{:.1}' text-anchor='middle'>mean time of a read / that of the best fixed configuration</text>",
        (LEFT + RIGHT) / 2.0,
        bottom + 36.0
    );
    for (number, line) in lines.iter().enumerate() {
        let y = TOP + LINE * (number as f64 + 0.5);
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>",
            LEFT - 10.0,
            y + 4.0,
            escape(line)
        );
        for (name, colour, mark) in &used {
            let here = |row: &&&Value| row["config"] == *name && line_of(row) == *line;
            for row in rows.iter().filter(here) {
                mark.draw(&mut svg, &scale, (row, y), colour);
            }
        }
    }
    for (number, (name, colour, mark)) in used.iter().enumerate() {
        let y = TOP + LINE * (number as f64 + 0.5);
        mark.symbol(&mut svg, (RIGHT + 24.0, y), colour);
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{:.1}'>{name}</text>",
            RIGHT + 36.0,
            y + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

impl Mark {
    fn draw(self, svg: &mut String, scale: &Scale, (row, y): (&Value, f64), colour: &str) {
        let Some(ratio) = row["ratio_to_best"].as_f64() else {
            return;
        };
        if self == Self::Diamond {
            let ends = ["ratio_lowest", "ratio_highest"]
                .map(|key| scale.x(row[key].as_f64().unwrap_or(ratio)));
            let _ = writeln!(
                svg,
                "<line x1='{:.1}' x2='{:.1}' y1='{y}' y2='{y}' stroke='{colour}'/>",
                ends[0], ends[1]
            );
        }
        // Those that keep pages and those that do not are set apart, so that none hides another.
        let y = match self {
            Self::Ring => y - 4.0,
            Self::Dot => y + 4.0,
            Self::Tick | Self::Diamond => y,
        };
        self.symbol(svg, (scale.x(ratio), y), colour);
    }

    fn symbol(self, svg: &mut String, (x, y): (f64, f64), colour: &str) {
        let _ = match self {
            Self::Tick => writeln!(
                svg,
                "<path d='M{x:.1} {:.1}v10' stroke='{colour}' stroke-width='2'/>",
                y - 5.0
            ),
            Self::Ring => writeln!(
                svg,
                "<circle cx='{x:.1}' cy='{y:.1}' r='3.5' fill='none' stroke='{colour}' stroke-width='2'/>"
            ),
            Self::Dot => writeln!(
                svg,
                "<circle cx='{x:.1}' cy='{y:.1}' r='4' fill='{colour}'/>"
            ),
            Self::Diamond => writeln!(
                svg,
                "<path d='M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z' fill='{colour}'/>",
                y - 5.5
            ),
        };
    }
}

/// Ratios to places, logarithmically.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(rows: &[&Value]) -> Self {
        let mut keys = ["ratio_to_best", "ratio_lowest", "ratio_highest"].into_iter();
        let of = |key: &str| {
            let judged = |row: &&&Value| key == "ratio_to_best" || row["config"] == "default";
            let values = rows.iter().filter(judged);
            values
                .filter_map(|row| row[key].as_f64())
                .collect::<Vec<_>>()
        };
        let values: Vec<f64> = keys.by_ref().flat_map(of).filter(|v| *v > 0.0).collect();
        Self {
            low: values.iter().copied().fold(0.9, f64::min) * 0.95,
            high: values.iter().copied().fold(2.0, f64::max) * 1.1,
        }
    }

    fn x(&self, ratio: f64) -> f64 {
        let share = (ratio / self.low).ln() / (self.high / self.low).ln();
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// 1, 2 and 5 times the powers of ten that there is room for.
    fn ticks(&self) -> Vec<f64> {
        let step = |factors: &[f64]| {
            let powers = (-6..=6).map(|power| 10f64.powi(power));
            let all = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
            // 10^-1 and its like are not exact; what is printed is.
            let rounded = all.map(|tick| (tick * 1e6).round() / 1e6);
            let inside = rounded.filter(|tick| (self.low..=self.high).contains(tick));
            inside.collect::<Vec<f64>>()
        };
        let fine = step(&[1.0, 2.0, 5.0]);
        match fine.len() {
            0..=9 => fine,
            _ => step(&[1.0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_configuration_of_each_case_has_its_mark() {
        let row = |config: &str, pattern: &str, ratio: f64| {
            json!({"case": "patterns", "fabric": "shm", "served": "guarded", "pattern": pattern, "size_bytes": 4096,
                   "working_set_bytes": 1 << 28, "memory_bytes": 1 << 26, "load": 0, "clients": 1, "config": config,
                   "ratio_to_best": ratio, "ratio_lowest": ratio * 0.9, "ratio_highest": ratio * 1.1})
        };
        let rows = [
            row("rpc", "uniform", 1.0),
            row("rpc+cache", "uniform", 1.5),
            row("default", "uniform", 5.1),
            row("mmap", "uniform", 0.2),
            row("rpc", "zipf<", 2.0),
            row("default", "zipf<", 120.0),
        ];
        let mut page = Page::titled("Report");
        draw(&mut page, &rows);
        let html = page.html("Report");
        // Three rings and dots, two of them in the legend too; two diamonds, and one there.
        assert_eq!(html.matches("<circle").count(), 3 + 2);
        assert_eq!(html.matches("l5.5 5.5").count(), 2 + 1);
        assert_eq!(html.matches("v10'").count(), 1 + 1);
        assert!(html.contains("256 MiB = 4 x memory") && html.contains("zipf&lt;"));
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (low, high) in [(0.86, 2.2), (0.2, 6.0), (0.01, 300.0), (0.9, 1e5)] {
            let ticks = Scale { low, high }.ticks();
            assert!((1..10).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.contains(&1.0));
        }
    }
}
