//! The protocols as a client speaks them, and the only part of the client that knows `wire::nfs3`. This module is plain
//! NFS version 3: metadata, writes, and reads where the server has nothing better (RFC 1813).

mod acl;
mod convert;
mod delegate;
pub mod mount;
pub mod pipeline;
pub mod procedure;
pub mod read;
pub mod read_into;
pub mod references;
pub mod write;

pub use odafs_common::wire::nfs3::MAX_DATA;

use crate::{
    calls::{Calls, Repeat},
    error::{CallError, Status},
    handle::FileHandle,
    nfs::procedure::{Asks, Number, Procedure},
    patience::Pause,
    types::{
        Access, Attributes, Changed, Changes, Cookie, Create, DirEntry, Entry, FsInfo, Node,
        PathConf, Space,
    },
};
use odafs_common::wire::{
    nfs3::{self, DirectoryName, Payload, Procedure as P},
    xdr::{Decode, Encode, Reader, XdrError},
};
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, time::SystemTime};

const fn procedure(name: &'static str, which: P, idempotent: bool) -> Procedure {
    Procedure {
        name,
        number: Number::Nfs(which),
        idempotent,
        asks: Asks::NOTHING,
    }
}

const NULL: Procedure = procedure("NULL", P::Null, true);
const GETATTR: Procedure = procedure("GETATTR", P::GetAttributes, true);
// Setting attributes is idempotent, except with a guard.
const SETATTR: Procedure = procedure("SETATTR", P::SetAttributes, true);
const SETATTR_GUARDED: Procedure = procedure("SETATTR", P::SetAttributes, false);
const LOOKUP: Procedure = procedure("LOOKUP", P::Lookup, true);
const ACCESS: Procedure = procedure("ACCESS", P::Access, true);
const READLINK: Procedure = procedure("READLINK", P::ReadLink, true);
/// READ
pub const READ: Procedure = procedure("READ", P::Read, true);
/// WRITE
pub const WRITE: Procedure = procedure("WRITE", P::Write, true);
const CREATE: Procedure = procedure("CREATE", P::Create, false);
const MKDIR: Procedure = procedure("MKDIR", P::MakeDirectory, false);
const MKNOD: Procedure = procedure("MKNOD", P::MakeNode, false);
const SYMLINK: Procedure = procedure("SYMLINK", P::Symlink, false);
const REMOVE: Procedure = procedure("REMOVE", P::Remove, false);
const RMDIR: Procedure = procedure("RMDIR", P::RemoveDirectory, false);
const RENAME: Procedure = procedure("RENAME", P::Rename, false);
const LINK: Procedure = procedure("LINK", P::Link, false);
const READDIR: Procedure = Procedure {
    asks: Asks::count(LISTING_BYTES),
    ..procedure("READDIR", P::ReadDir, true)
};
const READDIRPLUS: Procedure = Procedure {
    asks: Asks::count(LISTING_BYTES),
    ..procedure("READDIRPLUS", P::ReadDirPlus, true)
};
/// Length in bytes of one part of a listing, including attributes.
const LISTING_BYTES: u32 = 32 << 10;
const FSSTAT: Procedure = procedure("FSSTAT", P::FsStat, true);
const FSINFO: Procedure = procedure("FSINFO", P::FsInfo, true);
const PATHCONF: Procedure = procedure("PATHCONF", P::PathConf, true);
/// COMMIT
pub const COMMIT: Procedure = procedure("COMMIT", P::Commit, true);

/// Why an NFS call failed.
#[derive(Debug, Clone)]
pub enum NfsError {
    /// The server refused the operation.
    Status(Status),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for NfsError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Status> for NfsError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<nfs3::Status> for NfsError {
    fn from(status: nfs3::Status) -> Self {
        Self::Status(status.into())
    }
}

/// NFS calls to one server.
#[derive(Clone, Copy)]
pub struct Nfs<'a> {
    /// Makes the calls.
    pub calls: &'a Calls,
    /// Decides whether non-idempotent calls are repeated.
    pub repeat: &'a dyn Repeat,
}

/// Entries of a directory.
pub struct Listing {
    /// The entries in the server's order, each with its cookie.
    pub entries: Vec<DirEntry>,
    /// Whether this is the end of the listing.
    pub eof: bool,
}

/// The result of COMMIT.
pub struct Committed {
    /// The changes to the file.
    pub changed: Changed,
    /// If this differs from the verifier of a write's reply, the server may have lost that write.
    pub verifier: [u8; 8],
}

