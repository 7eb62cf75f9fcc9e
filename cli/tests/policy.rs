//! `odafs bench policy`, with a tiny plan.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

const PLAN: &str = r#"
file-mib = 4
cache-mib = 32
rounds = 2
slice-ms = 5
cold-reads = 10
warm-up-ms = 100
settle-ms = 10

[[cases]]
name = "tiny"
fabrics = ["shm", "tcp"]
modes = ["one-sided", "guarded"]
patterns = ["zipf"]
sizes = [4096]
memory-mib = [1]
working-sets = [2]

[[cases]]
name = "loaded"
fabrics = ["shm"]
modes = ["guarded"]
patterns = ["sequential"]
sizes = [64]
memory-mib = [1]
working-sets = [2]
loads = [10]

[[cases]]
name = "shifts"
fabrics = ["shm"]
modes = ["one-sided"]
patterns = ["uniform"]
sizes = [4096]
memory-mib = [1]
working-sets = [2]
loads = [10]
shifts = ["reads", "writes", "memory"]

[[cases]]
name = "short of cores"
fabrics = ["tcp"]
modes = ["guarded"]
patterns = ["uniform"]
sizes = [4096]
working-sets = [0.05]
clients = [3]
spins-us = [0, 5]
"#;

fn bench(arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.display().to_string();
    let fixed = ["bench", "policy", "--seconds", "1", "--plan", &plan];
    run(&[&fixed[..], arguments].concat()).stdout
}

#[test]
fn each_configuration_of_each_case_has_a_row() {
    let report: Value = serde_json::from_slice(&bench(&["--json"])).unwrap();
    assert_eq!(report["bench"], "policy");
    assert_eq!(report["skipped"], Value::Array(Vec::new()));
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        // Many clients on a slow machine may come to nothing in a slice as short as this.
        let is_crowd = row["case"] == "short of cores";
        assert!(is_crowd || row["reads"].as_u64() > Some(0), "{row}");
        assert!(row["mean_ns"].as_u64() > Some(0), "{row}");
        assert!(row["p50_ns"].as_u64() <= row["p99_ns"].as_u64(), "{row}");
        assert!(row["ratio_to_best"].is_f64(), "{row}");
    }
    for fabric in ["shm", "tcp"] {
        for (mode, configs) in [("one-sided", 9), ("guarded", 7)] {
            let of = |r: &&Value| {
                (&r["case"], &r["fabric"], &r["mode"])
                    == (&"tiny".into(), &fabric.into(), &mode.into())
            };
            let found: Vec<_> = rows.iter().filter(of).collect();
            assert_eq!(found.len(), configs, "{fabric} {mode}");
            for config in ["rpc", "guarded", "rpc+cache", "policy", "default", "mmap"] {
                assert!(found.iter().any(|r| r["config"] == config), "{config}");
            }
            let rpc = found.iter().find(|r| r["config"] == "rpc").unwrap();
            assert!(rpc["rpc_reads"].as_u64() > Some(0), "{rpc}");
            assert_eq!(
                (&rpc["cache_hits"], &rpc["direct_hits"]),
                (&0.into(), &0.into())
            );
            let best = |r: &&&Value| r["ratio_to_best"] == 1.0 && r["is_fixed"] == true;
            assert!(found.iter().any(|r| best(&r)), "{fabric} {mode}");
        }
    }
    let loaded = rows.iter().find(|r| r["case"] == "loaded").unwrap();
    assert!(loaded["load_found"].as_f64() > Some(0.0), "{loaded}");
    for shift in ["reads", "writes", "memory"] {
        let found = rows.iter().filter(|r| r["shift"] == shift);
        assert_eq!(found.count(), 8, "{shift}");
    }
    let spins = rows.iter().filter(|r| r["case"] == "short of cores");
    let names: Vec<_> = spins.map(|r| r["config"].as_str().unwrap()).collect();
    assert_eq!(names, ["spin-0us", "spin-5us", "default"]);
    assert!(report["worst"]["ratio"].is_f64() && report["waiting"]["ratio"].is_f64());
}

#[test]
fn the_last_line_is_the_worst_ratio_and_the_report_draws_the_rows() {
    let narrow = ["--case", "tiny", "--fabric", "shm", "--mode", "guarded"];
    let printed = text(&bench(&narrow));
    let last = printed.lines().last().unwrap();
    assert!(
        last.starts_with("worst default / best fixed configuration: "),
        "{printed}"
    );
    assert!(
        last.contains("tiny: shm guarded, zipf of 4 KiB, 2 MiB of 1 MiB"),
        "{last}"
    );

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (json, html) = (path("policy.json"), path("page.html"));
    let printed = bench(&[&narrow[..], &["--json"]].concat());
    std::fs::write(&json, &printed).unwrap();
    let report: Value = serde_json::from_slice(&printed).unwrap();
    let rows = report["rows"].as_array().unwrap();
    // What takes a hundredth of the best and less is printed as 0, which has no place on a logarithmic axis.
    let is_drawn = |row: &&Value| row["ratio_to_best"].as_f64() > Some(0.0);
    let judged = rows.iter().filter(is_drawn);
    run(&["bench", "report", &html, "--from", &json]);
    let drawn = std::fs::read_to_string(&html).unwrap();
    assert_eq!(drawn.matches("<svg").count(), 1);
    let marks = drawn.matches("class='mark'").count();
    assert!(marks > 4 && marks == judged.count(), "{marks}");
}

#[test]
fn a_wrong_plan_and_cases_that_are_not_there_are_wrong_usage() {
    let directory = tempfile::tempdir().unwrap();
    let plan = directory.path().join("plan.toml");
    std::fs::write(&plan, PLAN.replace("rounds = 2", "rounds = 0")).unwrap();
    let plan = plan.display().to_string();
    for arguments in [&["--plan", plan.as_str()][..], &["--case", "none"]] {
        let all = [&["bench", "policy"], arguments].concat();
        let output = odafs().args(&all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
