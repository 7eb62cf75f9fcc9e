//! Sweeps drawn as lines: which figure of which bench is plotted against what.

use serde_json::Value;

use super::drawing::{capital, distinct, size, waiting, word};
use super::{Axis, Line, Lines, Page, Point, Scale, Series, Stacks, StacksRow, Unit, published};

/// How a sweep is drawn, by the names in its rows.
pub struct Sweep {
    pub bench: &'static str,
    /// What it asks.
    question: &'static str,
    /// What the rows of one plot have in common, in words.
    panel: fn(&Value) -> String,
    /// What the rows of one line have in common.
    line: &'static str,
    /// A line's name, from that.
    name: fn(&str) -> String,
    /// What is swept: name, title, unit.
    across: (&'static str, &'static str, Unit),
    /// What is measured, each with a plot in each panel.
    measured: &'static [Measured],
    /// Parts of a whole, if there are such.
    parts: &'static [(&'static str, &'static str)],
}

/// Of what marks are.
const SPREAD: &str =
    "A mark is the median of the rounds; the bar behind it, where there is one, their spread.";

/// Something measured.
struct Measured {
    heading: &'static str,
    key: &'static str,
    /// Names of the lowest and the highest round's.
    spread: Option<(&'static str, &'static str)>,
    title: &'static str,
    unit: Unit,
    scale: Scale,
}

const fn rate(scale: Scale) -> Measured {
    Measured {
        heading: "Throughput",
        key: "mib_per_second",
        spread: Some(("mib_per_second_lowest", "mib_per_second_highest")),
        title: "Throughput (MiB/s)",
        unit: Unit::Number,
        scale,
    }
}

const fn latency(
    heading: &'static str,
    key: &'static str,
    lowest: &'static str,
    highest: &'static str,
) -> Measured {
    Measured {
        heading,
        key,
        spread: Some((lowest, highest)),
        title: "Latency",
        unit: Unit::Nanoseconds,
        scale: Scale::Log,
    }
}

const fn share(
    heading: &'static str,
    key: &'static str,
    lowest: &'static str,
    highest: &'static str,
) -> Measured {
    Measured {
        title: "Part of all reads",
        unit: Unit::Percent,
        scale: Scale::Linear,
        ..latency(heading, key, lowest, highest)
    }
}

const fn client_cpu(scale: Scale) -> Measured {
    Measured {
        heading: "CPU time of the client",
        key: "client_cpu_ns_per_mib",
        spread: None,
        title: "CPU time for a MiB",
        unit: Unit::Nanoseconds,
        scale,
    }
}

const fn server_cpu(scale: Scale) -> Measured {
    Measured {
        heading: "CPU time of the server",
        key: "server_cpu_ns_per_mib",
        ..client_cpu(scale)
    }
}

/// Memory for each further client, in KiB.
const fn memory(heading: &'static str, key: &'static str) -> Measured {
    Measured {
        heading,
        key,
        spread: None,
        title: "Memory for a client (KiB)",
        unit: Unit::Number,
        scale: Scale::Linear,
    }
}

