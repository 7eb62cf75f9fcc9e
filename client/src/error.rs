//! Errors: one enum for each kind of operation. An exception of a direct read is not an error; the read goes on by RPC.
//!
//! `Display` includes the cause, so `source()` returns nothing, and a program that prints a chain prints each cause once.
//! (thiserror does not take the field `r#source` for a source.)

mod hints;

pub(crate) use self::hints::NO_RDMA;
use self::hints::{unless_named, unless_refused, why_unreachable};
use std::{io, path::Path, time::Duration};
use thiserror::Error;

pub use crate::url::UrlError;

/// Why a call to the server failed.
#[derive(Debug, Clone, Error)]
pub enum CallError {
    /// The deadline passed.
    #[error(
        "{call}: no answer within {after:?} (is the server stuck? To wait longer, set `--deadline`, or `Options::deadline` in a program)"
    )]
    TimedOut {
        /// Name of the call.
        call: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The connection was lost and could not be made again within the deadline.
    #[error(
        "{call}: the connection to {} was lost and could not be made again: {reason}{}",
        unless_named(.server, .reason),
        unless_refused(.reason, " (is it running?)")
    )]
    Lost {
        /// Name of the call.
        call: &'static str,
        /// Address of the server.
        server: String,
        /// Reason that the last attempt gave.
        reason: String,
    },
    /// The server accepts connections and closes them without an answer.
    #[error("{call}: {server} closes connections without an answer ({remedy})")]
    Silent {
        /// Name of the call.
        call: &'static str,
        /// Address of the server.
        server: String,
        /// What may be wrong.
        remedy: &'static str,
    },
    /// The connection was lost after a call was sent that may not be repeated.
    #[error(
        "{call}: the connection was lost after the call was sent; it may or may not have taken effect (check before you repeat it)"
    )]
    Unknown {
        /// Name of the call.
        call: &'static str,
    },
    /// The server does not have this program, version or procedure.
    #[error("{call}: the server does not offer this call ({what})")]
    Unavailable {
        /// Name of the call.
        call: &'static str,
        /// Which of the three is missing.
        what: &'static str,
    },
    /// The server refused the RPC itself.
    #[error(
        "{call}: the server refused the call: {reason} (check the access list of its export, `odafs serve --allow`, and whether it accepts ports of 1024 and above: `odafs serve --insecure`, knfsd's `insecure`)"
    )]
    Refused {
        /// Name of the call.
        call: &'static str,
        /// Its reason.
        reason: String,
    },
    /// This process has no memory for the data.
    #[error("{call}: no memory for the data: {what}")]
    NoMemory {
        /// Name of the call.
        call: &'static str,
        /// What the system says.
        what: String,
    },
    /// The server's answer is malformed or impossible.
    #[error("{call}: the server misbehaved: {what}")]
    Misbehaved {
        /// Name of the call.
        call: &'static str,
        /// What was wrong.
        what: String,
    },
}

impl CallError {
    /// The nearest [`io::ErrorKind`].
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::Lost { .. } | Self::Silent { .. } | Self::Unknown { .. } => {
                io::ErrorKind::ConnectionAborted
            }
            Self::Unavailable { .. } => io::ErrorKind::Unsupported,
            Self::Refused { .. } => io::ErrorKind::PermissionDenied,
            Self::NoMemory { .. } => io::ErrorKind::OutOfMemory,
            Self::Misbehaved { .. } => io::ErrorKind::InvalidData,
        }
    }
}

/// Why [`Client::connect`](crate::Client::connect) failed.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The client does not accept the URL.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No server answers at the address.
    #[error(
        "connect: cannot reach {}: {}",
        unless_named(.server, &.source.to_string()),
        why_unreachable(.source)
    )]
    Unreachable {
        /// The address asked.
        server: String,
        /// Error of the system.
        r#source: io::Error,
    },
    /// This build lacks the fabric.
    #[error("connect: no {fabric} fabric: {remedy}")]
    NoFabric {
        /// The fabric: `verbs`.
        fabric: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// No export holds the URL's path.
    #[error("connect: {server} has no export that contains {path} (it exports {exports})")]
    NoExport {
        /// Address of the server.
        server: String,
        /// The path asked for.
        path: String,
        /// The exports that the server has.
        exports: String,
    },
    /// The options ask for a direct route that the server does not grant.
    #[error("connect: {server} does not grant {wanted} reads: {reason}")]
    NotGranted {
        /// Address of the server.
        server: String,
        /// The route that the options ask for.
        wanted: &'static str,
        /// Why not, and what to do.
        reason: String,
    },
    /// A call made while connecting failed.
    #[error("connect: {0}")]
    Call(CallError),
}

