//! Latencies: the bench of that name, and of other servers beside ours.

use anyhow::{Context, Result};
use serde::Deserialize as _;
use serde_json::Value;

use super::drawing::{capital, distinct, size, waiting, word};
use super::{Dots, DotsRow, Page, Ratio, Series, dots};
use crate::machine::Machine;
use crate::table;

/// What one plot shows: rows of one length, one way of waiting and one depth.
fn panel(row: &Value) -> String {
    let depth = match row["depth"].as_u64() {
        Some(depth @ 2..) => format!(", {depth} in flight"),
        _ => String::new(),
    };
    let pattern = match row["pattern"].as_str() {
        Some("sequential") => "in order",
        _ => "at random",
    };
    let length = size(row, "size_bytes");
    // Peers' servers wait as they like.
    let who = match row["peer"].is_null() {
        true => "both sides",
        false => "the client",
    };
    format!("{length} {pattern}{depth}, {who} {}", waiting(row))
}

pub(super) fn draw(page: &mut Page, report: &Value, rows: &[Value]) {
    page.paragraph(
        "What does a read take by each route, beside what the machine itself can do? A floor hands a page over between two \
         threads with nothing around it.",
    );
    let batches = rows.iter().any(|row| row["depth"].as_u64() > Some(1));
    for panel_of in distinct(rows, panel) {
        let of: Vec<&Value> = (rows.iter()).filter(|row| panel(row) == panel_of).collect();
        page.dots(&Dots::latencies(&capital(&panel_of), rows_of(&of)));
    }
    if batches {
        page.small("With several in flight the latency is that of the whole batch.");
    }
    for left_out in report["left_out"].as_array().into_iter().flatten() {
        page.warning(&format!("Left out: {}.", left_out.as_str().unwrap_or("")));
    }
    ratios(page, report);
}

/// Peers and ours.
pub(super) fn peers(page: &mut Page, report: &Value, rows: &[Value]) {
    page.paragraph("The same reads from other servers and from ours, in turn.");
    for panel_of in distinct(rows, panel) {
        let of = rows.iter().filter(|row| panel(row) == panel_of);
        let drawn = of.map(|row| {
            let (peer, route) = (word(row, "peer"), word(row, "route"));
            let name = match peer.as_str() {
                "odafs" => route.split(' ').next().unwrap_or("").to_owned(),
                _ => peer.clone(),
            };
            let name = match name.as_str() {
                "NFSv3/TCP" => "nfs",
                "READ" => "tcp",
                "table" => "default",
                name => name,
            };
            let label = format!("{peer}, {route}");
            latency_row(row, &label, Series::of(name))
        });
        page.dots(&Dots::latencies(&capital(&panel_of), drawn.collect()));
    }
    ratios(page, report);
}

/// The ratios of a report, by the length of reads.
fn ratios(page: &mut Page, report: &Value) {
    let all: Vec<Ratio> = (report["ratios"].as_array().into_iter().flatten())
        .filter_map(|ratio| {
            Some(Ratio {
                group: match ratio["size_bytes"].as_u64() {
                    Some(size) => format!("Reads of {}", table::bytes(size)),
                    None => String::new(),
                },
                name: word(ratio, "name"),
                ratio: ratio["ratio"].as_f64()?,
                spread: (ratio["lowest"].as_f64()?, ratio["highest"].as_f64()?),
            })
        })
        .collect();
    if !all.is_empty() {
        page.ratios("Ratios of rows of the same round", &all);
    }
}

/// Rows with names that tell them apart.
fn rows_of(rows: &[&Value]) -> Vec<DotsRow> {
    let bare = |row: &Value| (word(row, "fabric"), route(row));
    let mut drawn: Vec<DotsRow> = (rows.iter())
        .map(|row| {
            let mut label = route(row);
            let others = rows.iter().filter(|other| bare(other) == bare(row));
            // The pages of a client's cache are its own.
            let is_other = word(row, "route") == "cache"
                && (rows.iter()).any(|other| other["backing_bytes"] != row["backing_bytes"]);
            if (others.count() > 1 || is_other) && row["backing_bytes"].is_u64() {
                label += &format!(", pages of {}", size(row, "backing_bytes"));
            }
            let looks = match word(row, "fabric").as_str() {
                "nfs" => "nfs".to_owned(),
                _ => word(row, "route"),
            };
            let drawn = latency_row(row, &label, Series::of(&looks));
            drawn.in_group(&fabric(&word(row, "fabric")))
        })
        .collect();
    let fabrics = distinct(rows.iter().copied(), |row| fabric(&word(row, "fabric")));
    drawn.sort_by_key(|row| fabrics.iter().position(|fabric| *fabric == row.group));
    drawn
}

