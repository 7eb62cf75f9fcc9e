use shuttle::sync::Mutex;
use std::fmt;

/// A cell that is written once. A task that comes while it is being written waits as a task of the scheduler. (The
/// standard cell would block the only real thread.)
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    writing: Mutex<()>,
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            writing: Mutex::new(()),
        }
    }

    /// The value, if it has been written.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Writes the value. Returns it if there already is one.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)
    }

    /// The value. Calls `init` to write it if nobody has yet.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _writing = self
            .writing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.value.get().is_none() {
            let value = init();
            // Only `set` can have been faster. Then its value stays.
            let _ = self.value.set(value);
        }
        self.value.get().expect("written above")
    }

    /// Takes the value out. `None` if it was never written.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