impl From<CallError> for ConnectError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Why a read failed.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The server refused the operation.
    #[error("read {path} at {offset}: {}", .status.of("read"))]
    Server {
        /// Path of the file.
        path: String,
        /// First byte asked for, as an offset in the file.
        offset: u64,
        /// Status that the server returned.
        status: Status,
    },
    /// `read_exact_at` met the end of the file.
    #[error("read {path} at {offset}: the file ends after {bytes} of the {wanted} bytes wanted")]
    EndOfFile {
        /// Path of the file.
        path: String,
        /// First byte asked for, as an offset in the file.
        offset: u64,
        /// Length that there is, in bytes.
        bytes: usize,
        /// Length asked for, in bytes.
        wanted: usize,
    },
    /// The call failed.
    #[error("read {path} at {offset}: {source}")]
    Call {
        /// Path of the file.
        path: String,
        /// First byte asked for, as an offset in the file.
        offset: u64,
        /// Cause of the failure.
        r#source: CallError,
    },
}

/// Why a write or a sync failed.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The server refused the operation.
    #[error("{verb} {path} at {offset}: {}", .status.of(verb))]
    Server {
        /// `write` or `sync`.
        verb: &'static str,
        /// Path of the file.
        path: String,
        /// First byte, as an offset in the file.
        offset: u64,
        /// Status that the server returned.
        status: Status,
    },
    /// The call failed.
    #[error("{verb} {path} at {offset}: {source}")]
    Call {
        /// `write` or `sync`.
        verb: &'static str,
        /// Path of the file.
        path: String,
        /// First byte, as an offset in the file.
        offset: u64,
        /// Cause of the failure.
        r#source: CallError,
    },
    /// A restart of the server lost unstable writes, and there were more than the client can keep.
    #[error(
        "sync {path}: the server restarted and {bytes} unsynced bytes were lost (write them again, and sync more often)"
    )]
    Lost {
        /// Path of the file.
        path: String,
        /// Length lost, in bytes.
        bytes: u64,
    },
}

/// Why an operation on a path failed.
#[derive(Debug, Error)]
pub enum PathError {
    /// The server refused the operation.
    #[error("{verb} {path}: {}", .status.of(verb))]
    Server {
        /// The operation.
        verb: &'static str,
        /// The path.
        path: String,
        /// Status that the server returned.
        status: Status,
    },
    /// The path lies outside the export that the client is connected to.
    #[error(
        "{verb} {path}: outside the export {export} (connect with a URL of the export that holds it)"
    )]
    OutsideExport {
        /// The operation.
        verb: &'static str,
        /// The path.
        path: String,
        /// The export.
        export: String,
    },
    /// Too many symbolic links, or a loop of them.
    #[error("{verb} {path}: more than 40 symbolic links on the way (a loop?)")]
    Loop {
        /// The operation.
        verb: &'static str,
        /// The path.
        path: String,
    },
    /// The path is not valid: it is empty, contains a NUL, or has a name longer than 255 bytes.
    #[error("{verb} {path}: not a valid path: {why}")]
    BadPath {
        /// The operation.
        verb: &'static str,
        /// The path.
        path: String,
        /// Cause of the failure.
        why: &'static str,
    },
    /// The call failed.
    #[error("{verb} {path}: {source}")]
    Call {
        /// The operation.
        verb: &'static str,
        /// The path.
        path: String,
        /// Cause of the failure.
        r#source: CallError,
    },
}

