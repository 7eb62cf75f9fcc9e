//! `odafs bench cold`, with a tiny plan.

mod common;

use std::process::Output;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
file-mib = 1
caches = [2.0, 0.25]
random = 0.5
records = [65536]
routes = ["local pread", "shm default", "tcp rpc", "nfs default"]
rounds = 1
"#;

fn bench(arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let (plan, on) = (
        plan.display().to_string(),
        directory.path().display().to_string(),
    );
    let fixed = ["bench", "cold", "--plan", &plan, "--dir", &on];
    let output = run(&[&fixed[..], arguments].concat());
    // The file is gone again.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    output
}

#[test]
fn every_caller_has_both_passes() {
    let report: Value = serde_json::from_slice(&bench(&["--json"]).stdout).unwrap();
    assert_eq!(report["bench"], "cold");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 4 * 2);
    for (number, row) in rows.iter().enumerate() {
        let at = |figure: &str| row[figure].as_f64().unwrap();
        assert_eq!(row["pass"], ["first", "second"][number % 2], "{row}");
        let bytes = at("reads") * at("size_bytes");
        let expected = if row["pattern"] == "random" {
            1 << 19
        } else {
            1 << 20
        };
        assert_eq!(bytes, f64::from(expected), "{row}");
        assert!(
            at("mib_per_second_lowest") > 0.0 && at("p50_ns") <= at("p99_ns"),
            "{row}"
        );
        let is_local = row["fabric"] == "local";
        assert!(!is_local || at("server_cpu_ns_per_mib") == 0.0, "{row}");
        assert!(!is_local || at("mean_to_pread") == 1.0, "{row}");
        if row["route"] == "rpc" {
            assert_eq!(
                (at("cache_percent"), at("direct_percent")),
                (0.0, 0.0),
                "{row}"
            );
        }
        // Where the kernel counts: nothing but the first pass of a server that holds it all is from the disk.
        let holds_all = row["cache_to_file"] == 2.0 && row["pass"] == "second";
        if let Some(part) = row["from_disk"].as_f64().filter(|_| holds_all) {
            assert_eq!(part, 0.0, "{row}");
        }
    }
}

#[test]
fn what_is_left_is_measured_and_printed() {
    let output = bench(&["--fabric", "nfs", "--seconds", "1"]);
    assert!(text(&output.stderr).contains("too short"));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("pread") && printed.contains("nfs"),
        "{printed}"
    );
    assert!(!printed.contains("tcp"), "{printed}");
}

#[test]
fn a_plan_that_is_none_is_a_wrong_use() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("\"tcp rpc\"", "\"tcp mmap\"")).unwrap();
    let plan = plan.display().to_string();
    let arguments = ["bench", "cold", "--plan", &plan];
    let output = odafs().args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is no route"));
}
