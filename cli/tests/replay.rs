//! Traces: recorded by a client, converted, replayed.

mod common;

use common::{Server, odafs, run, text};
use odafs::record::{Initial, Names, Operation, Recorder, Trace};
use odafs::{Changes, Client, Options, ReadRequest, Url};
use serde_json::Value;

const TRACE: &str = "odafs-trace 1
name 0 100000 data/table
name 1 absent new
name 2 directory .
name 3 absent none
0 - 0 open 0
1000 - 0 read 0 0 64 64
2000 - 0 read 0 90000 20000 10000
3000 - 0 read 0 0 4096 4096
3000 - 0 read+ 0 8192 4096 4096
4000 - 1 create 1
5000 - 1 write 1 0 5000
6000 - 1 sync 1
7000 - 1 rename 1 3
8000 - 0 list 2
9000 - 0 stat 0
9500 - 2 open 0
";

/// What replaying a trace prints as JSON.
fn replayed(trace: &str, arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace");
    std::fs::write(&path, trace).unwrap();
    let path = path.display().to_string();
    let fixed = ["bench", "replay", &path, "--json", "--rounds", "1"];
    serde_json::from_slice(&run(&[&fixed[..], arguments].concat()).stdout).unwrap()
}

fn all(report: &Value) -> impl Iterator<Item = &Value> {
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["operation"] == "all")
}

#[test]
fn each_route_replays_all_of_a_trace() {
    let report = replayed(TRACE, &["--seconds", "10"]);
    assert_eq!(report["bench"], "replay");
    assert_eq!(report["threads"], 3);
    assert_eq!(report["operations"], 12);
    let routes: Vec<_> = all(&report)
        .map(|row| row["route"].as_str().unwrap())
        .collect();
    assert_eq!(routes, ["rpc", "guarded", "one-sided", "policy", "default"]);
    for row in all(&report) {
        assert_eq!(row["differs"], 0, "{row}");
        assert_eq!(row["calls"], 11, "a batch is one call: {row}");
        assert!(row["p50_ns"].as_f64() <= row["p99_ns"].as_f64(), "{row}");
        let ends = ["cache_hits", "direct_hits", "rpc_reads"];
        let ends = ends.map(|end| row[end].as_u64().unwrap());
        // Each read of a batch counts, or the batch does: what ended where is the client's word.
        assert!((3..=4).contains(&ends.iter().sum::<u64>()), "{row}");
        if row["route"] == "rpc" {
            assert_eq!((ends[0], ends[1]), (0, 0));
        }
    }
}

/// An operation that is due an hour later is not waited for.
#[test]
fn a_pass_at_the_recorded_speed_ends_with_its_time() {
    let trace = "odafs-trace 1\nname 0 64 a\n0 - 0 stat 0\n3600000000000 - 0 stat 0\n";
    let report = replayed(
        trace,
        &["--speed", "as-recorded", "--seconds", "1", "--route", "rpc"],
    );
    assert_eq!(report["operations"], 1);
}

#[test]
fn what_goes_otherwise_than_recorded_is_counted() {
    let trace = TRACE
        .replace("64 64\n", "64 63\n")
        .replace("stat 0\n", "stat 0 failed\n");
    let report = replayed(&trace, &["--fabric", "tcp", "--route", "rpc", "--warm"]);
    assert_eq!(all(&report).next().unwrap()["differs"], 2);
}

#[test]
fn what_is_no_trace_or_too_large_is_told() {
    for (trace, what) in [
        (TRACE.replace("rename 1 3", "rename 1 4"), "line 14: name 4"),
        (TRACE.replace(" 100000 ", " 100000000000 "), "--bytes-max"),
        (TRACE.replace("data/table", "../table"), "line 2: PATH"),
        ("odafs-trace 1\n".to_owned(), "no operations"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        std::fs::write(&path, trace).unwrap();
        let output = odafs()
            .args(["bench", "replay"])
            .arg(&path)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(told.contains(what), "{told}");
    }
}

#[test]
fn a_converted_trace_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.csv");
    std::fs::write(
        &path,
        "1000,web,0,Read,65536,4096,30\n1010,web,0,Write,8192,512,7\n",
    )
    .unwrap();
    let path = path.display().to_string();
    let output = run(&["bench", "convert", "--from", "msr", &path]);
    let report = replayed(&text(&output.stdout), &["--route", "one-sided"]);
    assert_eq!(report["operations"], 2);
    assert_eq!(all(&report).next().unwrap()["differs"], 0);
}

#[test]
fn what_a_client_does_is_recorded_and_can_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("table"), vec![7; 50_000]).unwrap();
    let server = Server::start(directory.path(), &["--squash", "none"]);
    let traces = tempfile::tempdir().unwrap();
    let path = traces.path().join("trace");
    let recorder = Recorder::create(&path, Names::Kept).unwrap();
    let url: Url = server.shm_url("/").parse().unwrap();
    let options = Options {
        record: Some(recorder.clone()),
        ..Options::default()
    };
    let client = Client::connect_with(&url, options).unwrap();
    let table = client.open("table").unwrap();
    let (mut page, mut long) = ([0; 4096], vec![0; 60_000]);
    for _ in 0..3 {
        assert_eq!(table.read_at(&mut page, 4096).unwrap(), 4096);
    }
    assert_eq!(table.read_at(&mut long, 0).unwrap(), 50_000);
    let _ = table.try_read_at(&mut page[..10], 0);
    let (head, tail) = page.split_at_mut(100);
    let mut batch = [ReadRequest::new(0, head), ReadRequest::new(49_000, tail)];
    table.read_batch(&mut batch).unwrap();
    client.mkdir("/d").unwrap();
    let new = client.create("d/new").unwrap();
    new.write_at(&[1; 300], 10).unwrap();
    new.sync().unwrap();
    new.metadata().unwrap();
    let shorter = Changes {
        size: Some(20),
        ..Changes::default()
    };
    client.set_attributes("d/new", &shorter).unwrap();
    client.hard_link("d/new", "d/other").unwrap();
    client.rename("d/other", "d/last").unwrap();
    client.stat("none").unwrap_err();
    assert_eq!(client.read_dir("d").unwrap().count(), 2);
    client.remove("d/new").unwrap();
    client.remove("d/last").unwrap();
    client.rmdir("d").unwrap();
    let recorded = recorder.finish().unwrap();
    assert_eq!(recorded.left_out, 0);
    client.stat("table").unwrap();

    let text = std::fs::read(&path).unwrap();
    let trace = Trace::parse(&text).unwrap();
    assert_eq!(trace.entries.len() as u64, recorded.operations);
    assert_eq!(trace.names[0].initial, Initial::Bytes(50_000));
    let verbs: Vec<_> = trace.entries.iter().map(|e| e.operation.verb()).collect();
    let reads = verbs.iter().filter(|verb| verb.starts_with("read")).count();
    assert!((6..=7).contains(&reads), "{verbs:?}");
    let others: Vec<_> = verbs.into_iter().filter(|verb| *verb != "read").collect();
    assert_eq!(
        others,
        [
            "open", "read+", "mkdir", "create", "write", "sync", "stat", "truncate", "link",
            "rename", "stat", "list", "remove", "remove", "rmdir"
        ]
    );
    let failed: Vec<_> = trace.entries.iter().filter(|e| e.failed).collect();
    assert!(matches!(failed[..], [entry] if matches!(entry.operation, Operation::Stat { .. })));

    let report = replayed(
        &String::from_utf8(text).unwrap(),
        &["--speed", "as-recorded"],
    );
    for row in all(&report) {
        assert_eq!(row["differs"], 0, "{row}");
    }
}
