//! `odafs bench latency` at a server that runs already.

mod common;

use common::{Server, run, text};
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
