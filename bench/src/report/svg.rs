//! Elements of a plot, and where its texts lie.

use std::fmt::Write as _;

use super::escape;
use super::theme::{Series, Shape, css};

/// Size of a plot's letters, in its own units.
pub(super) const LETTER: f64 = 13.0;
/// From the baseline to the top of a capital letter, and to the bottom of a `g`.
#[cfg(test)]
const ASCENT: f64 = 10.5;
#[cfg(test)]
const DESCENT: f64 = 3.5;

/// Widths of the characters from the space on, in hundredths of the letters' size: DejaVu Sans, which is wider than what
/// other systems have.
#[rustfmt::skip]
const WIDTHS: [u8; 95] = [
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84,
    84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39,
    34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59,
    52, 64, 34, 64, 84,
];

/// How wide a text is, at most.
pub(super) fn width(text: &str) -> f64 {
    let of = |c: char| WIDTHS.get((c as usize).wrapping_sub(32)).copied();
    let hundredths = text.chars().map(|c| f64::from(of(c).unwrap_or(100)));
    hundredths.sum::<f64>() * LETTER / 100.0
}

/// The same in bold.
pub(super) fn width_bold(text: &str) -> f64 {
    width(text) * 1.16
}

/// A coordinate to a tenth, as short as it can be said: a page has tens of thousands.
struct Short(f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match tenths % 10 {
            0 => write!(f, "{}", tenths / 10),
            _ => write!(f, "{}", tenths as f64 / 10.0),
        }
    }
}

/// The path of a straight line.
fn straight(from: (f64, f64), to: (f64, f64)) -> String {
    let (x, y) = (Short(from.0), Short(from.1));
    match (from.0 == to.0, from.1 == to.1) {
        (true, _) => format!("M{x} {y}V{}", Short(to.1)),
        (_, true) => format!("M{x} {y}H{}", Short(to.0)),
        _ => format!("M{x} {y}L{} {}", Short(to.0), Short(to.1)),
    }
}

