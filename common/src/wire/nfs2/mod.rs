//! NFS version 2 (RFC 1094): all 18 procedures, for both ends.
//!
//! A call's arguments are a struct named after the procedure, or a [`FileHandle`] alone. Its result is a `Result` of what
//! the RFC has for `NFS_OK`, or the [`Status`] alone.

mod args;
mod results;
mod types;

pub use args::*;
pub use results::*;
pub use types::*;

/// Program number.
pub const PROGRAM: u32 = 100_003;
/// The version spoken here.
pub const VERSION: u32 = 2;

enumeration! {
    /// The procedures (RFC 1094, section 2.2).
    pub enum Procedure ("NFS version 2 procedure") {
        /// Does nothing.
        Null = 0,
        /// [`FileHandle`] to [`AttributesResult`].
        GetAttributes = 1,
        /// [`SetAttributesArgs`] to [`AttributesResult`].
        SetAttributes = 2,
        /// Obsolete: nothing to nothing. MOUNT took its place.
        Root = 3,
        /// [`DirectoryName`] to [`ObjectResult`].
        Lookup = 4,
        /// [`FileHandle`] to [`ReadLinkResult`].
        ReadLink = 5,
        /// [`ReadArgs`] to [`ReadResult`].
        Read = 6,
        /// Reserved: nothing to nothing.
        WriteCache = 7,
        /// [`WriteArgs`] to [`AttributesResult`].
        Write = 8,
        /// [`CreateArgs`] to [`ObjectResult`].
        Create = 9,
        /// [`DirectoryName`] to [`ChangeResult`].
        Remove = 10,
        /// [`RenameArgs`] to [`ChangeResult`].
        Rename = 11,
        /// [`LinkArgs`] to [`ChangeResult`].
        Link = 12,
        /// [`SymlinkArgs`] to [`ChangeResult`].
        Symlink = 13,
        /// [`CreateArgs`] to [`ObjectResult`].
        MakeDirectory = 14,
        /// [`DirectoryName`] to [`ChangeResult`].
        RemoveDirectory = 15,
        /// [`ReadDirArgs`] to [`ReadDirResult`].
        ReadDir = 16,
        /// [`FileHandle`] to [`StatFsResult`].
        StatFs = 17,
    }
}

#[cfg(test)]
mod tests;
