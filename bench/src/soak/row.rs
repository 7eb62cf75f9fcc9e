//! The rows of a run, and how much each figure grew.

use anyhow::Result;
use serde::Serialize;

use crate::usage::{self, MemoryUse};

/// The figures at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// Seconds since the run began.
    pub seconds: f64,
    /// Reads per second of all clients.
    pub reads_per_second: f64,
    /// The 99th percentile of the times of single reads, in nanoseconds.
    pub read_p99_ns: u64,
    /// Private memory of the server in bytes.
    pub server_bytes: u64,
    /// Shared memory of the server in bytes: its page cache.
    pub server_shared_bytes: u64,
    /// Number of files and sockets that the server has open.
    pub server_descriptors: u64,
    /// Number of threads of the server.
    pub server_threads: u64,
    /// Private memory of this process, which has all clients, in bytes.
    pub client_bytes: u64,
    /// Number of files and sockets that this process has open.
    pub client_descriptors: u64,
    /// Number of threads of this process.
    pub client_threads: u64,
}

impl Row {
    /// Samples the server with this process id, and this process.
    ///
    /// # Errors
    /// The server has ended.
    pub fn look(&mut self, server: Option<u32>) -> Result<()> {
        let memory = MemoryUse::of(server)?;
        self.server_bytes = memory.own;
        self.server_shared_bytes = memory.shared;
        self.server_descriptors = usage::descriptors(server)?;
        self.server_threads = usage::threads(server)?;
        self.client_bytes = MemoryUse::of(None)?.own;
        self.client_descriptors = usage::descriptors(None)?;
        self.client_threads = usage::threads(None)?;
        Ok(())
    }
}

/// How a figure grew from the first quarter of the rows to the last: both are means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Its name in the rows.
    pub figure: &'static str,
    /// Its mean in the first quarter.
    pub first: f64,
    /// Its mean in the last.
    pub last: f64,
    /// Growth in percent of `first`, negative if it shrank. `None` if `first` is 0.
    pub percent: Option<f64>,
}

impl Growth {
    /// Of every figure.
    pub fn of_all(rows: &[Row]) -> Vec<Self> {
        type Figure = (&'static str, fn(&Row) -> f64);
        let figures: [Figure; 9] = [
            ("reads_per_second", |row| row.reads_per_second),
            ("read_p99_ns", |row| row.read_p99_ns as f64),
            ("server_bytes", |row| row.server_bytes as f64),
            ("server_shared_bytes", |row| row.server_shared_bytes as f64),
            ("server_descriptors", |row| row.server_descriptors as f64),
            ("server_threads", |row| row.server_threads as f64),
            ("client_bytes", |row| row.client_bytes as f64),
            ("client_descriptors", |row| row.client_descriptors as f64),
            ("client_threads", |row| row.client_threads as f64),
        ];
        let quarter = (rows.len() / 4).max(1).min(rows.len());
        let mean = |rows: &[Row], of: fn(&Row) -> f64| {
            rows.iter().map(of).sum::<f64>() / rows.len().max(1) as f64
        };
        let growth = figures.map(|(figure, of)| {
            let first = mean(&rows[..quarter], of);
            let last = mean(&rows[rows.len() - quarter..], of);
            Self {
                figure,
                first,
                last,
                percent: (first > 0.0).then(|| (last / first - 1.0) * 100.0),
            }
        });
        growth.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_are_compared() {
        let row = |server_bytes, reads_per_second| Row {
            server_bytes,
            reads_per_second,
            ..Row::default()
        };
        let mut rows = vec![row(100, 8.0), row(300, 8.0)];
        rows.extend([row(7, 0.0); 4]);
        rows.extend([row(500, 2.0), row(500, 6.0)]);
        let growth = Growth::of_all(&rows);
        let of = |name| growth.iter().find(|growth| growth.figure == name).unwrap();
        let memory = of("server_bytes");
        assert_eq!(
            (memory.first, memory.last, memory.percent),
            (200.0, 500.0, Some(150.0))
        );
        assert_eq!(of("reads_per_second").percent, Some(-50.0));
        assert_eq!(of("client_threads").percent, None);
        assert_eq!(Growth::of_all(&rows[..1])[2].percent, Some(0.0));
        assert_eq!(Growth::of_all(&[]).len(), 9);
    }

    #[test]
    fn a_process_is_looked_at() {
        let mut row = Row::default();
        row.look(Some(std::process::id())).unwrap();
        assert_eq!(row.server_threads, row.client_threads);
        assert!(row.server_bytes > 0 && row.client_descriptors > 2);
        assert!(row.look(Some(u32::MAX)).is_err());
    }
}
