//! Plain tables and the units in them.

/// A table of text: a heading and rows, printed with aligned columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Of what [`Table::take`] has given so far; empty before that.
    widths: Vec<usize>,
}

impl Table {
    /// A table with these columns. A heading that starts with `<` names a column of words, which are aligned left; the
    /// others hold figures. A `=` before a heading says that the column tells a row from the others; so do the words with
    /// which a table begins.
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Self::with(&heading)
    }

    /// The same, with as many columns as there turn out to be.
    pub fn with(heading: &[&str]) -> Self {
        Self {
            heading: heading.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
            widths: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Rows that were added and not taken.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines so far, whose rows are then forgotten: for a table too long to keep. The heading comes once, and columns
    /// grow no narrower.
    pub fn take(&mut self) -> String {
        let (widths, text) = self.lines(self.widths.is_empty());
        self.widths = widths;
        self.rows.clear();
        text
    }

    /// The table as lines of text.
    pub fn render(&self) -> String {
        self.lines(true).1
    }

    /// The table as lines of at most `width` characters, if that can be. A wider table is printed in parts, one below the
    /// other. Each part has the columns that tell the rows apart, and some of the others. A figure stays with its lowest
    /// and highest.
    pub fn render_within(&self, width: usize) -> String {
        let widths = self.widths();
        let wide = |columns: &[usize]| {
            let sum: usize = columns.iter().map(|&c| widths[c] + GAP.len()).sum();
            sum.saturating_sub(GAP.len())
        };
        let all: Vec<usize> = (0..widths.len()).collect();
        if wide(&all) <= width {
            return self.render();
        }
        let labels = self.labels();
        let mut parts = vec![labels.clone()];
        for group in self.groups(&labels) {
            let part = parts.last_mut().expect("there is one");
            let longer = [&part[..], &group].concat();
            if wide(&longer) <= width || part.len() == labels.len() {
                *part = longer;
            } else {
                parts.push([&labels[..], &group].concat());
            }
        }
        let parts = parts.iter();
        let texts: Vec<String> = parts
            .map(|part| self.columns(part, &widths, true))
            .collect();
        texts.join("\n")
    }

    /// The columns that tell the rows apart.
    fn labels(&self) -> Vec<usize> {
        let is_label = |heading: &String| heading.starts_with(['<', '=']);
        let leading = self.heading.iter().take_while(|h| is_label(h)).count();
        let marked = |c: &usize| *c < leading || self.heading[*c].starts_with('=');
        (0..self.heading.len()).filter(marked).collect()
    }

    /// The other columns, those together that belong together.
    fn groups(&self, labels: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for column in (0..self.heading.len()).filter(|c| !labels.contains(c)) {
            let bound = matches!(self.heading[column].as_str(), "lowest" | "highest");
            match groups.last_mut() {
                Some(group) if bound => group.push(column),
                _ => groups.push(vec![column]),
            }
        }
        groups
    }

    fn lines(&self, headed: bool) -> (Vec<usize>, String) {
        let widths = self.widths();
        let all: Vec<usize> = (0..widths.len()).collect();
        let text = self.columns(&all, &widths, headed);
        (widths, text)
    }

    fn widths(&self) -> Vec<usize> {
        let width = |(column, heading): (usize, &String)| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let longest = cells.map(|cell| cell.chars().count()).max();
            let before = self.widths.get(column).copied();
            let longest = longest.max(before).unwrap_or(0);
            longest.max(shown(heading).chars().count())
        };
        self.heading.iter().enumerate().map(width).collect()
    }

    /// Some columns of all rows.
    fn columns(&self, columns: &[usize], widths: &[usize], headed: bool) -> String {
        let heading: Vec<String> = self.heading.iter().map(|h| shown(h).to_owned()).collect();
        let is_left = |column: usize| {
            self.heading[column]
                .trim_start_matches('=')
                .starts_with('<')
        };
        let mut text = String::new();
        let heading = headed.then_some(&heading);
        for row in heading.into_iter().chain(&self.rows) {
            let cells = columns.iter().filter_map(|&column| {
                let (cell, width) = (row.get(column)?, widths[column]);
                Some(match is_left(column) {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                })
            });
            let cells: Vec<String> = cells.collect();
            text.push_str(cells.join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// What stands between two columns.
const GAP: &str = "  ";

/// A heading without its marks.
fn shown(heading: &str) -> &str {
    heading.trim_start_matches(['=', '<'])
}

/// A time with a unit that keeps three digits: `87 ns`, `1.25 us`, `12.3 ms`.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", three_digits(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(ns as f64 / 1e6)),
        _ => format!("{} s", three_digits(ns as f64 / 1e9)),
    }
}

/// A size with a binary unit: `64 B`, `4 KiB`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => {
            let value = bytes as f64 / (1u64 << shift) as f64;
            if value.fract() == 0.0 {
                format!("{value} {unit}")
            } else {
                format!("{} {unit}", three_digits(value))
            }
        }
        None => format!("{bytes} B"),
    }
}

/// A count with thousands set apart: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 file`, `12,345 files`.
pub fn counted(n: impl TryInto<u64>, noun: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(n))
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_is_taken_in_parts() {
        let mut table = Table::new(["n", "<word"]);
        let row = |n: &str, word: &str| vec![n.to_owned(), word.to_owned()];
        table.row(row("100", "a"));
        assert_eq!(table.take(), "  n  word\n100  a\n");
        assert!(table.is_empty());
        table.row(row("2", "b"));
        assert_eq!(table.take(), "  2  b\n");
    }

    #[test]
    fn a_wide_table_is_printed_in_parts() {
        let mut table = Table::new([
            "<route", "=size", "p50", "mean", "lowest", "highest", "<how", "=load",
        ]);
        table.row(
            ["rpc", "4", "20", "30", "10", "50", "poll", "7"]
                .map(str::to_owned)
                .to_vec(),
        );
        table.row(
            ["shm", "8", "1", "2", "1", "3", "sleep", "9"]
                .map(str::to_owned)
                .to_vec(),
        );
        let whole = table.render();
        let width = whole.lines().map(str::len).max().unwrap();
        assert_eq!(table.render_within(width), whole);
        let first = "route  size  load  p50\nrpc       4     7   20\nshm       8     9    1\n";
        let second = "route  size  load  mean  lowest  highest\nrpc       4     7    30      10       50\nshm       8     9     2       1        3\n";
        let third = "route  size  load  how\nrpc       4     7  poll\nshm       8     9  sleep\n";
        assert_eq!(table.render_within(40), [first, second, third].join("\n"));
        // A part has at least one figure, however narrow the page is.
        assert_eq!(table.render_within(1), [first, second, third].join("\n"));
    }

    #[test]
    fn units() {
        assert_eq!(time(87), "87 ns");
        assert_eq!(time(1_250), "1.25 us");
        assert_eq!(time(12_300_000), "12.3 ms");
        assert_eq!(bytes(64), "64 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        let files = [0u64, 1, 2, 12_345].map(|n| counted(n, "file"));
        assert_eq!(files, ["0 files", "1 file", "2 files", "12,345 files"]);
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["<route", "p50"]);
        table.row(vec!["rpc".into(), "2 us".into()]);
        table.row(vec!["one-sided".into(), "600 ns".into()]);
        assert_eq!(
            table.render(),
            "route         p50\nrpc          2 us\none-sided  600 ns\n"
        );
    }
}
