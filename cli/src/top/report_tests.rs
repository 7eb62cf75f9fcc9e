use std::time::{Duration, Instant};

use super::super::figures::Top;
use super::*;

fn sample(taken: Instant, metrics: &str, top: &str) -> Sample {
    let top: Top = serde_json::from_str(top).unwrap();
    Sample {
        taken,
        figures: Figures::parse(metrics),
        top,
    }
}

/// READs so far, 9 of 10 of those sampled within 1 µs; and GETATTRs, of which half fail.
fn metrics(started: u32, reads: u32, getattrs: u32) -> String {
    let (sampled, fast) = (reads / 10, reads / 10 * 9 / 10);
    let read = "program=\"nfs3\",procedure=\"READ\"";
    let getattr = "program=\"nfs3\",procedure=\"GETATTR\"";
    format!(
        "odafs_start_time_seconds {started}\n\
         odafs_calls_total{{{read},fabric=\"shm\"}} {}\n\
         odafs_calls_total{{{read},fabric=\"tcp\"}} {}\n\
         odafs_calls_total{{{getattr},fabric=\"tcp\"}} {getattrs}\n\
         odafs_call_errors_total{{{getattr},status=\"stale\"}} {}\n\
         odafs_sampled_call_seconds_bucket{{{read},fabric=\"shm\",le=\"0.000001\"}} {fast}\n\
         odafs_sampled_call_seconds_bucket{{{read},fabric=\"shm\",le=\"0.001\"}} {sampled}\n\
         odafs_sampled_call_seconds_bucket{{{read},fabric=\"shm\",le=\"+Inf\"}} {sampled}\n\
         odafs_reads_total {reads}\nodafs_direct_reads_total {}\n\
         odafs_page_hits_total {reads}\nodafs_page_misses_total 0\n",
        reads / 2,
        reads / 2,
        getattrs / 2,
        reads * 3
    )
}

#[test]
fn rates_are_differences_by_seconds() {
    let began = Instant::now();
    let top = |calls: u32| {
        format!(
            "{{\"version\":\"1\",\"started\":100,\"now\":160,\"clients\":[{{\"client\":\"h\",\
             \"calls\":{calls},\"bytes\":{}}},{{\"client\":\"idle\",\"calls\":5}}],\
             \"slow_calls\":[{{\"procedure\":\"READ\",\"microseconds\":7,\"time\":150}}]}}",
            calls * 10
        )
    };
    let before = sample(began, &metrics(1, 1000, 100), &top(16));
    let now = sample(
        began + Duration::from_secs(2),
        &metrics(1, 3000, 140),
        &top(416),
    );
    let mut before = before;
    before.top.clients.push(super::super::figures::Client {
        client: "idle".to_owned(),
        calls: 5,
        bytes: 0,
    });
    let report = Report::between(Some(&before), &now, "s:1");
    assert_eq!(report.calls_per_second, 1020.0);
    assert_eq!(report.up_seconds, 60.0);
    assert_eq!(report.page_hit_share, Some(1.0));
    assert_eq!(report.direct_share, Some(0.75));
    let [read, getattr] = &report.procedures[..] else {
        panic!("{:?}", report.procedures)
    };
    assert_eq!(read.calls_per_second, 1000.0);
    assert!(read.p50_seconds.unwrap() < 1e-6, "{read:?}");
    assert!(read.p99_seconds.unwrap() > 5e-4, "{read:?}");
    assert_eq!(getattr.calls_per_second, 20.0);
    assert_eq!(
        (getattr.p50_seconds, getattr.errors_per_second),
        (None, 10.0)
    );
    assert_eq!(report.clients.len(), 1);
    assert_eq!(report.clients[0].calls_per_second, 200.0);
    assert_eq!(report.clients[0].bytes_per_second, 2000.0);
    assert_eq!(report.slow_calls[0].seconds_ago, 10.0);
}

#[test]
fn a_server_that_started_again_has_no_past() {
    let began = Instant::now();
    let before = sample(began, &metrics(1, 1000, 100), "{}");
    let now = sample(began + Duration::from_secs(1), &metrics(2, 1200, 9), "{}");
    for report in [
        Report::between(Some(&before), &now, "s:1"),
        Report::between(None, &now, "s:1"),
    ] {
        assert_eq!(
            (report.calls_per_second, report.interval_seconds),
            (0.0, 0.0)
        );
        assert!(report.procedures.is_empty() && report.direct_share.is_none());
    }
}

#[test]
fn quantiles_are_those_of_prometheus() {
    let buckets = [(1.0, 10.0), (2.0, 20.0), (f64::INFINITY, 20.0)];
    assert_eq!(quantile(&buckets, 0.5), Some(1.0));
    assert_eq!(quantile(&buckets, 0.75), Some(1.5));
    assert_eq!(
        quantile(&[(1.0, 0.0), (f64::INFINITY, 5.0)], 0.5),
        Some(1.0)
    );
    assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
    assert_eq!(quantile(&[], 0.5), None);
}

#[test]
fn a_histogram_without_end_is_cut_off() {
    let buckets: String = (1..=1000)
        .map(|bound| format!("odafs_sampled_call_seconds_bucket{{le=\"{bound}\"}} {bound}\n"))
        .collect();
    let figures = Figures::parse(&buckets);
    let sums = sums(&figures);
    assert_eq!(sums.values().next().unwrap().buckets.len(), BUCKETS_MAX);
}
