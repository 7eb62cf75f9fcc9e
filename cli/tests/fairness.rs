//! `odafs bench fairness`, a short run.

mod common;

use common::{odafs, run};
use serde_json::Value;

#[test]
fn a_flood_has_a_row_with_both_ratios() {
    let output = run(&[
        "bench",
        "fairness",
        "--seconds",
        "1",
        "--sync",
        "50ms",
        "--flood",
        "READ",
        "--flood",
        "computing",
        "--flood",
        "syncs",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bench"], "fairness");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert!(report["placement"].is_string(), "{report}");
    for (row, elsewhere) in rows.iter().zip([true, false, false]) {
        // A flood that does not keep the server busy says nothing.
        assert_eq!(
            row["server_processors"].as_f64() > Some(0.0),
            elsewhere,
            "{row}"
        );
        for call in ["lookup", "read", "readdir"] {
            let pair = &row[call];
            assert!(pair["quiet_p99_ns"].as_u64() > Some(0), "{row}");
            assert!(pair["flooded_p99_ns"].as_u64() > Some(0), "{row}");
            assert!(pair["ratio"].as_f64() > Some(0.0), "{row}");
            assert_eq!(pair["elsewhere_p99_ns"].is_u64(), elsewhere, "{row}");
            assert_eq!(pair["server_ratio"].is_f64(), elsewhere, "{row}");
        }
    }
}

#[test]
fn there_is_no_flood_of_another_name() {
    let arguments = ["bench", "fairness", "--flood", "NULL"];
    let output = odafs().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