pub const SWEEPS: [Sweep; 8] = [
    Sweep {
        bench: "throughput",
        question: "How much do sequential reads and writes by calls move, and what do they cost either side? A line is a \
                   fabric: nfs is NFS over TCP, shm is shared memory, tcp is RPC-over-RDMA by iWARP over TCP.",
        panel: |row| {
            let ahead = match row["read_ahead"].as_u64() {
                Some(0) => "one at a time".to_owned(),
                Some(n) => format!("{} in flight", n + 1),
                None => String::new(),
            };
            format!(
                "{}s, {ahead}, both sides {}",
                word(row, "operation"),
                waiting(row)
            )
        },
        line: "fabric",
        name: str::to_owned,
        across: ("record_bytes", "Length of a record", Unit::Bytes),
        measured: &[
            rate(Scale::Log),
            client_cpu(Scale::Log),
            server_cpu(Scale::Log),
        ],
        parts: &[],
    },
    Sweep {
        bench: "designs",
        question: "RPC-over-RDMA: what does it cost that clients fetch their replies (Read-Read) rather than have them \
                   written (Read-Write)?",
        panel: |row| {
            format!(
                "{}s, records of {}",
                word(row, "operation"),
                size(row, "record_bytes")
            )
        },
        line: "design",
        name: str::to_owned,
        across: ("threads", "Threads", Unit::Number),
        measured: &[
            rate(Scale::Linear),
            client_cpu(Scale::Linear),
            server_cpu(Scale::Linear),
        ],
        parts: &[],
    },
    Sweep {
        bench: "registration",
        question: "RPC-over-RDMA: which way of registering memory spares what hardware charges for it? Over TCP the charge is a \
                   model, not a measurement of hardware.",
        panel: |row| {
            format!(
                "{}s, records of {}",
                word(row, "operation"),
                size(row, "record_bytes")
            )
        },
        line: "registration",
        name: str::to_owned,
        across: ("threads", "Threads", Unit::Number),
        measured: &[rate(Scale::Linear)],
        parts: &[
            ("register_ns_per_call", "register"),
            ("invalidate_ns_per_call", "invalidate"),
            ("other_ns_per_call", "everything else"),
        ],
    },
    Sweep {
        bench: "credits",
        question: "RPC-over-RDMA: do credits by need give more, or fairer shares, than fixed ones?",
        panel: |row| {
            let wanted = row["in_flight"].as_u64().unwrap_or(0);
            format!(
                "Reads of {}, {wanted} wanted in flight by each client",
                size(row, "record_bytes")
            )
        },
        line: "credits",
        name: |credits| match credits.parse::<u32>() {
            Ok(fixed) => format!("{fixed} fixed"),
            Err(_) => credits.to_owned(),
        },
        across: ("clients", "Clients", Unit::Number),
        measured: &[
            rate(Scale::Linear),
            Measured {
                heading: "Fairness",
                key: "fairness",
                spread: None,
                title: "Jain's index (1: all clients get the same)",
                unit: Unit::Number,
                scale: Scale::Linear,
            },
            Measured {
                heading: "The slowest client",
                key: "slowest_share",
                spread: None,
                title: "Its share of a fair share (1: all of it)",
                unit: Unit::Number,
                scale: Scale::Linear,
            },
            server_cpu(Scale::Linear),
        ],
        parts: &[],
    },
    Sweep {
        bench: "load",
        question: "What does a read cost while other programs hold the server's processor?",
        panel: |row| match row["fabric"].as_str() {
            Some("local" | "shm") => "on one machine, by shared memory".to_owned(),
            Some("nfs") => "NFS over TCP".to_owned(),
            _ => "by iWARP over TCP".to_owned(),
        },
        line: "route",
        name: str::to_owned,
        across: (
            "load_percent",
            "Time of the server's processor that others ask for",
            Unit::Percent,
        ),
        measured: &[
            latency(
                "The mean read",
                "mean_ns",
                "mean_ns_lowest",
                "mean_ns_highest",
            ),
            latency(
                "The 99.9th percentile",
                "p999_ns",
                "p999_ns_lowest",
                "p999_ns_highest",
            ),
        ],
        parts: &[],
    },
    Sweep {
        bench: "distribution",
        question: "Where do reads end, and how many direct reads are refused, while a file outgrows the server's page cache? \
                   (The Optimistic Direct Access File System, figure 4.)",
        panel: |row| format!("{} reads, {}", word(row, "pattern"), word(row, "fabric")),
        line: "route",
        name: str::to_owned,
        across: (
            "file_to_cache",
            "Length of the file, in page caches of the server",
            Unit::Number,
        ),
        measured: &[
            share(
                "Refused as stale",
                "stale_percent",
                "stale_percent_lowest",
                "stale_percent_highest",
            ),
            share(
                "From the client's cache",
                "cache_percent",
                "cache_percent_lowest",
                "cache_percent_highest",
            ),
            share(
                "By direct reads",
                "direct_percent",
                "direct_percent_lowest",
                "direct_percent_highest",
            ),
        ],
        parts: &[],
    },
    Sweep {
        bench: "scale",
        question: "How much do many clients get of one server, and what does each of them cost? Each has connections and a \
                   session of its own; 64 threads serve more than 64 clients in turn.",
        panel: |row| format!("4 KiB at random, {}", over(row)),
        line: "route",
        name: str::to_owned,
        across: ("clients", "Clients", Unit::Number),
        measured: &[
            Measured {
                heading: "Reads of all clients together",
                key: "reads_per_second",
                spread: Some(("reads_per_second_lowest", "reads_per_second_highest")),
                title: "Reads a second",
                unit: Unit::Number,
                scale: Scale::Log,
            },
            Measured {
                heading: "The slowest client",
                key: "slowest_share",
                spread: Some(("slowest_share_lowest", "slowest_share_highest")),
                title: "Its share of a fair share (1: all of it)",
                unit: Unit::Number,
                scale: Scale::Linear,
            },
            Measured {
                heading: "CPU time of the server",
                key: "server_cpu_ns_per_read",
                spread: None,
                title: "CPU time for a read",
                unit: Unit::Nanoseconds,
                scale: Scale::Linear,
            },
            memory(
                "Memory of the server for each further client",
                "server_kib_per_client",
            ),
            memory(
                "Memory of the clients' process for each further client",
                "client_kib_per_client",
            ),
        ],
        parts: &[],
    },
    Sweep {
        bench: "mixed",
        question: "What do clients that read directly, and clients of plain NFS over TCP beside them on the same file, get of \
                   one server while all of them write too?",
        panel: |row| {
            let route = word(row, "route");
            format!("direct readers {route}, {}", over(row))
        },
        line: "by",
        name: str::to_owned,
        across: (
            "direct_percent",
            "Part of the clients that read directly",
            Unit::Percent,
        ),
        measured: &[
            Measured {
                heading: "Reads and writes of all clients together",
                key: "operations_per_second",
                spread: Some((
                    "operations_per_second_lowest",
                    "operations_per_second_highest",
                )),
                title: "Reads and writes a second",
                unit: Unit::Number,
                scale: Scale::Linear,
            },
            latency(
                "The median read",
                "read_p50_ns",
                "read_p50_ns_lowest",
                "read_p50_ns_highest",
            ),
            latency(
                "The 99th percentile of reads",
                "read_p99_ns",
                "read_p99_ns_lowest",
                "read_p99_ns_highest",
            ),
            latency(
                "The median write",
                "write_p50_ns",
                "write_p50_ns_lowest",
                "write_p50_ns_highest",
            ),
        ],
        parts: &[],
    },
];

