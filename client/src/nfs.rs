//! Plain NFS version 3: metadata, writes, and reads where the server has nothing better (RFC 1813).

use crate::{
    calls::{Calls, Repeat},
    error::{CallError, Status},
    handle::Handle,
    patience::Pause,
    procedure::{Asks, Number, Procedure},
};
use odafs_common::wire::{
    nfs3::{self, Attributes, CreateHow, DirectoryName, Payload, Procedure as P, WccData},
    xdr::{Decode, Encode, Reader, XdrError},
};

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
// Setting attributes to values twice is setting them once; only a guard tells.
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
/// Bytes of one piece of a listing, attributes included.
const LISTING_BYTES: u32 = 32 << 10;
const FSSTAT: Procedure = procedure("FSSTAT", P::FsStat, true);
const FSINFO: Procedure = procedure("FSINFO", P::FsInfo, true);
const PATHCONF: Procedure = procedure("PATHCONF", P::PathConf, true);
/// COMMIT
pub const COMMIT: Procedure = procedure("COMMIT", P::Commit, true);

/// Why an NFS call failed.
#[derive(Debug, Clone)]
pub enum NfsError {
    /// The server refused it.
    Status(Status),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for NfsError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<nfs3::Status> for NfsError {
    fn from(status: nfs3::Status) -> Self {
        Self::Status(Status(status.code()))
    }
}

/// NFS calls to one server.
#[derive(Clone, Copy)]
pub struct Nfs<'a> {
    /// What makes the calls.
    pub calls: &'a Calls,
    /// Whether calls that may not be repeated are.
    pub repeat: &'a dyn Repeat,
}

/// A file that was found or made.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// What the server calls it.
    pub handle: Handle,
    /// What is known about it.
    pub attributes: Attributes,
}

/// Entries of a directory.
pub struct Listing {
    /// Each with its cookie.
    pub entries: Vec<ListedEntry>,
    /// Goes with the cookies.
    pub verifier: [u8; 8],
    /// There are no more.
    pub eof: bool,
}

/// One entry.
#[derive(Debug)]
pub struct ListedEntry {
    /// One component of a path, as the server has it.
    pub name: Vec<u8>,
    /// Number of the file.
    pub file_id: u64,
    /// What is known about it.
    pub attributes: Option<Attributes>,
    /// What the server calls it.
    pub handle: Option<Handle>,
    /// Where the listing goes on behind it.
    pub cookie: u64,
}

