//! What a server shows to those who watch it: `/metrics` for Prometheus, and `/top.json` for `odafs top`. The latter also
//! has clients and single calls, which do not belong in metrics.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use odafs_nic::calls::Transport;
use odafs_nic::engine::{OpenConnections, RdmaCounters};

use crate::process::assembly::Assembly;
use crate::process::metrics_http::MetricsPage;
use crate::rpc::Service;
use crate::rpc::pool::Pool;
use crate::rpc::tcp::TcpServer;
use crate::vfs::export::Exports;
use crate::vfs::metrics::{self, describe_as, gauge};

/// The most slow calls that `/top.json` names.
const SLOW_CALLS: usize = 16;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The parts of a server that it reports on.
pub struct Watch {
    export: Arc<Exports>,
    service: Arc<Service>,
    pool: Arc<Pool>,
    rdma: Arc<RdmaCounters>,
    open: Option<Arc<OpenConnections>>,
    tcp: Option<Box<dyn Fn() -> usize + Send + Sync>>,
    started: SystemTime,
}

impl Watch {
    /// Watches a server that starts now.
    pub fn new(assembly: &Assembly, tcp: Option<&TcpServer>) -> Self {
        Self {
            export: Arc::clone(assembly.export()),
            service: Arc::clone(assembly.service()),
            pool: Arc::clone(assembly.pool()),
            rdma: Arc::clone(assembly.rdma()),
            open: assembly.open_connections().cloned(),
            tcp: tcp.map(|tcp| Box::new(tcp.gauge()) as _),
            started: SystemTime::now(),
        }
    }

    /// The page at this path. `None` if there is none.
    pub fn page(&self, path: &[u8]) -> Option<MetricsPage> {
        match path {
            b"/metrics" => Some(MetricsPage {
                kind: TEXT,
                body: self.metrics(),
            }),
            b"/top.json" => Some(MetricsPage {
                kind: "application/json",
                body: self.top(),
            }),
            _ => None,
        }
    }

    fn metrics(&self) -> String {
        let mut out = self
            .export
            .metrics()
            .text(self.export.nic().map(|nic| &**nic));
        self.service.append_text(&mut out);
        metrics::rdma_text(&mut out, &self.rdma);
        gauge(
            &mut out,
            "reader_classes",
            "Owners, groups and modes of files in use, or lately in use.",
            self.export.reader_classes(),
        );
        self.cache(&mut out);
        self.connections(&mut out);
        self.queues(&mut out);
        self.process(&mut out);
        out
    }

    fn cache(&self, out: &mut String) {
        let (used, capacity) = self.export.cache_use();
        let bytes = |pages: u32| u64::from(pages) << self.export.page().shift();
        gauge(
            out,
            "cache_bytes",
            "Room for pages in the page cache.",
            bytes(capacity),
        );
        gauge(
            out,
            "cache_used_bytes",
            "Room that pages take.",
            bytes(used),
        );
    }

    /// The transports that the server offers. The simulator is not one of them.
    fn connections(&self, out: &mut String) {
        describe_as(out, "gauge", "connections", "Connections open, by fabric.");
        for transport in Transport::ALL {
            let open = match (transport, &self.tcp, &self.open) {
                (Transport::NfsTcp, Some(tcp), _) => tcp() as u64,
                (Transport::Shm | Transport::Iwarp | Transport::Verbs, _, Some(open)) => {
                    open.over(transport)
                }
                _ => continue,
            };
            let fabric = transport.label();
            let _ = writeln!(out, "odafs_connections{{fabric=\"{fabric}\"}} {open}");
        }
    }

    fn queues(&self, out: &mut String) {
        let load = self.pool.load();
        for (name, help, value) in [
            (
                "pool_threads",
                "Threads for calls that may block.",
                load.map(|load| load.threads),
            ),
            (
                "pool_running",
                "Calls that these threads serve now.",
                load.map(|load| load.running),
            ),
            (
                "pool_waiting",
                "Calls that wait for one of these threads.",
                load.map(|load| load.waiting),
            ),
        ] {
            describe_as(out, "gauge", name, help);
            for (load, value) in load.iter().zip(value) {
                let _ = writeln!(out, "odafs_{name}{{pool=\"{}\"}} {value}", load.kind);
            }
        }
    }

    fn process(&self, out: &mut String) {
        describe_as(
            out,
            "gauge",
            "build_info",
            "1; the version is in the label.",
        );
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(out, "odafs_build_info{{version=\"{version}\"}} 1");
        let help = "When the server started, in seconds since 1970.";
        gauge(out, "start_time_seconds", help, seconds(self.started));
    }

    /// JSON of a few strings and numbers, which needs no library.
    fn top(&self) -> String {
        let clients = self.service.clients();
        let clients = clients.iter().map(|seen| {
            let (calls, bytes) = (seen.calls, seen.bytes);
            let client = quoted(&seen.client);
            format!("{{\"client\":{client},\"calls\":{calls},\"bytes\":{bytes}}}")
        });
        let slow = self.service.slow_calls();
        let slow = slow.iter().take(SLOW_CALLS).map(|call| {
            let strings = [
                ("program", call.program),
                ("procedure", call.procedure),
                ("fabric", call.fabric),
                ("client", &call.client),
                ("file", &call.about),
            ];
            let strings = strings.map(|(name, text)| format!("\"{name}\":{}", quoted(text)));
            let (strings, time) = (strings.join(","), seconds(call.at));
            let microseconds = call.took.0 / 1000;
            format!("{{{strings},\"microseconds\":{microseconds},\"time\":{time}}}")
        });
        format!(
            "{{\"version\":{},\"started\":{},\"now\":{},\"clients\":[{}],\"slow_calls\":[{}]}}\n",
            quoted(env!("CARGO_PKG_VERSION")),
            seconds(self.started),
            seconds(SystemTime::now()),
            clients.collect::<Vec<_>>().join(","),
            slow.collect::<Vec<_>>().join(",")
        )
    }
}

/// Text as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

/// Seconds since 1970, to the millisecond.
fn seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_json_has_them() {
        assert_eq!(quoted("a/\"b\\\n\u{9b}é"), "\"a/\\\"b\\\\\\u000a\\u009bé\"");
    }
}
