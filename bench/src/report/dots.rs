//! Rows with their values as dots along one axis, their spread, and the same as figures at the right.

use super::axis::{Axis, Placing, Unit};
use super::svg::{Anchor, Svg, width, width_bold};
use super::theme::Series;
use super::{Drawn, PublishedFigure};

/// A plot of rows: a name at the left, marks on a common axis, figures at the right.
#[derive(Clone, Debug)]
pub struct Dots {
    /// What is seen, without a stop at its end.
    pub title: String,
    /// The axis of all marks.
    pub axis: Axis,
    /// What a mark is, for the legend: `median`.
    pub value: String,
    /// What the thick line around a mark is: `lowest to highest round`.
    pub spread: String,
    /// What the thin line from a mark leads to: `99th percentile`.
    pub tail: String,
    /// Headings of the figures.
    pub columns: Vec<String>,
    /// The rows, from above.
    pub rows: Vec<DotsRow>,
    /// Published figures to compare with, below the rows.
    pub references: Vec<PublishedFigure>,
}

/// A row.
#[derive(Clone, Debug, Default)]
pub struct DotsRow {
    /// Rows of one group follow each other; each group has its name above it, unless that is empty.
    pub group: String,
    /// What the row is of.
    pub label: String,
    /// Its values.
    pub marks: Vec<Mark>,
    /// Its figures, one for each of the plot's columns. One that starts with `!` is emphasised: a row that is lost.
    pub figures: Vec<String>,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What it is of: its colour and shape.
    pub series: Series,
    /// The value, in the unit of the axis.
    pub value: f64,
    /// The lowest and the highest of the rounds.
    pub spread: Option<(f64, f64)>,
    /// Where the thin line leads.
    pub tail: Option<f64>,
}

impl Mark {
    /// A value alone.
    pub fn new(series: Series, value: f64) -> Self {
        Self {
            series,
            value,
            spread: None,
            tail: None,
        }
    }
}

impl Dots {
    /// Latencies: medians with the spread of the rounds and the 99th percentile, from rows as [`DotsRow::latency`] makes them.
    pub fn latencies(title: &str, rows: Vec<DotsRow>) -> Self {
        Self {
            title: title.to_owned(),
            axis: Axis::time("Latency of a read"),
            value: "median".to_owned(),
            spread: "medians of the rounds".to_owned(),
            tail: "99th percentile".to_owned(),
            columns: vec!["median".to_owned(), "99 %".to_owned()],
            rows,
            references: Vec::new(),
        }
    }

    /// How many marks it has.
    fn marks(&self) -> usize {
        self.rows.iter().map(|row| row.marks.len()).sum()
    }
}

impl DotsRow {
    /// A latency: the median, the lowest and highest of the rounds' medians, the 99th percentile, all in nanoseconds.
    pub fn latency(
        label: &str,
        series: Series,
        p50: f64,
        rounds: Option<(f64, f64)>,
        p99: f64,
    ) -> Self {
        Self {
            group: String::new(),
            label: label.to_owned(),
            marks: vec![Mark {
                series,
                value: p50,
                spread: rounds,
                tail: Some(p99),
            }],
            figures: [p50, p99].map(|ns| Unit::Nanoseconds.show(ns)).to_vec(),
        }
    }

    /// The same row in a group.
    pub fn in_group(self, group: &str) -> Self {
        Self {
            group: group.to_owned(),
            ..self
        }
    }
}

const WIDTH: f64 = 920.0;
const PLOT_LEAST: f64 = 320.0;
const LINE: f64 = 24.0;
/// Between texts that stand side by side.
const GAP: f64 = 16.0;
/// Rows from which on the axis is named above them too.
const LONG: usize = 24;
/// Marks of a row from which on they stand on two or three levels.
const CROWDED: usize = 3;

