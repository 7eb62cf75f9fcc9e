//! `odafs bench scale`, with a tiny plan.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
clients = [1, 5]
threads = 2
routes = ["shm one-sided", "shm guarded", "shm rpc", "tcp guarded", "tcp rpc", "nfs rpc"]
file-mib = 1
rounds = 1
slice-ms = 30
files = 50
pages = 512
"#;

fn bench(arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "scale", "--seconds", "1", "--plan", &plan];
    run(&[&fixed[..], arguments].concat()).stdout
}

#[test]
fn each_route_has_a_row_for_each_count_of_clients() {
    let report: Value = serde_json::from_slice(&bench(&["--json"])).unwrap();
    assert_eq!(report["bench"], "scale");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * 2);
    for row in rows {
        assert!(row["reads_per_second_lowest"].as_f64() > Some(0.0), "{row}");
        let share = row["slowest_share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{row}");
        let is_one = row["clients"] == 1;
        assert!(!is_one || share == 1.0, "{row}");
        assert_eq!(row["server_bytes_per_client"].is_u64(), !is_one, "{row}");
    }
    for pair in rows.chunks(2) {
        let ratio = |row: &Value| row["rate_to_best"].as_f64().unwrap();
        assert_eq!(ratio(&pair[0]).max(ratio(&pair[1])), 1.0);
    }
    let costs = report["costs"].as_array().unwrap();
    let numbers: Vec<_> = costs.iter().map(|cost| cost["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(50), Some(512)]);
}

#[test]
fn what_is_left_is_measured_and_printed() {
    let printed = text(&bench(&["--fabric", "nfs", "--most", "2"]));
    assert!(
        printed.contains("nfs") && printed.contains("open file"),
        "{printed}"
    );
    assert!(!printed.contains("guarded"), "{printed}");
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("[1, 5]", "[5, 1]")).unwrap();
    let plan = plan.display().to_string();
    let output = odafs()
        .args(["bench", "scale", "--plan", &plan])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("clients"));
}
