//! The metrics, as a scraper takes them: by a strict reader of the text format. And what names them: the dashboard, the
//! alerts and docs/OPERATIONS.md.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use common::{Server, run};
use serde_json::Value;

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let length = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{head}");
    if path == "/metrics" {
        let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
        assert!(head.lines().any(|line| line == kind), "{head}");
    }
    body.to_owned()
}

/// Names and values, in order.
type Labels = Vec<(String, String)>;
/// A series: its name and its labels.
type Series = (String, Labels);

/// A family of metrics.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    series: BTreeMap<Series, f64>,
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// The labels of `{a="b",c="d"}`.
fn labels(text: &str) -> Labels {
    let mut rest = text;
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name), "{text}");
        let end = after.find('"').expect("a value");
        assert!(!after[..end].contains('\\'), "{text}: none needs escapes");
        labels.push((name.to_owned(), after[..end].to_owned()));
        rest = &after[end + 1..];
        if let Some(next) = rest.strip_prefix(',') {
            assert!(!next.is_empty(), "{text}");
            rest = next;
        } else {
            assert!(rest.is_empty(), "{text}");
        }
    }
    let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), labels.len(), "{text}: a label twice");
    labels
}

/// Reads the whole format, and fails at what the format or the conventions forbid.
fn families(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut present: Option<String> = None;
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help");
            assert!(
                is_name(name) && help.ends_with('.') || name.ends_with("_info"),
                "{line}"
            );
            assert!(helped.insert(name.to_owned()), "{line}: twice");
            present = None;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(helped.contains(name), "{line}: without HELP before it");
            let family = Family {
                kind: kind.to_owned(),
                ..Family::default()
            };
            assert!(
                families.insert(name.to_owned(), family).is_none(),
                "{line}: twice"
            );
            present = Some(name.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a figure");
            let (name, inside) = match series.split_once('{') {
                Some((name, inside)) => (name, inside.strip_suffix('}').expect("an end")),
                None => (series, ""),
            };
            let of = present.as_ref().expect("a TYPE before it");
            let family = families.get_mut(of).expect("just entered");
            let suffix = name
                .strip_prefix(of.as_str())
                .unwrap_or_else(|| panic!("{line} within {of}"));
            match &*family.kind {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                "counter" | "gauge" => assert_eq!(suffix, "", "{line}"),
                kind => panic!("{kind}"),
            }
            let value: f64 = value.parse().expect("a number");
            assert!(value >= 0.0 && value.is_finite(), "{line}");
            let series = (name.to_owned(), labels(inside));
            assert!(
                family.series.insert(series, value).is_none(),
                "{line}: twice"
            );
        }
    }
    for (name, family) in &families {
        check(name, family);
    }
    assert_eq!(helped, families.keys().cloned().collect());
    families
}

/// What the conventions ask of a family.
fn check(name: &str, family: &Family) {
    assert!(
        name.starts_with("odafs_") && name == name.to_lowercase(),
        "{name}"
    );
    assert_eq!(name.ends_with("_total"), family.kind == "counter", "{name}");
    for unit in [
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "_ms",
        "_kib",
        "_pages_bytes",
    ] {
        assert!(
            !name.contains(unit),
            "{name}: seconds and bytes are the units"
        );
    }
    if family.kind != "histogram" {
        return;
    }
    let mut rows: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for ((series, labels), value) in &family.series {
        if series.ends_with("_bucket") {
            let (bounds, rest): (Vec<_>, Vec<_>) =
                labels.iter().cloned().partition(|(label, _)| label == "le");
            let bound: f64 = bounds[0].1.replace("+Inf", "inf").parse().unwrap();
            rows.entry(rest).or_default().push((bound, *value));
        }
    }
    for (labels, mut buckets) in rows {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{buckets:?}"
        );
        let last = buckets.last().unwrap();
        assert!(last.0.is_infinite(), "{labels:?}: no +Inf");
        assert_eq!((buckets[0].0, buckets.len()), (1e-6, 23));
        let of = |suffix| (format!("{name}_{suffix}"), labels.clone());
        assert_eq!(family.series[&of("count")], last.1, "{labels:?}");
        assert!(family.series.contains_key(&of("sum")), "{labels:?}");
    }
}