/// A line of the plot.
enum Line<'a> {
    Group(&'a str),
    Row(&'a DotsRow),
    PublishedFigure(&'a PublishedFigure),
}

pub(super) fn draw(dots: &Dots) -> Drawn {
    let mut lines = Vec::new();
    let mut group = "";
    for row in &dots.rows {
        if row.group != group {
            group = &row.group;
            lines.push(Line::Group(group));
        }
        lines.push(Line::Row(row));
    }
    if !dots.references.is_empty() {
        lines.push(Line::Group("Published, on other hardware"));
        lines.extend(dots.references.iter().map(Line::PublishedFigure));
    }

    let label = |line: &Line<'_>| match line {
        Line::Group(name) => width_bold(name) - GAP,
        Line::Row(row) => width(&row.label),
        Line::PublishedFigure(reference) => width(&reference.name),
    };
    let left = GAP + lines.iter().map(label).fold(0.0, f64::max) + GAP;
    let column = |number: usize| {
        let cells = dots.rows.iter().filter_map(|row| row.figures.get(number));
        let cells = cells.map(|cell| width_bold(cell.trim_start_matches('!')));
        cells.fold(width(&dots.columns[number]), f64::max) + GAP
    };
    let columns: Vec<f64> = (0..dots.columns.len()).map(column).collect();
    let aside = columns.iter().sum::<f64>() + 6.0;
    let full = WIDTH.max(left + PLOT_LEAST + aside);
    let right = full - aside;

    let legend = legend(dots, full);
    let long = lines.len() > LONG;
    let head = LINE * (legend.len() as f64) + if long { 42.0 } else { 24.0 };
    let bottom = head + LINE * lines.len() as f64;
    let mut svg = Svg::new(full, bottom + 46.0);

    for (number, items) in legend.iter().enumerate() {
        let mut x = 4.0;
        for item in items {
            x = item.draw(&mut svg, (x, 16.0 + LINE * number as f64));
        }
    }
    let values = dots.rows.iter().flat_map(|row| &row.marks).flat_map(|m| {
        let (low, high) = m.spread.unwrap_or((m.value, m.value));
        [m.value, low, high, m.tail.unwrap_or(m.value)]
    });
    let published = dots.references.iter().map(|r| r.value);
    let unity = (dots.axis.unit == Unit::Ratio).then_some(1.0);
    let placing = Placing::new(
        &dots.axis,
        values.chain(published).chain(unity),
        (left, right),
    );
    for (x, name) in placing.ticks(|name| width(name) + GAP) {
        let class = match (&*name, dots.axis.unit) {
            ("1", Unit::Ratio) => "axis",
            _ => "grid",
        };
        svg.line((x, head), (x, bottom), class);
        svg.text((x, bottom + 17.0), Anchor::Middle, "", &name);
        if long {
            svg.text((x, head - 6.0), Anchor::Middle, "", &name);
        }
    }
    svg.line((left, bottom), (right, bottom), "axis");
    let middle = f64::midpoint(left, right);
    let half = width(&dots.axis.title) / 2.0;
    let middle = middle.clamp(half.min(full / 2.0), full - half.min(full / 2.0));
    svg.text(
        (middle, bottom + 38.0),
        Anchor::Middle,
        "faint",
        &dots.axis.title,
    );
    let ends: Vec<f64> = (columns.iter())
        .scan(right + 2.0, |x, column| {
            *x += column;
            Some(*x)
        })
        .collect();
    for (x, heading) in ends.iter().zip(&dots.columns) {
        let y = if long { head - 6.0 } else { head - 8.0 };
        svg.text((*x, y), Anchor::End, "faint", heading);
    }
    let mut striped = false;
    for (number, line) in lines.iter().enumerate() {
        let y = head + LINE * (number as f64 + 0.5);
        match line {
            Line::Group(name) => {
                striped = false;
                svg.text((4.0, y + 4.5), Anchor::Start, "group", name);
            }
            Line::Row(row) => {
                if striped {
                    svg.band((0.0, y - LINE / 2.0), (full, LINE));
                }
                striped = !striped;
                svg.text((GAP, y + 4.5), Anchor::Start, "", &row.label);
                marks(&mut svg, dots, &placing, row, y);
                for (x, figure) in ends.iter().zip(&row.figures) {
                    let (class, figure) = match figure.strip_prefix('!') {
                        Some(figure) => ("bad", figure),
                        None => ("", figure.as_str()),
                    };
                    svg.text((*x, y + 4.5), Anchor::End, class, figure);
                }
            }
            Line::PublishedFigure(reference) => {
                svg.text((GAP, y + 4.5), Anchor::Start, "faint", &reference.name);
                let shown = dots.axis.unit.show(reference.value);
                if let Some(x) = placing.place(reference.value) {
                    let said = format!("{}: {shown}", reference.name);
                    svg.mark((x, y), &Series::published(&reference.name), &said);
                }
                if let Some(x) = ends.first() {
                    svg.text((*x, y + 4.5), Anchor::End, "faint", &shown);
                }
            }
        }
    }
    Drawn {
        svg,
        title: dots.title.clone(),
        notes: dots.references.iter().map(PublishedFigure::note).collect(),
        values: dots.marks() + dots.references.len(),
    }
}

fn marks(svg: &mut Svg, dots: &Dots, placing: &Placing, row: &DotsRow, y: f64) {
    // Where a row has many they stand on levels, so that none hides another of about the same value.
    let levels: &[f64] = match row.marks.len() {
        0..CROWDED => &[0.0],
        _ => &[-5.5, 0.0, 5.5],
    };
    for (number, mark) in row.marks.iter().enumerate() {
        let Some(x) = placing.place(mark.value) else {
            continue;
        };
        let y = y + levels[number % levels.len()];
        if let Some(tail) = mark.tail.and_then(|tail| placing.place(tail)) {
            svg.stroke((x, y), (tail, y), "tail", &mark.series);
            svg.stroke((tail, y - 4.0), (tail, y + 4.0), "tail", &mark.series);
        }
        if let Some((low, high)) = mark.spread {
            let ends = [low, high].map(|v| placing.place(v));
            if let [Some(low), Some(high)] = ends {
                svg.stroke((low, y), (high, y), "spread", &mark.series);
            }
        }
        let shown = dots.axis.unit.show(mark.value);
        let said = format!("{}, {}: {shown}", row.label, mark.series.name);
        svg.mark((x, y), &mark.series, &said);
    }
}

/// An entry of the legend.
enum Item {
    Sign(Series, String),
    Spread(Series, String),
    Tail(Series, String),
}

impl Item {
    fn text(&self) -> &str {
        match self {
            Self::Sign(_, text) | Self::Spread(_, text) | Self::Tail(_, text) => text,
        }
    }

    fn width(&self) -> f64 {
        32.0 + width(self.text()) + GAP
    }

    /// Draws it, and says where the next begins.
    fn draw(&self, svg: &mut Svg, (x, y): (f64, f64)) -> f64 {
        match self {
            Self::Sign(series, _) => svg.sign((x + 11.0, y - 4.5), series),
            Self::Spread(series, _) => {
                svg.stroke((x, y - 4.5), (x + 22.0, y - 4.5), "spread", series);
            }
            Self::Tail(series, _) => {
                svg.stroke((x, y - 4.5), (x + 22.0, y - 4.5), "tail", series);
                svg.stroke((x + 22.0, y - 8.5), (x + 22.0, y - 0.5), "tail", series);
            }
        }
        svg.text((x + 32.0, y), Anchor::Start, "", self.text());
        x + self.width()
    }
}

/// What the signs mean, in lines that fit.
fn legend(dots: &Dots, full: f64) -> Vec<Vec<Item>> {
    let marks = || dots.rows.iter().flat_map(|row| &row.marks);
    let plain = Series::numbered(5, "").with_circle();
    let mut items = Vec::new();
    if dots.rows.iter().any(|row| row.marks.len() > 1) {
        let mut seen: Vec<&Series> = Vec::new();
        for series in marks().map(|mark| &mark.series) {
            if !seen.contains(&series) {
                seen.push(series);
            }
        }
        let signs = seen.into_iter().cloned();
        items.extend(signs.map(|series| Item::Sign(series.clone(), series.name)));
    } else if !dots.value.is_empty() {
        items.push(Item::Sign(plain.clone(), dots.value.clone()));
    }
    if marks().any(|mark| mark.spread.is_some()) {
        items.push(Item::Spread(plain.clone(), dots.spread.clone()));
    }
    if marks().any(|mark| mark.tail.is_some()) {
        items.push(Item::Tail(plain, dots.tail.clone()));
    }
    let mut lines: Vec<Vec<Item>> = Vec::new();
    let mut used = f64::INFINITY;
    for item in items {
        if used + item.width() > full {
            lines.push(Vec::new());
            used = 4.0;
        }
        used += item.width();
        if let Some(line) = lines.last_mut() {
            line.push(item);
        }
    }
    lines
}
