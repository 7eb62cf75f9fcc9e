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
    /// A table with these columns. A heading that starts with `<` names a
    /// column of words (aligned left); the others hold figures.
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

    fn lines(&self, headed: bool) -> (Vec<usize>, String) {
        let left: Vec<bool> = self.heading.iter().map(|h| h.starts_with('<')).collect();
        let heading: Vec<String> = self
            .heading
            .iter()
            .map(|h| h.trim_start_matches('<').to_owned())
            .collect();
        let width = |column: usize| {
            self.rows
                .iter()
                .chain([&heading])
                .filter_map(|r| r.get(column))
                .map(|c| c.chars().count())
                .chain(self.widths.get(column).copied())
                .max()
        };
        let widths: Vec<usize> = (0..heading.len()).map(|c| width(c).unwrap_or(0)).collect();
        let mut text = String::new();
        let heading = headed.then_some(&heading);
        for row in heading.into_iter().chain(&self.rows) {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .zip(&left)
                .map(|((cell, &width), left)| match left {
                    true => format!("{cell:<width$}"),
                    false => format!("{cell:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        (widths, text)
    }
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
    fn units() {
        assert_eq!(time(87), "87 ns");
        assert_eq!(time(1_250), "1.25 us");
        assert_eq!(time(12_300_000), "12.3 ms");
        assert_eq!(bytes(64), "64 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
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
