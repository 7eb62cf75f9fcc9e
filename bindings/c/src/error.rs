//! Errors in the form that C knows, and the border that no panic crosses.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

/// An error: a number, and a text that names the remedy.
#[derive(Debug, Clone)]
pub struct Error {
    pub errno: c_int,
    pub text: String,
}

impl Error {
    pub fn new(errno: c_int, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { errno, text }
    }

    /// An invalid argument.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(libc::EINVAL, text)
    }
}

macro_rules! from {
    ($($error:ident),*) => {$(
        impl From<odafs::$error> for Error {
            fn from(error: odafs::$error) -> Self {
                Self::new(error.errno(), error.to_string())
            }
        }
    )*};
}
from!(ConnectError, PathError, ReadError, WriteError);

impl From<odafs::UrlError> for Error {
    fn from(error: odafs::UrlError) -> Self {
        odafs::ConnectError::from(error).into()
    }
}

/// The result types of functions, and how each reports a failure.
pub trait ReturnValue {
    const FAILED: Self;
}

impl ReturnValue for c_int {
    const FAILED: Self = -1;
}

impl ReturnValue for libc::ssize_t {
    const FAILED: Self = -1;
}

impl<T> ReturnValue for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function. Errors and panics are reported through errno and [`odafs_last_error`].
#[inline]
pub fn at_border<T: ReturnValue>(body: impl FnOnce() -> Result<T, Error>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => failed(&error),
        Err(panic) => failed(&panicked(&*panic)),
    }
}

/// The text for a panic.
pub fn panicked(panic: &(dyn Any + Send)) -> Error {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no word");
    Error::new(
        libc::ENOTRECOVERABLE,
        format!("a fault in libodafs, please report it: {said}"),
    )
}

#[cold]
pub fn failed<T: ReturnValue>(error: &Error) -> T {
    remember(error);
    T::FAILED
}

/// Sets errno and the text of this thread.
pub fn remember(error: &Error) {
    let text = CString::new(error.text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that is ending has no text any more.
    let _ = LAST.try_with(|last| last.replace(text));
    // SAFETY: the place of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = error.errno };
}

/// A text of C's, as bytes.
///
/// # Safety
/// NULL, or a text that ends with a NUL and stays as it is for `'a`.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Error> {
    if text.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    // SAFETY: it is not NULL; the rest is the caller's word.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// What a handle of C's points to.
///
/// # Safety
/// NULL, or a handle that is not closed for `'a`.
#[inline]
pub unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: the caller's word.
    match unsafe { handle.as_ref() } {
        Some(handle) => Ok(handle),
        None => Err(null(what)),
    }
}

#[cold]
fn null(what: &str) -> Error {
    Error::invalid(format!(
        "the {what} is NULL (did the call that made it fail?)"
    ))
}

/// The text for the last call of this thread that failed: what is wrong, and what to do. It is never NULL, and does not
/// change until a call of this thread fails again. As with errno, it is meaningful only right after a failure.
#[unsafe(no_mangle)]
pub extern "C" fn odafs_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"this thread is at its end".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let answer: c_int = at_border(|| panic!("of {}", "lead"));
        assert_eq!(answer, -1);
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::ENOTRECOVERABLE)
        );
        // SAFETY: its text ends with a NUL and stays until the next failure.
        let told = unsafe { CStr::from_ptr(odafs_last_error()) };
        assert!(told.to_str().unwrap().ends_with("of lead"));
    }
}