fn latency_row(row: &Value, label: &str, series: Series) -> DotsRow {
    let ns = |key: &str| row[key].as_f64();
    let p50 = ns("p50_ns").unwrap_or(0.0);
    let rounds = ns("p50_lowest_ns").zip(ns("p50_highest_ns"));
    DotsRow::latency(label, series, p50, rounds, ns("p99_ns").unwrap_or(p50))
}

/// A fabric, as a stranger knows it.
pub(super) fn fabric(name: &str) -> String {
    match name {
        "local" => "The file itself, no server".to_owned(),
        "shm" => "Over shared memory".to_owned(),
        "tcp" => "Over RDMA in software (iWARP over TCP)".to_owned(),
        "verbs" => "Over an RDMA device".to_owned(),
        "nfs" => "Over NFS (TCP)".to_owned(),
        other => other.to_owned(),
    }
}

/// A route, as a stranger knows it.
fn route(row: &Value) -> String {
    let (name, mac) = (word(row, "route"), word(row, "mac"));
    let name = match name.as_str() {
        "mmap" => "mmap and memcpy",
        "floor" => "floor: a bare hand-over",
        "cache" => "cache of the client",
        "rpc" if word(row, "fabric") == "nfs" => "NFSv3 READ",
        "rpc" => "RPC",
        name => name,
    };
    let how = match (mac.as_str(), row["rpc"].as_str()) {
        (_, Some(_)) if name == "NFSv3 READ" => "",
        (_, Some("inline")) => ", reply inline",
        (_, Some("direct")) => ", data by RDMA Write",
        (_, Some("worker")) => ", by a worker thread",
        (_, Some("references")) => ", with references",
        ("blake3", _) => ", BLAKE3",
        ("hmac-sha256", _) => ", HMAC-SHA-256",
        _ => "",
    };
    format!("{name}{how}")
}

/// The plot of the README, an SVG file: 4 KiB at random by each route, both sides polling, from reports of `bench latency`
/// (one of them may be of a server over NFS).
///
/// # Errors
/// There are no such rows.
pub fn readme_plot(reports: &[Value]) -> Result<String> {
    let wanted = |row: &&Value| {
        row["fabric"].is_string()
            && row["size_bytes"] == 4096
            && row["depth"] == 1
            && row["wait"] == "spin"
            && row["mac"] != "hmac-sha256"
            && ["inline", "direct"].map(Value::from).contains(&row["rpc"]) | row["rpc"].is_null()
            && row["route"] != "floor"
    };
    let of = |report: &'_ Value| report["rows"].as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = reports.iter().flat_map(of).collect();
    let rows: Vec<&Value> = all.iter().filter(wanted).collect();
    // Of several kinds of memory the one with the largest pages, of several kinds of reply the inline one.
    let better = |row: &Value| {
        let is_better = |other: &&&Value| {
            let same = |key: &str| row[key] == other[key];
            let pages = |row: &Value| row["backing_bytes"].as_u64();
            same("fabric")
                && same("route")
                && (pages(other) > pages(row)
                    || pages(other) == pages(row)
                        && other["rpc"] == "inline"
                        && row["rpc"] == "direct")
        };
        rows.iter().any(|other| is_better(&other))
    };
    let rows: Vec<&Value> = rows.iter().copied().filter(|row| !better(row)).collect();
    let from = (reports.iter())
        .find(|report| {
            report["rows"]
                .as_array()
                .is_some_and(|r| r.iter().any(|row| wanted(&row)))
        })
        .context(
            "there are no rows of 4 KiB, one at a time, both sides polling, among the figures",
        )?;
    let mut plot = Dots::latencies("Reading 4 KiB at random on one machine", rows_of(&rows));
    for row in &mut plot.rows {
        for plain in [", reply inline", ", data by RDMA Write", ", BLAKE3"] {
            row.label = row.label.replace(plain, "");
        }
    }
    let machine = Machine::deserialize(&from["machine"]).context("no machine is named")?;
    let commit = from["commit"].as_str().unwrap_or("unknown");
    let drawn = dots::draw(&plot);
    let mut small = vec![format!("{}; commit {commit}", machine.hardware())];
    small.extend(machine.warning().map(|warning| capital(&warning)));
    Ok(drawn.svg.file(&plot.title, &small))
}
