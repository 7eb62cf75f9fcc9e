//! Draws benches from their JSON output, and chooses which figures to plot against which.

use anyhow::{Context, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;

use super::sweep::SWEEPS;
use super::{
    Axis, Dots, DotsRow, Mark, Page, Series, Unit, clients, cold, latency, metadata, policy,
    published, simulate, soak,
};
use crate::machine::Machine;
use crate::table;

/// Rows up to which a page has them as a table. Nobody reads a longer one, and it would make up much of the page.
const ROWS_MAX: usize = 200;

/// Adds a bench's report, as its `--json` prints it, and keeps it in the page. An unknown bench gets a table.
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
    page.kind = match bench {
        _ if report["simulated"] == true => "Simulated: a model played it, nothing was measured.",
        "registration" => {
            "Real, but for the price of registering memory over tcp, which is assumed (`odafs bench registration --help`)."
        }
        _ => "Real: measured on the machine named above.",
    };
    if report["simulated"] == true {
        // On which machine it was played says nothing.
        let commit = report["commit"].as_str().unwrap_or("unknown");
        page.small(&format!("Commit {commit}, seed {}", report["seed"]));
    } else if let Ok(machine) = Machine::deserialize(&report["machine"]) {
        page.machine(&machine, report["commit"].as_str().unwrap_or("unknown"));
    }
    match (bench, SWEEPS.iter().find(|sweep| sweep.bench == bench)) {
        ("scale", Some(sweep)) => {
            sweep.draw(page, &clients::scale(rows));
            clients::costs(page, report);
        }
        ("mixed", Some(sweep)) => {
            sweep.draw(page, &clients::mixed(rows));
            clients::coherence(page, rows);
        }
        (_, Some(sweep)) => sweep.draw(page, rows),
        ("latency", _) => latency::draw(page, report, rows),
        ("peers", _) => latency::peers(page, report, rows),
        ("policy", _) => policy::draw(page, report, rows),
        ("metadata", _) => metadata::draw(page, rows),
        ("cold", _) => cold::draw(page, rows),
        ("soak", _) => soak::draw(page, report, rows),
        ("simulate", _) => simulate::draw(page, report, rows),
        ("breakdown", _) => breakdown(page, rows),
        ("revocation", _) => revocation(page, rows),
        ("fairness", _) => fairness(page, rows),
        _ => {}
    }
    match rows.len() {
        0..=ROWS_MAX => page.folded_table(&format!("All {} rows", rows.len()), &all(rows)),
        more => page.small(&format!(
            "The page keeps all {more} rows: `odafs bench report new.html --from THIS.html --json` prints them."
        )),
    }
    page.keep(report);
    page.kind = "";
    Ok(())
}

fn breakdown(page: &mut Page, rows: &[Value]) {
    page.paragraph(
        "The terms that the time of a read is made of, each alone: a call that does nothing (T_NullRPC), the server's \
         file system (T_FS), the MAC of a request (T_MAC), the NIC's judgement of a direct read (T_exc), the copy \
         (T_copy), a direct read that is refused (T_stale).",
    );
    let drawn = rows.iter().filter_map(|row| {
        let figure = |key: &str| row[key].as_f64();
        let ns = figure("ns")?;
        let mut label = word(row, "what");
        if row["size_bytes"].as_u64() > Some(0) {
            label += &format!(", {}", size(row, "size_bytes"));
        }
        if !word(row, "wait").is_empty() {
            label += &format!(", {}", waiting(row));
        }
        let mark = Mark {
            spread: figure("lowest_ns").zip(figure("highest_ns")),
            ..Mark::new(Series::numbered(0, "median"), ns)
        };
        Some(DotsRow {
            group: word(row, "term"),
            label,
            marks: vec![mark],
            figures: vec![Unit::Nanoseconds.show(ns)],
        })
    });
    let mut drawn: Vec<DotsRow> = drawn.collect();
    // Terms come back in a bench: each has its rows together.
    let terms = distinct(rows, |row| word(row, "term"));
    drawn.sort_by_key(|row| terms.iter().position(|term| *term == row.group));
    page.dots(&Dots {
        title: "Terms of a read".to_owned(),
        axis: Axis::time("Time"),
        value: "median of the rounds".to_owned(),
        spread: "lowest to highest round".to_owned(),
        tail: String::new(),
        columns: vec!["median".to_owned()],
        rows: drawn,
        references: published::terms(),
    });
}

fn revocation(page: &mut Page, rows: &[Value]) {
    page.paragraph(
        "How is a page taken back from a client that reads it by itself? By its stamp, which is a store, or by a tag of its \
         own (a memory window or a region), whose end costs the connection.",
    );
    const STEPS: [(&str, &str); 5] = [
        ("reference_ns", "hand out a reference"),
        ("read_ns", "read by it"),
        ("revoke_ns", "take the page back"),
        ("stale_ns", "read what was taken back"),
        ("recovered_ns", "until the next good read"),
    ];
    let drawn = STEPS.iter().flat_map(|(key, step)| {
        rows.iter().enumerate().filter_map(move |(number, row)| {
            let ns = row[*key].as_f64()?;
            let by = word(row, "by");
            Some(DotsRow {
                group: capital(step),
                label: format!("by {by}"),
                marks: vec![Mark::new(Series::numbered(number, &by), ns)],
                figures: vec![Unit::Nanoseconds.show(ns)],
            })
        })
    });
    page.dots(&Dots {
        title: "Time of each step".to_owned(),
        axis: Axis::time("Time"),
        value: "median".to_owned(),
        spread: String::new(),
        tail: String::new(),
        columns: vec!["median".to_owned()],
        rows: drawn.collect(),
        references: Vec::new(),
    });
}

