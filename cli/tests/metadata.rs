//! `odafs bench metadata`, with a tiny plan.

mod common;

use std::process::Output;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
mixes = ["fileop", "postmark"]
routes = ["local", "shm", "tcp", "nfs"]
clients = [1, 2]
files = 4
pool = 4
bytes = [500, 10000]
rounds = 2
slice-ms = 30
"#;

fn bench(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "metadata", "--plan", &plan];
    run(&[&fixed[..], arguments].concat())
}

#[test]
fn every_operation_is_measured_by_each_route() {
    let report: Value = serde_json::from_slice(&bench(&["--json"]).stdout).unwrap();
    assert_eq!(report["bench"], "metadata");
    let rows = report["rows"].as_array().unwrap();
    for fabric in ["local", "shm", "tcp", "nfs"] {
        for clients in [1, 2] {
            let of = |mix: &str| -> Vec<&str> {
                rows.iter()
                    .filter(|row| row["mix"] == mix && row["fabric"] == fabric)
                    .filter(|row| row["clients"] == clients)
                    .map(|row| row["operation"].as_str().unwrap())
                    .collect()
            };
            let fileop = [
                "mkdir", "create", "open", "stat", "readdir", "chmod", "rename", "link", "unlink",
                "rmdir",
            ];
            assert_eq!(of("fileop"), fileop, "{fabric}, {clients}");
            assert!(
                of("postmark").contains(&"transaction"),
                "{fabric}, {clients}"
            );
        }
    }
    for row in rows {
        let at = |figure: &str| row[figure].as_f64().unwrap();
        assert!(at("operations") > 0.0, "{row}");
        assert!(at("p50_ns") <= at("p99_ns"), "{row}");
        let of_server = at("server_cpu_ns_highest");
        assert!(row["fabric"] == "local" || of_server > 0.0, "{row}");
    }
}

#[test]
fn small_files_are_read_with_delegations_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    let routes = r#"["local", "nfs4", "nfs4-delegations"]"#;
    let text = PLAN
        .replace(r#"["local", "shm", "tcp", "nfs"]"#, routes)
        .replace(r#"["fileop", "postmark"]"#, r#"["reopen"]"#);
    std::fs::write(&plan, text).unwrap();
    let plan = plan.display().to_string();
    let output = run(&["bench", "metadata", "--plan", &plan, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let measured: Vec<_> = rows
        .iter()
        .map(|row| (row["fabric"].as_str().unwrap(), row["clients"].as_u64()))
        .collect();
    let expected = ["local", "nfs4", "nfs4-delegations"];
    let expected = [1, 2].map(|clients| expected.map(|fabric| (fabric, Some(clients))));
    assert_eq!(measured, expected.concat());
    for row in rows {
        assert_eq!(row["operation"], "read", "{row}");
        assert!(row["operations"].as_u64().unwrap() > 0, "{row}");
    }
}

#[test]
fn what_is_left_is_measured_and_printed() {
    let output = bench(&["--fabric", "tcp", "--seconds", "1"]);
    assert!(text(&output.stderr).contains("too short"));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("tcp") && printed.contains("transaction"),
        "{printed}"
    );
    assert!(!printed.contains("nfs"), "{printed}");
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("\"nfs\"", "\"ftp\"")).unwrap();
    let plan = plan.display().to_string();
    let output = odafs()
        .args(["bench", "metadata", "--plan", &plan])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is no route"));
}
