//! Results of the NFS version 3 procedures (RFC 1813, section 3.3).

use super::types::{Attributes, Failed, FileHandle, Payload, Time, WccData};
use super::{ATTRIBUTES_BYTES, Stable};
use crate::wire::xdr::{Encode as _, Writer, padding};

/// GETATTR
pub type GetAttributesResult = Result<Attributes, Failed<()>>;
/// SETATTR
pub type SetAttributesResult = Result<WccData, Failed<WccData>>;
/// LOOKUP; on failure the attributes of the directory.
pub type LookupResult<'a> = Result<LookupOk<'a>, Failed<Option<Attributes>>>;
/// ACCESS
pub type AccessResult = Result<AccessOk, Failed<Option<Attributes>>>;
/// READLINK
pub type ReadLinkResult<'a> = Result<ReadLinkOk<'a>, Failed<Option<Attributes>>>;
/// READ
pub type ReadResult<'a> = Result<ReadOk<'a>, Failed<Option<Attributes>>>;
/// WRITE
pub type WriteResult = Result<WriteOk, Failed<WccData>>;
/// CREATE, MKDIR, SYMLINK and MKNOD; on failure what happened to the directory.
pub type CreateResult<'a> = Result<CreateOk<'a>, Failed<WccData>>;
/// REMOVE and RMDIR: what happened to the directory.
pub type RemoveResult = Result<WccData, Failed<WccData>>;
/// RENAME
pub type RenameResult = Result<RenameData, Failed<RenameData>>;
/// LINK
pub type LinkResult = Result<LinkData, Failed<LinkData>>;
/// FSSTAT
pub type FsStatResult = Result<FsStatOk, Failed<Option<Attributes>>>;
/// FSINFO
pub type FsInfoResult = Result<FsInfoOk, Failed<Option<Attributes>>>;
/// PATHCONF
pub type PathConfResult = Result<PathConfOk, Failed<Option<Attributes>>>;
/// COMMIT
pub type CommitResult = Result<CommitOk, Failed<WccData>>;

record! {
    /// What LOOKUP found.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LookupOk<'a> {
        /// Handle of the object.
        pub file: FileHandle<'a>,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// Those of the directory.
        pub directory: Option<Attributes>,
    }
}

record! {
    /// What ACCESS grants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AccessOk {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// Bits of [`super::access`]: those asked about that are granted.
        pub access: u32,
    }
}

record! {
    /// A symbolic link.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadLinkOk<'a> {
        /// Attributes of the link.
        pub attributes: Option<Attributes>,
        /// The target.
        pub target: Payload<'a>,
    }
}

record! {
    /// Data that was read. A server writes it in place with [`ReadReply`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadOk<'a> {
        /// Attributes of the file after the read.
        pub attributes: Option<Attributes>,
        /// Bytes read.
        pub count: u32,
        /// The last of them is the last of the file.
        pub eof: bool,
        /// The data read, `count` bytes.
        pub data: Payload<'a>,
    }
}

record! {
    /// What became of a WRITE.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteOk {
        /// Attributes of the file before and after.
        pub wcc: WccData,
        /// Bytes written.
        pub count: u32,
        /// How far they got.
        pub committed: Stable,
        /// Changes whenever unstable data may have been lost.
        pub verifier: [u8; 8],
    }
}

record! {
    /// What was made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateOk<'a> {
        /// Handle of the new object; without one it has to be looked up.
        pub file: Option<FileHandle<'a>>,
        /// Its attributes.
        pub attributes: Option<Attributes>,
        /// What happened to the directory.
        pub directory: WccData,
    }
}

record! {
    /// What RENAME did to the directories.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameData {
        /// The one of the old name.
        pub from: WccData,
        /// The one of the new name.
        pub to: WccData,
    }
}

record! {
    /// What LINK did.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LinkData {
        /// Attributes of the file after.
        pub attributes: Option<Attributes>,
        /// What happened to the directory.
        pub directory: WccData,
    }
}

record! {
    /// Room in the file system, in bytes and in files.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FsStatOk {
        /// Attributes of the root.
        pub attributes: Option<Attributes>,
        /// Bytes in all.
        pub total_bytes: u64,
        /// Bytes free.
        pub free_bytes: u64,
        /// Bytes free for the caller.
        pub available_bytes: u64,
        /// Files in all.
        pub total_files: u64,
        /// Files that can still be made.
        pub free_files: u64,
        /// Files that the caller can still make.
        pub available_files: u64,
        /// Seconds for which this is not expected to change.
        pub invariant_seconds: u32,
    }
}

