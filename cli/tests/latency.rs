//! `odafs bench latency` at a server that runs already.

mod common;

use common::{Server, odafs, run, text};
use serde_json::Value;

#[test]
fn figures_are_those_of_the_server_that_runs_already() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), vec![7; 100_000]).unwrap();
    let server = Server::start(directory.path(), &[]);
    for (url, fabric, routes) in [
        (server.shm_url("/file"), "shm", &["rpc", "guarded"][..]),
        (server.nfs_url("/file"), "nfs", &["rpc"][..]),
    ] {
        let arguments = "bench latency --wait block --size 4096 --seconds 0.1 --rounds 1 --url";
        let arguments: Vec<&str> = arguments.split(' ').chain([url.as_str()]).collect();
        let report = run(&[&arguments[..], &["--json"]].concat()).stdout;
        let report: Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["file_bytes"], 100_000, "{report}");
        assert_eq!(report["url"], url);
        assert!(!report["placement"].as_str().unwrap().contains("server to"));
        let rows = report["rows"].as_array().unwrap();
        for row in rows {
            assert_eq!(row["fabric"], fabric, "{row}");
            assert!(row["reads"].as_u64() > Some(0), "{row}");
            assert_eq!(row["other_route"], 0, "{row}");
            assert_eq!(row["backing_bytes"], Value::Null, "{row}");
            assert_eq!(row["server_cpu_ns_per_read"], Value::Null, "{row}");
        }
        for route in routes {
            assert!(rows.iter().any(|row| row["route"] == *route), "{route}");
        }
        let told = text(&run(&arguments).stdout);
        assert!(told.contains(&url) && !told.contains("in memory"), "{told}");
    }
}

/// A client that can load from the server's memory keeps nothing by default, and its reads are no hits.
#[test]
fn reads_of_the_data_cache_are_hits() {
    let arguments = "bench latency --fabric shm --route cache --wait spin --size 4096 --file-size 4MiB --rounds 1 --seconds 0.1 --json";
    let report = run(&arguments.split(' ').collect::<Vec<_>>()).stdout;
    let report: Value = serde_json::from_slice(&report).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{report}");
    assert_eq!(rows[0]["route"], "cache");
    assert!(rows[0]["reads"].as_u64() > Some(0), "{report}");
    assert_eq!(rows[0]["other_route"], 0, "{report}");
}

/// The directory of the page goes while it measures: the table is printed all the same.
#[test]
fn figures_are_printed_though_the_page_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("pages");
    std::fs::create_dir(&pages).unwrap();
    let arguments =
        "bench latency --fabric local --size 4096 --file-size 4MiB --rounds 1 --seconds 4";
    let bench = odafs()
        .args(arguments.split(' '))
        .arg("--report")
        .arg(pages.join("page.html"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while std::fs::read_dir(&pages).unwrap().count() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::fs::remove_dir_all(&pages).unwrap();
    let output = bench.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write"), "{said}");
    assert!(text(&output.stdout).contains("mmap"), "{said}");
}

#[test]
fn each_term_of_a_read_has_a_row() {
    let output = run(&[
        "bench",
        "breakdown",
        "--set",
        "1MiB",
        "--rounds",
        "1",
        "--seconds",
        "1",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 28);
    for row in rows {
        assert!(row["times"].as_u64() > Some(0), "{row}");
    }
    let stale = rows.iter().filter(|row| row["term"] == "T_stale");
    assert_eq!(stale.count(), 2 + 4);
}
