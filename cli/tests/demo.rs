//! The demonstration.

mod common;

use common::{odafs, run, text};
use serde_json::Value;

/// A tree of so many files of so many bytes.
fn tree(files: usize, bytes: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..files {
        let data: Vec<u8> = (0..bytes + i).map(|n| (n * (i + 3) % 251) as u8).collect();
        std::fs::write(dir.path().join(format!("f{i}")), data).unwrap();
    }
    std::os::unix::fs::symlink("f0", dir.path().join("link")).unwrap();
    dir
}

fn demo(dir: &std::path::Path, more: &[&str]) -> Value {
    let dir = dir.display().to_string();
    let output = run(&[
        &[
            "demo",
            "--json",
            "--wait",
            "block",
            "--seconds",
            "0.3",
            "--dir",
            &dir,
        ],
        more,
    ]
    .concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row<'a>(demo: &'a Value, route: &str) -> &'a Value {
    demo["routes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["route"] == route)
        .unwrap()
}

#[test]
fn the_same_over_tcp() {
    let dir = tree(12, 40_000);
    let demo = demo(dir.path(), &["--fabric", "tcp"]);
    assert_eq!(demo["fabric"], "tcp");
    for (route, key) in [("guarded", "direct_hits"), ("rpc", "rpc_reads")] {
        let row = row(&demo, route);
        assert!(row[key].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["mismatches"], 0, "{row}");
    }
}

#[test]
fn every_route_returns_the_files_bytes() {
    let dir = tree(12, 40_000);
    let demo = demo(dir.path(), &[]);
    assert_eq!(
        (&demo["files"], &demo["fabric"], &demo["wait"]),
        (&12.into(), &"shm".into(), &"block".into())
    );
    assert!(
        demo["skipped"]
            .as_str()
            .unwrap()
            .contains("1 symbolic links")
    );
    assert_eq!(demo["warm_bytes"], demo["bytes"]);
    for route in ["rpc", "guarded", "one-sided", "policy"] {
        let row = row(&demo, route);
        let figure = |key: &str| row[key].as_u64().unwrap();
        assert!(figure("reads") > 0, "{row}");
        assert_eq!((figure("mismatches"), figure("changed")), (0, 0), "{row}");
        let ended = figure("cache_hits") + figure("direct_hits") + figure("rpc_reads");
        assert_eq!(ended, figure("reads"), "{row}");
    }
    assert_eq!(row(&demo, "rpc")["direct_hits"], 0);
    for route in ["guarded", "one-sided"] {
        assert!(
            row(&demo, route)["direct_hits"].as_u64() > Some(0),
            "{route}"
        );
        assert_eq!(row(&demo, route)["cache_hits"], 0, "{route}");
    }
}

#[test]
fn a_small_server_cache_makes_references_stale() {
    let dir = tree(64, 100_000);
    let demo = demo(dir.path(), &["--cache", "2MiB"]);
    let (warm, all) = (demo["warm_bytes"].as_u64(), demo["bytes"].as_u64());
    assert!(warm >= Some(2 << 20) && warm < all, "{warm:?} of {all:?}");
    for route in ["guarded", "one-sided"] {
        let row = row(&demo, route);
        assert!(row["stale_hits"].as_u64() > Some(0), "{row}");
        assert_eq!(row["mismatches"], 0, "{row}");
    }
}

#[test]
fn a_report_stands_alone() {
    let dir = tree(3, 10_000);
    let report = dir.path().with_extension("html");
    demo(dir.path(), &["--report", &report.display().to_string()]);
    let html = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    assert!(html.contains("<svg") && html.contains("one-sided") && !html.contains("://"));
}

#[test]
fn an_empty_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = odafs()
        .args(["demo", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no file"),
        "{}",
        text(&output.stderr)
    );
}