/// A server that has been used over each fabric, and its metrics' address.
fn used() -> (tempfile::TempDir, Server, String) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), vec![7; 300_000]).unwrap();
    let server = Server::start(
        directory.path(),
        &["--metrics", "127.0.0.1:0", "--rdma", "127.0.0.1:0"],
    );
    let rdma = server.word("rdma=");
    run(&["cat", &server.shm_url("/f")]);
    run(&["cat", &server.nfs_url("/f")]);
    let port = server.nfs.rsplit_once(':').unwrap().1;
    run(&["cat", &format!("odafs://{rdma}/f?mountport={port}")]);
    let missing = server.nfs_url("/missing");
    let failed = common::odafs().args(["stat", &missing]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let metrics = server.word("metrics=");
    (directory, server, metrics)
}

#[test]
fn the_metrics_are_what_a_scraper_takes() {
    let (_directory, _server, address) = used();
    let families = families(&get(&address, "/metrics"));
    let sum = |name: &str, wanted: &[(&str, &str)]| -> f64 {
        let of = |labels: &[(String, String)]| {
            let has = |(l, v): &(&str, &str)| labels.iter().any(|(a, b)| a == l && b == v);
            wanted.iter().all(has)
        };
        let family = name.strip_suffix("_count").unwrap_or(name);
        let series = families[family].series.iter();
        let series = series.filter(|((n, labels), _)| n == name && of(labels));
        series.map(|(_, value)| value).sum()
    };
    for fabric in ["tcp", "shm", "iwarp"] {
        let fabric = ("fabric", fabric);
        let reads = [fabric, ("procedure", "READ")];
        assert!(sum("odafs_calls_total", &reads) > 0.0, "{fabric:?}");
        // The first of each procedure is sampled.
        let (calls, sampled) = ("odafs_calls_total", "odafs_sampled_call_seconds_count");
        assert!(sum(sampled, &reads) >= 1.0, "{fabric:?}");
        assert!(
            sum(sampled, &[fabric]) <= sum(calls, &[fabric]),
            "{fabric:?}"
        );
        assert!(
            families["odafs_connections"]
                .series
                .keys()
                .any(|(_, labels)| { labels == &[(fabric.0.to_owned(), fabric.1.to_owned())] })
        );
    }
    let lookups = [
        ("program", "nfs3"),
        ("procedure", "LOOKUP"),
        ("status", "noent"),
    ];
    assert!(sum("odafs_call_errors_total", &lookups) >= 1.0);
    assert_eq!(sum("odafs_pool_threads", &[("pool", "io")]), 8.0);
    assert_eq!(
        sum(
            "odafs_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))]
        ),
        1.0
    );
    let used = sum("odafs_cache_used_bytes", &[]);
    assert!(
        used >= 300_000.0 && used < sum("odafs_cache_bytes", &[]),
        "{used}"
    );
}

#[test]
fn connections_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--metrics", "127.0.0.1:0"]);
    let address = server.word("metrics=");
    let open = || {
        let families = families(&get(&address, "/metrics"));
        let series = &families["odafs_connections"].series;
        let tcp = |((_, labels), _): &(&Series, &f64)| labels[0].1 == "tcp";
        series.iter().find(tcp).map(|(_, open)| *open).unwrap()
    };
    let until = |wanted: f64| {
        while open() != wanted {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    until(0.0);
    let streams: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(&server.nfs).unwrap())
        .collect();
    until(3.0);
    drop(streams);
    until(0.0);
}

