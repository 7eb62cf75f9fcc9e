//! Threads that never act for others.
//!
//! The kernel lets a thread use an RDMA device's descriptor only with the credentials with which it was opened. It compares
//! the identity of the credentials, not the ids in them (`ib_safe_file_access`). A thread that has acted for another user
//! has other credentials ever after, even when it has its own ids back. The thread that polls a device therefore keeps
//! its ids, and leaves calls for which it would have to act for a user to other threads.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// The thread switches its ids as needed.
    Free,
    /// The thread keeps its ids.
    Kept,
    /// The thread keeps its ids, and would have had to switch them.
    Missed,
}

thread_local!(static IDS: Cell<Ids> = const { Cell::new(Ids::Free) });

/// Makes the calling thread act for nobody from now on.
pub fn keep() {
    IDS.set(Ids::Kept);
}

/// Whether the calling thread may not act for another user, as it is about to. If so, this is remembered.
pub(crate) fn must_be_kept() -> bool {
    let kept = IDS.get() != Ids::Free;
    if kept {
        IDS.set(Ids::Missed);
    }
    kept
}

/// Whether the calling thread would have had to act for another user since this was last asked.
pub(crate) fn were_missed() -> bool {
    let missed = IDS.get() == Ids::Missed;
    if missed {
        IDS.set(Ids::Kept);
    }
    missed
}
