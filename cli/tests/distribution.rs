//! `odafs bench distribution`, with a tiny plan.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
cache-mib = 2
files = [0.5, 1.3]
client-memory = 0.25
size = 4096
patterns = ["uniform", "zipf"]
routes = ["shm one-sided", "shm guarded", "shm rpc", "shm policy", "tcp guarded"]
rounds = 1
settle-ms = 20
slice-ms = 20
"#;

fn bench(arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "distribution", "--plan", &plan];
    run(&[&fixed[..], arguments].concat()).stdout
}

#[test]
fn each_read_ends_somewhere_and_what_does_not_fit_is_refused() {
    let report: Value = serde_json::from_slice(&bench(&["--json"])).unwrap();
    assert_eq!(report["bench"], "distribution");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 5);
    for row in rows {
        let share = |name: &str| row[name].as_f64().unwrap();
        let ends = share("cache_percent") + share("direct_percent") + share("rpc_percent");
        assert!((99.9..100.1).contains(&ends), "{row}");
        assert!(
            share("mean_ns") > 0.0 && share("reads_per_second") > 0.0,
            "{row}"
        );
        let is_direct = row["route"] == "one-sided" || row["route"] == "guarded";
        let is_uniform = row["pattern"] == "uniform";
        assert_eq!(
            row["expected_stale_percent"].is_f64(),
            is_direct && is_uniform
        );
        if row["route"] == "rpc" {
            assert_eq!(
                (share("direct_percent"), share("stale_percent")),
                (0.0, 0.0)
            );
        }
        if is_direct && is_uniform && row["file_to_cache"] == 0.5 {
            assert_eq!(row["stale_percent_highest"], 0.0, "{row}");
        }
        // Of the first client: those after it know what is there, and may make few reads on a slow machine.
        if row["route"] == "one-sided" && is_uniform && row["file_to_cache"] == 1.3 {
            assert!(share("stale_percent") > 0.0, "{row}");
        }
    }
}

#[test]
fn what_is_left_is_measured_and_printed() {
    let arguments = ["--fabric", "shm", "--pattern", "zipf", "--seconds", "1"];
    let printed = text(&bench(&arguments));
    assert!(
        printed.contains("zipf") && printed.contains("policy"),
        "{printed}"
    );
    assert!(
        !printed.contains("uniform") && !printed.contains("tcp"),
        "{printed}"
    );
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("tcp guarded", "nfs rpc")).unwrap();
    let plan = plan.display().to_string();
    let arguments = ["bench", "distribution", "--plan", &plan];
    let output = odafs().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("routes"));
}
