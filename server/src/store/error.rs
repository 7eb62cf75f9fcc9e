//! The errors of a store.

use rustix::io::Errno;

use crate::store::Status;

/// A refusal: the status for the client, and the system's error number (0 if the store itself refused).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} (errno {errno})")]
pub struct StoreError {
    /// The status for the caller.
    pub status: Status,
    /// The system's error number, for logs.
    pub errno: i32,
}

impl StoreError {
    /// Whether part of a change may have happened in spite of the error. All other errors come before any byte changes.
    pub fn may_be_partial(&self) -> bool {
        matches!(
            self.status,
            Status::Io | Status::ServerFault | Status::Nxio | Status::NoDev
        )
    }
}

impl From<Status> for StoreError {
    fn from(status: Status) -> Self {
        Self { status, errno: 0 }
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

impl From<Errno> for StoreError {
    fn from(errno: Errno) -> Self {
        Self {
            status: status_of(errno),
            errno: errno.raw_os_error(),
        }
    }
}

fn status_of(errno: Errno) -> Status {
    match errno {
        Errno::PERM => Status::Perm,
        Errno::NOENT => Status::NoEnt,
        Errno::NXIO => Status::Nxio,
        // A program that is being executed, or a directory that is a mount point.
        Errno::ACCESS | Errno::TXTBSY | Errno::BUSY => Status::Access,
        Errno::EXIST => Status::Exist,
        Errno::XDEV => Status::XDev,
        Errno::NODEV => Status::NoDev,
        Errno::NOTDIR => Status::NotDir,
        Errno::ISDIR => Status::IsDir,
        // ELOOP means a symbolic link where none may be followed.
        Errno::INVAL | Errno::LOOP => Status::Inval,
        Errno::FBIG | Errno::OVERFLOW => Status::FBig,
        Errno::NOSPC => Status::NoSpc,
        Errno::ROFS => Status::RoFs,
        Errno::MLINK => Status::MLink,
        Errno::NAMETOOLONG => Status::NameTooLong,
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::DQuot,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS => Status::NotSupp,
        // Shortages pass, so the client is to try again.
        Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::INTR => Status::Jukebox,
        _ => Status::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_the_number() {
        for raw in 1..134 {
            let error = StoreError::from(Errno::from_raw_os_error(raw));
            assert_eq!(error.errno, raw);
        }
        assert_eq!(
            StoreError::from(Errno::NAMETOOLONG).status,
            Status::NameTooLong
        );
        assert_eq!(StoreError::from(Errno::ROFS).status, Status::RoFs);
        assert_eq!(StoreError::from(Errno::XDEV).status, Status::XDev);
    }
}
