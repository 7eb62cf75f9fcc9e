//! The system's number for each error, for bindings to other languages. It is the number that a local file would give,
//! if there is one.
//!
//! | what happened | errno |
//! |---|---|
//! | the server refused it | that of its status (RFC 1813 section 2.6): `EPERM`, `ENOENT`, `EIO`, `ENXIO`, `EACCES`, `EEXIST`, `EXDEV`, `ENODEV`, `ENOTDIR`, `EISDIR`, `EINVAL`, `EFBIG`, `ENOSPC`, `EROFS`, `EMLINK`, `ENAMETOOLONG`, `ENOTEMPTY`, `EDQUOT`, `ESTALE`, `EREMOTE` |
//! | ... a handle or a cookie that it does not know | `ESTALE` |
//! | ... changed meanwhile, try later | `EAGAIN` |
//! | ... not supported, no such type | `EOPNOTSUPP` |
//! | ... the reply does not fit (NFS3ERR_TOOSMALL) | `EOVERFLOW` |
//! | ... a fault of its own, or a status that has no name | `EREMOTEIO` |
//! | no answer within the deadline | `ETIMEDOUT` |
//! | the connection was lost, or is closed without an answer | `ECONNABORTED` |
//! | the connection was lost, and the call may have taken effect | `ECONNRESET` |
//! | the server lacks the program or the procedure, this build the fabric | `EOPNOTSUPP` |
//! | the server refused the call, or does not grant the route | `EACCES` |
//! | the answer makes no sense | `EPROTO` |
//! | the URL is none, the path cannot be sent | `EINVAL` |
//! | nothing answers there | what the system said: `ECONNREFUSED`, `EHOSTUNREACH`, ...; `ECONNREFUSED` also for a socket that does not exist |
//! | no export holds the path, or another than the client's does | `ENOENT` |
//! | more than 40 symbolic links | `ELOOP` |
//! | the file ends before all was read (`read_exact_at`) | `ENODATA` |
//! | unsynced bytes were lost | `EIO` |

use crate::error::{CallError, ConnectError, PathError, ReadError, Status, WriteError};
use rustix::io::Errno;
use std::io;

impl Status {
    /// The Linux `errno` for this error.
    pub fn errno(self) -> i32 {
        let errno = match self.0 {
            1 => Errno::PERM,
            2 => Errno::NOENT,
            5 => Errno::IO,
            6 => Errno::NXIO,
            13 => Errno::ACCESS,
            17 => Errno::EXIST,
            18 => Errno::XDEV,
            19 => Errno::NODEV,
            20 => Errno::NOTDIR,
            21 => Errno::ISDIR,
            22 => Errno::INVAL,
            27 => Errno::FBIG,
            28 => Errno::NOSPC,
            30 => Errno::ROFS,
            31 => Errno::MLINK,
            63 => Errno::NAMETOOLONG,
            66 => Errno::NOTEMPTY,
            69 => Errno::DQUOT,
            70 | 10001 | 10003 => Errno::STALE,
            71 => Errno::REMOTE,
            10002 | 10008 => Errno::AGAIN,
            10004 | 10007 => Errno::OPNOTSUPP,
            10005 => Errno::OVERFLOW,
            _ => Errno::REMOTEIO,
        };
        errno.raw_os_error()
    }
}

impl CallError {
    /// The Linux `errno` for this error.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::TimedOut { .. } => Errno::TIMEDOUT,
            Self::Lost { .. } | Self::Silent { .. } => Errno::CONNABORTED,
            Self::Unknown { .. } => Errno::CONNRESET,
            Self::Unavailable { .. } => Errno::OPNOTSUPP,
            Self::Refused { .. } => Errno::ACCESS,
            Self::NoMemory { .. } => Errno::NOMEM,
            Self::Misbehaved { .. } => Errno::PROTO,
        };
        errno.raw_os_error()
    }
}

impl ConnectError {
    /// The Linux `errno` for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Url(_) => Errno::INVAL.raw_os_error(),
            // ENOENT is what a missing file has, and some programs go on without one: nobody may take an absent server for it.
            Self::Unreachable { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Errno::CONNREFUSED.raw_os_error()
            }
            Self::Unreachable { source, .. } => of_system(source),
            Self::NoFabric { .. } => Errno::OPNOTSUPP.raw_os_error(),
            Self::NoExport { .. } => Errno::NOENT.raw_os_error(),
            Self::NotGranted { .. } => Errno::ACCESS.raw_os_error(),
            Self::Call(call) => call.errno(),
        }
    }
}

impl ReadError {
    /// The Linux `errno` for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Server { status, .. } => status.errno(),
            Self::EndOfFile { .. } => Errno::NODATA.raw_os_error(),
            Self::Call { source, .. } => source.errno(),
        }
    }
}

impl WriteError {
    /// The Linux `errno` for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Server { status, .. } => status.errno(),
            Self::Call { source, .. } => source.errno(),
            Self::Lost { .. } => Errno::IO.raw_os_error(),
        }
    }
}

impl PathError {
    /// The Linux `errno` for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Server { status, .. } => status.errno(),
            Self::OutsideExport { .. } => Errno::NOENT.raw_os_error(),
            Self::Loop { .. } => Errno::LOOP.raw_os_error(),
            Self::BadPath { .. } => Errno::INVAL.raw_os_error(),
            Self::Call { source, .. } => source.errno(),
        }
    }
}

/// An error with added text has only its kind.
fn of_system(error: &io::Error) -> i32 {
    use io::ErrorKind as K;
    let by_kind = || match error.kind() {
        K::NotFound => Errno::NOENT,
        K::PermissionDenied => Errno::ACCESS,
        K::ConnectionRefused => Errno::CONNREFUSED,
        K::ConnectionReset => Errno::CONNRESET,
        K::ConnectionAborted => Errno::CONNABORTED,
        K::HostUnreachable => Errno::HOSTUNREACH,
        K::NetworkUnreachable => Errno::NETUNREACH,
        K::TimedOut => Errno::TIMEDOUT,
        K::InvalidInput => Errno::INVAL,
        K::InvalidData => Errno::PROTO,
        K::QuotaExceeded => Errno::DQUOT,
        K::OutOfMemory => Errno::NOMEM,
        K::Unsupported => Errno::OPNOTSUPP,
        K::BrokenPipe => Errno::PIPE,
        _ => Errno::IO,
    };
    error
        .raw_os_error()
        .unwrap_or_else(|| by_kind().raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where NFS and the system agree on the kind, the numbers that NFS took from the systems of its time are still
    /// theirs.
    #[test]
    fn numbers_and_kinds_agree() {
        for status in (0..100).chain(10_000..10_010).map(Status) {
            let kind = io::Error::from_raw_os_error(status.errno()).kind();
            let told = status.kind();
            assert!(told == io::ErrorKind::Other || told == kind, "{status}");
        }
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens");
        assert_eq!(of_system(&refused), Errno::CONNREFUSED.raw_os_error());
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(of_system(&missing), 2);
    }

    #[test]
    fn an_absent_server_is_no_missing_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let url = format!("odafs+shm://{}?/", socket.display());
        let nobody = crate::Client::connect(&url).expect_err("nobody listens");
        assert_eq!(nobody.errno(), Errno::CONNREFUSED.raw_os_error());
        let kind = io::Error::from(nobody).kind();
        assert_eq!(kind, io::ErrorKind::ConnectionRefused);
    }
}
