//! NFS version 3 (RFC 1813): all 22 procedures, for both ends.
//!
//! A call's arguments are a struct named after the procedure. Its result is a `Result` of the RFC's `resok`, or
//! [`Failed`] with the status and the RFC's `resfail`.

mod args;
mod directory;
mod results;
mod types;

pub use args::*;
pub use directory::*;
pub use results::*;
pub use types::*;

/// Program number.
pub const PROGRAM: u32 = 100_003;
/// The version spoken here.
pub const VERSION: u32 = 3;

enumeration! {
    /// The procedures (RFC 1813, section 3.3).
    pub enum Procedure ("NFS procedure") {
        /// Does nothing.
        Null = 0,
        /// [`FileHandle`] to [`GetAttributesResult`].
        GetAttributes = 1,
        /// [`SetAttributesArgs`] to [`SetAttributesResult`].
        SetAttributes = 2,
        /// [`DirectoryName`] to [`LookupResult`].
        Lookup = 3,
        /// [`AccessArgs`] to [`AccessResult`].
        Access = 4,
        /// [`FileHandle`] to [`ReadLinkResult`].
        ReadLink = 5,
        /// [`ReadArgs`] to [`ReadResult`].
        Read = 6,
        /// [`WriteArgs`] to [`WriteResult`].
        Write = 7,
        /// [`CreateArgs`] to [`CreateResult`].
        Create = 8,
        /// [`MakeDirectoryArgs`] to [`CreateResult`].
        MakeDirectory = 9,
        /// [`SymlinkArgs`] to [`CreateResult`].
        Symlink = 10,
        /// [`MakeNodeArgs`] to [`CreateResult`].
        MakeNode = 11,
        /// [`DirectoryName`] to [`RemoveResult`].
        Remove = 12,
        /// [`DirectoryName`] to [`RemoveResult`].
        RemoveDirectory = 13,
        /// [`RenameArgs`] to [`RenameResult`].
        Rename = 14,
        /// [`LinkArgs`] to [`LinkResult`].
        Link = 15,
        /// [`ReadDirArgs`] to [`ReadDirResult`].
        ReadDir = 16,
        /// [`ReadDirPlusArgs`] to [`ReadDirPlusResult`].
        ReadDirPlus = 17,
        /// [`FileHandle`] to [`FsStatResult`].
        FsStat = 18,
        /// [`FileHandle`] to [`FsInfoResult`].
        FsInfo = 19,
        /// [`FileHandle`] to [`PathConfResult`].
        PathConf = 20,
        /// [`CommitArgs`] to [`CommitResult`].
        Commit = 21,
    }
}

#[cfg(test)]
mod tests;
