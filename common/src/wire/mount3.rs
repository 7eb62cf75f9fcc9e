//! MOUNT, version 3 (RFC 1813, appendix I).

use super::nfs3::FileHandle;
use super::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// Program number.
pub const PROGRAM: u32 = 100_005;
/// The version spoken here.
pub const VERSION: u32 = 3;
/// The longest path (`MNTPATHLEN`), in bytes.
pub const MAX_PATH: u32 = 1024;
/// The longest host or group name (`MNTNAMLEN`), in bytes.
pub const MAX_NAME: u32 = 255;
/// The most authentication flavours that a mount may list.
pub const MAX_FLAVORS: u32 = 64;
/// The most entries that a list of mounts, exports or groups may hold.
pub const MAX_LISTED: u32 = 4096;

enumeration! {
    /// The procedures.
    pub enum Procedure ("MOUNT procedure") {
        /// Does nothing.
        Null = 0,
        /// [`DirPath`] to [`MountResult`].
        Mount = 1,
        /// Nothing to [`Mounts`].
        Dump = 2,
        /// [`DirPath`] to nothing.
        Unmount = 3,
        /// Nothing to nothing.
        UnmountAll = 4,
        /// Nothing to [`Exports`].
        Export = 5,
    }
}

enumeration! {
    /// `mountstat3`
    pub enum Status ("mountstat3") {
        /// No error.
        Ok = 0,
        /// Not owner.
        Perm = 1,
        /// No such file or directory.
        NoEnt = 2,
        /// Input or output error.
        Io = 5,
        /// Permission denied.
        Access = 13,
        /// Not a directory.
        NotDir = 20,
        /// Invalid argument.
        Inval = 22,
        /// File name too long.
        NameTooLong = 63,
        /// Operation not supported.
        NotSupp = 10004,
        /// A failure on the server.
        ServerFault = 10006,
    }
}

opaque! {
    /// A directory on the server (`dirpath`), as bytes: arguments of MNT and UMNT.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DirPath<'a>("path", MAX_PATH);
}

opaque! {
    /// A host or group (`name`), as bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Name<'a>("name", MAX_NAME);
}

/// The answer to MNT (`mountres3`). The status of an `Err` is never [`Status::Ok`].
pub type MountResult<'a> = Result<MountOk<'a>, Status>;

/// A mount that succeeded (`mountres3_ok`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOk<'a> {
    /// The root of the mounted directory.
    pub file: FileHandle<'a>,
    /// RPC authentication flavours that the export takes, the preferred one first.
    pub flavors: Vec<u32>,
}

impl Encode for MountResult<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Ok(mounted) => {
                Status::Ok.encode(w);
                mounted.file.encode(w);
                w.array(&mounted.flavors);
            }
            Err(status) => {
                debug_assert_ne!(*status, Status::Ok);
                status.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for MountResult<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match Status::decode(r)? {
            Status::Ok => Ok(Ok(MountOk {
                file: FileHandle::decode(r)?,
                flavors: r.array("authentication flavours", MAX_FLAVORS)?,
            })),
            status => Ok(Err(status)),
        }
    }
}

record! {
    /// A client that mounted something (`mountbody`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mount<'a> {
        /// Who.
        pub host: Name<'a>,
        /// What.
        pub directory: DirPath<'a>,
    }
}

/// The answer to DUMP (`mountlist`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounts<'a>(pub Vec<Mount<'a>>);

impl Encode for Mounts<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.chain(&self.0);
    }
}

impl<'a> Decode<'a> for Mounts<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.chain("mounts", MAX_LISTED).map(Self)
    }
}

/// An exported directory and the groups that may mount it (`exportnode`). If it lists no group, everybody may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export<'a> {
    /// The directory.
    pub directory: DirPath<'a>,
    /// Hosts and groups.
    pub groups: Vec<Name<'a>>,
}

impl Encode for Export<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.directory.encode(w);
        w.chain(&self.groups);
    }
}

impl<'a> Decode<'a> for Export<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            directory: DirPath::decode(r)?,
            groups: r.chain("groups", MAX_LISTED)?,
        })
    }
}

/// The answer to EXPORT (`exports`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exports<'a>(pub Vec<Export<'a>>);

impl Encode for Exports<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.chain(&self.0);
    }
}

impl<'a> Decode<'a> for Exports<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.chain("exports", MAX_LISTED).map(Self)
    }
}

#[cfg(test)]
mod tests;
