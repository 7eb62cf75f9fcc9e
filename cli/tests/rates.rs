//! The benches of throughput, each with a tiny run.

mod common;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{ending_signals, odafs, run, text};
use rustix::process::{Pid, kill_process};
use serde_json::Value;

/// The report of `odafs bench ARGUMENTS`, whose rows all have moved something.
fn report(bench: &str, arguments: &str) -> Vec<Value> {
    let all = format!("bench {bench} --file-size 4MiB --rounds 1 --seconds 0.1 --json {arguments}");
    let output = run(&all.split_whitespace().collect::<Vec<_>>());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bench"], bench);
    assert!(report["machine"]["cpus"].as_u64() > Some(0) && report["commit"].is_string());
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["operations"].as_u64() > Some(0), "{row}");
        assert!(row["mib_per_second"].as_f64() > Some(0.0), "{row}");
        for side in ["client_cpu_ns_per_mib", "server_cpu_ns_per_mib"] {
            assert!(row[side].is_u64(), "{row}");
        }
    }
    rows.clone()
}

#[test]
fn throughput_has_a_row_for_each_fabric_size_and_depth() {
    let rows = report(
        "throughput",
        "--size 64KiB --size 512 --read-ahead 0 --read-ahead 3",
    );
    assert_eq!(rows.len(), 2 * 3 * 2 * 2);
    for fabric in ["nfs", "shm", "tcp"] {
        for operation in ["read", "write"] {
            let of = |row: &&Value| row["fabric"] == fabric && row["operation"] == operation;
            let found: Vec<_> = rows.iter().filter(of).collect();
            assert_eq!(found.len(), 4, "{fabric} {operation}");
            assert!(
                found
                    .iter()
                    .any(|r| r["read_ahead"] == 3 && r["record_bytes"] == 512)
            );
        }
    }
}

/// A record longer than the longest call is no single call in flight: the row says how many.
#[test]
fn a_row_of_throughput_says_how_many_calls_a_record_takes() {
    let rows = report(
        "throughput",
        "--size 4096 --size 1MiB --read-ahead 0 --operation read",
    );
    let calls = |fabric: &str, bytes: u64| {
        let is_row = |row: &&Value| row["fabric"] == fabric && row["record_bytes"] == bytes;
        let row = rows.iter().find(is_row).unwrap();
        row["calls_per_record"].as_f64().unwrap()
    };
    for fabric in ["nfs", "shm", "tcp"] {
        assert_eq!(calls(fabric, 4096), 1.0, "{fabric}");
    }
    assert_eq!((calls("nfs", 1 << 20), calls("tcp", 1 << 20)), (2.0, 1.0));
    // 64 KiB at most, with the rest of the message.
    assert!(calls("shm", 1 << 20) >= 16.0);
}

/// What a bench put into memory or on a disk goes when a signal ends it.
#[test]
fn an_interrupted_bench_leaves_no_files() {
    let scratch = |directory: &Path| {
        let names = std::fs::read_dir(directory).unwrap().flatten();
        let paths = names.map(|entry| entry.path());
        let is_scratch = |path: &PathBuf| path.display().to_string().contains("odafs-scratch-");
        paths.filter(is_scratch).collect::<HashSet<PathBuf>>()
    };
    for (signal, status) in ending_signals() {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = odafs();
        bench.args(["bench", "throughput", "--fabric", "shm", "--seconds", "60"]);
        bench.args(["--file-size", "8MiB", "--size", "4096"]);
        bench.env("TMPDIR", directory.path());
        let mut bench = bench
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The server's directory lies there, with its socket, and the file in memory, or there too.
        let began = Instant::now();
        let held = loop {
            let links = std::fs::read_dir(format!("/proc/{}/fd", bench.id())).unwrap();
            let held = links
                .flatten()
                .filter_map(|fd| std::fs::read_link(fd.path()).ok());
            let held = held.filter(|path| path.display().to_string().contains("odafs-scratch-"));
            let held: HashSet<PathBuf> = held.collect();
            let here = scratch(directory.path());
            if held.len() >= 2 && here.iter().any(|path| path.join("sock").exists()) {
                break held;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it has no files");
            std::thread::sleep(Duration::from_millis(5));
        };
        kill_process(Pid::from_raw(bench.id() as i32).unwrap(), signal).unwrap();
        assert_eq!(bench.wait().unwrap().code(), Some(status));
        for path in held {
            assert!(!path.exists(), "{} is left", path.display());
        }
        assert_eq!(scratch(directory.path()), HashSet::new());
    }
}

#[test]
fn replies_are_fetched_in_the_read_read_design_alone() {
    let rows = report("designs", "--size 128KiB --threads 2");
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let expected = row["design"] == "read-read" && row["operation"] == "read";
        let fetched = row["fetched"].as_u64().unwrap();
        if row["operation"] == "read" {
            assert_eq!(fetched > 0, expected, "{row}");
        }
    }
}