/// Which of a text's points is given.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A text's place, by its corners.
#[cfg(test)]
struct Placed {
    text: String,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

#[cfg(test)]
impl Placed {
    fn of((x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) -> Self {
        let wide = match class {
            "group" | "strong" | "bad" => width_bold(text),
            _ => width(text),
        };
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - wide / 2.0,
            Anchor::End => x - wide,
        };
        Self {
            text: text.to_owned(),
            left,
            top: y - ASCENT,
            right: left + wide,
            bottom: y + DESCENT,
        }
    }
}

/// A plot that grows.
pub(super) struct Svg {
    pub width: f64,
    pub height: f64,
    body: String,
    #[cfg(test)]
    texts: Vec<Placed>,
    marks: usize,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
            #[cfg(test)]
            texts: Vec::new(),
            marks: 0,
        }
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    /// A text in a class (`group`, `strong`, `faint`, `bad`, or none), by its baseline.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        #[cfg(test)]
        self.texts.push(Placed::of((x, y), anchor, class, text));
        let anchored = match anchor {
            Anchor::Start => "",
            Anchor::Middle => "m",
            Anchor::End => "e",
        };
        let class = match (anchored, class) {
            ("", "") => String::new(),
            ("", one) | (one, "") => format!(" class='{one}'"),
            (one, other) => format!(" class='{one} {other}'"),
        };
        self.push(format_args!(
            "<text x='{}' y='{}'{class}>{}</text>",
            Short(x),
            Short(y),
            escape(text)
        ));
    }

    /// A line in a class (`grid`, `axis`).
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.push(format_args!(
            "<path d='{}' class='{class}'/>",
            straight(from, to)
        ));
    }

    /// A line in a series' colour (`spread`, `tail`, `tail dashed`).
    pub fn stroke(&mut self, from: (f64, f64), to: (f64, f64), class: &str, series: &Series) {
        self.push(format_args!(
            "<path d='{}' class='{class} c-{}'/>",
            straight(from, to),
            series.colour
        ));
    }

    /// A line through all of these.
    pub fn path(&mut self, points: &[(f64, f64)], series: &Series) {
        let points = points
            .iter()
            .map(|(x, y)| format!("{},{}", Short(*x), Short(*y)));
        self.push(format_args!(
            "<polyline points='{}' class='path c-{}'/>",
            points.collect::<Vec<_>>().join(" "),
            series.colour
        ));
    }

    /// A stripe behind a row.
    pub fn band(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.push(format_args!(
            "<rect x='{}' y='{}' width='{}' height='{}' class='band'/>",
            Short(x),
            Short(y),
            Short(width),
            Short(height)
        ));
    }

    /// A part of a bar, which counts as a mark.
    pub fn part(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        series: &Series,
        said: &str,
    ) {
        self.marks += 1;
        self.push(format_args!(
            "<g class='mark'><title>{}</title><rect x='{}' y='{}' width='{}' height='{}' class='part c-{}'/></g>",
            escape(said),
            Short(x),
            Short(y),
            Short(width),
            Short(height),
            series.colour
        ));
    }

    /// A value's mark; `said` is shown beside the pointer.
    pub fn mark(&mut self, at: (f64, f64), series: &Series, said: &str) {
        self.marks += 1;
        let shape = shape(at, series);
        self.push(format_args!(
            "<g class='mark'><title>{}</title>{shape}</g>",
            escape(said)
        ));
    }

    /// A series' sign in a legend, which is no value's.
    pub fn sign(&mut self, at: (f64, f64), series: &Series) {
        let shape = shape(at, series);
        self.push(format_args!("<g class='sign'>{shape}</g>"));
    }

    /// The element, to stand in a page.
    pub fn inline(&self, title: &str) -> String {
        format!(
            "<svg viewBox='0 0 {w:.0} {h:.0}' width='{w:.0}' height='{h:.0}' role='img' aria-label='{}' data-marks='{}'>\n{}</svg>\n",
            escape(title),
            self.marks,
            self.body,
            w = self.width,
            h = self.height,
        )
    }

    /// A file of its own, on paper, with the title above it and lines of small print below.
    pub fn file(mut self, title: &str, small: &[String]) -> String {
        const HEAD: f64 = 34.0;
        const LINE: f64 = 18.0;
        let height = self.height;
        self.text((4.0, -14.0), Anchor::Start, "strong", title);
        let mut wide = self.width;
        for (number, line) in small.iter().enumerate() {
            let y = height + 12.0 + LINE * number as f64;
            self.text((4.0, y), Anchor::Start, "faint", line);
            wide = wide.max(width(line) + 8.0);
        }
        let inline = self.inline(title);
        let open = inline.find('>').map_or(0, |at| at + 1);
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 -{HEAD:.0} {wide:.0} {all:.0}' width='{wide:.0}' height='{all:.0}' \
             role='img' aria-label='{}'>\n<style>{}</style>\n<rect y='-{HEAD:.0}' width='100%' height='100%' class='paper'/>{}",
            escape(title),
            css(),
            &inline[open..],
            all = HEAD + height + LINE * small.len() as f64 + 8.0
        )
    }

    /// Texts that overlap or exceed the edges, as far as the widths of letters show.
    #[cfg(test)]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (number, a) in self.texts.iter().enumerate() {
            if a.left < 0.0 || a.top < 0.0 || a.right > self.width || a.bottom > self.height {
                faults.push(format!("{:?} is cut", a.text));
            }
            for b in &self.texts[..number] {
                let apart = a.right <= b.left
                    || b.right <= a.left
                    || a.bottom <= b.top
                    || b.bottom <= a.top;
                if !apart {
                    faults.push(format!("{:?} lies over {:?}", a.text, b.text));
                }
            }
        }
        faults
    }
}

fn shape((x, y): (f64, f64), series: &Series) -> String {
    let (class, path) = match series.shape {
        Shape::Circle | Shape::Ring => {
            let class = if series.shape == Shape::Ring {
                "open"
            } else {
                "full"
            };
            return format!(
                "<circle cx='{}' cy='{}' r='4.2' class='{class} c-{}'/>",
                Short(x),
                Short(y),
                series.colour
            );
        }
        Shape::Square => ("full", "m-3.8 -3.8h7.6v7.6h-7.6z"),
        Shape::OpenSquare => ("open", "m-3.8 -3.8h7.6v7.6h-7.6z"),
        Shape::Diamond => ("full", "m0 -5.2l5.2 5.2l-5.2 5.2l-5.2 -5.2z"),
        Shape::OpenDiamond => ("open", "m0 -5.2l5.2 5.2l-5.2 5.2l-5.2 -5.2z"),
        Shape::Up => ("full", "m0 -4.8l5 8.6h-10z"),
        Shape::Down => ("full", "m0 4.8l5 -8.6h-10z"),
        Shape::Tick => ("path", "m0 -6v12"),
        Shape::Cross => ("path", "m-4 -4l8 8m0 -8l-8 8"),
    };
    format!(
        "<path d='M{} {}{path}' class='{class} c-{}'/>",
        Short(x),
        Short(y),
        series.colour
    )
}
