//! The server's counters, and their text for Prometheus.

use std::fmt::Write as _;

use odafs_common::exception::Exception;
use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(shuttle))]
use odafs_nic::engine::RdmaCounters;
use odafs_nic::nic::Nic;

/// The reasons for which references become stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The page was paged out.
    Pageout,
    /// The page was written.
    Write,
    /// The size of the file changed.
    Size,
    /// The file was changed from outside.
    Outside,
    /// Mode, owner or existence of the file changed.
    Rights,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 5] = [
        Reason::Pageout,
        Reason::Write,
        Reason::Size,
        Reason::Outside,
        Reason::Rights,
    ];

    /// The label in the metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Pageout => "pageout",
            Reason::Write => "write",
            Reason::Size => "size",
            Reason::Outside => "outside",
            Reason::Rights => "rights",
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count since the server started.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of a server since its start.
#[derive(Debug, Default)]
pub struct Metrics {
    /// READ calls answered from the page cache or the store.
    pub reads: Count,
    /// Bytes that they returned.
    pub read_bytes: Count,
    /// Pages found in memory.
    pub page_hits: Count,
    /// Pages that had to be read from the store.
    pub page_misses: Count,
    /// Reads of the store to fill pages.
    pub fills: Count,
    /// Bytes that they brought.
    pub filled_bytes: Count,
    /// WRITE calls that succeeded.
    pub writes: Count,
    /// Bytes that they took.
    pub written_bytes: Count,
    /// Syncs of the store that succeeded.
    pub syncs: Count,
    /// Syncs of the store that failed; each changed the write verifier.
    pub failed_syncs: Count,
    /// References handed out.
    pub references: Count,
    /// Pages paged out.
    pub evictions: Count,
    /// Times that no frame could be found for a page.
    pub frames_short: Count,
    /// Times that no reader class was left for a file.
    pub classes_short: Count,
    /// Changes from outside.
    pub outside_changes: Count,
    /// Sessions opened.
    pub sessions_opened: Count,
    /// Sessions refused.
    pub sessions_refused: Count,
    /// Pages whose references became stale, by reason.
    stale: [Count; Reason::ALL.len()],
}

impl Metrics {
    /// Counts a page whose references became stale.
    pub fn stale(&self, reason: Reason) {
        self.stale[reason as usize].increment();
    }

    /// Pages that became stale for this reason.
    pub fn stale_count(&self, reason: Reason) -> u64 {
        self.stale[reason as usize].get()
    }

    /// All of them in the text format of Prometheus, with those of the NIC if there is one.
    pub fn text(&self, nic: Option<&Nic>) -> String {
        let mut out = String::with_capacity(8 << 10);
        for (name, help, count) in self.plain() {
            counter(&mut out, name, help, count.get());
        }
        describe(
            &mut out,
            "stale_pages",
            "Pages whose references became stale.",
        );
        for reason in Reason::ALL {
            let (name, count) = (reason.name(), self.stale_count(reason));
            let _ = writeln!(out, "odafs_stale_pages_total{{reason=\"{name}\"}} {count}");
        }
        if let Some(nic) = nic {
            nic_text(&mut out, nic);
        }
        out
    }

    #[rustfmt::skip]
    fn plain(&self) -> [(&'static str, &'static str, &Count); 17] {
        [
            ("reads", "READ calls answered.", &self.reads),
            ("read_bytes", "Bytes returned by READ calls.", &self.read_bytes),
            ("page_hits", "Pages found in memory.", &self.page_hits),
            ("page_misses", "Pages read from the store.", &self.page_misses),
            ("fills", "Reads of the store to fill pages.", &self.fills),
            ("filled_bytes", "Bytes read from the store to fill pages.", &self.filled_bytes),
            ("writes", "WRITE calls that succeeded.", &self.writes),
            ("written_bytes", "Bytes written.", &self.written_bytes),
            ("syncs", "Syncs of the store that succeeded.", &self.syncs),
            ("failed_syncs", "Syncs of the store that failed.", &self.failed_syncs),
            ("references", "References handed out.", &self.references),
            ("evictions", "Pages paged out.", &self.evictions),
            ("frames_short", "Times that no frame could be found for a page.", &self.frames_short),
            ("classes_short", "Times that a file could not be read directly, because the files in use have too many owners and modes.", &self.classes_short),
            ("outside_changes", "Changes of files from outside.", &self.outside_changes),
            ("sessions_opened", "Sessions opened.", &self.sessions_opened),
            ("sessions_refused", "Sessions refused.", &self.sessions_refused),
        ]
    }
}

/// Writes the lines before a counter, whose name ends in `_total`.
pub(crate) fn describe(out: &mut String, name: &str, help: &str) {
    describe_as(out, "counter", &format!("{name}_total"), help);
}

