//! Figures as one HTML page that needs nothing else: plots are inline SVG.
//!
//! Three kinds of plot: [`Dots`] (rows with spread along a common axis: latencies, terms, ratios), [`Lines`] (something
//! against a sweep, each line named beside its end), [`Stacks`] (parts that add up). What has a value is coloured by its
//! [`Series`], which is the same for a route in every plot. [`draw`] knows which bench is drawn how.

mod axis;
mod clients;
mod cold;
mod dots;
mod drawing;
mod kept;
mod latency;
mod lines;
mod load;
mod metadata;
mod policy;
mod published;
mod simulate;
mod soak;
mod stacks;
mod svg;
mod sweep;
mod theme;

use std::fmt::Write as _;

use serde_json::Value;

pub use axis::{Axis, Scale, Unit};
pub use dots::{Dots, DotsRow, Mark};
pub use drawing::draw;
pub use latency::readme_plot;
pub use lines::{Line, Lines, Point};
pub use load::load_plot;
pub use stacks::{Stacks, StacksRow};
pub use theme::Series;

use crate::machine::Machine;

/// A published figure, to compare with: always of other hardware, and the page says of which.
#[derive(Clone, Debug)]
pub struct PublishedFigure {
    /// What it is of, for the plot: `RDMA Write (2003)`.
    pub name: String,
    /// Where it was published: `paper 004, table II`.
    pub source: String,
    /// What it was measured on.
    pub hardware: String,
    /// Where it lies on the horizontal axis of [`Lines`]; none: everywhere. [`Dots`] have a row for it.
    pub at: Option<f64>,
    /// The value, in the unit of the plot's axis (of the vertical one of [`Lines`]).
    pub value: f64,
}

impl PublishedFigure {
    fn note(&self) -> String {
        format!("{}: {}, on {}.", self.name, self.source, self.hardware)
    }
}

/// A ratio of two rows, for [`Page::ratios`].
#[derive(Clone, Debug)]
pub struct Ratio {
    /// Ratios of one group have its name above them.
    pub group: String,
    /// What over what.
    pub name: String,
    /// The median of the rounds.
    pub ratio: f64,
    /// The lowest and the highest of the rounds.
    pub spread: (f64, f64),
}

/// A plot that is drawn.
struct Drawn {
    svg: svg::Svg,
    title: String,
    /// Sentences below it.
    notes: Vec<String>,
    /// How many values it was given: each has a mark, or a test says which has not.
    values: usize,
}

/// A page of headings, paragraphs, plots and tables, in the order of their making.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
    contents: Vec<String>,
    reports: Vec<Value>,
    /// What stands below each plot: whether it was measured. Nothing, if it is empty.
    kind: &'static str,
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;\
color:var(--ink);background:var(--paper)}h1{font-size:1.7rem}h2{font-size:1.35rem;margin-top:3rem;border-bottom:1px solid var(--grid)}\
h3{font-size:1.1rem;margin:1.8rem 0 .3rem}p,li{max-width:46rem}a{color:inherit}\
figure{margin:1rem 0;overflow-x:auto}figcaption{font-weight:600;margin-bottom:.3rem}\
figure p,p.small,summary{color:var(--faint);font-size:.85rem;margin:.3rem 0}\
div.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,33rem),1fr));gap:0 1.5rem}\
div.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;margin:.6rem 0}\
td,th{padding:.2rem .6rem;text-align:right;vertical-align:bottom;border-bottom:1px solid var(--grid)}td{white-space:nowrap}\
td:first-child,th:first-child,td.w,th.w{text-align:left}tr.group th{padding-top:.8rem;text-align:left}\
p.warning{border-left:4px solid var(--bad);padding-left:.8rem}nav ul{columns:3;padding-left:1.2rem;max-width:46rem}";

