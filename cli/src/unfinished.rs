//! Cleans up what a command must not leave behind when it fails or is interrupted.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::signals::{self, Signals};

type Undo = Box<dyn FnOnce() + Send>;
type UndoSlot = Mutex<Option<Undo>>;

/// Every [`Unfinished`] of this process, for the thread that waits for signals.
static ALL: Mutex<Vec<Weak<UndoSlot>>> = Mutex::new(Vec::new());

/// Something begun, which is undone unless it is finished first: when this is dropped, or when a signal ends the process.
pub struct Unfinished(Arc<UndoSlot>);

impl Unfinished {
    /// `undo` runs at most once, on any thread.
    pub fn new(undo: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        static WATCHED: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
        let watched = WATCHED.get_or_init(|| watch_signals().map_err(|error| error.kind()));
        (*watched).map_err(io::Error::from)?;
        let slot = Arc::new(Mutex::new(Some(Box::new(undo) as Undo)));
        lock(&ALL).push(Arc::downgrade(&slot));
        Ok(Self(slot))
    }

    /// Drops the undo action, because there is nothing to undo.
    pub fn forget(self) {
        *lock(&self.0) = None;
    }

    /// Takes the last step. If that succeeds, the undo action is dropped. A signal waits for the step.
    pub fn finish<T, E>(self, last: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut undo = lock(&self.0);
        let done = last()?;
        *undo = None;
        Ok(done)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If a signal came first, its thread keeps the lock until the process has ended.
        let undo = lock(&self.0).take();
        if let Some(undo) = undo {
            undo();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// On the first signal, undoes everything and ends the process. On a second one, ends it without waiting for that.
fn watch_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = runtime.block_on(async { Signals::take_over() })?;
    let wait = move || {
        let first = runtime.block_on(signals.next());
        std::thread::spawn(move || undo_all_and_exit(signals::exit_status(first)));
        runtime.block_on(signals.again());
        std::process::exit(signals::exit_status(first));
    };
    std::thread::Builder::new().spawn(wait).map(drop)
}

fn undo_all_and_exit(status: i32) {
    let all = lock(&ALL);
    let slots: Vec<Arc<UndoSlot>> = all.iter().filter_map(Weak::upgrade).collect();
    let mut held: Vec<_> = slots.iter().map(|slot| lock(slot)).collect();
    for undo in held.iter_mut().filter_map(|slot| slot.take()) {
        undo();
    }
    std::process::exit(status);
}
