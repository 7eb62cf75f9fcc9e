//! Plots of several values over the places of one axis: lines, and bars of stacked parts.

use std::fmt::Write as _;

use super::{PALETTE, escape};

/// What a plot shows.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// What the values are, with their unit.
    pub what: String,
    /// The places along the horizontal axis, evenly apart.
    pub places: Vec<String>,
    /// The lines, or the parts of each bar from below.
    pub series: Vec<Series>,
}

/// Values under one name.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name.
    pub label: String,
    /// One for each place; none where nothing was measured.
    pub values: Vec<Option<f64>>,
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 260.0;
const HEIGHT: f64 = 320.0;
/// With more places than these their names are set aslant, so that they do not overlap.
const PLACES_LEVEL: usize = 8;
/// How many gridlines there are above zero, at most.
const TICKS: f64 = 5.0;

impl Plot {
    /// As lines, from zero up to the highest value.
    pub fn lines(&self) -> String {
        let values = self.series.iter().flat_map(|s| s.values.iter().flatten());
        let mut svg = Svg::new(self, values.copied().fold(0.0, f64::max));
        for (number, series) in self.series.iter().enumerate() {
            let colour = colour(number);
            let points: Vec<(f64, f64)> = (0..)
                .zip(&series.values)
                .filter_map(|(place, value)| Some((svg.x(place), svg.y((*value)?))))
                .collect();
            let path: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            svg.push(&format!(
                "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'/>",
                path.join(" ")
            ));
            for (x, y) in points {
                svg.push(&format!(
                    "<circle cx='{x:.1}' cy='{y:.1}' r='3' fill='{colour}'/>"
                ));
            }
        }
        svg.finish(self)
    }

    /// As bars, one for each place, of the series' values on top of each other.
    pub fn stacks(&self) -> String {
        let sum = |place: usize| -> f64 {
            let values = self.series.iter().filter_map(|s| s.values.get(place));
            values.flatten().sum()
        };
        let mut svg = Svg::new(self, (0..self.places.len()).map(sum).fold(0.0, f64::max));
        let width = svg.step() * 0.6;
        for place in 0..self.places.len() {
            let mut below = 0.0;
            for (number, series) in self.series.iter().enumerate() {
                let Some(Some(value)) = series.values.get(place) else {
                    continue;
                };
                let (from, to) = (svg.y(below), svg.y(below + value));
                svg.push(&format!(
                    "<rect x='{:.1}' y='{to:.1}' width='{width:.1}' height='{:.1}' fill='{}'/>",
                    svg.x(place) - width / 2.0,
                    from - to,
                    colour(number)
                ));
                below += value;
            }
        }
        svg.finish(self)
    }
}

fn colour(number: usize) -> &'static str {
    // The first of the palette is the grey of the gridlines.
    PALETTE[1 + number % (PALETTE.len() - 1)]
}

/// A drawing with its axes.
struct Svg {
    text: String,
    places: usize,
    top: f64,
}

impl Svg {
    fn new(plot: &Plot, highest: f64) -> Self {
        let step = step(highest);
        let mut svg = Self {
            text: format!(
                "<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' role='img'>\n\
                 <text x='{LEFT}' y='16'>{}</text>\n",
                escape(&plot.what)
            ),
            places: plot.places.len(),
            top: (highest / step).ceil().max(1.0) * step,
        };
        for tick in 0..=(svg.top / step).round() as u32 {
            let value = f64::from(tick) * step;
            let y = svg.y(value);
            svg.push(&format!(
                "<line x1='{LEFT}' x2='{RIGHT}' y1='{y:.1}' y2='{y:.1}' stroke='#dde2e8'/>\
                 <text x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>",
                LEFT - 8.0,
                y + 4.0,
                number(value)
            ));
        }
        for (place, name) in plot.places.iter().enumerate() {
            let (x, y) = (svg.x(place), BOTTOM + 20.0);
            let how = match svg.places {
                0..=PLACES_LEVEL => "text-anchor='middle'".to_owned(),
                _ => format!("text-anchor='end' transform='rotate(-40 {x:.1} {y})'"),
            };
            svg.push(&format!(
                "<text x='{x:.1}' y='{y}' {how}>{}</text>",
                escape(name)
            ));
        }
        svg
    }

    fn step(&self) -> f64 {
        (RIGHT - LEFT) / self.places.max(1) as f64
    }

    fn x(&self, place: usize) -> f64 {
        LEFT + (place as f64 + 0.5) * self.step()
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (value / self.top).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn push(&mut self, element: &str) {
        let _ = writeln!(self.text, "{element}");
    }

    fn finish(mut self, plot: &Plot) -> String {
        for (number, series) in plot.series.iter().enumerate() {
            let y = TOP + 8.0 + number as f64 * 20.0;
            let (x, label) = (RIGHT + 20.0, escape(&series.label));
            self.push(&format!(
                "<path d='M{x} {y}h16' stroke='{}' stroke-width='8'/><text x='{}' y='{}'>{label}</text>",
                colour(number),
                x + 24.0,
                y + 4.0
            ));
        }
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// The distance of gridlines: 1, 2 or 5 times a power of ten.
fn step(highest: f64) -> f64 {
    if highest.is_nan() || highest <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((highest / TICKS).log10().floor());
    let fits = |factor: &f64| highest <= factor * power * TICKS;
    let factor = [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0);
    factor * power
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.4}").trim_end_matches('0').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let series = |label: &str, values: &[Option<f64>]| Series {
            label: label.to_owned(),
            values: values.to_vec(),
        };
        Plot {
            what: "MiB/s & more".to_owned(),
            places: vec!["<1>".to_owned(), "2".to_owned()],
            series: vec![
                series("a", &[Some(3.0), Some(712.0)]),
                series("b", &[None, Some(40.0)]),
            ],
        }
    }

    /// Every element is closed, every attribute quoted, nothing is NaN.
    pub fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1).map(|t| t.split('>').next().unwrap()) {
            assert_eq!(tag.matches('\'').count() % 2, 0, "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{svg}");
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap());
            }
        }
        assert!(open.is_empty(), "{open:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<1>"));
    }

    #[test]
    fn plots_are_well_formed_and_draw_what_there_is() {
        let (lines, stacks) = (plot().lines(), plot().stacks());
        assert_well_formed(&lines);
        assert_well_formed(&stacks);
        assert_eq!(lines.matches("<polyline").count(), 2);
        assert_eq!(lines.matches("<circle").count(), 3);
        assert_eq!(stacks.matches("<rect").count(), 3);
        assert_well_formed(&Plot::default().lines());
        assert_well_formed(&Plot::default().stacks());
    }

    #[test]
    fn gridlines_are_round_and_few() {
        assert_eq!((step(712.0), step(1.0), step(0.0)), (200.0, 0.2, 1.0));
        for highest in [0.003, 1.0, 9.99, 10.0, 51.0, 1e9] {
            let lines = highest / step(highest);
            assert!(lines > 1.9 && lines <= TICKS + 1e-9, "{highest}: {lines}");
        }
    }

    #[test]
    fn the_highest_value_is_below_the_top() {
        let svg = Svg::new(&plot(), 712.0);
        assert!(svg.y(712.0) > TOP && svg.y(0.0) == BOTTOM);
    }
}