fn fairness(page: &mut Page, rows: &[Value]) {
    page.paragraph(
        "What is a client left with while another floods the server? Three 99th percentiles of each call: with nobody else; \
         beside the flood; and with the same flood at another server of this machine, which shows what the machine alone \
         makes of as much work.",
    );
    const CALLS: [&str; 3] = ["lookup", "read", "readdir"];
    const STATES: [(&str, &str, usize); 3] = [
        ("quiet_p99_ns", "quiet", 2),
        ("flooded_p99_ns", "flooded", 1),
        ("elsewhere_p99_ns", "flooded elsewhere", 0),
    ];
    let drawn = CALLS.iter().flat_map(|call| {
        rows.iter().map(move |row| {
            let pair = &row[*call];
            let marks = STATES.iter().filter_map(|(key, state, look)| {
                Some(Mark::new(
                    Series::numbered(*look, state),
                    pair[*key].as_f64()?,
                ))
            });
            let ratio = |key: &str| match pair[key].as_f64() {
                Some(ratio) => Unit::Ratio.show(ratio),
                None => "-".to_owned(),
            };
            DotsRow {
                group: call.to_uppercase(),
                label: format!("beside {}", word(row, "flood")),
                marks: marks.collect(),
                figures: vec![ratio("ratio"), ratio("server_ratio")],
            }
        })
    });
    page.dots(&Dots {
        title: "What one client's calls take while another floods the server".to_owned(),
        axis: Axis::time("99th percentile of a call"),
        value: String::new(),
        spread: String::new(),
        tail: String::new(),
        columns: vec!["/ quiet".to_owned(), "/ elsewhere".to_owned()],
        rows: drawn.collect(),
        references: Vec::new(),
    });
}

/// A word of a row; nothing if it has no such.
pub(super) fn word(row: &Value, key: &str) -> String {
    match &row[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A length of a row.
pub(super) fn size(row: &Value, key: &str) -> String {
    table::bytes(row[key].as_u64().unwrap_or(0))
}

/// How sides wait, in words.
pub(super) fn waiting(row: &Value) -> &'static str {
    match row["wait"].as_str() {
        Some("spin") => "polling",
        _ => "sleeping",
    }
}

/// What there is of something among rows, each once, in their order.
pub(super) fn distinct<'a>(
    rows: impl IntoIterator<Item = &'a Value>,
    of: impl Fn(&Value) -> String,
) -> Vec<String> {
    let mut all = Vec::new();
    for found in rows.into_iter().map(of) {
        if !all.contains(&found) {
            all.push(found);
        }
    }
    all
}

/// All that rows say, as a table.
fn all(rows: &[Value]) -> Vec<Vec<String>> {
    let rows: Vec<Vec<(String, &Value)>> = rows.iter().map(flat).collect();
    let mut keys: Vec<&String> = Vec::new();
    for (key, _) in rows.iter().flatten() {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let value = |row: &[(String, &Value)], key: &str| -> Value {
        let found = row.iter().find(|(name, _)| name == key);
        found.map_or(Value::Null, |(_, value)| (*value).clone())
    };
    let is_word = |key: &&String| rows.iter().any(|row| value(row, key).is_string());
    // What is a value in some rows and values of its own in others has a column for nothing.
    keys.retain(|key| rows.iter().any(|row| !value(row, key).is_null()));
    // Words first: they say what the figures are of.
    keys.sort_by_key(|key| !is_word(key));
    let heading = keys.iter().map(|key| match is_word(key) {
        true => format!("<{}", words(key)),
        false => words(key),
    });
    let cells = rows.iter().map(|row| {
        let cells = keys.iter().map(|key| cell(key, &value(row, key)));
        cells.collect()
    });
    [heading.collect()].into_iter().chain(cells).collect()
}

/// The values of a row, those of objects in it among them.
fn flat(row: &Value) -> Vec<(String, &Value)> {
    let mut flat = Vec::new();
    for (key, value) in row.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(inner) => flat.extend(inner.iter().map(|(k, v)| (format!("{key} {k}"), v))),
            None => flat.push((key.clone(), value)),
        }
    }
    flat
}

/// A name without its unit.
pub fn words(key: &str) -> String {
    let bare = key.strip_suffix("_bytes").or(key.strip_suffix("_ns"));
    bare.unwrap_or(key).replace("_ns_", " ").replace('_', " ")
}

fn cell(key: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (Value::String(text), _) => text.clone(),
        (_, Some(n)) if key.ends_with("_bytes") => table::bytes(n),
        (_, Some(n)) if key.ends_with("_ns") || key.contains("_ns_") => table::time(n),
        (_, Some(n)) => table::count(n),
        (Value::Number(n), _) if key.ends_with("_ns") || key.contains("_ns_") => {
            Unit::Nanoseconds.show(n.as_f64().unwrap_or(0.0))
        }
        (Value::Number(n), _) => format!("{:.2}", n.as_f64().unwrap_or(0.0)),
        (Value::Null, _) => String::new(),
        _ => value.to_string(),
    }
}

pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
