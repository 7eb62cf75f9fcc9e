//! Threads that never act for others.
//!
//! The kernel serves the descriptors of RDMA devices only to the credentials that they were opened with, and compares
//! not what those say but whether they are the same (`ib_safe_file_access`). A thread that has acted for somebody else
//! has other ones ever after, even when it has its own ids back. So the thread that polls a device keeps its ids; a call
//! for which it would have to act for somebody is left to a thread that may.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// They are switched as needed.
    Free,
    /// They are not.
    Kept,
    /// They are not, and should have been.
    Missed,
}

thread_local!(static IDS: Cell<Ids> = const { Cell::new(Ids::Free) });

/// The calling thread acts for nobody from now on.
pub fn keep() {
    IDS.set(Ids::Kept);
}

/// Whether the calling thread, which is to act for somebody, may not. It is remembered.
pub(crate) fn must_be_kept() -> bool {
    let kept = IDS.get() != Ids::Free;
    if kept {
        IDS.set(Ids::Missed);
    }
    kept
}

/// Whether the calling thread was to act for somebody and could not, since this was last asked.
pub(crate) fn were_missed() -> bool {
    let missed = IDS.get() == Ids::Missed;
    if missed {
        IDS.set(Ids::Kept);
    }
    missed
}
