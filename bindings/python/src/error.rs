//! Errors in the form that Python knows: OSError, which turns into FileNotFoundError, PermissionError or TimeoutError
//! by its number.

use pyo3::{PyErr, exceptions::PyOSError};

/// An error.
pub struct Error {
    errno: i32,
    text: String,
}

macro_rules! from {
    ($($error:ident),*) => {$(
        impl From<odafs::$error> for Error {
            fn from(error: odafs::$error) -> Self {
                Self {
                    errno: error.errno(),
                    text: error.to_string(),
                }
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

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        PyOSError::new_err((error.errno, error.text))
    }
}
