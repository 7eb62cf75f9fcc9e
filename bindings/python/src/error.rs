//! Errors as Python knows them: OSError, which makes itself a FileNotFoundError, PermissionError or TimeoutError of the
//! number.

use pyo3::{PyErr, exceptions::PyOSError};

/// What went wrong.
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
