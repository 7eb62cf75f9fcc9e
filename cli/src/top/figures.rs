//! A sample of a server's figures.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;

use super::fetch::Source;

/// The labels of a figure.
pub type Labels = BTreeMap<String, String>;

/// The figures at one moment.
pub struct Sample {
    pub taken: Instant,
    pub figures: Figures,
    pub top: Top,
}

/// The contents of `/top.json`. What a server lacks stays empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Top {
    pub version: String,
    pub started: f64,
    pub now: f64,
    pub clients: Vec<Client>,
    pub slow_calls: Vec<SlowCall>,
}

/// What a client has done so far.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Client {
    pub client: String,
    pub calls: u64,
    pub bytes: u64,
}

/// A call that took long.
#[derive(Clone, Debug, Default, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct SlowCall {
    pub program: String,
    pub procedure: String,
    pub fabric: String,
    pub client: String,
    pub file: String,
    pub microseconds: u64,
    /// Seconds since 1970.
    pub time: f64,
}

impl Sample {
    /// Asks the server.
    ///
    /// # Errors
    /// The text says what went wrong, and what to do.
    pub fn take(server: &Source) -> Result<Self, String> {
        let metrics = server.get("/metrics")?;
        let metrics = metrics.ok_or(
            "there are no metrics there; give the address in the server's option --metrics",
        )?;
        let taken = Instant::now();
        let figures = Figures::parse(&metrics);
        if !figures.has("odafs_build_info") {
            return Err("what listens there is not an ODAFS server of this version".to_owned());
        }
        let top = match server.get("/top.json")? {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| format!("/top.json: {error}"))?
            }
            None => Top::default(),
        };
        Ok(Self {
            taken,
            figures,
            top,
        })
    }
}

/// Figures by name.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<String, Vec<(Labels, f64)>>);

impl Figures {
    /// Parses the text format of Prometheus, and skips other lines.
    pub fn parse(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, labels, value)) = figure(line) {
                figures
                    .0
                    .entry(name.to_owned())
                    .or_default()
                    .push((labels, value));
            }
        }
        figures
    }

    /// Whether there is any figure of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All figures of a name, with their labels.
    pub fn all(&self, name: &str) -> &[(Labels, f64)] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of all figures of a name; 0 if there are none.
    pub fn sum(&self, name: &str) -> f64 {
        // `Iterator::sum` of no `f64`s is -0.0, which would be printed.
        self.all(name)
            .iter()
            .fold(0.0, |sum, (_, value)| sum + value)
    }

    /// The sums of all figures of a name, by the value of a label.
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (labels, value) in self.all(name) {
            let of = labels.get(label).cloned().unwrap_or_default();
            *sums.entry(of).or_default() += value;
        }
        sums
    }
}

/// `name{label="value",…} figure`
fn figure(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(label.to_owned(), value);
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value: f64 = rest.trim().split(' ').next()?.parse().ok()?;
    value.is_finite().then_some((name, labels, value))
}

/// A label's value up to its closing quotation mark, and the text after that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_labels_and_values() {
        let figures = Figures::parse(
            "# HELP a b\na 1\nb{x=\"1\",y=\"z\"} 2\nb{x=\"1\",y=\"q\\\"\\\\\"} 0.5\n\
             broken{x=\"1 2\nworse}\n\nc{} 1e3\nd nothing\n",
        );
        assert_eq!(figures.sum("a"), 1.0);
        assert_eq!(figures.sum("b"), 2.5);
        assert_eq!(figures.by("b", "x")["1"], 2.5);
        assert_eq!(figures.by("b", "y")["q\"\\"], 0.5);
        assert_eq!(figures.sum("c"), 1000.0);
        assert!(!figures.has("broken") && !figures.has("d") && !figures.has("HELP"));
        assert!(figures.sum("d").is_sign_positive());
        let odd = Figures::parse("a NaN\nb +Inf\nc{x=\"1\"} -Inf\n");
        assert!(!odd.has("a") && !odd.has("b") && !odd.has("c"));
    }
}
