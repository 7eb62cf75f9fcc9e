//! The figures in the papers' texts, to compare with the measured ones ([RESEARCH](../../../docs/RESEARCH.md) compares
//! them).

use serde_json::Value;

use super::PublishedFigure;

/// MiB in a second, of the papers' MB.
fn mib(mb: f64) -> f64 {
    mb * 1e6 / f64::from(1 << 20)
}

/// Figures to compare a plot of a sweep with: `row` is one of the plot's, `key` the name of what it shows.
pub(super) fn of_sweep(bench: &str, key: &str, row: &Value) -> Vec<PublishedFigure> {
    if key != "mib_per_second" {
        return Vec::new();
    }
    let length = row["record_bytes"].as_u64();
    let all: &[(&str, &str, Option<f64>, f64)] =
        match (bench, row["operation"].as_str(), row["read_ahead"].as_u64()) {
            ("throughput", Some("read"), Some(4)) => &[
                ("TCP (2003)", "figure 15", Some(262_144.0), 60.0),
                ("RDMA, 8 ahead (2003)", "figure 16", Some(262_144.0), 102.0),
            ],
            ("designs", Some("read"), _) if length == Some(131_072) => &[
                ("Read-Write (2007)", "figure 5, saturated", None, 400.0),
                ("Read-Read (2007)", "figure 5, saturated", None, 375.0),
            ],
            ("registration", Some("read"), _) if length == Some(131_072) => &[
                ("cache (2007)", "figure 11", None, 730.0),
                ("FMR (2007)", "figure 11", None, 400.0),
                ("per-operation (2007)", "figure 11", None, 350.0),
                (
                    "all-physical (2007)",
                    "figure 14, up to, on Linux",
                    None,
                    900.0,
                ),
            ],
            ("registration", Some("write"), _) if length == Some(131_072) => {
                &[("cache (2007)", "figure 12", None, 515.0)]
            }
            _ => &[],
        };
    let (paper, hardware) = match bench {
        "throughput" => (
            "NFS over RDMA",
            "two Sun Blade 1000 with gigabit Ethernet and an Emulex GN9000/VI",
        ),
        _ => (
            "Better NFS through RDMA and Efficient Memory Registration",
            "two dual Opteron x2100 with InfiniBand SDR",
        ),
    };
    let reference = |(name, figure, at, mb): &(&str, &str, Option<f64>, f64)| PublishedFigure {
        name: (*name).to_owned(),
        source: format!("{paper}, {figure}"),
        hardware: hardware.to_owned(),
        at: *at,
        value: mib(*mb),
    };
    let mut found: Vec<PublishedFigure> = all.iter().map(reference).collect();
    if (bench, row["operation"].as_str(), length) == ("designs", Some("read"), Some(131_072)) {
        found.push(PublishedFigure {
            name: "Read-Write (2006)".to_owned(),
            source: "Optimizing OpenSolaris NFS over RDMA, figure 14, levels off".to_owned(),
            hardware: "Sun Fire V20z with InfiniBand MT23108 on PCI-X".to_owned(),
            at: None,
            value: mib(200.0),
        });
    }
    found
}

/// Transactions of Postmark by both designs: the mean time of one, which is 1 by the published rate.
pub(super) fn transactions() -> Vec<PublishedFigure> {
    let all = [("RDMA Write", 344.0), ("RDMA Read", 348.0)];
    let reference = |(design, rate): (&str, f64)| PublishedFigure {
        name: format!("{design} (2006)"),
        source: format!(
            "Optimizing OpenSolaris NFS over RDMA, table 1: the mean of {rate} transactions a second"
        ),
        hardware: "Sun Fire V20z with InfiniBand MT23108 on PCI-X, files in memory".to_owned(),
        at: None,
        value: 1e9 / rate,
    };
    all.map(reference).to_vec()
}

/// Table II of "The Optimistic Direct Access File System".
pub(super) fn terms() -> Vec<PublishedFigure> {
    let all = [("T_NullRPC", 45.0), ("T_FS", 25.0), ("T_exc", 15.0)];
    let reference = |(term, us): (&str, f64)| PublishedFigure {
        name: format!("{term} (2002)"),
        source: "The Optimistic Direct Access File System, table II".to_owned(),
        hardware: "an 800 MHz Pentium III with a 66 MHz Intel i960 network adapter".to_owned(),
        at: None,
        value: us * 1e3,
    };
    all.map(reference).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_stand_where_the_same_was_measured() {
        let row = |operation: &str, length: u32, ahead: Value| json!({"operation": operation, "record_bytes": length, "read_ahead": ahead});
        let count = |bench, key, row: &Value| of_sweep(bench, key, row).len();
        let rate = "mib_per_second";
        assert_eq!(count("throughput", rate, &row("read", 512, json!(4))), 2);
        assert_eq!(count("throughput", rate, &row("read", 512, json!(0))), 0);
        assert_eq!(count("throughput", rate, &row("write", 512, json!(4))), 0);
        assert_eq!(
            count("designs", rate, &row("read", 131_072, Value::Null)),
            3
        );
        assert_eq!(
            count("designs", rate, &row("read", 1 << 20, Value::Null)),
            0
        );
        assert_eq!(
            count("registration", rate, &row("write", 131_072, Value::Null)),
            1
        );
        assert_eq!(
            count("registration", "ns", &row("write", 131_072, Value::Null)),
            0
        );
        // 60 MB/s.
        let tcp = of_sweep("throughput", rate, &row("read", 512, json!(4))).remove(0);
        assert!((57.2..57.3).contains(&tcp.value), "{tcp:?}");
    }
}