impl Page {
    /// A page with a title.
    pub fn titled(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: String::new(),
            contents: Vec::new(),
            reports: Vec::new(),
            kind: "",
        }
    }

    /// A page with a title and the machine below it.
    pub fn new(title: &str, machine: &Machine, commit: &str) -> Self {
        let mut page = Self::titled(title);
        page.machine(machine, commit);
        page
    }

    /// Where figures come from.
    fn machine(&mut self, machine: &Machine, commit: &str) {
        self.small(&format!("{}; commit {commit}", machine.hardware()));
        if let Some(warning) = machine.warning() {
            self.warning(&format!("{}.", drawing::capital(&warning)));
        }
    }

    /// A heading, which the page lists at its top if there are several.
    pub fn heading(&mut self, text: &str) {
        let number = self.contents.len();
        self.contents.push(text.to_owned());
        self.push(format_args!("<h2 id='s{number}'>{}</h2>\n", escape(text)));
    }

    /// A heading below one.
    pub fn subheading(&mut self, text: &str) {
        self.push(format_args!("<h3>{}</h3>\n", escape(text)));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.push(format_args!("<p>{}</p>\n", escape(text)));
    }

    /// A paragraph in small print.
    pub fn small(&mut self, text: &str) {
        self.push(format_args!("<p class='small'>{}</p>\n", escape(text)));
    }

    /// A paragraph that stands out.
    pub fn warning(&mut self, text: &str) {
        self.push(format_args!("<p class='warning'>{}</p>\n", escape(text)));
    }

    /// A plot of rows. Nothing, if it has none.
    pub fn dots(&mut self, dots: &Dots) {
        if !dots.rows.is_empty() {
            self.figure(&dots::draw(dots));
        }
    }

    /// Plots of lines, two beside each other where the window is wide enough. Those without a point are left out.
    pub fn lines(&mut self, plots: &[Lines]) {
        self.grid(
            plots
                .iter()
                .filter(|plot| plot.lines.iter().any(|line| !line.points.is_empty()))
                .map(lines::draw),
        );
    }

    /// Plots of bars, beside each other as [`Page::lines`] are.
    pub fn stacks(&mut self, plots: &[Stacks]) {
        let plots = plots.iter().filter(|plot| !plot.rows.is_empty());
        self.grid(plots.map(stacks::draw));
    }

    /// Ratios, as a plot around 1 with the figures beside it; those of one group follow each other.
    pub fn ratios(&mut self, title: &str, ratios: &[Ratio]) {
        let rows = ratios.iter().map(|ratio| {
            let mark = Mark {
                spread: Some(ratio.spread),
                ..Mark::new(Series::of("policy"), ratio.ratio)
            };
            let (low, high) = ratio.spread;
            DotsRow {
                group: ratio.group.clone(),
                label: ratio.name.clone(),
                marks: vec![mark],
                figures: [ratio.ratio, low, high]
                    .map(|r| Unit::Ratio.show(r))
                    .to_vec(),
            }
        });
        self.dots(&Dots {
            title: title.to_owned(),
            axis: Axis::new(
                "Ratio (left of 1: the first takes less)",
                Unit::Ratio,
                Scale::Log,
            ),
            value: "median of the rounds".to_owned(),
            spread: "lowest to highest round".to_owned(),
            tail: String::new(),
            columns: ["median", "lowest", "highest"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
            references: Vec::new(),
        });
    }

    /// A table: a heading row and rows. A column with a heading that starts with `<` holds words.
    pub fn table(&mut self, rows: &[Vec<String>]) {
        let heading = rows.first().map_or(&[][..], Vec::as_slice);
        let is_word = |column: usize| heading.get(column).is_some_and(|h| h.starts_with('<'));
        let mut table = String::from("<div class='wide'><table>\n");
        for (number, row) in rows.iter().enumerate() {
            let tag = if number == 0 { "th" } else { "td" };
            table.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let class = if is_word(column) { " class=w" } else { "" };
                let cell = match number {
                    0 => cell.trim_start_matches('<'),
                    _ => cell,
                };
                // HTML leaves the end of a cell and of a row to what follows.
                let _ = write!(table, "<{tag}{class}>{}", escape(cell));
            }
            table.push('\n');
        }
        table.push_str("</table></div>\n");
        self.body.push_str(&table);
    }

    /// A table that is seen when somebody opens it.
    pub fn folded_table(&mut self, summary: &str, rows: &[Vec<String>]) {
        self.push(format_args!(
            "<details><summary>{}</summary>\n",
            escape(summary)
        ));
        self.table(rows);
        self.body.push_str("</details>\n");
    }

    /// Keeps a bench's report in the page, from where [`reports_in`] takes it again, with figures of six digits.
    pub fn keep(&mut self, report: &Value) {
        self.reports.push(kept::pack(report));
    }

    /// The page as one HTML document.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let mut contents = String::new();
        if self.contents.len() > 1 {
            contents.push_str("<nav><ul>\n");
            for (number, heading) in self.contents.iter().enumerate() {
                let _ = writeln!(
                    contents,
                    "<li><a href='#s{number}'>{}</a></li>",
                    escape(heading)
                );
            }
            contents.push_str("</ul></nav>\n");
        }
        let kept = match self.reports.is_empty() {
            true => String::new(),
            false => format!(
                "{KEPT}{}{KEPT_END}\n",
                // Nothing in it can end the element: in JSON a < stands in strings alone.
                Value::Array(self.reports.clone())
                    .to_string()
                    .replace('<', "\\u003c")
            ),
        };
        format!(
            "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>\n<meta name='viewport' content='width=device-width'>\n\
             <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>{title}</title>\n<style>{}{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{contents}{}{kept}</body></html>\n",
            theme::css(),
            self.body
        )
    }

    fn figure(&mut self, drawn: &Drawn) {
        let mut figure = format!(
            "<figure data-values='{}'>{}{}",
            drawn.values,
            caption(&drawn.title),
            drawn.svg.inline(&drawn.title)
        );
        if !self.kind.is_empty() {
            let _ = writeln!(figure, "<p class='kind'>{}</p>", escape(self.kind));
        }
        for note in &drawn.notes {
            let _ = writeln!(figure, "<p>{}</p>", escape(note));
        }
        self.body.push_str(&figure);
        self.body.push_str("</figure>\n");
    }

    fn grid(&mut self, drawn: impl Iterator<Item = Drawn>) {
        let mut drawn = drawn.peekable();
        if drawn.peek().is_none() {
            return;
        }
        self.body.push_str("<div class='grid'>\n");
        for plot in drawn {
            self.figure(&plot);
        }
        self.body.push_str("</div>\n");
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body
            .write_fmt(text)
            .expect("a String takes all that is written to it");
    }
}

const KEPT: &str = "<script type='application/json' id='reports'>";
const KEPT_END: &str = "</script>";

/// The reports in a page of [`Page::html`], or in the output of a bench: JSON, one report or a list of them.
///
/// # Errors
/// The text is neither.
pub fn reports_in(text: &str) -> serde_json::Result<Vec<Value>> {
    let page = text.split_once(KEPT);
    let kept = page.and_then(|(_, from)| Some(from.split_once(KEPT_END)?.0));
    Ok(match serde_json::from_str(kept.unwrap_or(text))? {
        Value::Array(reports) => reports.into_iter().map(kept::unpack).collect(),
        report => vec![kept::unpack(report)],
    })
}

fn caption(title: &str) -> String {
    match title.is_empty() {
        true => String::new(),
        false => format!("<figcaption>{}</figcaption>\n", escape(title)),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&#39;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
