//! Extended attributes (RFC 8276, section 8.4). GETXATTR and REMOVEXATTR take a [`Name`] alone.

use super::Status;
use super::types::{List, Name};

/// The longest value that decoders take, in bytes: longer than any that Linux has (64 KiB, `XATTR_SIZE_MAX`), so that a server can
/// answer XATTR2BIG.
pub const MAX_XATTR: u32 = 4 << 20;
/// The most names that decoders take in one list.
pub const MAX_XATTRS: u32 = 1 << 16;

opaque! {
    /// `xattrvalue4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct XattrValue<'a>("extended attribute", MAX_XATTR);
}

enumeration! {
    /// `setxattr_option4`
    pub enum SetXattrOption ("setxattr_option4") {
        /// Make or replace it.
        Either = 0,
        /// It must not be there.
        Create = 1,
        /// It must be there.
        Replace = 2,
    }
}

record! {
    /// SETXATTR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetXattrArgs<'a> {
        /// Whether the attribute must exist, must not, or may.
        pub option: SetXattrOption,
        /// The attribute's name, without the prefix `user.`.
        pub name: Name<'a>,
        /// The new value.
        pub value: XattrValue<'a>,
    }
}

record! {
    /// LISTXATTRS
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ListXattrsArgs {
        /// Where an earlier list ended; 0 for the first.
        pub cookie: u64,
        /// The most bytes of [`ListXattrsOk`].
        pub max_count: u32,
    }
}

record! {
    /// A part of the names.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ListXattrsOk<'a> {
        /// Where a further LISTXATTRS goes on.
        pub cookie: u64,
        /// The names.
        pub names: List<Name<'a>, MAX_XATTRS>,
        /// There are no more behind them.
        pub eof: bool,
    }
}

/// GETXATTR
pub type GetXattrResult<'a> = Result<XattrValue<'a>, Status>;
/// LISTXATTRS
pub type ListXattrsResult<'a> = Result<ListXattrsOk<'a>, Status>;
