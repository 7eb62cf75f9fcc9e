use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
pub struct Mutex<T>(std::sync::Mutex<T>);
impl<T> Mutex<T> {
    pub fn new(t: T) -> Self {
        Self(std::sync::Mutex::new(t))
    }
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
pub struct Condvar(std::sync::Condvar);
impl Condvar {
    pub fn new() -> Self {
        Self(std::sync::Condvar::new())
    }
    pub fn notify_all(&self) {
        self.0.notify_all()
    }
    pub fn wait_timeout<'a, T>(&self, g: MutexGuard<'a, T>, d: Duration) -> MutexGuard<'a, T> {
        self.0
            .wait_timeout(g, d)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}
