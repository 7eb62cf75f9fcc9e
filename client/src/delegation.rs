//! Delegations: the server's promise that nobody changes a file without waiting for this client (docs/WIRE.md, section 4.7).
//! While it stands, what is kept of the file is the file, and a read from the data cache is as exact as one at the server.
//!
//! A delegation ends by itself, soon. The next read after that gives it back and asks for another with one call, which also
//! checks what is kept. If the server refuses, others want to change the file, and for a while reads go past the data cache.
//!
//! Reads look at nothing but the time up to which the delegation may be used. This client's own changes give it back
//! before they begin and none is asked for until they end, so that no read shows the old data after somebody else has seen
//! the new.

use odafs_fabric::{
    clock,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::*},
    },
};

/// The delegation of one file.
#[derive(Debug, Default)]
pub struct Delegation {
    /// Reads may rely on it before this time; 0 without one.
    pub until: AtomicU64,
    /// None is asked for before this time.
    pub not_before: AtomicU64,
    /// Changes of this client under way. None begins without the lock.
    pub changes: AtomicU32,
    /// The number of the last one that was given, if it was not given back; else 0. Locked by who asks or gives back.
    pub number: Mutex<u64>,
}

/// The delegations of a client.
#[derive(Debug, Default)]
pub struct Delegations {
    /// The latest time up to which any may stand at the server.
    pub until: AtomicU64,
    /// Given.
    pub granted: AtomicU64,
    /// Not given again.
    pub recalled: AtomicU64,
}

impl Delegation {
    /// Whether reads may rely on it now.
    #[inline]
    pub fn stands(&self) -> bool {
        // The check comes before the look at the data: what is found then is no older.
        clock::now().0 < self.until.load(Acquire)
    }

    /// Whether none is to be asked for now.
    pub fn rests(&self) -> bool {
        clock::now().0 < self.not_before.load(Relaxed)
    }
}

/// A change by this client is under way.
pub struct Changing<'a>(Option<&'a Delegation>);

impl<'a> Changing<'a> {
    /// A change of what is never delegated.
    pub fn nothing() -> Self {
        Self(None)
    }

    /// A change begins. The caller holds the lock.
    pub fn begin(delegation: &'a Delegation) -> Self {
        delegation.changes.fetch_add(1, AcqRel);
        Self(Some(delegation))
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(delegation) = self.0 {
            delegation.changes.fetch_sub(1, AcqRel);
        }
    }
}
