//! MOUNT, versions 1 (RFC 1094, appendix A) and 2 (X/Open XNFS). Program number, paths and lists are those of
//! [version 3](super::mount3); a mount answers with a handle of NFS version 2, and version 2 adds PATHCONF.

use super::nfs2;

/// The versions spoken here.
pub const VERSIONS: [u32; 2] = [1, 2];
/// PATHCONF: [`DirPath`](super::mount3::DirPath) to [`PathConf`]. In version 2 alone.
pub const PATH_CONF: u32 = 7;

/// The answer to MNT (`fhstatus`): the root of the mounted directory.
pub type MountResult<'a> = Result<nfs2::FileHandle<'a>, nfs2::Status>;

record! {
    /// The answer to PATHCONF (`ppathcnf`): what POSIX's `pathconf` says of the directory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PathConf {
        /// The most hard links.
        pub link_max: u32,
        /// The longest line of a terminal.
        pub canonical_max: u32,
        /// The longest input of a terminal.
        pub input_max: u32,
        /// The longest name, in bytes.
        pub name_max: u32,
        /// The longest path, in bytes.
        pub path_max: u32,
        /// What a pipe takes at once, in bytes.
        pub pipe_bytes: u32,
        /// The character that turns a special character of a terminal off.
        pub disable: u32,
        /// Unused.
        pub reserved: u32,
        /// Bits of [`mask`].
        pub mask: u32,
        /// More of them; there are none.
        pub mask_beyond: u32,
    }
}

/// Bits of [`PathConf::mask`]: which values are not valid, and properties that have no value. Numbered as SunOS numbers the
/// names of `pathconf`.
pub mod mask {
    /// Nothing of the answer is valid.
    pub const ERROR: u32 = 1 << 0;
    /// The longest line of a terminal is not.
    pub const NO_CANONICAL_MAX: u32 = 1 << 2;
    /// The longest input of a terminal is not.
    pub const NO_INPUT_MAX: u32 = 1 << 3;
    /// What a pipe takes is not.
    pub const NO_PIPE_BYTES: u32 = 1 << 6;
    /// Longer names are refused, not cut.
    pub const NO_TRUNCATE: u32 = 1 << 7;
    /// The character is not.
    pub const NO_DISABLE: u32 = 1 << 8;
    /// Only a privileged user changes owners.
    pub const CHOWN_RESTRICTED: u32 = 1 << 9;
}

#[cfg(test)]
mod tests;
