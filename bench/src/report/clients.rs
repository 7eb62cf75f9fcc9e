//! Benches of several clients on one server, brought into the shape of a sweep.

use serde_json::Value;

use super::Page;
use super::drawing::{capital, word};
use crate::table;

/// The rows of `bench scale`, with memory in KiB: an axis of those has round values.
pub(super) fn scale(rows: &[Value]) -> Vec<Value> {
    let mut rows = rows.to_vec();
    for row in &mut rows {
        for side in ["server", "client"] {
            if let Some(bytes) = row[format!("{side}_bytes_per_client")].as_f64() {
                row[format!("{side}_kib_per_client")] = (bytes / 1024.0).into();
            }
        }
    }
    rows
}

/// What `bench scale` says of memory beside its rows.
pub(super) fn costs(page: &mut Page, report: &Value) {
    for clients in report["left_out"].as_array().into_iter().flatten() {
        page.warning(&format!(
            "Left out: {clients} clients, for which there was no time."
        ));
    }
    let costs = report["costs"].as_array().into_iter().flatten();
    let rows = costs.map(|cost| {
        let bytes = |key: &str| cost[key].as_u64().map_or_else(String::new, table::bytes);
        let directory = cost["directory_bytes"].as_f64();
        vec![
            capital(&word(cost, "what")),
            table::count(cost["number"].as_u64().unwrap_or(0)),
            bytes("server_bytes"),
            bytes("client_bytes"),
            directory.map_or_else(String::new, |bytes| format!("{bytes:.1} B")),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let heading = [
        "<Memory for each",
        "measured with",
        "at the server",
        "at the client",
        "of that in the directory",
    ];
    page.subheading("Memory for files and references");
    page.table(&[vec![heading.map(str::to_owned).to_vec()], rows].concat());
}

/// The rows of `bench mixed`, one for each kind of client and one for all together: `by` says whose it is.
pub(super) fn mixed(rows: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for row in rows {
        let mut together = row.clone();
        together["by"] = "all clients".into();
        all.push(together);
        for (kind, by) in [("direct", word(row, "route")), ("nfs", "nfs".to_owned())] {
            let Some(figures) = row[kind].as_object() else {
                continue;
            };
            let mut one = Value::Object(figures.clone());
            for key in ["fabric", "route", "direct_percent"] {
                one[key] = row[key].clone();
            }
            one["by"] = by.into();
            all.push(one);
        }
    }
    all
}

/// Whether every read of `bench mixed` was coherent.
pub(super) fn coherence(page: &mut Page, rows: &[Value]) {
    let sum = |key: &str| rows.iter().filter_map(|row| row[key].as_u64()).sum();
    let (checked, incoherent): (u64, u64) = (sum("checked"), sum("incoherent"));
    let checked = table::count(checked);
    match incoherent {
        0 => page.paragraph(&format!(
            "All {checked} reads were checked: none returned a page older than it may, nor parts of two."
        )),
        some => page.warning(&format!(
            "Of {checked} reads {} returned a page older than they may, or parts of two.",
            table::count(some)
        )),
    }
}
