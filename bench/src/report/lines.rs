//! Lines over a sweep, each named beside its end.

use super::axis::{Axis, Placing, Scale};
use super::svg::{Anchor, Svg, width};
use super::theme::Series;
use super::{Drawn, PublishedFigure};

/// A plot of lines.
#[derive(Clone, Debug)]
pub struct Lines {
    /// What is seen, without a stop at its end.
    pub title: String,
    /// What is swept.
    pub x: Axis,
    /// What is measured.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// Published figures to compare with: marks where [`PublishedFigure::at`] says where, else lines across.
    pub references: Vec<PublishedFigure>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name, colour and shape.
    pub series: Series,
    /// Its points, in any order.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// In the unit of the horizontal axis.
    pub x: f64,
    /// In the unit of the vertical axis: the median.
    pub y: f64,
    /// The lowest and the highest of the rounds.
    pub spread: Option<(f64, f64)>,
}

const WIDTH: f64 = 560.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 256.0;
const HEIGHT: f64 = 304.0;
/// From one name to the next below it.
const LINE: f64 = 17.0;
/// Values of a sweep up to which each is named.
const SWEPT: usize = 9;

/// What is named at the right.
struct Name<'a> {
    series: Series,
    text: &'a str,
    from: (f64, f64),
    y: f64,
}

pub(super) fn draw(plot: &Lines) -> Drawn {
    let points = || plot.lines.iter().flat_map(|line| &line.points);
    let published = || plot.references.iter();
    let values = points().flat_map(|p| {
        let (low, high) = p.spread.unwrap_or((p.y, p.y));
        [p.y, low, high]
    });
    let y = Placing::new(
        &plot.y,
        values.chain(published().map(|r| r.value)),
        (BOTTOM, TOP),
    );
    let rows = y.ticks(|_| LINE + 4.0);
    let left = rows.iter().map(|(_, name)| width(name)).fold(0.0, f64::max) + 14.0;
    let names = (plot.lines.iter().map(|line| line.series.name.as_str()))
        .chain(published().map(|r| r.name.as_str()));
    let aside = names.map(width).fold(0.0, f64::max) + 44.0;
    let full = WIDTH.max(left + 260.0 + aside);
    let right = full - aside;
    // Names that need more room than the plot has make it higher.
    let stack = LINE * (plot.lines.len() + plot.references.len()) as f64;
    let longer = (stack - (BOTTOM - TOP + 20.0)).max(0.0);

    let mut swept: Vec<f64> = points().map(|p| p.x).collect();
    swept.sort_by(f64::total_cmp);
    swept.dedup();
    let across = points()
        .map(|p| p.x)
        .chain(published().filter_map(|r| r.at));
    let x = Placing::new(&plot.x, across, (left, right));

    let mut svg = Svg::new(full, HEIGHT + longer);
    svg.text((2.0, 15.0), Anchor::Start, "faint", &plot.y.title);
    for (y, name) in &rows {
        svg.line((left, *y), (right, *y), "grid");
        svg.text((left - 8.0, y + 4.5), Anchor::End, "", name);
    }
    svg.line((left, BOTTOM), (right, BOTTOM), "axis");
    let columns = match swept.len() {
        0..=SWEPT if plot.x.scale != Scale::Linear => x.named(&swept, |name| width(name) + 12.0),
        _ => {
            let ticks = x.ticks(|name| width(name) + 12.0);
            ticks.into_iter().map(|(x, n)| (x, Some(n))).collect()
        }
    };
    for (x, name) in columns {
        svg.line((x, BOTTOM), (x, BOTTOM + 5.0), "axis");
        if let Some(name) = name {
            svg.text((x, BOTTOM + 20.0), Anchor::Middle, "", &name);
        }
    }
    let half = (width(&plot.x.title) / 2.0).min(full / 2.0);
    let middle = f64::midpoint(left, right).clamp(half, full - half);
    svg.text(
        (middle, BOTTOM + 40.0),
        Anchor::Middle,
        "faint",
        &plot.x.title,
    );

    let mut names: Vec<Name<'_>> = Vec::new();
    for line in &plot.lines {
        let mut places: Vec<(f64, f64, &Point)> = (line.points.iter())
            .filter_map(|p| Some((x.place(p.x)?, y.place(p.y)?, p)))
            .collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (at, _, point) in &places {
            let ends = point.spread.map(|(a, b)| (y.place(a), y.place(b)));
            if let Some((Some(low), Some(high))) = ends {
                svg.stroke((*at, low), (*at, high), "spread", &line.series);
            }
        }
        let path: Vec<(f64, f64)> = places.iter().map(|(x, y, _)| (*x, *y)).collect();
        svg.path(&path, &line.series);
        for (at, height, point) in &places {
            let said = format!(
                "{}, {}: {}",
                line.series.name,
                plot.x.unit.show(point.x),
                plot.y.unit.show(point.y)
            );
            svg.mark((*at, *height), &line.series, &said);
        }
        if let Some(last) = path.last() {
            names.push(Name {
                series: line.series.clone(),
                text: &line.series.name,
                from: *last,
                y: last.1,
            });
        }
    }
    for reference in &plot.references {
        let series = Series::published(&reference.name);
        let Some(height) = y.place(reference.value) else {
            continue;
        };
        let at = reference.at.and_then(|at| x.place(at));
        if at.is_none() {
            svg.stroke((left, height), (right, height), "tail dashed", &series);
        }
        let said = format!("{}: {}", reference.name, plot.y.unit.show(reference.value));
        let at = at.unwrap_or(right);
        svg.mark((at, height), &series, &said);
        names.push(Name {
            series,
            text: &reference.name,
            from: (at, height),
            y: height,
        });
    }
    // Beside the axis, if there is room: below it, the lines to the names would cross those of its ticks.
    let lowest = match names.len() as f64 * LINE <= BOTTOM - TOP {
        true => BOTTOM,
        false => svg.height - 10.0,
    };
    set_apart(&mut names, (TOP - 6.0, lowest));
    for name in &names {
        svg.stroke(
            (name.from.0 + 7.0, name.from.1),
            (right + 22.0, name.y),
            "tail dashed",
            &name.series,
        );
        svg.sign((right + 29.0, name.y), &name.series);
        svg.text((right + 40.0, name.y + 4.5), Anchor::Start, "", name.text);
    }
    Drawn {
        svg,
        title: plot.title.clone(),
        notes: plot.references.iter().map(PublishedFigure::note).collect(),
        values: points().count() + plot.references.len(),
    }
}

/// Moves names up and down until none touches another, as little as that takes.
fn set_apart(names: &mut [Name<'_>], (top, bottom): (f64, f64)) {
    names.sort_by(|a, b| a.y.total_cmp(&b.y));
    let mut least = top;
    for name in names.iter_mut() {
        name.y = name.y.max(least);
        least = name.y + LINE;
    }
    let mut most = bottom;
    for name in names.iter_mut().rev() {
        name.y = name.y.min(most);
        most = name.y - LINE;
    }
}
