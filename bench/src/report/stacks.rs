//! Bars of parts that add up to something, from zero.

use super::Drawn;
use super::axis::{Axis, Placing, Scale};
use super::svg::{Anchor, Svg, width, width_bold};
use super::theme::Series;

/// A plot of bars, each of parts.
#[derive(Clone, Debug)]
pub struct Stacks {
    /// What is seen, without a stop at its end.
    pub title: String,
    /// The axis; it begins at zero.
    pub axis: Axis,
    /// The parts, from the left.
    pub parts: Vec<Series>,
    /// The bars, from above.
    pub rows: Vec<StacksRow>,
}

/// A bar.
#[derive(Clone, Debug)]
pub struct StacksRow {
    /// Bars of one group follow each other, with its name above them, unless that is empty.
    pub group: String,
    /// What it is of.
    pub label: String,
    /// The parts' values.
    pub values: Vec<f64>,
}

const WIDTH: f64 = 560.0;
const LINE: f64 = 22.0;
const GAP: f64 = 16.0;

pub(super) fn draw(stacks: &Stacks) -> Drawn {
    let sum = |row: &StacksRow| row.values.iter().sum::<f64>();
    let mut lines: Vec<(&str, Option<&StacksRow>)> = Vec::new();
    let mut group = "";
    for row in &stacks.rows {
        if row.group != group {
            group = &row.group;
            lines.push((group, None));
        }
        lines.push((&row.label, Some(row)));
    }
    let label = |(text, row): &(&str, Option<&StacksRow>)| match row {
        Some(_) => GAP + width(text),
        None => width_bold(text),
    };
    let left = lines.iter().map(label).fold(0.0, f64::max) + GAP;
    let figures: Vec<String> = (stacks.rows.iter())
        .map(|row| stacks.axis.unit.show(sum(row)))
        .collect();
    let aside = figures.iter().map(|f| width(f)).fold(0.0, f64::max) + GAP + 6.0;
    let legend = stacks.parts.iter().map(|part| 38.0 + width(&part.name));
    let full = WIDTH
        .max(left + 240.0 + aside)
        .max(legend.sum::<f64>() + 8.0);
    let right = full - aside;
    let head = 30.0;
    let bottom = head + LINE * lines.len() as f64 + 4.0;
    let mut svg = Svg::new(full, bottom + 46.0);
    let mut x = 4.0;
    for part in &stacks.parts {
        svg.sign((x + 8.0, 11.5), part);
        svg.text((x + 20.0, 16.0), Anchor::Start, "", &part.name);
        x += 38.0 + width(&part.name);
    }
    let axis = Axis {
        scale: Scale::Linear,
        ..stacks.axis.clone()
    };
    let placing = Placing::new(&axis, stacks.rows.iter().map(sum), (left, right));
    for (x, name) in placing.ticks(|name| width(name) + GAP) {
        svg.line((x, head), (x, bottom), "grid");
        svg.text((x, bottom + 17.0), Anchor::Middle, "", &name);
    }
    svg.line((left, bottom), (right, bottom), "axis");
    let middle = f64::midpoint(left, right);
    svg.text(
        (middle, bottom + 38.0),
        Anchor::Middle,
        "faint",
        &axis.title,
    );
    let mut figures = figures.iter();
    for (number, (text, row)) in lines.iter().enumerate() {
        let y = head + LINE * (number as f64 + 0.5);
        let Some(row) = row else {
            svg.text((4.0, y + 4.5), Anchor::Start, "group", text);
            continue;
        };
        svg.text((GAP, y + 4.5), Anchor::Start, "", text);
        let (mut below, mut from) = (0.0, placing.origin());
        for (part, value) in stacks.parts.iter().zip(&row.values) {
            below += value;
            let Some(to) = placing.place(below).filter(|_| *value > 0.0) else {
                continue;
            };
            let said = format!("{text}, {}: {}", part.name, axis.unit.show(*value));
            svg.part((from, y - 7.0), (to - from, 14.0), part, &said);
            from = to;
        }
        let shown = figures.next().map_or("", String::as_str);
        svg.text((full - 4.0, y + 4.5), Anchor::End, "", shown);
    }
    Drawn {
        svg,
        title: stacks.title.clone(),
        notes: Vec::new(),
        values: (stacks.rows.iter().flat_map(|row| &row.values))
            .filter(|value| **value > 0.0)
            .count(),
    }
}