impl Nfs<'_> {
    /// One call; a server that asks to try later is asked again (JUKEBOX, RFC 1813 section 2.6).
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

    /// Does nothing.
    pub fn null(&self) -> Result<(), CallError> {
        self.calls.call(&NULL, &(), self.repeat, |_| Ok(()))
    }

    /// What is known about a file.
    pub fn attributes(&self, file: &Handle) -> Result<Attributes, NfsError> {
        self.ask(&GETATTR, &file.wire(), |r| {
            Ok(nfs3::GetAttributesResult::decode(r)?.map_err(|f| f.status))
        })
    }

    /// Changes attributes; with a guard only if the `ctime` is that.
    pub fn set_attributes(
        &self,
        file: &Handle,
        attributes: nfs3::SetAttributes,
        guard: Option<nfs3::Time>,
    ) -> Result<WccData, NfsError> {
        let arguments = nfs3::SetAttributesArgs {
            file: file.wire(),
            attributes,
            guard,
        };
        let procedure = guard.map_or(&SETATTR, |_| &SETATTR_GUARDED);
        self.ask(procedure, &arguments, |r| {
            Ok(nfs3::SetAttributesResult::decode(r)?.map_err(|f| f.status))
        })
    }

    /// A name in a directory.
    pub fn lookup(&self, directory: &Handle, name: &[u8]) -> Result<Found, NfsError> {
        let arguments = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let (handle, attributes) = self.ask(&LOOKUP, &arguments, |r| {
            Ok(match nfs3::LookupResult::decode(r)? {
                Ok(found) => Ok((Handle::from(found.file), found.attributes)),
                Err(failed) => Err(failed.status),
            })
        })?;
        self.known(handle, attributes)
    }

    fn known(&self, handle: Handle, attributes: Option<Attributes>) -> Result<Found, NfsError> {
        let attributes = attributes.map_or_else(|| self.attributes(&handle), Ok)?;
        Ok(Found { handle, attributes })
    }

    /// Which of these rights the caller has: bits of [`nfs3::access`].
    pub fn access(&self, file: &Handle, access: u32) -> Result<u32, NfsError> {
        let file = file.wire();
        self.ask(&ACCESS, &nfs3::AccessArgs { file, access }, |r| {
            Ok(nfs3::AccessResult::decode(r)?
                .map(|ok| ok.access)
                .map_err(|f| f.status))
        })
    }

    /// What a symbolic link says.
    pub fn read_link(&self, link: &Handle) -> Result<Vec<u8>, NfsError> {
        self.ask(&READLINK, &link.wire(), |r| {
            Ok(match nfs3::ReadLinkResult::decode(r)? {
                Ok(link) => Ok(link.target.0.to_vec()),
                Err(failed) => Err(failed.status),
            })
        })
    }

    /// Makes a file.
    pub fn create(
        &self,
        directory: &Handle,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Found, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        self.make(&CREATE, &nfs3::CreateArgs { place, how }, place)
    }

    /// Makes a directory.
    pub fn make_directory(
        &self,
        directory: &Handle,
        name: &[u8],
        attributes: nfs3::SetAttributes,
    ) -> Result<Found, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        let arguments = nfs3::MakeDirectoryArgs { place, attributes };
        self.make(&MKDIR, &arguments, place)
    }

    /// Makes a device, a socket or a named pipe.
    pub fn make_node(
        &self,
        directory: &Handle,
        name: &[u8],
        what: nfs3::MakeNode,
    ) -> Result<Found, NfsError> {
        let place = DirectoryName {
            directory: directory.wire(),
            name,
        };
        self.make(&MKNOD, &nfs3::MakeNodeArgs { place, what }, place)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
    ) -> Result<Found, NfsError> {
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
    ) -> Result<Found, NfsError> {
        let made = self.ask(procedure, arguments, |r| {
            Ok(match nfs3::CreateResult::decode(r)? {
                Ok(made) => Ok((made.file.map(Handle::from), made.attributes)),
                Err(failed) => Err(failed.status),
            })
        })?;
        match made {
            (Some(handle), attributes) => self.known(handle, attributes),
            // A server may leave the handle out (RFC 1813 section 3.3.8).
            (None, _) => self.lookup(&place.directory.into(), place.name),
        }
    }

    /// Removes a name, of a file or of an empty directory.
    pub fn remove(&self, directory: &Handle, name: &[u8], what: Removed) -> Result<(), NfsError> {
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

    /// Gives a file another name.
    pub fn rename(&self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<(), NfsError> {
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

    /// Gives a file a further name.
    pub fn link(&self, file: &Handle, directory: &Handle, name: &[u8]) -> Result<(), NfsError> {
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

    /// Entries of a directory behind a cookie; with attributes and handles if `plus` says so.
    pub fn list(
        &self,
        directory: &Handle,
        cookie: u64,
        verifier: [u8; 8],
        plus: bool,
    ) -> Result<Listing, NfsError> {
        let directory = directory.wire();
        if !plus {
            let arguments = nfs3::ReadDirArgs {
                directory,
                cookie,
                verifier,
                count: LISTING_BYTES,
            };
            return self.ask(&READDIR, &arguments, |r| {
                Ok(match nfs3::ReadDirResult::decode(r)? {
                    Ok(listed) => Ok(Listing {
                        entries: listed.entries.iter().map(ListedEntry::from).collect(),
                        verifier: listed.verifier,
                        eof: listed.eof,
                    }),
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
                Ok(listed) => Ok(Listing {
                    entries: listed.entries.iter().map(ListedEntry::from).collect(),
                    verifier: listed.verifier,
                    eof: listed.eof,
                }),
                Err(failed) => Err(failed.status),
            })
        })
    }

    /// Room on the file system.
    pub fn space(&self, root: &Handle) -> Result<nfs3::FsStatOk, NfsError> {
        self.ask(&FSSTAT, &root.wire(), |r| {
            Ok(nfs3::FsStatResult::decode(r)?.map_err(|f| f.status))
        })
    }

    /// What the server can do.
    pub fn limits(&self, root: &Handle) -> Result<nfs3::FsInfoOk, NfsError> {
        self.ask(&FSINFO, &root.wire(), |r| {
            Ok(nfs3::FsInfoResult::decode(r)?.map_err(|f| f.status))
        })
    }

    /// Limits of a file or directory.
    pub fn path_configuration(&self, file: &Handle) -> Result<nfs3::PathConfOk, NfsError> {
        self.ask(&PATHCONF, &file.wire(), |r| {
            Ok(nfs3::PathConfResult::decode(r)?.map_err(|f| f.status))
        })
    }

    /// Brings what was written to stable storage.
    pub fn commit(&self, file: &Handle) -> Result<nfs3::CommitOk, NfsError> {
        let arguments = nfs3::CommitArgs {
            file: file.wire(),
            offset: 0,
            count: 0,
        };
        self.ask(&COMMIT, &arguments, |r| {
            Ok(nfs3::CommitResult::decode(r)?.map_err(|f| f.status))
        })
    }
}

/// What [`Nfs::remove`] takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// REMOVE
    File,
    /// RMDIR
    Directory,
}

impl From<&nfs3::Entry<'_>> for ListedEntry {
    fn from(entry: &nfs3::Entry<'_>) -> Self {
        Self {
            name: entry.name.to_vec(),
            file_id: entry.fileid,
            attributes: None,
            handle: None,
            cookie: entry.cookie,
        }
    }
}

impl From<&nfs3::EntryPlus<'_>> for ListedEntry {
    fn from(plus: &nfs3::EntryPlus<'_>) -> Self {
        Self {
            attributes: plus.attributes,
            handle: plus.file.map(Handle::from),
            ..Self::from(&plus.entry)
        }
    }
}
