//! `odafs bench load`, with a tiny plan.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
file-mib = 1
size = 4096
loads = [0, 30, 100]
others = 2
rounds = 2
slice-ms = 5
settle-ms = 5
routes = ["mmap", "shm one-sided", "shm guarded", "shm rpc", "shm policy", "tcp one-sided", "tcp guarded", "tcp rpc", "nfs rpc"]
"#;

fn bench(arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "load", "--seconds", "1", "--plan", &plan];
    run(&[&fixed[..], arguments].concat()).stdout
}

#[test]
fn each_route_has_a_row_at_each_load() {
    let report: Value = serde_json::from_slice(&bench(&["--json"])).unwrap();
    assert_eq!(report["bench"], "load");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9 * 3);
    for row in rows {
        assert!(row["reads"].as_u64() > Some(0), "{row}");
        for figure in ["p50_ns", "mean_ns", "p99_ns", "reads_per_second"] {
            let spread = |end: &str| row[format!("{figure}{end}")].as_f64().unwrap();
            assert!(spread("_lowest") > 0.0, "{figure} {row}");
            assert!(spread("_lowest") <= spread("") && spread("") <= spread("_highest"));
        }
        // An idle server is compared with itself. Beside it, a ratio of two such short slices may be anything, and 0 when
        // it is rounded.
        let is_idle = row["load_percent"] == 0;
        assert!(!is_idle || row["held_percent"] == 0, "{row}");
        for ratio in ["mean_to_idle", "p99_to_idle"] {
            let spread = |end: &str| row[format!("{ratio}{end}")].as_f64().unwrap();
            assert!(spread("_lowest") <= spread("") && spread("") <= spread("_highest"));
            assert!(!is_idle || spread("_lowest") == 1.0, "{ratio} {row}");
            assert!(!is_idle || spread("_highest") == 1.0, "{ratio} {row}");
        }
    }
    // Others were there.
    let held = |row: &&Value| row["held_percent"].as_u64() > Some(0);
    assert!(rows.iter().any(|row| held(&row)));
    let full = |row: &&Value| row["route"] == "one-sided" && row["load_percent"] == 100;
    let shm = rows.iter().filter(full).find(|row| row["fabric"] == "shm");
    let told = &report["one_sided_p99_to_idle"]["median"];
    assert_eq!(told, &shm.unwrap()["p99_to_idle"]);
}

#[test]
fn what_is_left_is_measured_and_printed() {
    let printed = text(&bench(&["--fabric", "nfs", "--load", "100"]));
    assert!(
        printed.contains("nfs") && printed.contains("mmap"),
        "{printed}"
    );
    assert!(
        !printed.contains("guarded") && !printed.contains("30 %"),
        "{printed}"
    );
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("nfs rpc", "nfs one-sided")).unwrap();
    let plan = plan.display().to_string();
    let output = odafs()
        .args(["bench", "load", "--plan", &plan])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is no route"));
}
