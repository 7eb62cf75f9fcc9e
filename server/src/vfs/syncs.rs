//! Shared syncs of a file. One sync serves all callers whose bytes were written before it began.

use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Condvar, Mutex, OnceLock};

use crate::store::StoreError;

/// The result of a sync, and the write verifier at its end.
pub(crate) type Synced = Result<[u8; 8], StoreError>;

/// The syncs of one file. Only one runs at a time, so nobody returns with the old verifier after another sync has failed.
#[derive(Default)]
pub(crate) struct Syncs {
    state: Mutex<State>,
    ended: Condvar,
    /// Number of failed syncs.
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    under_way: bool,
    /// How many wait for its end. To wake nobody takes a system call too.
    waiting: usize,
    /// The number of the sync that has not begun. It will cover all that is written by now.
    next: Arc<OnceLock<Synced>>,
    /// Whether a caller that waits for it also wants the times synced.
    next_with_times: bool,
}

impl Syncs {
    /// How many have failed so far. A failure may have been about bytes that others wrote.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::SeqCst)
    }

    /// The right to sync the file, if nobody else syncs it. Bytes that are written while the caller has it are covered by
    /// [`SyncTurn::sync`].
    pub(crate) fn try_turn(&self) -> Option<SyncTurn<'_>> {
        let mut state = self.state.lock();
        let is_free = !std::mem::replace(&mut state.under_way, true);
        drop(state);
        is_free.then_some(SyncTurn(self))
    }

    /// Waits for a sync that begins from now on. It calls `sync` (which learns whether the times matter) unless another
    /// caller syncs.
    pub(crate) fn share(&self, with_times: bool, sync: impl FnOnce(bool) -> Synced) -> Synced {
        let mut state = self.state.lock();
        let ours = Arc::clone(&state.next);
        state.next_with_times |= with_times;
        while state.under_way {
            state.waiting += 1;
            state = self.ended.wait(state);
            state.waiting -= 1;
            if let Some(synced) = ours.get() {
                return *synced;
            }
        }
        state.under_way = true;
        drop(state);
        SyncTurn(self).sync(with_times, sync)
    }
}

/// The right to sync a file, which one caller has at a time. If it is dropped without a sync, or the sync panics, one of
/// those that wait begins another.
pub(crate) struct SyncTurn<'a>(&'a Syncs);

impl SyncTurn<'_> {
    /// Syncs all that was written before, for all who wait by now. `sync` learns whether the times matter to any of them.
    pub(crate) fn sync(self, with_times: bool, sync: impl FnOnce(bool) -> Synced) -> Synced {
        let mut state = self.0.state.lock();
        let begun = std::mem::take(&mut state.next);
        let with_times = std::mem::take(&mut state.next_with_times) || with_times;
        drop(state);
        let synced = sync(with_times);
        if synced.is_err() {
            self.0.failures.fetch_add(1, Ordering::SeqCst);
        }
        let _ = begun.set(synced);
        synced
    }
}

