//! What all threads of a run share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use odafs::{Client, Options, Url};

use super::files::Files;
use crate::histogram::Latencies;
use crate::served::Way;

/// Faults that are told; further ones are counted.
const TOLD: usize = 20;

/// A run.
pub struct Run {
    /// What may be found.
    pub files: Files,
    /// What was done.
    pub counts: Counts,
    /// Where the server is, by [`Way`].
    pub urls: [(Way, Url); 3],
    /// Whether it is over.
    pub stop: AtomicBool,
    /// What single reads took since the last look, by thread.
    pub latencies: Vec<Mutex<Latencies>>,
    told: Mutex<Vec<String>>,
}

/// What was done so far.
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
    /// Reads and opens that found what they must not.
    pub wrong: AtomicU64,
    /// Operations that failed without a reason.
    pub failed: AtomicU64,
}

impl Run {
    /// Of these files at a server, read by so many threads.
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

    /// Whether it goes on.
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// A new client.
    ///
    /// # Errors
    /// It cannot reach the server.
    pub fn connect(&self, way: Way, options: Options) -> Result<Client> {
        let url = self.urls.iter().find(|(of, _)| *of == way);
        let (_, url) = url.ok_or_else(|| anyhow::anyhow!("the server has no such way"))?;
        Ok(Client::connect_with(url, options)?)
    }

    /// Counts what was found and must not be.
    pub fn wrong(&self, what: String) {
        self.counts.wrong.fetch_add(1, Relaxed);
        self.tell(what);
    }

    /// Counts what failed without a reason.
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

    /// What single reads took since this was asked last.
    pub fn take_latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for one in &self.latencies {
            let mut one = held(one);
            all.add(&one);
            one.clear();
        }
        all
    }

    /// The first faults, in words.
    pub fn told(&self) -> Vec<String> {
        held(&self.told).clone()
    }
}

/// What is behind the lock. A thread that panicked has left it whole: each change is one step.
pub fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
