//! A figure of several rounds: the middle one, and how far the others are from it.

use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::{Map, Value};

/// The median of some rounds, the lowest and the highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let Self {
            median,
            lowest,
            highest,
        } = Self::exact(values)?;
        Some(Self {
            median: rounded(median),
            lowest: rounded(lowest),
            highest: rounded(highest),
        })
    }

    /// Of these values as they are. For ratios, which have no unit: thousandths would be too few digits of a small one.
    pub(crate) fn exact(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        Some(Self {
            median: median(&mut sorted)?,
            lowest: *sorted.first()?,
            highest: *sorted.last()?,
        })
    }

    /// Of one value divided by another, round by round: what disturbed a round disturbed both. A round whose divisor is
    /// 0 does not count.
    pub fn of_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let pairs = pairs.into_iter().filter(|(_, divisor)| *divisor > 0.0);
        Self::of(pairs.map(|(value, divisor)| value / divisor))
    }
}

/// Sorts values. The middle one, or the mean of the two in the middle; `None` if there are none.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().checked_sub(1)? / 2;
    Some(values[lower] + (values[upper] - values[lower]) / 2.0)
}

/// Rows as JSON has them: the median under the figure's own name, and beside it `NAME_lowest` and `NAME_highest`.
pub(crate) fn flat<S: Serializer>(
    rows: &[impl Serialize],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let rows = serde_json::to_value(rows).map_err(S::Error::custom)?;
    flattened(rows).serialize(serializer)
}

fn flattened(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(flattened).collect(),
        Value::Object(fields) => {
            let mut flat = Map::new();
            for (name, value) in fields {
                match &value {
                    Value::Object(spread) if spread.len() == 3 && spread.contains_key("median") => {
                        flat.insert(format!("{name}_lowest"), spread["lowest"].clone());
                        flat.insert(format!("{name}_highest"), spread["highest"].clone());
                        flat.insert(name, spread["median"].clone());
                    }
                    _ => {
                        flat.insert(name, flattened(value));
                    }
                }
            }
            Value::Object(flat)
        }
        other => other,
    }
}

/// To four digits at least, and thousandths at most: no figure here is more precise.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let spread = Spread::of([3.0, 1.0, 10.0]).unwrap();
        assert_eq!(
            (spread.median, spread.lowest, spread.highest),
            (3.0, 1.0, 10.0)
        );
        assert_eq!(Spread::of([2.0, 1.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([9.0, 1.0, 4.0, 2.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn json_has_flat_names() {
        #[derive(serde::Serialize)]
        struct Rows(#[serde(serialize_with = "flat")] Vec<Value>);
        let spread = serde_json::to_value(Spread::of([1.0, 2.0, 4.0])).unwrap();
        let row =
            serde_json::json!({ "mean_ns": spread, "kind": { "p99_ns": spread }, "none": null });
        let flat = serde_json::json!([{
            "mean_ns": 2.0, "mean_ns_lowest": 1.0, "mean_ns_highest": 4.0,
            "kind": { "p99_ns": 2.0, "p99_ns_lowest": 1.0, "p99_ns_highest": 4.0 },
            "none": null,
        }]);
        assert_eq!(serde_json::to_value(Rows(vec![row])).unwrap(), flat);
    }

    #[test]
    fn a_slow_round_is_slow_for_both_sides_of_a_ratio() {
        let spread = Spread::of_ratios([(2.0, 1.0), (200.0, 100.0), (5.0, 0.0)]).unwrap();
        assert_eq!((spread.lowest, spread.highest), (2.0, 2.0));
    }
}
