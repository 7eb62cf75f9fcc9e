//! Figures as one HTML page that needs nothing else: plots are inline SVG.

mod dots;
mod drawing;
mod plot;

use std::fmt::Write as _;

pub use drawing::draw;

use crate::machine::Machine;
use crate::table;

/// One bar of a plot.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// Its length: the latency that half of the reads did not exceed, in nanoseconds.
    pub p50_ns: u64,
    /// Where its whisker ends, in nanoseconds.
    pub p99_ns: u64,
    /// Rows of one kind have one colour: an index into the palette.
    pub kind: usize,
}

/// A page of headings, paragraphs, plots and tables, in the order of their making.
#[derive(Clone, Debug)]
pub struct Page {
    body: String,
}

const PALETTE: [&str; 6] = [
    "#8a8f98", "#3b6fb6", "#2a9d6f", "#c8642b", "#8b5fb0", "#b0a030",
];

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c2430;background:#fff}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem}\
div.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}\
td,th{padding:.2rem .6rem;text-align:right;vertical-align:bottom;border-bottom:1px solid #dde2e8}td{white-space:nowrap}\
td:first-child,th:first-child{text-align:left}p.small{color:#5a6472;font-size:.85rem}svg{max-width:100%}\
svg text{font:13px system-ui,sans-serif;fill:#1c2430}";

impl Page {
    /// A page with a title.
    pub fn titled(title: &str) -> Self {
        Self {
            body: format!("<h1>{}</h1>\n", escape(title)),
        }
    }

    /// A page with a title and the machine below it.
    pub fn new(title: &str, machine: &Machine, commit: &str) -> Self {
        let mut page = Self::titled(title);
        page.small(&format!("{}; commit {commit}", machine.sentence()));
        page
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        self.push(format_args!("<h2>{}</h2>\n", escape(text)));
    }

    /// A heading below one.
    fn subheading(&mut self, text: &str) {
        self.push(format_args!("<h3>{}</h3>\n", escape(text)));
    }

    /// A plot, as SVG.
    fn plot(&mut self, svg: &str) {
        self.body.push_str(svg);
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.push(format_args!("<p>{}</p>\n", escape(text)));
    }

    /// A paragraph in small print.
    pub fn small(&mut self, text: &str) {
        self.push(format_args!("<p class=small>{}</p>\n", escape(text)));
    }

    /// A table: a heading row and rows.
    pub fn table(&mut self, rows: &[Vec<String>]) {
        self.body.push_str("<div class=wide><table>\n");
        for (i, row) in rows.iter().enumerate() {
            let cell = if i == 0 { "th" } else { "td" };
            let cells: String = row
                .iter()
                .map(|c| format!("<{cell}>{}</{cell}>", escape(c)))
                .collect();
            self.push(format_args!("<tr>{cells}</tr>\n"));
        }
        self.body.push_str("</table></div>\n");
    }

    /// Horizontal bars on a logarithmic scale: p50 as the bar, p99 as the whisker.
    pub fn bars(&mut self, bars: &[Bar]) {
        let values = || bars.iter().flat_map(|b| [b.p50_ns.max(1), b.p99_ns.max(1)]);
        let (Some(low), Some(high)) = (values().min(), values().max()) else {
            return;
        };
        let scale = Scale::new(low, high);
        let height = bars.len() * 26 + 30;
        self.push(format_args!(
            "<svg viewBox='0 0 900 {height}' width=900 height={height} role=img>\n"
        ));
        for tick in scale.ticks() {
            let x = scale.x(tick);
            self.push(format_args!(
                "<line x1={x:.1} x2={x:.1} y1=0 y2={} stroke='#dde2e8'/><text x={x:.1} y={} text-anchor=middle>{}</text>\n",
                height - 24,
                height - 8,
                table::time(tick)
            ));
        }
        for (i, bar) in bars.iter().enumerate() {
            let (y, end, whisker) = (i * 26 + 4, scale.x(bar.p50_ns), scale.x(bar.p99_ns));
            let colour = PALETTE[bar.kind % PALETTE.len()];
            self.push(format_args!(
                "<text x=250 y={} text-anchor=end>{}</text>\
                 <rect x={LEFT} y={y} width={:.1} height=18 fill='{colour}'/>\
                 <line x1={end:.1} x2={whisker:.1} y1={m} y2={m} stroke='{colour}' stroke-width=2/>\
                 <text x={:.1} y={}>{}</text>\n",
                y + 14,
                escape(&bar.label),
                end - LEFT,
                whisker.max(end) + 6.0,
                y + 14,
                table::time(bar.p50_ns),
                m = y + 9,
            ));
        }
        self.body.push_str("</svg>\n");
        self.small("Bars: the latency that half of the reads did not exceed; lines: 99 % (logarithmic scale).");
    }

    /// The page as one HTML document.
    pub fn html(&self, title: &str) -> String {
        format!(
            "<!doctype html>\n<html lang=en><meta charset=utf-8>\n<meta name=viewport content='width=device-width'>\n\
             <title>{}</title>\n<style>{STYLE}</style>\n{}</html>\n",
            escape(title),
            self.body
        )
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body
            .write_fmt(text)
            .expect("a String takes all that is written to it");
    }
}

const LEFT: f64 = 260.0;
const RIGHT: f64 = 810.0;

/// Nanoseconds to a place between the left and the right edge, logarithmically.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn new(low: u64, high: u64) -> Self {
        let low = (low as f64).log10().floor();
        Self {
            low,
            high: (high as f64).log10().max(low + 0.5),
        }
    }

    fn x(&self, ns: u64) -> f64 {
        let share = ((ns.max(1) as f64).log10() - self.low) / (self.high - self.low);
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn ticks(&self) -> impl Iterator<Item = u64> {
        (self.low as u32..=self.high as u32).map(|power| 10u64.pow(power))
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_escapes_what_it_is_given_and_draws_each_bar() {
        let mut page = Page::new("<demo>", &Machine::here(), "abc");
        let bar = |label: &str, p50_ns| Bar {
            label: label.to_owned(),
            p50_ns,
            p99_ns: p50_ns * 3,
            kind: 1,
        };
        page.bars(&[bar("one & two", 600), bar("three", 20_000)]);
        page.table(&[vec!["a".into()], vec!["1".into()]]);
        let html = page.html("<demo>");
        assert!(
            html.contains("&lt;demo&gt;")
                && html.contains("one &amp; two")
                && !html.contains("<demo>")
        );
        assert_eq!(html.matches("<rect").count(), 2);
        assert!(!html.contains("http"));
    }
}
