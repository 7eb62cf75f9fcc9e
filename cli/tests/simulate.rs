//! `odafs bench simulate`, for a second, and beside what was measured.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

#[test]
fn every_row_says_that_it_is_simulated() {
    // Those with 10,000 clients take a debug build half a minute.
    let cases = ["--case", "cores", "--case", "stale", "--case", "cache"];
    let simulate = ["bench", "simulate", "--seconds", "1", "--json"];
    let output = run(&[&simulate[..], &cases].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bench"], "simulate");
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 100, "{}", rows.len());
    for row in rows {
        assert_eq!(row["simulated"], true, "{row}");
        assert!(row["reads_per_s"].as_f64() > Some(0.0), "{row}");
        assert!(
            row["p50_ns"].as_u64() > Some(0) && row["p50_ns"].as_u64() <= row["p99_ns"].as_u64()
        );
        for part in ["server_cpu", "link_use"] {
            let part = row[part].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&part), "{row}");
        }
    }
    for costs in report["costs"].as_array().unwrap() {
        assert!(!costs["source"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_case_is_printed_beside_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let plan = "clients = [1, 4]\nthreads = 4\nroutes = [\"tcp rpc\"]\nfile-mib = 1\nrounds = 1\n\
                slice-ms = 30\nfiles = 5\npages = 64\n";
    std::fs::write(path("scale.toml"), plan).unwrap();
    let measured = run(&["bench", "scale", "--plan", &path("scale.toml"), "--json"]).stdout;
    std::fs::write(path("scale.json"), &measured).unwrap();
    let simulate = [
        "bench",
        "simulate",
        "--seconds",
        "1",
        "--case",
        "one machine",
    ];
    let scale = path("scale.json");
    let against = [&simulate[..], &["--against", &scale]].concat();
    let printed = text(&run(&against).stdout);
    assert!(
        printed.starts_with("Simulated: nothing was measured."),
        "{printed}"
    );
    assert!(printed.contains("simulated / measured"), "{printed}");
    // Two numbers of clients, by as many costs as are of this fabric.
    let report: Value =
        serde_json::from_slice(&run(&[&against[..], &["--json"]].concat()).stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let compared = rows
        .iter()
        .filter(|row| row["simulated_to_measured"].is_f64());
    let compared: Vec<&Value> = compared.collect();
    assert!(compared.len() >= 2, "{printed}");
    for row in compared {
        assert_eq!(
            (&row["fabric"], &row["route"]),
            (&"tcp".into(), &"rpc".into())
        );
    }
}

#[test]
fn wrong_uses_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let plan = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let short = plan("short.toml", "seed = 1\n");
    let built_in = include_str!("../../bench/plans/simulate.toml");
    let crowd = built_in.replacen("clients = [1,", "clients = [20000,", 1);
    let crowd = plan("crowd.toml", &crowd);
    for (arguments, expected) in [
        (["--case", "nothing"], "no such case"),
        (["--plan", &short], "missing field"),
        (["--plan", &crowd], "clients: clients must be 1 to 10,000"),
        (["--seconds", "0"], "--seconds"),
    ] {
        let output = odafs()
            .args(["bench", "simulate"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{}",
            text(&output.stderr)
        );
    }
}
