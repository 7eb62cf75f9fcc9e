//! Lanes: what a thread works with while it reads, without waiting for others.
//!
//! There are a few of them; a thread has a favourite and takes the next when that is in use. A lane holds the session
//! as it was last seen, so that a read shares nothing that is written with readers on other lanes, and counts in plain
//! integers.

use crate::{session::Session, state::LANES, statistics::Statistics};
use odafs_common::exception::Exception;
use odafs_fabric::sync::{Arc, Mutex, MutexGuard};

/// The lanes of a client.
pub struct Lanes([Lane; LANES]);

#[repr(align(128))]
struct Lane(Mutex<LaneState>);

/// What one lane holds.
#[derive(Default)]
pub struct LaneState {
    /// The session as last seen.
    pub session: Option<Arc<Session>>,
    /// Its number, or that of the last one.
    pub session_number: u64,
    /// What was counted on this lane.
    pub counts: Counts,
    /// Room for a page.
    pub scratch: Vec<u8>,
}

/// What reads count.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// See [`Statistics`].
    pub cache_hits: u64,
    /// See [`Statistics`].
    pub one_sided_hits: u64,
    /// See [`Statistics`].
    pub guarded_hits: u64,
    /// See [`Statistics`].
    pub rpc_reads: u64,
    /// See [`Statistics`].
    pub refused: [u64; 7],
    /// See [`Statistics`].
    pub directory_hits: u64,
    /// See [`Statistics`].
    pub directory_misses: u64,
    /// See [`Statistics`].
    pub bytes_read: u64,
}

impl Counts {
    /// A direct try was refused.
    pub fn refused(&mut self, exception: Exception) {
        self.refused[usize::from(exception.code()) - 1] += 1;
    }

    fn add_to(&self, all: &mut Statistics) {
        all.cache_hits += self.cache_hits;
        all.one_sided_hits += self.one_sided_hits;
        all.guarded_hits += self.guarded_hits;
        all.direct_hits += self.one_sided_hits + self.guarded_hits;
        all.rpc_reads += self.rpc_reads;
        all.directory_hits += self.directory_hits;
        all.directory_misses += self.directory_misses;
        all.bytes_read += self.bytes_read;
        for (all, here) in all.refused.iter_mut().zip(self.refused) {
            *all += here;
        }
        all.stale_hits = all.refused.iter().sum();
    }
}

/// A lane in use by this thread.
pub struct LaneGuard<'a> {
    /// Which.
    pub index: usize,
    state: MutexGuard<'a, LaneState>,
}

impl std::ops::Deref for LaneGuard<'_> {
    type Target = LaneState;

    fn deref(&self) -> &LaneState {
        &self.state
    }
}

impl std::ops::DerefMut for LaneGuard<'_> {
    fn deref_mut(&mut self) -> &mut LaneState {
        &mut self.state
    }
}

impl Lanes {
    /// Fresh ones.
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Lane(Mutex::default())))
    }

    /// This thread's favourite, or another that is free. Lanes are held for no longer than a copy takes.
    pub fn take(&self) -> LaneGuard<'_> {
        let favourite = favourite();
        for offset in 0..LANES {
            let index = (favourite + offset) % LANES;
            if let Some(state) = self.0[index].0.try_lock() {
                return LaneGuard { index, state };
            }
        }
        LaneGuard {
            index: favourite,
            state: self.0[favourite].0.lock(),
        }
    }

    /// Adds up what was counted.
    pub fn add_to(&self, all: &mut Statistics) {
        for lane in &self.0 {
            lane.0.lock().counts.add_to(all);
        }
    }

    /// Lets go of the session that the lanes hold, so that a mapping of a server that is gone is unmapped.
    pub fn forget_session(&self) {
        for lane in &self.0 {
            let session = lane.0.lock().session.take();
            drop(session);
        }
    }
}

/// Threads number themselves as they come.
#[cfg(not(shuttle))]
fn favourite() -> usize {
    use std::{
        cell::Cell,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(THREADS.fetch_add(1, Relaxed) % LANES);
        }
        mine.get()
    })
}

/// Tasks share a thread under shuttle, and a count of them would differ from run to run.
#[cfg(shuttle)]
fn favourite() -> usize {
    0
}
