//! Benches drawn from what they print as JSON: which figures are plotted against what.

use anyhow::{Context, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;

use super::dots;
use super::plot::{Plot, Series};
use super::{Bar, Page};
use crate::machine::Machine;
use crate::table;

/// How a bench is drawn, by the names in its rows.
struct Drawing {
    bench: &'static str,
    /// What it asks.
    question: &'static str,
    /// Rows that agree in these share a heading.
    panel: &'static [&'static str],
    /// Rows that agree in these too are a line.
    line: &'static [&'static str],
    /// What is along the axis.
    across: &'static str,
    /// What is plotted: a plot for each, or, where `stacked`, one with all on top of each other.
    values: &'static [(&'static str, &'static str)],
    stacked: &'static [(&'static str, &'static str)],
}

const MIB: (&str, &str) = ("mib_per_second", "MiB/s");
const CLIENT: (&str, &str) = ("client_cpu_ns_per_mib", "client CPU, ns for a MiB");
const SERVER: (&str, &str) = ("server_cpu_ns_per_mib", "server CPU, ns for a MiB");

const DRAWINGS: [Drawing; 4] = [
    Drawing {
        bench: "throughput",
        question: "Sequential reads and writes by calls: how much goes through, and what it costs either side.",
        panel: &["operation", "wait", "read_ahead"],
        line: &["fabric"],
        across: "record_bytes",
        values: &[MIB, CLIENT, SERVER],
        stacked: &[],
    },
    Drawing {
        bench: "designs",
        question: "RPC-over-RDMA: what it costs that clients fetch their replies.",
        panel: &["operation", "record_bytes"],
        line: &["design"],
        across: "threads",
        values: &[MIB, CLIENT, SERVER],
        stacked: &[],
    },
    Drawing {
        bench: "registration",
        question: "RPC-over-RDMA: what registration costs by the model of hardware, and which strategy spares it.",
        panel: &["operation", "record_bytes"],
        line: &["registration"],
        across: "threads",
        values: &[MIB],
        stacked: &[
            ("register_ns_per_call", "register"),
            ("invalidate_ns_per_call", "invalidate"),
            ("other_ns_per_call", "other"),
        ],
    },
    Drawing {
        bench: "credits",
        question: "RPC-over-RDMA: whether credits by need give more, or fairer shares, than fixed ones.",
        panel: &["record_bytes", "in_flight"],
        line: &["credits"],
        across: "clients",
        values: &[MIB, ("fairness", "fairness (Jain's index)"), SERVER],
        stacked: &[],
    },
];

/// Adds a bench's report, as its `--json` prints it.
///
/// # Errors
/// It is no report: it has no rows.
pub fn draw(page: &mut Page, report: &Value) -> Result<()> {
    let rows = report["rows"]
        .as_array()
        .context("there are no rows in it")?;
    if rows.iter().any(|row| !row.is_object()) {
        bail!("its rows are no objects");
    }
    let bench = report["bench"].as_str().unwrap_or("latency");
    page.heading(&capital(bench));
    if let Ok(machine) = Machine::deserialize(&report["machine"]) {
        let commit = report["commit"].as_str().unwrap_or("unknown");
        page.small(&format!("{}; commit {commit}", machine.sentence()));
    }
    match DRAWINGS.iter().find(|drawing| drawing.bench == bench) {
        Some(drawing) => drawing.draw(page, rows),
        None if bench == "policy" => dots::draw(page, rows),
        None => bars(page, rows),
    }
    page.small("All rows:");
    page.table(&all(rows));
    Ok(())
}

impl Drawing {
    fn draw(&self, page: &mut Page, rows: &[Value]) {
        page.paragraph(self.question);
        for panel in distinct(rows, self.panel) {
            let rows: Vec<Value> = rows
                .iter()
                .filter(|row| label(row, self.panel) == panel)
                .cloned()
                .collect();
            page.subheading(&panel);
            for (key, what) in self.values {
                page.plot(&self.lines(&rows, key, what).lines());
            }
            if !self.stacked.is_empty() {
                page.plot(&self.stacks(&rows).stacks());
            }
        }
    }

    fn lines(&self, rows: &[Value], key: &str, what: &str) -> Plot {
        let places = distinct(rows, &[self.across]);
        let lines = distinct(rows, self.line).into_iter().map(|line| Series {
            values: places
                .iter()
                .map(|place| {
                    let here = |row: &&Value| {
                        label(row, self.line) == line && label(row, &[self.across]) == *place
                    };
                    rows.iter().find(here)?[key].as_f64()
                })
                .collect(),
            label: line,
        });
        Plot {
            what: what.to_owned(),
            series: lines.collect(),
            places: places.clone(),
        }
    }

    fn stacks(&self, rows: &[Value]) -> Plot {
        // A few letters of the line's name: as many bars as there are rows share the axis.
        let place = |row: &Value| {
            let name: String = label(row, self.line).chars().take(6).collect();
            format!("{name} {}", cell(self.across, &row[self.across]))
        };
        let mut rows: Vec<&Value> = rows.iter().collect();
        rows.sort_by_key(|row| label(row, self.line));
        let parts = self.stacked.iter().map(|(key, part)| Series {
            label: (*part).to_owned(),
            values: rows.iter().map(|row| row[*key].as_f64()).collect(),
        });
        Plot {
            what: "time of a call, ns".to_owned(),
            series: parts.collect(),
            places: rows.iter().map(|row| place(row)).collect(),
        }
    }
}