/// Bits of [`FsInfoOk::properties`] (RFC 1813, section 3.3.19).
pub mod properties {
    /// Hard links.
    pub const LINK: u32 = 0x01;
    /// Symbolic links.
    pub const SYMLINK: u32 = 0x02;
    /// Whether PATHCONF is the same for every file.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// SETATTR can set times.
    pub const CAN_SET_TIME: u32 = 0x10;
}

record! {
    /// What the server can do, and likes best; sizes in bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FsInfoOk {
        /// Attributes of the root.
        pub attributes: Option<Attributes>,
        /// The most that a READ returns.
        pub read_max: u32,
        /// What a READ better asks for.
        pub read_preferred: u32,
        /// What that better is a multiple of.
        pub read_multiple: u32,
        /// The most that a WRITE takes.
        pub write_max: u32,
        /// What a WRITE better brings.
        pub write_preferred: u32,
        /// What that better is a multiple of.
        pub write_multiple: u32,
        /// What a READDIR better asks for.
        pub directory_preferred: u32,
        /// The largest file.
        pub file_max: u64,
        /// The server's resolution of time.
        pub time_delta: Time,
        /// Bits of [`properties`].
        pub properties: u32,
    }
}

record! {
    /// POSIX information.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PathConfOk {
        /// Attributes of the object.
        pub attributes: Option<Attributes>,
        /// The most hard links.
        pub link_max: u32,
        /// The longest name, in bytes.
        pub name_max: u32,
        /// Longer names are refused, not cut.
        pub no_truncate: bool,
        /// Only a privileged user changes owners.
        pub chown_restricted: bool,
        /// Names do not tell upper from lower case.
        pub case_insensitive: bool,
        /// Names keep the case in which they were made.
        pub case_preserving: bool,
    }
}

record! {
    /// Data that is on stable storage now.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CommitOk {
        /// Attributes of the file before and after.
        pub wcc: WccData,
        /// Changes whenever unstable data may have been lost.
        pub verifier: [u8; 8],
    }
}

/// A successful READ result made in place: room for the most bytes that there can be, the data copied
/// straight into it, and then how many there were.
#[derive(Debug)]
pub struct ReadReply<'w, 'v> {
    w: &'w mut Writer<'v>,
    start: usize,
}

impl<'w, 'v> ReadReply<'w, 'v> {
    /// Status, attributes, count, EOF and the length of the data.
    const HEAD: usize = 4 + 4 + ATTRIBUTES_BYTES + 4 + 4 + 4;

    /// Makes room for `max` bytes of data.
    pub fn begin(w: &'w mut Writer<'v>, max: u32) -> Self {
        let start = w.position();
        w.zeros(Self::HEAD + max as usize);
        Self { w, start }
    }

    /// The room, zero at first.
    pub fn data(&mut self) -> &mut [u8] {
        self.w.written(self.start + Self::HEAD)
    }

    /// The first `count` bytes of the room were read. `attributes` are known whenever the server could read.
    ///
    /// # Panics
    /// Where `count` is above the room.
    pub fn finish(self, count: u32, eof: bool, attributes: &Attributes) {
        let Self { w, start } = self;
        let end = start + Self::HEAD + count as usize;
        assert!(end <= w.position(), "more data than there is room for");
        w.truncate(end);
        w.zeros(padding(count as usize));
        let head = ReadOk {
            attributes: Some(*attributes),
            count,
            eof,
            data: Payload(&[]),
        };
        w.overwrite(start, &ReadResult::Ok(head));
        w.patch_u32(start + Self::HEAD - 4, count);
    }

    /// Writes the result without its data, `count` bytes that go another way (RFC 8166: into a write chunk). Where
    /// they would stand.
    pub fn placed(w: &mut Writer<'_>, count: u32, eof: bool, attributes: &Attributes) -> usize {
        let head = ReadOk {
            attributes: Some(*attributes),
            count,
            eof,
            data: Payload(&[]),
        };
        let result: ReadResult<'_> = Ok(head);
        result.encode(w);
        let at = w.position();
        w.patch_u32(at - 4, count);
        at
    }

    /// Takes the room back: another result is written instead.
    pub fn cancel(self) {
        self.w.truncate(self.start);
    }
}
