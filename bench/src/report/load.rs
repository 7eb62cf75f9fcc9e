//! The plot of `bench load` by itself.

use anyhow::{Context, Result};
use serde::Deserialize as _;
use serde_json::Value;

use super::drawing::{capital, distinct, word};
use super::{Axis, Line, Lines, Point, Scale, Series, Unit, lines};
use crate::machine::Machine;

/// The mean read by each route over shared memory, by NFS and by mmap, against what others take of the server's processor:
/// an SVG file, from reports of which one is of `bench load`.
///
/// # Errors
/// There is no such report, or it has no such rows.
pub fn load_plot(reports: &[Value]) -> Result<String> {
    let none = "there are no rows of `odafs bench load` among the figures";
    let report = reports.iter().find(|report| report["bench"] == "load");
    let report = report.context(none)?;
    let rows: Vec<&Value> = (report["rows"].as_array().into_iter().flatten())
        .filter(|row| ["local", "shm", "nfs"].contains(&row["fabric"].as_str().unwrap_or("")))
        .collect();
    let name = |row: &Value| match row["fabric"].as_str() {
        Some("nfs") => "nfs".to_owned(),
        _ => word(row, "route"),
    };
    let line = |route: &String| {
        let of_line = rows.iter().filter(|row| name(row) == *route);
        let points = of_line.filter_map(|row| {
            let figure = |key: &str| row[key].as_f64();
            Some(Point {
                x: figure("load_percent")?,
                y: figure("mean_ns")?,
                spread: figure("mean_ns_lowest").zip(figure("mean_ns_highest")),
            })
        });
        let said = match route.as_str() {
            "nfs" => "NFS over TCP",
            "rpc" => "RPC",
            route => route,
        };
        Line {
            points: points.collect(),
            series: Series::of(route).named(said),
        }
    };
    let lines: Vec<Line> = (distinct(rows.iter().copied(), name).iter())
        .map(line)
        .filter(|line| !line.points.is_empty())
        .collect();
    (!lines.is_empty()).then_some(()).context(none)?;
    let length = super::drawing::size(report, "size_bytes");
    let drawn = lines::draw(&Lines {
        title: format!("Reading {length} while other programs hold the server's processor"),
        x: Axis::new(
            "Time of the server's processor that others ask for",
            Unit::Percent,
            Scale::Linear,
        ),
        y: Axis::time("Mean time of a read"),
        lines,
        references: Vec::new(),
    });
    let machine = Machine::deserialize(&report["machine"]).context("no machine is named")?;
    let commit = report["commit"].as_str().unwrap_or("unknown");
    let mut small = vec![format!("{}; commit {commit}", machine.hardware())];
    small.extend(machine.warning().map(|warning| capital(&warning)));
    Ok(drawn.svg.file(&drawn.title, &small))
}