/// What carries the reads of a row, in words.
fn over(row: &Value) -> &'static str {
    match row["fabric"].as_str() {
        Some("local" | "shm") => "by shared memory",
        Some("nfs") => "by NFS over TCP",
        _ => "by iWARP over TCP",
    }
}

impl Sweep {
    pub fn draw(&self, page: &mut Page, rows: &[Value]) {
        page.paragraph(self.question);
        let panels = distinct(rows, self.panel);
        let of = |panel: &String| -> Vec<&Value> {
            (rows.iter())
                .filter(|row| (self.panel)(row) == *panel)
                .collect()
        };
        if let [panel] = &panels[..] {
            // One plot of each: their titles say of what.
            page.subheading(&capital(panel));
            let plots = self
                .measured
                .iter()
                .map(|measured| self.lines(measured.heading, &of(panel), measured));
            page.lines(&plots.collect::<Vec<_>>());
            page.small(SPREAD);
        }
        let several = panels.len() > 1;
        for measured in self.measured.iter().filter(|_| several) {
            page.subheading(measured.heading);
            let plots: Vec<Lines> = (panels.iter())
                .map(|panel| self.lines(panel, &of(panel), measured))
                .collect();
            page.lines(&plots);
            if measured.spread.is_some() {
                page.small(SPREAD);
            }
        }
        if !self.parts.is_empty() {
            page.subheading("Where the time of a call goes");
            let plots: Vec<Stacks> = (panels.iter())
                .map(|panel| self.stacks(panel, &of(panel)))
                .collect();
            page.stacks(&plots);
        }
    }

    fn lines(&self, panel: &str, rows: &[&Value], measured: &Measured) -> Lines {
        let (key, title, unit) = self.across;
        let names = distinct(rows.iter().copied(), |row| word(row, self.line));
        let lines = names.iter().enumerate().map(|(number, name)| {
            let of_line = rows.iter().filter(|row| word(row, self.line) == *name);
            let points = of_line.filter_map(|row| {
                let end = |key: &str| row[key].as_f64();
                Some(Point {
                    x: row[key].as_f64()?,
                    y: row[measured.key].as_f64()?,
                    spread: measured
                        .spread
                        .and_then(|(low, high)| Some((end(low)?, end(high)?))),
                })
            });
            Line {
                points: points.collect(),
                series: Series::of_or_numbered(name, number).named(&(self.name)(name)),
            }
        });
        // What is swept by doubling, and what is not.
        let scale = match key {
            "load_percent" | "file_to_cache" | "direct_percent" => Scale::Linear,
            _ => Scale::Log,
        };
        Lines {
            title: capital(panel),
            x: Axis::new(title, unit, scale),
            y: Axis::new(measured.title, measured.unit, measured.scale),
            // What is not measured of all has lines without points.
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
            references: (rows.first()).map_or_else(Vec::new, |row| {
                published::of_sweep(self.bench, measured.key, row)
            }),
        }
    }

    fn stacks(&self, panel: &str, rows: &[&Value]) -> Stacks {
        let names = distinct(rows.iter().copied(), |row| word(row, self.line));
        let bars = names.iter().flat_map(|name| {
            let of_line = rows.iter().filter(|row| word(row, self.line) == *name);
            of_line.map(|row| {
                let threads = row[self.across.0].as_u64().unwrap_or(0);
                let parts = self.parts.iter();
                StacksRow {
                    group: name.clone(),
                    label: crate::table::counted(threads, "thread"),
                    values: parts
                        .map(|(key, _)| row[*key].as_f64().unwrap_or(0.0))
                        .collect(),
                }
            })
        });
        Stacks {
            title: capital(panel),
            axis: Axis::new("Time of a call", Unit::Nanoseconds, Scale::Linear),
            parts: (self.parts.iter().zip([1, 3, 5]))
                .map(|((_, name), look)| Series::numbered(look, name).as_block())
                .collect(),
            rows: bars.collect(),
        }
    }
}