impl Nfs<'_> {
    /// Makes one call. If the server asks the client to try later, it repeats the call (JUKEBOX, RFC 1813 section 2.6).
    fn ask<T>(
        &self,
        procedure: &Procedure,
        arguments: &dyn Encode,
        mut decode: impl FnMut(&mut Reader<'_>) -> Result<Result<T, nfs3::Status>, XdrError>,
    ) -> Result<T, NfsError> {
        let deadline = self.calls.deadline();
        let mut pause = Pause::default();
        loop {
            match self
                .calls
                .call(procedure, arguments, self.repeat, &mut decode)?
            {
                Ok(value) => return Ok(value),
                Err(nfs3::Status::Jukebox) if pause.before_retry(deadline) => {}
                Err(status) => return Err(status.into()),
            }
        }
    }

    /// NULL.
    pub fn null(&self) -> Result<(), CallError> {
        self.calls.call(&NULL, &(), self.repeat, |_| Ok(()))
    }

    /// The attributes of a file.
    pub fn attributes(&self, file: &FileHandle) -> Result<Attributes, NfsError> {
        self.ask(&GETATTR, &file.wire(), |r| {
            Ok(nfs3::GetAttributesResult::decode(r)?
                .map(Attributes::from)
                .map_err(|f| f.status))
        })
    }

    /// Changes attributes. With a guard, only if the file still has that `ctime`.
    pub fn set_attributes(
        &self,
        file: &FileHandle,
        changes: &Changes,
        guard: Option<SystemTime>,
    ) -> Result<Changed, NfsError> {
        let arguments = nfs3::SetAttributesArgs {
            file: file.wire(),
            attributes: changes.into(),
            guard: guard.map(convert::on_wire),
        };
        let procedure = guard.map_or(&SETATTR, |_| &SETATTR_GUARDED);
        self.ask(procedure, &arguments, |r| {
            Ok(nfs3::SetAttributesResult::decode(r)?
                .map(Changed::from)
                .map_err(|f| f.status))
        })
    }

    /// Looks up a name in a directory.
    pub fn lookup(&self, directory: &FileHandle, name: &[u8]) -> Result<Entry, NfsError> {
        let arguments = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let (handle, attributes) = self.ask(&LOOKUP, &arguments, |r| {
            Ok(match nfs3::LookupResult::decode(r)? {
                Ok(found) => Ok((
                    FileHandle::from(found.file),
                    found.attributes.map(Attributes::from),
                )),
                Err(failed) => Err(failed.status),
            })
        })?;
        self.known(handle, attributes)
    }

    fn known(&self, handle: FileHandle, attributes: Option<Attributes>) -> Result<Entry, NfsError> {
        let attributes = attributes.map_or_else(|| self.attributes(&handle), Ok)?;
        Ok(Entry { handle, attributes })
    }

    /// Which of these rights the caller has.
    pub fn access(&self, file: &FileHandle, wanted: Access) -> Result<Access, NfsError> {
        let arguments = nfs3::AccessArgs {
            file: file.wire(),
            access: wanted.bits(),
        };
        self.ask(&ACCESS, &arguments, |r| {
            Ok(nfs3::AccessResult::decode(r)?
                .map(|ok| Access::from_bits(ok.access))
                .map_err(|f| f.status))
        })
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, link: &FileHandle) -> Result<Vec<u8>, NfsError> {
        self.ask(&READLINK, &link.wire(), |r| {
            Ok(match nfs3::ReadLinkResult::decode(r)? {
                Ok(link) => Ok(link.target.0.to_vec()),
                Err(failed) => Err(failed.status),
            })
        })
    }

    /// Creates a file.
    pub fn create(
        &self,
        directory: &FileHandle,
        name: &[u8],
        how: &Create,
    ) -> Result<Entry, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let how = how.into();
        self.make(&CREATE, &nfs3::CreateArgs { place, how }, place)
    }

    /// Creates a directory.
    pub fn make_directory(
        &self,
        directory: &FileHandle,
        name: &[u8],
        attributes: &Changes,
    ) -> Result<Entry, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let arguments = nfs3::MakeDirectoryArgs {
            place,
            attributes: attributes.into(),
        };
        self.make(&MKDIR, &arguments, place)
    }

    /// Creates a device, a socket or a named pipe.
    pub fn make_node(
        &self,
        directory: &FileHandle,
        name: &[u8],
        node: Node,
        attributes: &Changes,
    ) -> Result<Entry, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let what = convert::make_node(node, attributes);
        self.make(&MKNOD, &nfs3::MakeNodeArgs { place, what }, place)
    }

    /// Creates a symbolic link.
    pub fn symlink(
        &self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let attributes = nfs3::SetAttributes {
            mode: Some(0o777),
            ..Default::default()
        };
        let target = Payload(target);
        let arguments = nfs3::SymlinkArgs {
            place,
            attributes,
            target,
        };
        self.make(&SYMLINK, &arguments, place)
    }

    fn make(
        &self,
        procedure: &Procedure,
        arguments: &dyn Encode,
        place: DirectoryName<'_>,
    ) -> Result<Entry, NfsError> {
        let made = self.ask(procedure, arguments, |r| {
            Ok(match nfs3::CreateResult::decode(r)? {
                Ok(made) => Ok((
                    made.file.map(FileHandle::from),
                    made.attributes.map(Attributes::from),
                )),
                Err(failed) => Err(failed.status),
            })
        })?;
        match made {
            (Some(handle), attributes) => self.known(handle, attributes),
            // A server may leave the handle out (RFC 1813 section 3.3.8).
            (None, _) => self.lookup(&place.directory.into(), place.name),
        }
    }

    /// Removes the name of a file or of an empty directory.
    pub fn remove(
        &self,
        directory: &FileHandle,
        name: &[u8],
        what: Removed,
    ) -> Result<(), NfsError> {
        let arguments = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let procedure = match what {
            Removed::File => &REMOVE,
            Removed::Directory => &RMDIR,
        };
        self.ask(procedure, &arguments, |r| {
            Ok(nfs3::RemoveResult::decode(r)?
                .map(drop)
                .map_err(|f| f.status))
        })
    }

    /// Renames a file.
    pub fn rename(
        &self,
        from: (&FileHandle, &[u8]),
        to: (&FileHandle, &[u8]),
    ) -> Result<(), NfsError> {
        let arguments = nfs3::RenameArgs {
            from: DirectoryName {
                directory: from.0.wire(),
                name: from.1,
            },
            to: DirectoryName {
                directory: to.0.wire(),
                name: to.1,
            },
        };
        self.ask(&RENAME, &arguments, |r| {
            Ok(nfs3::RenameResult::decode(r)?
                .map(drop)
                .map_err(|f| f.status))
        })
    }

    /// Adds a name to a file (a hard link).
    pub fn link(
        &self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<(), NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let arguments = nfs3::LinkArgs {
            file: file.wire(),
            place,
        };
        self.ask(&LINK, &arguments, |r| {
            Ok(nfs3::LinkResult::decode(r)?.map(drop).map_err(|f| f.status))
        })
    }

    /// Lists the entries of a directory after a cookie, with attributes and handles if `plus` is set.
    pub fn list(
        &self,
        directory: &FileHandle,
        from: Cookie,
        plus: bool,
    ) -> Result<Listing, NfsError> {
        let directory = directory.wire();
        let Cookie {
            value: cookie,
            verifier,
        } = from;
        if !plus {
            let arguments = nfs3::ReadDirArgs {
                directory,
                cookie,
                verifier,
                count: LISTING_BYTES,
            };
            return self.ask(&READDIR, &arguments, |r| {
                Ok(match nfs3::ReadDirResult::decode(r)? {
                    Ok(listed) => {
                        let entry = |entry| named(entry, listed.verifier);
                        Ok(Listing {
                            entries: listed.entries.iter().map(entry).collect(),
                            eof: listed.eof,
                        })
                    }
                    Err(failed) => Err(failed.status),
                })
            });
        }
        let (directory_count, max_count) = (8 << 10, LISTING_BYTES);
        let arguments = nfs3::ReadDirPlusArgs {
            directory,
            cookie,
            verifier,
            directory_count,
            max_count,
        };
        self.ask(&READDIRPLUS, &arguments, |r| {
            Ok(match nfs3::ReadDirPlusResult::decode(r)? {
                Ok(listed) => {
                    let entry = |plus: &nfs3::EntryPlus<'_>| DirEntry {
                        handle: plus.file.map(FileHandle::from),
                        attributes: plus.attributes.map(Attributes::from),
                        ..named(&plus.entry, listed.verifier)
                    };
                    Ok(Listing {
                        entries: listed.entries.iter().map(entry).collect(),
                        eof: listed.eof,
                    })
                }
                Err(failed) => Err(failed.status),
            })
        })
    }

    /// The space on the file system.
    pub fn space(&self, root: &FileHandle) -> Result<Space, NfsError> {
        self.ask(&FSSTAT, &root.wire(), |r| {
            Ok(nfs3::FsStatResult::decode(r)?
                .map(Space::from)
                .map_err(|f| f.status))
        })
    }

    /// The server's capabilities and preferences.
    pub fn limits(&self, root: &FileHandle) -> Result<FsInfo, NfsError> {
        self.ask(&FSINFO, &root.wire(), |r| {
            Ok(nfs3::FsInfoResult::decode(r)?
                .map(FsInfo::from)
                .map_err(|f| f.status))
        })
    }

    /// The limits of a file or directory.
    pub fn path_configuration(&self, file: &FileHandle) -> Result<PathConf, NfsError> {
        self.ask(&PATHCONF, &file.wire(), |r| {
            Ok(nfs3::PathConfResult::decode(r)?
                .map(PathConf::from)
                .map_err(|f| f.status))
        })
    }

    /// Brings written data to stable storage.
    pub fn commit(&self, file: &FileHandle) -> Result<Committed, NfsError> {
        let arguments = nfs3::CommitArgs {
            file: file.wire(),
            offset: 0,
            count: 0,
        };
        self.ask(&COMMIT, &arguments, |r| {
            Ok(nfs3::CommitResult::decode(r)?
                .map(|ok| Committed {
                    changed: ok.wcc.into(),
                    verifier: ok.verifier,
                })
                .map_err(|f| f.status))
        })
    }
}

/// What [`Nfs::remove`] removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// REMOVE
    File,
    /// RMDIR
    Directory,
}

/// An entry by its name alone, with the verifier of its cookie.
fn named(entry: &nfs3::Entry<'_>, verifier: [u8; 8]) -> DirEntry {
    DirEntry {
        name: OsString::from_vec(entry.name.to_vec()),
        fileid: entry.fileid,
        cookie: Cookie {
            value: entry.cookie,
            verifier,
        },
        handle: None,
        attributes: None,
    }
}