/// Latencies and terms: bars of the median, up to the 99th percentile or the slowest round.
fn bars(page: &mut Page, rows: &[Value]) {
    const GROUPS: [&str; 3] = ["size_bytes", "wait", "depth"];
    const WORDS: [&str; 6] = ["fabric", "route", "rpc", "mac", "term", "what"];
    for group in distinct(rows, &GROUPS) {
        let bars: Vec<Bar> = rows
            .iter()
            .filter(|row| label(row, &GROUPS) == group)
            .filter_map(|row| {
                let first = |keys: [&str; 2]| keys.iter().find_map(|key| row[*key].as_f64());
                let middle = first(["p50_ns", "ns"])?;
                let words = WORDS.iter().filter_map(|key| row[*key].as_str());
                Some(Bar {
                    label: words.filter(|w| *w != "none").collect::<Vec<_>>().join(" "),
                    p50_ns: middle as u64,
                    p99_ns: first(["p99_ns", "highest_ns"]).unwrap_or(middle) as u64,
                    kind: 1,
                })
            })
            .collect();
        if !bars.is_empty() {
            page.subheading(&group);
            page.bars(&bars);
        }
    }
}

/// What a row says under some names, where it says anything.
fn label(row: &Value, keys: &[&str]) -> String {
    let said = keys.iter().filter(|key| !row[**key].is_null());
    let parts = said.map(|key| {
        let value = cell(key, &row[*key]);
        match (&row[*key], keys.len()) {
            (Value::Number(_), 2..) => format!("{} {value}", words(key)),
            _ => value,
        }
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn distinct(rows: &[Value], keys: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for found in rows.iter().map(|row| label(row, keys)) {
        if !all.contains(&found) {
            all.push(found);
        }
    }
    all
}

fn all(rows: &[Value]) -> Vec<Vec<String>> {
    let mut keys: Vec<&String> = Vec::new();
    for key in rows
        .iter()
        .filter_map(Value::as_object)
        .flat_map(|row| row.keys())
    {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // Words first: they say what the figures are of.
    keys.sort_by_key(|key| !rows.iter().any(|row| row[key.as_str()].is_string()));
    let heading = keys.iter().map(|key| words(key)).collect();
    let cells = rows.iter().map(|row| {
        keys.iter()
            .map(|key| cell(key, &row[key.as_str()]))
            .collect()
    });
    [heading].into_iter().chain(cells).collect()
}

/// A name without its unit.
fn words(key: &str) -> String {
    let bare = key.strip_suffix("_bytes").or(key.strip_suffix("_ns"));
    bare.unwrap_or(key).replace("_ns_", " ").replace('_', " ")
}

fn cell(key: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (Value::String(text), _) => text.clone(),
        (_, Some(n)) if key.ends_with("_bytes") => table::bytes(n),
        (_, Some(n)) if key.ends_with("_ns") || key.contains("_ns_") => table::time(n),
        (_, Some(n)) => table::count(n),
        (Value::Number(n), _) => format!("{:.2}", n.as_f64().unwrap_or(0.0)),
        (Value::Null, _) => String::new(),
        _ => value.to_string(),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn html(report: &Value) -> String {
        let mut page = Page::new("Report", &Machine::here(), "abc");
        draw(&mut page, report).unwrap();
        page.html("Report")
    }

    #[test]
    fn a_line_for_each_series_in_each_panel() {
        let row = |threads: u32, design: &str, rate: f64| {
            json!({"design": design, "operation": "read", "threads": threads, "record_bytes": 131_072,
                   "mib_per_second": rate, "client_cpu_ns_per_mib": 7, "server_cpu_ns_per_mib": 9})
        };
        let rows = [
            row(1, "read-read", 1.5),
            row(1, "read-write", 2.5),
            row(8, "read-write", 9.0),
        ];
        let page = html(&json!({"bench": "designs", "rows": rows}));
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<polyline").count(), 6);
        assert_eq!(page.matches("<circle").count(), 9);
        assert!(page.contains("read, record 128 KiB") && page.contains("<td>9.00</td>"));
    }

    #[test]
    fn parts_of_a_call_are_stacked() {
        let rows = [
            json!({"registration": "cached", "operation": "write", "threads": 2, "record_bytes": 4096,
            "mib_per_second": 3, "register_ns_per_call": 5, "invalidate_ns_per_call": 0, "other_ns_per_call": 100}),
        ];
        let page = html(&json!({"bench": "registration", "rows": rows}));
        assert!(page.contains("cached 2") && page.contains(">invalidate</text>"));
        assert_eq!(page.matches("<rect").count(), 3);
    }

    #[test]
    fn latencies_are_bars_and_what_is_unknown_is_a_table() {
        let latency =
            json!({"rows": [{"route": "rpc<", "wait": "spin", "p50_ns": 1200, "p99_ns": 5000}]});
        let page = html(&latency);
        assert!(page.matches("<rect").count() == 1 && page.contains("rpc&lt;"));
        let page = html(&json!({"bench": "other", "rows": [{"some_thing": 3}]}));
        assert!(page.contains("<th>some thing</th>") && !page.contains("<svg"));
        let mut page = Page::new("Report", &Machine::here(), "abc");
        for wrong in [json!({"bench": "designs"}), json!([]), json!({"rows": [1]})] {
            assert!(draw(&mut page, &wrong).is_err());
        }
    }
}
