//! The bytes that were written and not yet synced, by object.
//!
//! The kernel reports a write that it could not bring to the disk only once, to the descriptors that are open then. So a
//! descriptor with unsynced bytes stays open until it is synced. The syncs of one object take turns. A failure for which
//! nobody asked is kept with the object until somebody does.

use lru::LruCache;
use odafs_fabric::sync::{Arc, Condvar, Mutex};

use super::descriptors::Descriptor;
use crate::store::{ObjectId, Result, Status};

/// The objects of a store that have unsynced bytes.
pub(super) struct Unsynced {
    state: Mutex<State>,
    /// Signals that a turn has ended.
    turn_ended: Condvar,
    /// Signals that something may be to be synced unasked, or that the store ends.
    surplus_grew: Condvar,
    max: usize,
}

struct State {
    /// The objects, with the least recently written one last.
    objects: LruCache<ObjectId, Object>,
    /// How many of them have descriptors.
    held: usize,
    /// How many wait for the end of a turn. To wake nobody takes a system call too.
    waiting: usize,
    stopped: bool,
}

#[derive(Default)]
struct Object {
    /// Descriptors through which bytes were written that no sync has covered.
    descriptors: Vec<Arc<Descriptor>>,
    /// Whether a sync is under way, of whose failure not all concerned know yet.
    syncing: bool,
    /// Whether bytes are lost and nobody was told, so that the next sync must fail.
    lost: bool,
}

/// Who asks for a sync.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A caller, who learns of a failure, and of an earlier one of which nobody was told.
    Yes,
    /// Nobody. A failure is kept.
    No,
}

impl Unsynced {
    /// With more than `max` objects, writers are to sync.
    pub fn new(max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                objects: LruCache::unbounded(),
                held: 0,
                waiting: 0,
                stopped: false,
            }),
            turn_ended: Condvar::new(),
            surplus_grew: Condvar::new(),
            max: max.max(1),
        }
    }

    /// Notes that bytes were written through that descriptor.
    pub fn wrote(&self, object: ObjectId, descriptor: &Arc<Descriptor>) {
        let mut state = self.state.lock();
        let known = state.objects.get_or_insert_mut(object, Object::default);
        if known
            .descriptors
            .iter()
            .any(|held| Arc::ptr_eq(held, descriptor))
        {
            return;
        }
        known.descriptors.push(Arc::clone(descriptor));
        if known.descriptors.len() == 1 {
            state.held += 1;
            if self.are_too_many(&state) {
                self.surplus_grew.notify_all();
            }
        }
    }

    /// A descriptor through which bytes were written.
    pub fn find(&self, object: ObjectId) -> Option<Arc<Descriptor>> {
        let state = self.state.lock();
        state.objects.peek(&object)?.descriptors.first().cloned()
    }

    /// Whether so many objects have unsynced bytes that some should be synced unasked.
    fn are_too_many(&self, state: &State) -> bool {
        state.held > self.max / 2
    }

    /// Whether too many objects have unsynced bytes.
    pub fn is_full(&self) -> bool {
        self.state.lock().held > self.max
    }

    /// Forgets an object that is gone, of which nothing needs a sync.
    pub fn forget(&self, object: ObjectId) {
        let mut state = self.state.lock();
        let Some(known) = state.objects.peek_mut(&object) else {
            return;
        };
        known.lost = false;
        let closed = state.take_descriptors(object);
        state.tidy(object);
        drop(state);
        drop(closed);
    }

    /// Syncs an object by `how`: each descriptor through which bytes were written, or once without one, because others
    /// may have written to it.
    pub fn sync(
        &self,
        object: ObjectId,
        asked: Asked,
        how: impl Fn(Option<&Descriptor>) -> Result<()>,
    ) -> Result<()> {
        let (turn, descriptors) = self.begin(object);
        let mut synced = Ok(());
        if descriptors.is_empty() {
            synced = how(None);
        }
        // Each of them, even if others fail.
        for descriptor in &descriptors {
            synced = synced.and(how(Some(descriptor)));
        }
        turn.end(asked, synced)
    }

    /// Waits until nobody else syncs the object, and takes its descriptors.
    fn begin(&self, object: ObjectId) -> (ObjectSync<'_>, Vec<Arc<Descriptor>>) {
        let mut state = self.state.lock();
        while state
            .objects
            .peek(&object)
            .is_some_and(|known| known.syncing)
        {
            state.waiting += 1;
            state = self.turn_ended.wait(state);
            state.waiting -= 1;
        }
        let known = state.objects.get_or_insert_mut(object, Object::default);
        known.syncing = true;
        let descriptors = state.take_descriptors(object);
        let unsynced = self;
        (ObjectSync { unsynced, object }, descriptors)
    }

    /// Waits until so many objects need a sync that some should be synced unasked, and returns the one that has waited
    /// longest. `None` if the store ends.
    pub fn surplus(&self) -> Option<ObjectId> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if self.are_too_many(&state) {
                let mut waiting = state.objects.iter().rev();
                let idle = waiting.find(|(_, known)| known.is_idle());
                if let Some((object, _)) = idle {
                    return Some(*object);
                }
            }
            state = self.surplus_grew.wait(state);
        }
    }

    /// Ends [`Unsynced::surplus`].
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.surplus_grew.notify_all();
    }
}

