//! Blocking work for async programs.

use std::panic;
use tokio::runtime::Handle;

/// Runs the work on one of tokio's blocking threads, or right here if there is no runtime. A panic continues in the
/// caller.
pub async fn block<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(runtime) = Handle::try_current() else {
        return job();
    };
    match runtime.spawn_blocking(job).await {
        Ok(value) => value,
        Err(failed) => panic::resume_unwind(failed.into_panic()),
    }
}

/// Runs the work without anyone waiting for it.
pub fn detach(job: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(job)),
        Err(_) => job(),
    }
}

/// Starts work that helps the calling thread, if the program has a runtime. It may begin at any time, or never.
pub fn help(job: impl FnOnce() + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn_blocking(job);
    }
}