/// Writes the lines before a figure of another kind.
pub(crate) fn describe_as(out: &mut String, kind: &str, name: &str, help: &str) {
    let _ = writeln!(out, "# HELP odafs_{name} {help}");
    let _ = writeln!(out, "# TYPE odafs_{name} {kind}");
}

/// Writes a counter. The name is without `_total`.
pub(crate) fn counter(out: &mut String, name: &str, help: &str, value: impl std::fmt::Display) {
    describe(out, name, help);
    let _ = writeln!(out, "odafs_{name}_total {value}");
}

/// Writes a figure that goes up and down.
pub(crate) fn gauge(out: &mut String, name: &str, help: &str, value: impl std::fmt::Display) {
    describe_as(out, "gauge", name, help);
    let _ = writeln!(out, "odafs_{name} {value}");
}

/// A sum of nanoseconds, in seconds.
#[cfg(not(shuttle))]
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// Writes the counters of RPC over RDMA in the text format of Prometheus.
#[cfg(not(shuttle))]
pub(crate) fn rdma_text(out: &mut String, counts: &RdmaCounters) {
    let registration = &counts.registration;
    #[rustfmt::skip]
    let plain = [
        ("rdma_calls", "Calls over RDMA.", &counts.calls),
        ("rdma_reads", "RDMA Reads of clients' memory.", &counts.reads),
        ("rdma_read_bytes", "Bytes read from clients' memory.", &counts.read_bytes),
        ("rdma_writes", "RDMA Writes to clients' memory.", &counts.writes),
        ("rdma_written_bytes", "Bytes written to clients' memory.", &counts.written_bytes),
        ("rdma_exposed", "Replies left for clients to fetch.", &counts.exposed),
        ("rdma_exposed_bytes", "Bytes of replies left for clients to fetch.", &counts.exposed_bytes),
        ("rdma_dones", "RDMA_DONE messages.", &counts.dones),
        ("rdma_done_timeouts", "Replies not fetched in time.", &counts.done_timeouts),
        ("rdma_registrations", "Regions registered.", &registration.registered),
        ("rdma_bindings", "Fresh tags for registered memory.", &registration.bound),
        ("rdma_flushes", "Batches of tags invalidated.", &registration.flushes),
        ("rdma_registrations_reused", "Uses of memory registered before.", &registration.reused),
        ("rdma_memory_waits", "Calls that waited for memory for their data.", &registration.waited),
        ("rdma_memory_timeouts", "Connections closed because a call waited for memory for too long.", &registration.timeouts),
        ("rdma_memory_failures", "Calls that failed because no memory could be registered for their data.", &registration.failed),
    ];
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    for (name, help, count) in plain {
        counter(out, name, help, get(count));
    }
    for (name, help, nanos) in [
        (
            "rdma_registering_seconds",
            "Time spent on registrations and fresh tags.",
            &registration.registering_ns,
        ),
        (
            "rdma_invalidating_seconds",
            "Time spent on ending registrations and tags.",
            &registration.invalidating_ns,
        ),
    ] {
        counter(out, name, help, seconds(get(nanos)));
    }
    describe(out, "rdma_errors", "What went wrong over RDMA.");
    for (kind, count) in [
        ("malformed", &counts.malformed),
        ("ignored", &counts.ignored),
        ("overrun", &counts.overruns),
        ("fault", &counts.faults),
    ] {
        let _ = writeln!(
            out,
            "odafs_rdma_errors_total{{kind=\"{kind}\"}} {}",
            get(count)
        );
    }
    for (name, help, count) in [
        ("connections", "NFS clients over RDMA.", &counts.connections),
        (
            "memory_waiting",
            "Calls that wait for memory for their data.",
            &registration.waiting,
        ),
    ] {
        gauge(out, &format!("rdma_{name}"), help, get(count));
    }
}

fn nic_text(out: &mut String, nic: &Nic) {
    let counts = nic.counters().snapshot();
    let plain = [
        ("direct_reads", "Direct reads completed.", counts.reads),
        ("direct_bytes", "Bytes moved by direct reads.", counts.bytes),
        (
            "tpt_faults",
            "TPT misses taken to the page cache.",
            counts.faults,
        ),
        (
            "throttled",
            "Messages refused unread on connections denied too often.",
            counts.throttled,
        ),
        (
            "attached",
            "Connections attached to sessions.",
            counts.attached,
        ),
    ];
    for (name, help, count) in plain {
        counter(out, name, help, count);
    }
    describe(out, "direct_refusals", "Direct reads refused.");
    for exception in Exception::ALL {
        let (name, count) = (exception.name(), counts.refused(exception));
        let _ = writeln!(
            out,
            "odafs_direct_refusals_total{{exception=\"{name}\"}} {count}"
        );
    }
    gauge(out, "sessions", "Sessions open.", nic.session_count());
}