#[test]
fn clients_and_slow_calls_are_told_in_json() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f\n\"é"), vec![7; 300_000]).unwrap();
    let options = ["--metrics", "127.0.0.1:0", "--slow-call", "1ns"];
    let server = Server::start(directory.path(), &options);
    for _ in 0..3 {
        run(&["cat", &server.nfs_url("/f%0A%22%C3%A9")]);
    }
    let address = server.word("metrics=");
    let top: Value = serde_json::from_str(&get(&address, "/top.json")).unwrap();
    let client = &top["clients"][0];
    assert_eq!(client["client"], "127.0.0.1");
    assert!(client["calls"].as_u64().unwrap() > 0 && client["bytes"].as_u64().unwrap() > 0);
    let slow = top["slow_calls"].as_array().unwrap();
    assert!(!slow.is_empty() && slow.len() <= 16, "{top}");
    let micros = |call: &Value| call["microseconds"].as_u64().unwrap();
    assert!(slow.is_sorted_by(|a, b| micros(a) >= micros(b)), "{top}");
    assert!(
        slow.iter()
            .all(|call| call["client"].as_str().unwrap().starts_with("127.0.0.1:"))
    );
    // The name of the file is told in ASCII.
    let lookup = slow.iter().find(|call| call["procedure"] == "LOOKUP");
    if let Some(lookup) = lookup {
        let file = lookup["file"].as_str().unwrap();
        assert!(file.ends_with("/f\\n\\\"\\xc3\\xa9"), "{file}");
    }
    let families = families(&get(&address, "/metrics"));
    let series = ("odafs_slow_calls_total".to_owned(), Vec::new());
    assert!(families["odafs_slow_calls_total"].series[&series] >= slow.len() as f64);
}

fn source(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a text that begin as metrics do.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let words = words.filter(|word| word.starts_with("odafs_"));
    words.map(str::to_owned).collect()
}

/// The family of a series' name.
fn family(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let suffixes = ["", "_bucket", "_sum", "_count"];
    let of = suffixes
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix));
    of.map(str::to_owned).find(|name| known.contains(name))
}

#[test]
fn the_dashboard_the_alerts_and_the_documents_name_what_there_is() {
    let (_directory, _server, address) = used();
    let known: BTreeSet<String> = families(&get(&address, "/metrics")).into_keys().collect();
    let dashboard: Value = serde_json::from_str(&source("dist/grafana/odafs.json")).unwrap();
    let mut queries = String::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            queries += target["expr"].as_str().unwrap();
            queries.push('\n');
        }
    }
    let alerts = source("dist/prometheus/odafs.rules.yml");
    for (what, text, least) in [("dashboard", &queries, 25), ("alerts", &alerts, 7)] {
        let names = named(text);
        assert!(names.len() >= least, "{what}: {names:?}");
        for name in names {
            assert!(
                family(&name, &known).is_some(),
                "{what}: {name} is no metric"
            );
        }
    }
    let operations = source("docs/OPERATIONS.md");
    let (_, section) = operations
        .split_once("\n### Metrics\n")
        .expect("the section");
    let table = section
        .split("\n## ")
        .next()
        .unwrap()
        .split("\n### ")
        .next()
        .unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `odafs_"));
    let mut told = BTreeSet::new();
    for row in rows {
        for name in named(row.split('|').nth(1).unwrap()) {
            assert!(
                told.insert(name.clone()),
                "docs/OPERATIONS.md: {name} twice"
            );
        }
    }
    assert_eq!(
        told, known,
        "docs/OPERATIONS.md, left, against what there is"
    );
}

/// Rust files below a directory.
fn rust_files(directory: &std::path::Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|name| name == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_documents_have_every_message_that_a_server_warns_with() {
    let operations = source("docs/OPERATIONS.md");
    let (_, section) = operations
        .split_once("\n## Messages of a running server\n")
        .unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut files = Vec::new();
    for part in ["server/src", "nic-offload/src", "fabric/src"] {
        let part = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(part);
        rust_files(&part, &mut files);
    }
    let mut found = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for call in ["tracing::warn!(", "tracing::error!("] {
            for (at, _) in text.match_indices(call) {
                let literal = text[at..].split('"').nth(1).unwrap();
                // The longest part that does not vary, up to what is in brackets or behind a colon.
                let fixed = literal
                    .split(['{', '}'])
                    .max_by_key(|part| part.len())
                    .unwrap();
                let fixed = fixed.split(" (").next().unwrap().trim_matches([' ', ':']);
                let short = fixed.split(':').next().unwrap();
                let told = section.contains(fixed) || section.contains(short) && short.len() > 20;
                assert!(told, "{}: {fixed:?} is not in the table", file.display());
                found += 1;
            }
        }
    }
    assert!(found > 30, "{found}");
}
