//! Calls that have arrived and for which there is no room yet.

use std::collections::VecDeque;

use odafs_fabric::Peer;
use odafs_fabric::clock::Nanos;
use odafs_fabric::sync::atomic::Ordering;

use super::config::count;
use super::pull::Arrived;
use crate::engine::{Now, Serves};

/// When the calls of a connection have waited this long for memory, that is logged.
const PATIENCE: Nanos = Nanos::from_secs(1);

/// The calls of a connection, in the order of their arrival.
#[derive(Default)]
pub(super) struct Parked {
    calls: VecDeque<Call>,
    starving: Option<Starving>,
}

struct Call {
    arrived: Arrived,
    /// A call has found no memory for its data.
    waits: bool,
}

/// Since when calls have found no memory for their data.
struct Starving {
    since: Nanos,
    said: bool,
}

impl Parked {
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn push(&mut self, arrived: Arrived) {
        self.calls.push_back(Call {
            arrived,
            waits: false,
        });
    }

    /// Number of bytes to read for the call at this place.
    pub fn pull_bytes(&self, place: usize) -> Option<usize> {
        Some(self.calls.get(place)?.arrived.pull_bytes())
    }

    /// The call at this place must wait for memory.
    pub fn finds_no_memory(&mut self, place: usize, now: &Now<'_>) {
        let counts = &now.serves.rdma.registration;
        if let Some(call) = self.calls.get_mut(place)
            && !std::mem::replace(&mut call.waits, true)
        {
            count(&counts.waited);
            count(&counts.waiting);
        }
        self.starving.get_or_insert(Starving {
            since: now.time,
            said: false,
        });
    }

    /// The call at this place begins.
    pub fn take(&mut self, place: usize, now: &Now<'_>) -> Option<Arrived> {
        let Call { arrived, waits } = self.calls.remove(place)?;
        if waits {
            waits_no_longer(now.serves, 1);
        }
        if arrived.pull_bytes() > 0 {
            self.starving = None;
        }
        Some(arrived)
    }

    /// Whether calls have waited for memory for too long.
    pub fn is_overdue(&mut self, peer: &Peer, now: &Now<'_>) -> bool {
        let Some(starving) = &mut self.starving else {
            return false;
        };
        let waited = now.time.since(starving.since);
        let used = now.supply.used();
        if waited > PATIENCE && !std::mem::replace(&mut starving.said, true) {
            let calls = self.calls.len();
            tracing::warn!(%peer, calls, used, "calls wait for memory for their data");
        }
        let overdue = waited > now.config.rdma.memory_time_max;
        if overdue {
            count(&now.serves.rdma.registration.timeouts);
            tracing::warn!(%peer, used, "calls found no memory for their data in time: the connection is closed");
        }
        overdue
    }

    /// Time must pass, and no event may report it.
    pub fn has_deadline(&self) -> bool {
        self.starving.is_some()
    }

    /// The connection has ended.
    pub fn clear(&mut self, serves: &Serves) {
        let waiting = self.calls.iter().filter(|call| call.waits).count();
        waits_no_longer(serves, waiting as u64);
        self.calls.clear();
    }
}

fn waits_no_longer(serves: &Serves, calls: u64) {
    let waiting = &serves.rdma.registration.waiting;
    waiting.fetch_sub(calls, Ordering::Relaxed);
}
