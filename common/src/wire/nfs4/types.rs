//! Data types that operations share (RFC 7530, section 2; RFC 8881, section 3).

use super::Bitmap;
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The longest file handle (`NFS4_FHSIZE`), in bytes.
pub const MAX_FILE_HANDLE: u32 = 128;
/// The longest owner, identity of a client or a server, or tag that decoders take (`NFS4_OPAQUE_LIMIT`), in bytes.
pub const MAX_OPAQUE: u32 = 1024;
/// The longest name that decoders take, in bytes. A store may allow less.
pub const MAX_NAME: u32 = 4096;
/// The most bytes of attribute values that decoders take in one `fattr4`.
pub const MAX_ATTRIBUTE_VALUES: u32 = 1 << 18;

/// A `verifier4`.
pub type Verifier = [u8; 8];
/// A `sessionid4`.
pub type SessionId = [u8; 16];

opaque! {
    /// The server's name for an object (`nfs_fh4`): at most 128 bytes, opaque to the client.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FileHandle<'a>("file handle", MAX_FILE_HANDLE);
}
opaque! {
    /// A name in a directory (`component4`) or of an extended attribute: any bytes, not checked here.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Name<'a>("name", MAX_NAME);
}
opaque! {
    /// At most 1024 bytes that only the peer understands, or a string: an owner, an identity, a tag.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Opaque<'a>("opaque", MAX_OPAQUE);
}

/// A variable-length array of at most `MAX` items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T, const MAX: u32>(pub Vec<T>);

impl<T, const MAX: u32> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Encode, const MAX: u32> Encode for List<T, MAX> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.array(&self.0);
    }
}

impl<'a, T: Decode<'a>, const MAX: u32> Decode<'a> for List<T, MAX> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.array("list", MAX).map(Self)
    }
}

/// An array of one item or none (`<1>`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtMostOne<T>(pub Option<T>);

impl<T: Encode> Encode for AtMostOne<T> {
    fn encode(&self, w: &mut Writer<'_>) {
        // A count of 0 or 1 has the shape of a boolean.
        self.0.encode(w);
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for AtMostOne<T> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(Self(match r.length("array of at most one", 1)? {
            0 => None,
            _ => Some(T::decode(r)?),
        }))
    }
}

enumeration! {
    /// `nfs_ftype4`
    pub enum FileType ("nfs_ftype4") {
        /// Regular file.
        Regular = 1,
        /// Directory.
        Directory = 2,
        /// Block device.
        Block = 3,
        /// Character device.
        Character = 4,
        /// Symbolic link.
        Symlink = 5,
        /// Socket.
        Socket = 6,
        /// Named pipe.
        Fifo = 7,
        /// Directory of named attributes.
        AttributeDirectory = 8,
        /// Named attribute.
        NamedAttribute = 9,
    }
}

/// `nfstime4`: the time since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that second. Decoding does not check that they are below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Encode for Time {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.seconds.cast_unsigned());
        w.u32(self.nanoseconds);
    }
}

impl Decode<'_> for Time {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            seconds: r.u64()?.cast_signed(),
            nanoseconds: r.u32()?,
        })
    }
}

union! {
    /// `settime4`: what a time is set to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SetTime ("time_how4") {
        /// The server's time.
        ServerTime = 0,
        /// This time.
        To(time: Time) = 1,
    }
}

record! {
    /// `stateid4` (RFC 8881, section 8.2): names an open, a lock, a delegation or a copy.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct StateId {
        /// Counts the changes of the state. In 4.1 and later 0 stands for the latest.
        pub sequence: u32,
        /// Names the state.
        pub other: [u8; 12],
    }
}

impl StateId {
    /// All zeros: no state (RFC 8881, section 8.2.3).
    pub const ANONYMOUS: Self = Self {
        sequence: 0,
        other: [0; 12],
    };
    /// All ones: a READ that passes locks.
    pub const READ_BYPASS: Self = Self {
        sequence: u32::MAX,
        other: [0xff; 12],
    };
    /// The stateid that an earlier operation of the compound returned (4.1).
    pub const CURRENT: Self = Self {
        sequence: 1,
        other: [0; 12],
    };
    /// Never valid (4.1).
    pub const INVALID: Self = Self {
        sequence: u32::MAX,
        other: [0; 12],
    };
}

record! {
    /// `fsid4`
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsId {
        /// One half.
        pub major: u64,
        /// The other.
        pub minor: u64,
    }
}

record! {
    /// `change_info4`: the change attribute of a directory or file before and after an operation.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ChangeInfo {
        /// Whether nothing else came between the two.
        pub atomic: bool,
        /// Right before the operation.
        pub before: u64,
        /// Right after the operation.
        pub after: u64,
    }
}

record! {
    /// `netaddr4`: an address as the portmapper writes it (RFC 5665).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NetAddress<'a> {
        /// `tcp`, `tcp6`, `rdma` or the like.
        pub network: Opaque<'a>,
        /// The universal address.
        pub address: Opaque<'a>,
    }
}

record! {
    /// `nfs_client_id4`, `client_owner4`: how a client names itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ClientOwner<'a> {
        /// Changes with each start of the client.
        pub verifier: Verifier,
        /// The client's own name, which stays the same.
        pub id: Opaque<'a>,
    }
}

record! {
    /// `open_owner4`, `lock_owner4`: the owner of an open or a lock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct StateOwner<'a> {
        /// The client's id. Ignored in 4.1 and later, where the session has a client.
        pub client_id: u64,
        /// The owner within the client.
        pub owner: Opaque<'a>,
    }
}

record! {
    /// An encoded `fattr4`: a mask, and the values of the attributes in it.
    ///
    /// [`super::SetAttributes::parse`], [`super::Attributes::parse`] and [`super::Attributes::matches`] read the values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RawAttributes<'a> {
        /// The attributes.
        pub mask: Bitmap,
        /// Their values, in the order of their numbers.
        pub values: AttributeValues<'a>,
    }
}

opaque! {
    /// `attrlist4`
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AttributeValues<'a>("attribute values", MAX_ATTRIBUTE_VALUES);
}
