//! Arguments of the NFS version 2 procedures (RFC 1094, section 2.2). GETATTR, READLINK and STATFS take a [`FileHandle`]
//! alone.

use super::types::{FileHandle, MAX_PATH, Payload, SetAttributes};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// A name in a directory (`diropargs`): LOOKUP, REMOVE, RMDIR and a part of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryName<'a> {
    /// The directory.
    pub directory: FileHandle<'a>,
    /// The name: any bytes. Decoders take more than [`super::MAX_NAME`], so that a server can say what is wrong.
    pub name: &'a [u8],
}

impl Encode for DirectoryName<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.directory.encode(w);
        w.opaque(self.name);
    }
}

impl<'a> Decode<'a> for DirectoryName<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self {
            directory: FileHandle::decode(r)?,
            name: r.opaque("name", MAX_PATH)?,
        })
    }
}

record! {
    /// SETATTR (`sattrargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetAttributesArgs<'a> {
        /// What to change.
        pub file: FileHandle<'a>,
        /// What to set.
        pub attributes: SetAttributes,
    }
}

record! {
    /// READ (`readargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// First byte.
        pub offset: u32,
        /// Bytes; the server may return fewer.
        pub count: u32,
        /// Unused.
        pub total_count: u32,
    }
}

record! {
    /// WRITE (`writeargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// Unused.
        pub begin_offset: u32,
        /// First byte.
        pub offset: u32,
        /// Unused.
        pub total_count: u32,
        /// The data to write.
        pub data: Payload<'a>,
    }
}

record! {
    /// CREATE and MKDIR (`createargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateArgs<'a> {
        /// Where.
        pub place: DirectoryName<'a>,
        /// The attributes of what is made.
        pub attributes: SetAttributes,
    }
}

record! {
    /// RENAME (`renameargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameArgs<'a> {
        /// The old name.
        pub from: DirectoryName<'a>,
        /// The new name.
        pub to: DirectoryName<'a>,
    }
}

record! {
    /// LINK (`linkargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LinkArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// Its further name.
        pub place: DirectoryName<'a>,
    }
}

record! {
    /// SYMLINK (`symlinkargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SymlinkArgs<'a> {
        /// Where.
        pub place: DirectoryName<'a>,
        /// The target, at most [`MAX_PATH`] bytes; a server refuses more.
        pub target: Payload<'a>,
        /// Its attributes, which servers on UNIX do not use.
        pub attributes: SetAttributes,
    }
}

record! {
    /// READDIR (`readdirargs`)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDirArgs<'a> {
        /// The directory.
        pub directory: FileHandle<'a>,
        /// Entries after the one with this cookie; 0 for the first.
        pub cookie: u32,
        /// The most bytes of [`super::ReadDirOk`].
        pub count: u32,
    }
}
