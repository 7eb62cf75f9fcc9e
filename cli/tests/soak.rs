//! `odafs bench soak`, with a tiny plan.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
files = 3
file-kib = 64
cache-mib = 1
readers = ["shm one-sided", "tcp guarded", "shm default", "nfs rpc"]
writers = ["shm", "nfs"]
visitors = 1
sample-ms = 100
"#;

fn bench(arguments: &[&str]) -> std::process::Output {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "soak", "--seconds", "1", "--plan", &plan];
    run(&[&fixed[..], arguments].concat())
}

#[test]
fn every_read_is_checked_and_both_processes_are_looked_at() {
    let report: Value = serde_json::from_slice(&bench(&["--json"]).stdout).unwrap();
    assert_eq!(report["bench"], "soak");
    assert_eq!(
        (&report["wrong"], &report["failed"]),
        (&0.into(), &0.into()),
        "{report}"
    );
    for what in ["checked", "checked_bytes", "writes", "changes", "visits"] {
        assert!(report[what].as_u64() > Some(0), "{what}: {report}");
    }
    let rows = report["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        for what in ["server_bytes", "server_threads", "client_descriptors"] {
            assert!(row[what].as_u64() > Some(0), "{what}: {row}");
        }
    }
    // Every figure but the time.
    let figures = rows[0].as_object().unwrap().len() - 1;
    assert_eq!(report["growth"].as_array().unwrap().len(), figures);
}

#[test]
fn what_grew_is_said_and_too_short_a_run_warned_about() {
    let output = bench(&["--fabric", "nfs"]);
    assert!(text(&output.stderr).contains("too short"));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("from the first quarter to the last"),
        "{printed}"
    );
    assert!(printed.contains("1 reader, 1 writer,"), "{printed}");
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("tcp guarded", "tcp mmap")).unwrap();
    let plan = plan.display().to_string();
    let output = odafs()
        .args(["bench", "soak", "--plan", &plan])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is no route"));
}
