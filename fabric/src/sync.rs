//! Threads, locks and atomics: the standard ones, or shuttle's under `--cfg shuttle`.
//!
//! The locks differ from the standard ones in one thing: there is no poison. A thread that
//! panicked while it held a lock has already been reported; the data is left as it was.

#[cfg(not(shuttle))]
use std::sync as imp;

#[cfg(shuttle)]
use shuttle::sync as imp;

#[cfg(not(shuttle))]
pub use std::{
    hint,
    sync::{Arc, OnceLock, Weak, atomic, mpsc},
    thread, thread_local,
};

#[cfg(shuttle)]
pub use {
    crate::sim::once::OnceLock,
    shuttle::{
        hint,
        sync::{Arc, Weak, atomic, mpsc},
        thread, thread_local,
    },
};

use crate::clock::Nanos;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

/// A lock without poison.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(imp::Mutex<T>);

/// Unlocks when it is dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    inner: imp::MutexGuard<'a, T>,
    #[cfg(shuttle)]
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Takes the value out of the lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until the lock is ours.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.guard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(inner) => Some(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value: a unique reference needs no lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard<'a>(&'a self, inner: imp::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner,
            #[cfg(shuttle)]
            mutex: self,
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    /// Does not take the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(..)")
    }
}

/// A lock for many readers or one writer, without poison.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(imp::RwLock<T>);

/// Many of them may live at once.
pub type RwLockReadGuard<'a, T> = imp::RwLockReadGuard<'a, T>;

/// Excludes all others.
pub type RwLockWriteGuard<'a, T> = imp::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(imp::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Blocks until no writer has the lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader's share of the lock, if no writer has it (or, perhaps, waits for it).
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Blocks until nobody has the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    /// Does not take the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock(..)")
    }
}

/// Where threads wait for a change of what a [`Mutex`] guards. Wake-ups may be spurious.
#[derive(Default)]
pub struct Condvar {
    inner: imp::Condvar,
    #[cfg(shuttle)]
    timed: crate::sim::clock::TimedWaiters,
}

impl Condvar {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self {
            inner: imp::Condvar::new(),
            #[cfg(shuttle)]
            timed: crate::sim::clock::TimedWaiters::new(),
        }
    }

    /// Unlocks, waits for a notification, locks.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner: self
                .inner
                .wait(guard.inner)
                .unwrap_or_else(PoisonError::into_inner),
            #[cfg(shuttle)]
            mutex: guard.mutex,
        }
    }

    /// As [`Condvar::wait`], for at most `timeout`. `true` beside the guard: it has passed.
    #[cfg(not(shuttle))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Nanos,
    ) -> (MutexGuard<'a, T>, bool) {
        let waited = self.inner.wait_timeout(guard.inner, timeout.duration());
        let (inner, over) = waited.unwrap_or_else(PoisonError::into_inner);
        (MutexGuard { inner }, over.timed_out())
    }

    /// As [`Condvar::wait`], for at most `timeout` of virtual time.
    #[cfg(shuttle)]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Nanos,
    ) -> (MutexGuard<'a, T>, bool) {
        let mutex = guard.mutex;
        let waiter = self.timed.enter(timeout);
        drop(guard);
        let over = waiter.wait();
        (mutex.lock(), over)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        #[cfg(shuttle)]
        if self.timed.notify(1) {
            return;
        }
        self.inner.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        #[cfg(shuttle)]
        self.timed.notify(usize::MAX);
        self.inner.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}
