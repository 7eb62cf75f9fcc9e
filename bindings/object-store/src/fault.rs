//! Errors, independent of the version of `object_store`.

use odafs::{ConnectError, PathError, ReadError, WriteError};

/// A cause, in the form that all versions take.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation on an object failed.
#[derive(Debug)]
pub struct Fault {
    pub kind: Kind,
    /// The object's location.
    pub location: String,
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    NotFound,
    Exists,
    Changed,
    Denied,
    NotSupported,
    Other,
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const ESTALE: i32 = 116;

impl Fault {
    pub fn new(kind: Kind, location: &str, cause: impl Into<Cause>) -> Self {
        Self {
            kind,
            location: location.to_owned(),
            cause: cause.into(),
        }
    }

    /// The object changed during the operation.
    pub fn changed(location: &str) -> Self {
        let told = "it changed while it was read (get it again)";
        Self::new(Kind::Changed, location, told)
    }

    pub fn not_found(location: &str) -> Self {
        Self::new(Kind::NotFound, location, "no such object")
    }

    pub fn connect(url: &str, error: ConnectError) -> Self {
        let kind = match &error {
            ConnectError::NotGranted { .. } => Kind::Denied,
            _ => Kind::Other,
        };
        Self::new(kind, url, error)
    }

    /// `verb` is the operation that the caller asked for, whatever it took.
    pub fn path(verb: &'static str, location: &str, error: PathError) -> Self {
        let kind = Kind::of(error.errno());
        Self::new(kind, location, error.about(verb, location.as_ref()))
    }

    pub fn read(location: &str, mut error: ReadError) -> Self {
        if Kind::of(error.errno()) == Kind::Changed {
            return Self::changed(location);
        }
        let (ReadError::Server { path, .. }
        | ReadError::EndOfFile { path, .. }
        | ReadError::Call { path, .. }) = &mut error;
        location.clone_into(path);
        Self::new(Kind::of(error.errno()), location, error)
    }

    pub fn write(verb: &'static str, location: &str, error: WriteError) -> Self {
        let kind = Kind::of(error.errno());
        Self::new(kind, location, error.about(verb, location.as_ref()))
    }
}

impl Kind {
    fn of(errno: i32) -> Self {
        match errno {
            ENOENT | ENOTDIR => Self::NotFound,
            EEXIST => Self::Exists,
            // The object was replaced or removed while it was open.
            ESTALE => Self::Changed,
            1 | 13 | 30 => Self::Denied,
            _ => Self::Other,
        }
    }
}