/// A status other than OK in an NFS reply (nfsstat3, RFC 1813 section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    pub(crate) const NOT_DIR: Self = Self(20);
    pub(crate) const IS_DIR: Self = Self(21);
    pub(crate) const FILE_TOO_LARGE: Self = Self(27);
    pub(crate) const NAME_TOO_LONG: Self = Self(63);
    pub(crate) const STALE: Self = Self(70);

    /// The nearest [`io::ErrorKind`].
    pub fn kind(self) -> io::ErrorKind {
        use io::ErrorKind as K;
        match self.0 {
            1 | 13 => K::PermissionDenied,
            2 => K::NotFound,
            17 => K::AlreadyExists,
            18 => K::CrossesDevices,
            20 => K::NotADirectory,
            21 => K::IsADirectory,
            22 => K::InvalidInput,
            27 => K::FileTooLarge,
            28 => K::StorageFull,
            30 => K::ReadOnlyFilesystem,
            31 => K::TooManyLinks,
            63 => K::InvalidFilename,
            66 => K::DirectoryNotEmpty,
            69 => K::QuotaExceeded,
            70 => K::StaleNetworkFileHandle,
            10004 => K::Unsupported,
            _ => K::Other,
        }
    }

    /// The words for this status after an operation, because its meaning depends on the procedure.
    fn of(self, verb: &str) -> String {
        let words = match (self.0, verb) {
            (
                13,
                "create" | "put" | "mkdir" | "remove" | "rmdir" | "rename" | "symlink" | "link",
            ) => {
                "permission denied (check the directory's mode and, over TCP and RDMA, the server's `--squash`)"
            }
            (22, "read" | "write" | "sync") => "invalid argument (is it a regular file?)",
            (22, "readlink") => "invalid argument (is it a symbolic link?)",
            (22, "rename") => "invalid argument (a directory cannot move into itself)",
            _ => self.words(),
        };
        format!("{words} (status {})", self.0)
    }

    fn words(self) -> &'static str {
        match self.0 {
            1 => "operation not permitted (only the owner may do this)",
            2 => "no such file or directory",
            5 => "the server met an input/output error (its log says more)",
            6 => "no such device",
            13 => {
                "permission denied (check the file's mode and, over TCP and RDMA, the server's `--squash`)"
            }
            17 => "already exists",
            18 => {
                "source and destination are on different file systems of the server (copy instead)"
            }
            19 => "no such device",
            20 => "not a directory",
            21 => "is a directory",
            22 => "invalid argument",
            27 => "too large for the server's file system",
            28 => "no space left on the server",
            30 => "the export is read-only",
            31 => "too many hard links",
            63 => "the name is too long for the server's file system",
            66 => "the directory is not empty",
            69 => "disk quota exceeded on the server",
            70 => "the file is gone (stale handle; open it again)",
            71 => "too many levels of remote file systems",
            10001 => "the server does not know the file handle (connect again)",
            10002 => "the file changed meanwhile",
            10003 => "the directory changed while it was read (read it again)",
            10004 => "the server does not support this operation",
            10005 => "the reply does not fit the size that was asked for",
            10006 => "the server met a fault (its log says more)",
            10007 => "the server does not support this type of file",
            10008 => "the server asks the client to try again later",
            _ => "an unknown error",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (status {})", self.words(), self.0)
    }
}

impl ReadError {
    /// The nearest [`io::ErrorKind`].
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Server { status, .. } => status.kind(),
            Self::EndOfFile { .. } => io::ErrorKind::UnexpectedEof,
            Self::Call { source, .. } => source.kind(),
        }
    }
}

impl WriteError {
    /// The nearest [`io::ErrorKind`].
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Server { status, .. } => status.kind(),
            Self::Call { source, .. } => source.kind(),
            Self::Lost { .. } => io::ErrorKind::Other,
        }
    }

    /// Makes the error name the file that the caller asked for, where another was written in its place.
    #[must_use]
    pub fn about(mut self, asked: &'static str, of: &Path) -> Self {
        match &mut self {
            Self::Server { verb, path, .. } | Self::Call { verb, path, .. } => {
                (*verb, *path) = (asked, of.to_string_lossy().into_owned());
            }
            Self::Lost { path, .. } => *path = of.to_string_lossy().into_owned(),
        }
        self
    }
}

