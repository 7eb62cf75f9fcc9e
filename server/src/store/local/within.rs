//! What one call knows of directories: which of them were just seen to lie within the export.
//!
//! A call names the same directory several times: to look a name up, to change it, and for its attributes before and after.
//! The store looks where the directory lies once, and takes that for known during the rest of the call, for [`KNOWN_FOR`] at
//! most, because a call may wait in between. Whoever moves a directory out of the export between the look and its use is as late
//! as ever. Nothing is known from one call to the next.
//!
//! A descriptor is what is known, not an object: an object that has lost its last name has no descriptor any more, so it is
//! looked for anew, and is STALE.

#[cfg(test)]
use std::cell::Cell;
use std::cell::RefCell;

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::{Arc, Weak};

use super::descriptors::Descriptor;

/// How long a directory counts as within the export after the look.
const KNOWN_FOR: Nanos = Nanos::from_micros(100);
/// RENAME and LINK use two directories.
const DIRECTORIES: usize = 2;

/// The directories that were seen within the export, and when. The next one takes the place of the first.
type Seen = [Option<(Weak<Descriptor>, Nanos)>; DIRECTORIES];

thread_local! {
    /// `None` outside of a call.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

#[cfg(test)]
thread_local!(static FOR: Cell<Nanos> = const { Cell::new(KNOWN_FOR) });

fn is_fresh(age: Nanos) -> bool {
    #[cfg(test)]
    return age < FOR.get();
    #[cfg(not(test))]
    return age < KNOWN_FOR;
}

/// A call under way on this thread. With it ends what is known.
pub(crate) struct OneCall(());

/// Begins a call. `None` within a call: that is part of it.
#[must_use]
pub(crate) fn one_call() -> Option<OneCall> {
    SEEN.with_borrow_mut(|seen| match seen {
        Some(_) => None,
        None => {
            *seen = Some(Seen::default());
            Some(OneCall(()))
        }
    })
}

impl Drop for OneCall {
    fn drop(&mut self) {
        SEEN.set(None);
    }
}

/// Whether this call has just seen this directory within the export.
pub(super) fn is_known(directory: &Arc<Descriptor>) -> bool {
    SEEN.with_borrow(|seen| {
        let is_it = |(known, at): &(Weak<Descriptor>, Nanos)| {
            let known = known.upgrade();
            known.is_some_and(|known| Arc::ptr_eq(&known, directory))
                && is_fresh(clock::now().since(*at))
        };
        seen.iter().flatten().flatten().any(is_it)
    })
}

/// Notes that this directory was within the export at that time.
pub(super) fn note(directory: &Arc<Descriptor>, at: Nanos) {
    SEEN.with_borrow_mut(|seen| {
        if let Some(seen) = seen {
            seen.rotate_right(1);
            seen[0] = Some((Arc::downgrade(directory), at));
        }
    });
}

/// Runs `act` with what a call knows good for so long on this thread, whatever the machine does meanwhile.
#[cfg(test)]
pub(crate) fn known_for<T>(span: Nanos, act: impl FnOnce() -> T) -> T {
    let before = FOR.replace(span);
    let done = act();
    FOR.set(before);
    done
}

/// Runs `act` as one call.
#[cfg(test)]
pub(super) fn in_one_call<T>(act: impl FnOnce() -> T) -> T {
    let _one = one_call();
    act()
}