impl Drop for SyncTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.0.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use odafs_fabric::sync::thread;

    use super::*;
    use crate::store::{BeforeSync, Operation, SetAttributes, Status};
    use crate::vfs::read::Effort;
    use crate::vfs::testing::{World, owner};
    use crate::vfs::write::{Stable, commit, set_attributes, write};

    /// A world in which each sync tells that it has begun, and waits until it is told to go on.
    fn with_slow_syncs() -> (World, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (begun, release) = (mpsc::channel(), mpsc::channel());
        let waits = Mutex::new((begun.0, release.1));
        let world = World::behind(64, |store| {
            Arc::new(BeforeSync::new(store, move |_| {
                let waits = waits.lock();
                let _ = waits.0.send(());
                let _ = waits.1.recv();
            }))
        });
        (world, begun.1, release.0)
    }

    #[test]
    fn one_sync_serves_all_that_came_before_it_began() {
        let (syncs, runs) = (&Syncs::default(), &Mutex::new(Vec::new()));
        let (begun, release) = (mpsc::channel(), mpsc::channel::<()>());
        let run = |with_times, synced| {
            runs.lock().push(with_times);
            synced
        };
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                syncs.share(false, |with_times| {
                    begun.0.send(()).expect("the test listens");
                    release.1.recv().expect("released");
                    run(with_times, Ok([1; 8]))
                })
            });
            begun.1.recv().expect("begun");
            let others: Vec<_> = (0..7)
                .map(|number| {
                    let failing = move |with_times| run(with_times, Err(Status::Io.into()));
                    scope.spawn(move || syncs.share(number == 3, failing))
                })
                .collect();
            while Arc::strong_count(&syncs.state.lock().next) < 8 {
                thread::yield_now();
            }
            release.0.send(()).expect("the first waits");
            assert_eq!(first.join().expect("no panic").ok(), Some([1; 8]));
            for other in others {
                let failed = other.join().expect("no panic").expect_err("theirs failed");
                assert_eq!(failed.status, Status::Io);
            }
        });
        assert_eq!(*runs.lock(), [false, true]);
        assert!(syncs.share(false, |_| Ok([2; 8])).is_ok(), "said once");
    }

    #[test]
    fn a_sync_that_panics_leaves_the_next_one_to_others() {
        let syncs = Syncs::default();
        let panics = std::panic::AssertUnwindSafe(|| syncs.share(false, |_| panic!("on purpose")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(syncs.share(false, |_| Ok([0; 8])).is_ok());
    }

    /// The kernel tells one of those who sync that bytes were lost. It may be another than the one whose bytes they were, who
    /// then must not be told that they are stable; nor to write them again, over what others may have written since.
    #[test]
    fn a_stable_write_fails_if_anothers_sync_of_the_file_has_failed_since() {
        type Meanwhile = Mutex<Option<Box<dyn FnOnce() + Send>>>;
        let meanwhile: &Meanwhile = Box::leak(Box::default());
        let world = World::behind(64, |store| {
            // Behind the write's data and ahead of its own sync.
            Arc::new(BeforeSync::new(store, |_| {
                let act = meanwhile.lock().take();
                if let Some(act) = act {
                    act();
                }
            }))
        });
        let (file, other) = (world.file("a", &[7; 10_000]), world.file("b", &[7; 10]));
        let failing = |file: &Arc<crate::vfs::file::File>| -> Box<dyn FnOnce() + Send> {
            let (export, file) = (Arc::clone(&world.export), Arc::clone(file));
            Box::new(move || {
                file.syncs().failures.fetch_add(1, Ordering::SeqCst);
                export.change_verifier();
            })
        };
        let put = |stable| {
            let written = write(&world.export, &owner(), &file, 0, b"x", stable);
            written.map_err(|refused| refused.error.status).map(drop)
        };
        for stable in [Stable::FileSync, Stable::DataSync] {
            assert_eq!(put(stable), Ok(()));
            *meanwhile.lock() = Some(failing(&file));
            assert_eq!(put(stable), Err(Status::Io));
            *meanwhile.lock() = Some(failing(&other));
            assert_eq!(put(stable), Ok(()), "another file's");
        }
        assert_eq!(put(Stable::Unstable), Ok(()), "its verifier says it");
    }

    #[test]
    fn nobody_hears_of_a_failed_sync_while_the_pages_still_stand() {
        let (world, begun, release) = with_slow_syncs();
        let file = world.file("a", &[7; 10_000]);
        world.read(&file, 0, 10_000);
        let (export, file) = (&world.export, &file);
        let (told, heard) = mpsc::channel();
        thread::scope(|scope| {
            let release = release;
            scope.spawn(|| commit(export, file).is_ok());
            begun.recv().expect("the first has begun");
            for _ in 0..2 {
                let told = told.clone();
                scope.spawn(move || told.send(commit(export, file).is_ok()));
            }
            while Arc::strong_count(&file.syncs().state.lock().next) < 3 {
                thread::yield_now();
            }
            release.send(()).expect("the first waits");
            begun.recv().expect("theirs has begun");
            world.store.fail_next(Operation::Sync, Status::Io);
            // Someone is at the pages.
            let reading = file.enter_blocking();
            release.send(()).expect("theirs waits");
            let early = heard.recv_timeout(Duration::from_millis(50));
            assert!(early.is_err(), "told, and the pages stand");
            drop(reading);
            for _ in 0..2 {
                assert_eq!(heard.recv(), Ok(false));
                assert!(file.is_empty());
            }
        });
    }

    #[test]
    fn a_file_is_open_to_others_while_it_is_synced() {
        let (world, begun, release) = with_slow_syncs();
        let file = world.file("a", &[7; 10_000]);
        world.read(&file, 0, 10_000);
        let (export, file) = (&world.export, &file);
        let sized = SetAttributes {
            size: Some(9000),
            ..SetAttributes::default()
        };
        let cut = || set_attributes(export, &owner(), file.object(), &sized, None).is_ok();
        let put = || write(export, &owner(), file, 9000, b"x", Stable::FileSync).is_ok();
        thread::scope(|scope| {
            // Dropped with it, so that nobody waits for a test that has failed.
            let release = release;
            for change in [&cut as &(dyn Fn() -> bool + Sync), &put] {
                let change = scope.spawn(change);
                begun.recv().expect("the sync has begun");
                let read = world.try_read(file, 0, 4096, Effort::ResidentOnly);
                release.send(()).expect("the sync waits");
                assert!(read.is_ok(), "the gate was closed");
                assert!(change.join().expect("no panic"));
            }
        });
    }
}
