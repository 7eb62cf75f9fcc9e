//! `odafs bench mixed`, with a tiny plan.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
clients = 4
direct = [0, 50, 100]
routes = ["shm one-sided", "shm guarded", "tcp guarded"]
writes = 20
file-mib = 1
rounds = 1
slice-ms = 60
"#;

fn bench(arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "mixed", "--seconds", "1", "--plan", &plan];
    run(&[&fixed[..], arguments].concat()).stdout
}

#[test]
fn every_read_of_both_kinds_is_checked() {
    let report: Value = serde_json::from_slice(&bench(&["--json"])).unwrap();
    assert_eq!(report["bench"], "mixed");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 3);
    for row in rows {
        assert_eq!(row["incoherent"], 0, "{row}");
        assert!(row["checked"].as_u64() > Some(0), "{row}");
        let direct = row["direct_percent"].as_u64().unwrap();
        assert_eq!(row["direct"].is_object(), direct > 0, "{row}");
        assert_eq!(row["nfs"].is_object(), direct < 100, "{row}");
        let number = |kind: &str| row[kind]["clients"].as_u64().unwrap_or(0);
        assert_eq!(
            (number("direct"), number("nfs")),
            (direct / 25, 4 - direct / 25)
        );
        for kind in ["direct", "nfs"] {
            let at = |figure: &str| row[kind][figure].as_f64();
            assert!(at("read_p50_ns") <= at("read_p99_ns"), "{row}");
        }
    }
}

#[test]
fn what_is_left_is_measured_and_printed() {
    let printed = text(&bench(&["--fabric", "tcp"]));
    assert!(
        printed.contains("tcp guarded") && printed.contains("nfs"),
        "{printed}"
    );
    assert!(!printed.contains("shm"), "{printed}");
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("tcp guarded", "tcp rpc")).unwrap();
    let plan = plan.display().to_string();
    let output = odafs()
        .args(["bench", "mixed", "--plan", &plan])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no direct route"));
}