#[test]
fn strategies_of_registration_are_charged_for_what_they_do() {
    let arguments = "--size 128KiB --threads 1 --operation-cost 20us --page-cost 1us";
    let rows = report("registration", arguments);
    assert_eq!(rows.len(), 8);
    let write = |name: &str| {
        let of = |row: &&Value| row["registration"] == name && row["operation"] == "write";
        let row = rows.iter().find(of).unwrap();
        let part = |key: &str| row[key].as_u64().unwrap();
        assert!(part("other_ns_per_call") <= part("ns_per_call"), "{row}");
        ["register_ns_per_call", "invalidate_ns_per_call"].map(part)
    };
    assert_eq!(write("all-physical"), [0, 0]);
    assert_eq!(write("cached")[1], 0);
    assert!(write("cached")[0] < write("per-operation")[0]);
    // One invalidation for a batch of tags, and one for each call.
    assert!(write("pooled")[1] < write("per-operation")[1]);
}

#[test]
fn a_tag_that_ends_takes_the_connection_with_it_and_a_stamp_does_not() {
    let output = run(&[
        "bench",
        "registration",
        "--revocation",
        "--rounds",
        "1",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bench"], "revocation");
    let row = |by: &str| {
        let mut rows = report["rows"].as_array().unwrap().iter();
        let row = rows.find(|row| row["by"] == by).unwrap();
        assert!(row["stale_ns"].as_u64() > Some(0), "{row}");
        ["times", "connections_lost"].map(|key| row[key].as_u64().unwrap())
    };
    let ([stamps, of_stamps], [windows, of_windows]) = (row("stamp"), row("window"));
    assert!(stamps >= 20 && windows >= 20);
    assert_eq!((of_stamps, of_windows), (0, windows));
    // That takes long enough to tell what others took of the processors.
    assert!(report["machine"]["busy"].is_object(), "{report}");
}

#[test]
fn credits_have_a_fairness() {
    let rows = report("credits", "--clients 1 --clients 3 --fixed 2");
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let n = row["clients"].as_f64().unwrap();
        let fairness = row["fairness"].as_f64().unwrap();
        assert!(fairness <= 1.0 && fairness >= 1.0 / n - 0.001, "{row}");
        assert!(row["slowest_share"].as_f64() <= Some(1.0), "{row}");
    }
    assert!(rows.iter().any(|row| row["credits"] == "adaptive"));
}

#[test]
fn what_does_not_fit_the_file_is_wrong_usage() {
    for (arguments, expected) in [
        ("bench throughput --file-size 1MiB", "--file-size"),
        ("bench throughput --read-ahead 17", "17"),
        ("bench designs --size 0", "--size"),
        ("bench registration --rounds 0", "--rounds"),
        ("bench credits --clients 0", "0"),
    ] {
        let output = odafs().args(arguments.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(expected), "{arguments}");
    }
}

#[test]
fn a_report_draws_what_it_measures_and_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (json, html) = (path("credits.json"), path("page.html"));
    let arguments = "bench credits --file-size 4MiB --rounds 1 --seconds 0.1 --clients 2 --json";
    let printed = run(&arguments.split(' ').collect::<Vec<_>>()).stdout;
    std::fs::write(&json, printed).unwrap();
    run(&["bench", "report", &html, "--from", &json]);
    let drawn = std::fs::read_to_string(&html).unwrap();
    assert_eq!(drawn.matches("<svg").count(), 4);
    assert!(drawn.contains("adaptive") && drawn.contains("; commit "));
    // Nothing is fetched from anywhere.
    assert!(!drawn.contains("://") && !drawn.contains("src="));

    run(&[
        "bench",
        "report",
        &html,
        "--bench",
        "designs",
        "--seconds",
        "0.1",
    ]);
    let measured = std::fs::read_to_string(&html).unwrap();
    assert!(measured.contains("read-write") && measured.contains("<polyline"));

    std::fs::write(&json, "{}").unwrap();
    let output = odafs()
        .args(["bench", "report", &html, "--from", &json])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("credits.json"));
    // What was there is there still, and nothing else is.
    assert_eq!(std::fs::read_to_string(&html).unwrap(), measured);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

/// The page keeps what it was drawn from, and a time that says nothing is called too short.
#[test]
fn a_page_is_drawn_again_from_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (first, again) = (path("first.html"), path("again.html"));
    let arguments = ["--bench", "credits", "--seconds", "0.1", "--json"];
    let output = run(&[&["bench", "report", &first], &arguments[..]].concat());
    let said = text(&output.stderr);
    assert!(
        said.contains("credits: odafs: --seconds 0.1: too short"),
        "{said}"
    );
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed[0]["bench"], "credits");
    let output = run(&["bench", "report", &again, "--from", &first, "--json"]);
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        printed
    );
    let figures = |path: &str| {
        let page = std::fs::read_to_string(path).unwrap();
        page.matches("class='mark'").count()
    };
    assert_eq!((figures(&first), figures(&again)), (4 * 16, 4 * 16));
    // There are no latencies to plot, by themselves or under load.
    let file = path("plot.svg");
    for (plot, expected) in [
        (file.clone(), "no rows of 4 KiB"),
        (format!("load={file}"), "no rows of `odafs bench load`"),
    ] {
        let output = odafs()
            .args(["bench", "report", &again, "--from", &first, "--plot", &plot])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(expected), "{plot}");
        assert!(!std::path::Path::new(&file).exists());
    }
}