impl PathError {
    /// The nearest [`io::ErrorKind`].
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Server { status, .. } => status.kind(),
            Self::OutsideExport { .. } => io::ErrorKind::NotFound,
            Self::Loop { .. } => io::ErrorKind::Other,
            Self::BadPath { .. } => io::ErrorKind::InvalidInput,
            Self::Call { source, .. } => source.kind(),
        }
    }

    /// Makes the error name the operation and the path that the caller asked for, where others were needed on the way.
    #[must_use]
    pub fn about(mut self, asked: &'static str, of: &Path) -> Self {
        let (Self::Server { verb, path, .. }
        | Self::OutsideExport { verb, path, .. }
        | Self::Loop { verb, path }
        | Self::BadPath { verb, path, .. }
        | Self::Call { verb, path, .. }) = &mut self;
        (*verb, *path) = (asked, of.to_string_lossy().into_owned());
        self
    }
}

impl From<ReadError> for io::Error {
    fn from(e: ReadError) -> Self {
        Self::new(e.kind(), e)
    }
}

impl From<WriteError> for io::Error {
    fn from(e: WriteError) -> Self {
        Self::new(e.kind(), e)
    }
}

impl From<PathError> for io::Error {
    fn from(e: PathError) -> Self {
        Self::new(e.kind(), e)
    }
}

impl From<ConnectError> for io::Error {
    fn from(e: ConnectError) -> Self {
        let kind = match &e {
            ConnectError::Url(_) => io::ErrorKind::InvalidInput,
            // As the errno: an absent server is no missing file.
            ConnectError::Unreachable { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => io::ErrorKind::ConnectionRefused,
                kind => kind,
            },
            ConnectError::NoFabric { .. } => io::ErrorKind::Unsupported,
            ConnectError::NoExport { .. } => io::ErrorKind::NotFound,
            ConnectError::NotGranted { .. } => io::ErrorKind::PermissionDenied,
            ConnectError::Call(c) => c.kind(),
        };
        Self::new(kind, e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    /// Prints a whole chain, as `{:#}` of anyhow does.
    fn printed(error: &dyn Error) -> String {
        match error.source() {
            Some(cause) => format!("{error}: {}", printed(cause)),
            None => error.to_string(),
        }
    }

    #[test]
    fn an_invalid_argument_is_told_by_what_was_asked() {
        let (path, status) = (|| "/x".to_owned(), Status(22));
        let asked = |verb| {
            PathError::Server {
                verb,
                path: path(),
                status,
            }
            .to_string()
        };
        let read = ReadError::Server {
            path: path(),
            offset: 0,
            status,
        };
        let write = WriteError::Server {
            verb: "write",
            path: path(),
            offset: 0,
            status,
        };
        for (told, likely) in [
            (read.to_string(), "(is it a regular file?) (status"),
            (write.to_string(), "(is it a regular file?) (status"),
            (asked("readlink"), "(is it a symbolic link?) (status"),
            (asked("rename"), "cannot move into itself) (status"),
            (asked("mkdir"), "mkdir /x: invalid argument (status 22)"),
            (
                PathError::Server {
                    verb: "mkdir",
                    path: path(),
                    status: Status(13),
                }
                .to_string(),
                "the directory's mode",
            ),
        ] {
            assert!(told.contains(likely), "{told}");
        }
    }

    #[test]
    fn a_chain_tells_each_cause_once() {
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "/run/s: nobody listens");
        let call = || CallError::TimedOut {
            call: "READ",
            after: Duration::from_secs(2),
        };
        let unreachable = |server: &str| ConnectError::Unreachable {
            server: server.to_owned(),
            source: refused(),
        };
        let read = ReadError::Call {
            path: "/x".to_owned(),
            offset: 0,
            source: call(),
        };
        let errors: [Box<dyn Error>; 5] = [
            Box::new(unreachable("/run/s")),
            Box::new(unreachable("10.0.0.1:2049")),
            Box::new(ConnectError::from(call())),
            Box::new(io::Error::from(read)),
            Box::new(CallError::Lost {
                call: "READ",
                server: "/run/s".to_owned(),
                reason: refused().to_string(),
            }),
        ];
        for error in errors {
            let told = printed(&*error);
            for once in ["nobody listens", "/run/s", "no answer", "stuck"] {
                assert!(told.matches(once).count() <= 1, "{told}");
            }
            assert!(told.contains("nobody listens") || told.contains("no answer"));
        }
    }
}
