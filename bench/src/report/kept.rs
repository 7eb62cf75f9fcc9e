//! Reports as a page keeps them: rows with the same keys share one list of these, and figures have six digits.

use serde_json::{Map, Value, json};

/// A report as it is kept.
pub(super) fn pack(report: &Value) -> Value {
    let mut report = rounded(report);
    if let Some(rows) = report.get_mut("rows").filter(|rows| rows.is_array()) {
        let mut lists: Vec<(Vec<String>, Vec<Value>)> = Vec::new();
        for row in rows.as_array().into_iter().flatten() {
            let Some(row) = row.as_object() else {
                return report;
            };
            let keys: Vec<String> = row.keys().cloned().collect();
            let values = Value::Array(row.values().cloned().collect());
            match lists.last_mut() {
                Some((last, rows)) if *last == keys => rows.push(values),
                _ => lists.push((keys, vec![values])),
            }
        }
        let lists = lists
            .iter()
            .map(|(keys, rows)| json!({"keys": keys, "rows": rows}));
        *rows = json!({ "packed": lists.collect::<Vec<_>>() });
    }
    report
}

/// A report as a bench printed it, but for digits from the seventh on. What was not packed stays as it is.
pub(super) fn unpack(mut report: Value) -> Value {
    let lists = report.pointer("/rows/packed").and_then(Value::as_array);
    if let Some(lists) = lists {
        let rows = lists.iter().flat_map(|list| {
            let keys = list["keys"].as_array().into_iter().flatten();
            let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
            let rows = list["rows"].as_array().into_iter().flatten();
            rows.map(move |row| {
                let values = row.as_array().into_iter().flatten().cloned();
                let row: Map<String, Value> = keys
                    .iter()
                    .map(|key| (*key).to_owned())
                    .zip(values)
                    .collect();
                Value::Object(row)
            })
        });
        let rows: Value = rows.collect();
        report["rows"] = rows;
    }
    report
}

fn rounded(value: &Value) -> Value {
    match value {
        Value::Array(values) => values.iter().map(rounded).collect(),
        Value::Object(values) => {
            let values = values
                .iter()
                .map(|(key, value)| (key.clone(), rounded(value)));
            Value::Object(values.collect())
        }
        Value::Number(number) if number.is_f64() => {
            let figure = number.as_f64().unwrap_or(0.0);
            format!("{figure:.5e}")
                .parse::<f64>()
                .map_or(Value::Null, Value::from)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back() {
        let report = json!({"bench": "x", "rows": [
            {"a": 1, "b": null, "c": "<"}, {"a": 2, "b": [1.5], "c": {"d": 0.123_456}}, {"a": 3}, {"a": 4, "b": 5, "c": 6},
        ]});
        let packed = pack(&report);
        assert_eq!(packed["rows"]["packed"].as_array().unwrap().len(), 3);
        assert_eq!(unpack(packed), report);
        assert_eq!(unpack(report.clone()), report);
    }

    #[test]
    fn figures_have_six_digits() {
        let packed =
            pack(&json!({"rows": [], "a": [1_234_567.891, 0.000_123_456_789, 12_345_678, -0.0]}));
        assert_eq!(
            packed["a"],
            json!([1_234_570.0, 0.000_123_457, 12_345_678, -0.0])
        );
        assert_eq!(unpack(packed)["rows"], json!([]));
    }

    #[test]
    fn what_is_no_list_of_rows_stays() {
        for report in [json!({"rows": [1, {"a": 2}]}), json!({"a": 1}), json!(3)] {
            assert_eq!(unpack(pack(&report)), report);
        }
        let hostile =
            json!({"rows": {"packed": [{"keys": ["a", 1, "b"], "rows": [[1], 2, [1, 2, 3]]}, 7]}});
        assert_eq!(
            unpack(hostile)["rows"],
            json!([{"a": 1}, {}, {"a": 1, "b": 2}])
        );
    }
}