impl Object {
    fn is_idle(&self) -> bool {
        !self.syncing && !self.descriptors.is_empty()
    }
}

impl State {
    fn take_descriptors(&mut self, object: ObjectId) -> Vec<Arc<Descriptor>> {
        let known = self.objects.peek_mut(&object);
        let taken = known.map_or(Vec::new(), |known| std::mem::take(&mut known.descriptors));
        self.held -= usize::from(!taken.is_empty());
        taken
    }

    /// Forgets an object that has nothing to remember.
    fn tidy(&mut self, object: ObjectId) {
        let known = self.objects.peek(&object);
        if known.is_some_and(|known| known.descriptors.is_empty() && !known.syncing && !known.lost)
        {
            self.objects.pop(&object);
        }
    }
}

/// A sync of an object that is under way. Ends when dropped.
struct ObjectSync<'a> {
    unsynced: &'a Unsynced,
    object: ObjectId,
}

impl ObjectSync<'_> {
    /// The result, for the caller that asked.
    fn end(self, asked: Asked, synced: Result<()>) -> Result<()> {
        let mut state = self.unsynced.state.lock();
        let Some(known) = state.objects.peek_mut(&self.object) else {
            return synced;
        };
        match asked {
            Asked::No => {
                known.lost |= synced.is_err();
                synced
            }
            Asked::Yes if std::mem::take(&mut known.lost) => synced.and(Err(Status::Io.into())),
            Asked::Yes => synced,
        }
    }
}

impl Drop for ObjectSync<'_> {
    fn drop(&mut self) {
        let unsynced = self.unsynced;
        let mut state = unsynced.state.lock();
        if let Some(known) = state.objects.peek_mut(&self.object) {
            known.syncing = false;
        }
        state.tidy(self.object);
        let (is_awaited, too_many) = (state.waiting > 0, unsynced.are_too_many(&state));
        drop(state);
        if is_awaited {
            unsynced.turn_ended.notify_all();
        }
        if too_many {
            unsynced.surplus_grew.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::store::{FileType, Status};

    use super::super::descriptors::Use;
    use super::*;

    const OBJECT: ObjectId = ObjectId {
        ino: 1,
        generation: 1,
    };

    fn descriptor() -> Arc<Descriptor> {
        let file = tempfile::tempfile().expect("a file").into();
        Descriptor::new(file, FileType::Regular, Use::Write)
    }

    fn ask(unsynced: &Unsynced) -> Option<Status> {
        let synced = unsynced.sync(OBJECT, Asked::Yes, |_| Ok(()));
        synced.err().map(|refused| refused.status)
    }

    #[test]
    fn a_sync_by_a_fresh_descriptor_knows_of_one_that_fails() {
        let unsynced = &Unsynced::new(16);
        unsynced.wrote(OBJECT, &descriptor());
        let (say, hear) = mpsc::channel();
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                hear.recv().expect("the other has begun");
                ask(unsynced)
            });
            let failed = unsynced.sync(OBJECT, Asked::No, |written| {
                assert!(written.is_some());
                // The kernel reports this only once.
                say.send(()).expect("the other waits");
                std::thread::sleep(Duration::from_millis(100));
                Err(Status::Io.into())
            });
            assert!(failed.is_err());
            asked.join().expect("no panic")
        });
        assert_eq!(asked, Some(Status::Io));
        assert_eq!(ask(unsynced), None, "said once");
    }

    #[test]
    fn every_descriptor_that_bytes_went_through_is_synced() {
        let unsynced = Unsynced::new(16);
        let written = [descriptor(), descriptor()];
        for descriptor in [0, 1, 1].map(|at: usize| &written[at]) {
            unsynced.wrote(OBJECT, descriptor);
        }
        let synced = Mutex::new(0);
        let fail = |file: Option<&Descriptor>| {
            *synced.lock() += usize::from(file.is_some());
            Err(Status::Io.into())
        };
        assert!(unsynced.sync(OBJECT, Asked::Yes, fail).is_err());
        assert_eq!(*synced.lock(), 2);
        assert!(unsynced.find(OBJECT).is_none());
    }

    #[test]
    fn what_has_waited_longest_is_synced_unasked() {
        let unsynced = Unsynced::new(4);
        let object = |ino| ObjectId { ino, generation: 1 };
        let written = descriptor();
        for ino in [1, 2, 3, 1, 4, 5] {
            unsynced.wrote(object(ino), &written);
        }
        assert!(unsynced.is_full());
        for ino in [2, 3, 1] {
            assert_eq!(unsynced.surplus(), Some(object(ino)));
            let synced = unsynced.sync(object(ino), Asked::No, |_| Ok(()));
            assert!(synced.is_ok() && !unsynced.is_full());
        }
        unsynced.forget(object(4));
        unsynced.stop();
        assert_eq!(unsynced.surplus(), None);
        assert!(unsynced.find(object(4)).is_none() && unsynced.find(object(5)).is_some());
    }
}
