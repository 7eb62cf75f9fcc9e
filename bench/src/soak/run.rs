//! The state that all threads of a run share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use odafs::{Client, Options, Url};

use super::files::Files;
use crate::histogram::Latencies;
use crate::served::Way;

/// Number of faults that are described. Further ones are only counted.
const TOLD: usize = 20;

/// A run.
pub struct Run {
    /// The state of the files.
    pub files: Files,
    /// Counters.
    pub counts: Counts,
    /// URLs of the server, by [`Way`].
    pub urls: [(Way, Url); 3],
    /// Whether the run is over.
    pub stop: AtomicBool,
    /// Times of single reads in this interval, by thread.
    pub latencies: Vec<Mutex<Latencies>>,
    told: Mutex<Vec<String>>,
}

/// Counters of a run.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads, all of which were checked.
    pub reads: AtomicU64,
    /// Bytes that they returned.
    pub read_bytes: AtomicU64,
    /// Writes.
    pub writes: AtomicU64,
    /// Syncs, files cut, removed and made.
    pub changes: AtomicU64,
    /// Clients that came, and went.
    pub visits: AtomicU64,
    /// Reads and opens that returned wrong data.
    pub wrong: AtomicU64,
    /// Operations that failed without a reason.
    pub failed: AtomicU64,
}

impl Run {
    /// A run on these files, with this many reading threads.
    pub fn new(files: Files, urls: [(Way, Url); 3], threads: usize) -> Self {
        Self {
            files,
            counts: Counts::default(),
            urls,
            stop: AtomicBool::new(false),
            latencies: (0..threads).map(|_| Mutex::default()).collect(),
            told: Mutex::default(),
        }
    }

    /// Whether the run goes on.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// A new client.
    ///
    /// # Errors
    /// The client cannot reach the server.
    pub fn connect(&self, way: Way, options: Options) -> Result<Client> {
        let url = self.urls.iter().find(|(of, _)| *of == way);
        let (_, url) = url.ok_or_else(|| anyhow::anyhow!("the server has no such way"))?;
        Ok(Client::connect_with(url, options)?)
    }

    /// Counts wrong data.
    pub fn wrong(&self, what: String) {
        self.counts.wrong.fetch_add(1, Relaxed);
        self.tell(what);
    }

    /// Counts an operation that failed without a reason.
    pub fn failed(&self, what: String) {
        self.counts.failed.fetch_add(1, Relaxed);
        self.tell(what);
    }

    fn tell(&self, what: String) {
        let mut told = held(&self.told);
        if told.len() < TOLD {
            told.push(what);
        }
    }

    /// Takes the times of single reads since the last call.
    pub fn take_latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for one in &self.latencies {
            let mut one = held(one);
            all.add(&one);
            one.clear();
        }
        all
    }

    /// Descriptions of the first faults.
    pub fn told(&self) -> Vec<String> {
        held(&self.told).clone()
    }
}

/// What is behind the lock. A thread that panicked has left it whole: each change is one step.
pub fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
