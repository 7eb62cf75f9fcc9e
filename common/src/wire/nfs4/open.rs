//! Opens and delegations (RFC 7530, sections 16.2 and 16.16 to 16.19; RFC 8881, sections 18.2, 18.16, 18.18, 18.39 and
//! 18.49).

use super::acl::Ace;
use super::types::{ChangeInfo, Name, RawAttributes, StateId, StateOwner, Time, Verifier};
use super::{Bitmap, Status};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// Bits of [`OpenArgs::share_access`] and the like.
pub mod share_access {
    /// Read.
    pub const READ: u32 = 1;
    /// Write.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
    /// The bits of the wish for a delegation (4.1); one of the next six values.
    pub const WANT_MASK: u32 = 0xff00;
    /// Whatever the server likes.
    pub const WANT_NO_PREFERENCE: u32 = 0;
    /// A read delegation.
    pub const WANT_READ: u32 = 0x100;
    /// A write delegation.
    pub const WANT_WRITE: u32 = 0x200;
    /// Either.
    pub const WANT_ANY: u32 = 0x300;
    /// None.
    pub const WANT_NONE: u32 = 0x400;
    /// None any more.
    pub const WANT_CANCEL: u32 = 0x500;
    /// Tell when there is room for it (4.1).
    pub const SIGNAL_WHEN_AVAILABLE: u32 = 0x1_0000;
    /// Hand it over when nobody conflicts (4.1).
    pub const PUSH_WHEN_UNCONTENDED: u32 = 0x2_0000;
    /// A delegation that keeps the times too (4.2, RFC 9754).
    pub const DELEGATION_TIMESTAMPS: u32 = 0x10_0000;
    /// With a delegation, no stateid of the open (4.2, RFC 9754).
    pub const OPEN_XOR_DELEGATION: u32 = 0x20_0000;
}

/// Bits of [`OpenArgs::share_deny`] and the like.
pub mod share_deny {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// Reading.
    pub const READ: u32 = 1;
    /// Writing.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
}

/// Bits of [`OpenOk::flags`].
pub mod open_result {
    /// The client has to send OPEN_CONFIRM (4.0).
    pub const CONFIRM: u32 = 0x02;
    /// Locks are as those of POSIX.
    pub const LOCKTYPE_POSIX: u32 = 0x04;
    /// The file stays while it is open, even if it is removed (4.1).
    pub const PRESERVE_UNLINKED: u32 = 0x08;
    /// Nothing is open: there is a delegation instead, and no stateid of the open (4.2, RFC 9754).
    pub const NO_OPEN_STATEID: u32 = 0x10;
    /// CB_NOTIFY_LOCK may come (4.1).
    pub const MAY_NOTIFY_LOCK: u32 = 0x20;
}

/// `createhow4`: what to do about a file that is there, and the attributes of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow<'a> {
    /// A file that is there already is taken.
    Unchecked(RawAttributes<'a>),
    /// A file that is there already is an error.
    Guarded(RawAttributes<'a>),
    /// The file made by the same call before is taken, any other is an error: the verifier tells.
    Exclusive(Verifier),
    /// The same, with attributes (4.1).
    ExclusiveWith(Verifier, RawAttributes<'a>),
}

impl Encode for CreateHow<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Unchecked(attributes) => {
                w.u32(0);
                attributes.encode(w);
            }
            Self::Guarded(attributes) => {
                w.u32(1);
                attributes.encode(w);
            }
            Self::Exclusive(verifier) => {
                w.u32(2);
                verifier.encode(w);
            }
            Self::ExclusiveWith(verifier, attributes) => {
                w.u32(3);
                verifier.encode(w);
                attributes.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for CreateHow<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => RawAttributes::decode(r).map(Self::Unchecked),
            1 => RawAttributes::decode(r).map(Self::Guarded),
            2 => Decode::decode(r).map(Self::Exclusive),
            3 => Ok(Self::ExclusiveWith(
                Decode::decode(r)?,
                RawAttributes::decode(r)?,
            )),
            value => Err(XdrError::BadValue {
                what: "createmode4",
                value,
            }),
        }
    }
}

enumeration! {
    /// `open_delegation_type4`
    pub enum DelegationType ("open_delegation_type4") {
        /// None.
        None = 0,
        /// For reading.
        Read = 1,
        /// For writing.
        Write = 2,
        /// None, with the reason (4.1).
        NoneExt = 3,
    }
}

/// `open_claim4`: which file, and by what right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'a> {
    /// The file of this name in the current directory.
    Null(Name<'a>),
    /// The current file, which was open before the server started anew, with this delegation.
    Previous(DelegationType),
    /// The file of this name, by a delegation.
    DelegateCurrent(StateId, Name<'a>),
    /// The file of this name, by a delegation to the client before it started anew.
    DelegatePrevious(Name<'a>),
    /// The current file (4.1).
    File,
    /// The current file, by a delegation (4.1).
    DelegateCurrentFile(StateId),
    /// The current file, by a delegation to the client before it started anew (4.1).
    DelegatePreviousFile,
}

impl Encode for Claim<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Null(name) => {
                w.u32(0);
                name.encode(w);
            }
            Self::Previous(delegation) => {
                w.u32(1);
                delegation.encode(w);
            }
            Self::DelegateCurrent(state, name) => {
                w.u32(2);
                state.encode(w);
                name.encode(w);
            }
            Self::DelegatePrevious(name) => {
                w.u32(3);
                name.encode(w);
            }
            Self::File => w.u32(4),
            Self::DelegateCurrentFile(state) => {
                w.u32(5);
                state.encode(w);
            }
            Self::DelegatePreviousFile => w.u32(6),
        }
    }
}

impl<'a> Decode<'a> for Claim<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            0 => Self::Null(Name::decode(r)?),
            1 => Self::Previous(DelegationType::decode(r)?),
            2 => Self::DelegateCurrent(StateId::decode(r)?, Name::decode(r)?),
            3 => Self::DelegatePrevious(Name::decode(r)?),
            4 => Self::File,
            5 => Self::DelegateCurrentFile(StateId::decode(r)?),
            6 => Self::DelegatePreviousFile,
            value => {
                return Err(XdrError::BadValue {
                    what: "open_claim_type4",
                    value,
                });
            }
        })
    }
}

record! {
    /// OPEN
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenArgs<'a> {
        /// Counts the owner's operations (4.0).
        pub sequence: u32,
        /// Bits of [`share_access`].
        pub share_access: u32,
        /// Bits of [`share_deny`].
        pub share_deny: u32,
        /// Whose.
        pub owner: StateOwner<'a>,
        /// `openflag4`: how to make the file; with `None`, it has to be there.
        pub create: Option<CreateHow<'a>>,
        /// Which file, and by what right.
        pub claim: Claim<'a>,
    }
}

/// `nfs_space_limit4`: how much a client may keep to itself before it has to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceLimit {
    /// So that the file stays at this size or below, in bytes.
    Size(u64),
    /// This many blocks of this many bytes.
    Blocks(u32, u32),
}

impl Encode for SpaceLimit {
    fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::Size(bytes) => {
                w.u32(1);
                w.u64(bytes);
            }
            Self::Blocks(blocks, bytes) => w.words([2, blocks, bytes]),
        }
    }
}

impl Decode<'_> for SpaceLimit {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            1 => r.u64().map(Self::Size),
            2 => Ok(Self::Blocks(r.u32()?, r.u32()?)),
            value => Err(XdrError::BadValue {
                what: "limit_by4",
                value,
            }),
        }
    }
}

/// `open_none_delegation4` (4.1): why there is no delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNone {
    /// The client did not want one.
    NotWanted,
    /// Others conflict. Whether the server will hand it over later.
    Contention(bool),
    /// The server has no room. Whether it will tell when there is some.
    Resource(bool),
    /// Not for this type of file.
    NotSupportedType,
    /// No write delegations for this type of file.
    WriteNotSupportedType,
    /// Cannot be upgraded.
    NotSupportedUpgrade,
    /// Cannot be downgraded.
    NotSupportedDowngrade,
    /// The wish was cancelled.
    Cancelled,
    /// A directory.
    IsDirectory,
}

impl Encode for WhyNone {
    fn encode(&self, w: &mut Writer<'_>) {
        match *self {
            Self::NotWanted => w.u32(0),
            Self::Contention(push) => w.words([1, push.into()]),
            Self::Resource(signal) => w.words([2, signal.into()]),
            Self::NotSupportedType => w.u32(3),
            Self::WriteNotSupportedType => w.u32(4),
            Self::NotSupportedUpgrade => w.u32(5),
            Self::NotSupportedDowngrade => w.u32(6),
            Self::Cancelled => w.u32(7),
            Self::IsDirectory => w.u32(8),
        }
    }
}

impl Decode<'_> for WhyNone {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(match r.u32()? {
            0 => Self::NotWanted,
            1 => Self::Contention(r.bool()?),
            2 => Self::Resource(r.bool()?),
            3 => Self::NotSupportedType,
            4 => Self::WriteNotSupportedType,
            5 => Self::NotSupportedUpgrade,
            6 => Self::NotSupportedDowngrade,
            7 => Self::Cancelled,
            8 => Self::IsDirectory,
            value => {
                return Err(XdrError::BadValue {
                    what: "why_no_delegation4",
                    value,
                });
            }
        })
    }
}

record! {
    /// `open_read_delegation4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDelegation<'a> {
        /// The delegation.
        pub state: StateId,
        /// It is being recalled already.
        pub recall: bool,
        /// Who may read without asking.
        pub permissions: Ace<'a>,
    }
}

record! {
    /// `open_write_delegation4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteDelegation<'a> {
        /// The delegation.
        pub state: StateId,
        /// It is being recalled already.
        pub recall: bool,
        /// How much the client may keep to itself.
        pub space_limit: SpaceLimit,
        /// Who may use it without asking.
        pub permissions: Ace<'a>,
    }
}

/// `open_delegation4`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegation<'a> {
    /// None.
    None,
    /// For reading.
    Read(ReadDelegation<'a>),
    /// For writing.
    Write(WriteDelegation<'a>),
    /// None, with the reason: in 4.1 and later, for clients that said what they want.
    NoneBecause(WhyNone),
}

impl Encode for Delegation<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::None => DelegationType::None.encode(w),
            Self::Read(delegation) => {
                DelegationType::Read.encode(w);
                delegation.encode(w);
            }
            Self::Write(delegation) => {
                DelegationType::Write.encode(w);
                delegation.encode(w);
            }
            Self::NoneBecause(why) => {
                DelegationType::NoneExt.encode(w);
                why.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for Delegation<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        Ok(match DelegationType::decode(r)? {
            DelegationType::None => Self::None,
            DelegationType::Read => Self::Read(Decode::decode(r)?),
            DelegationType::Write => Self::Write(Decode::decode(r)?),
            DelegationType::NoneExt => Self::NoneBecause(Decode::decode(r)?),
        })
    }
}

record! {
    /// What OPEN opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenOk<'a> {
        /// The open.
        pub state: StateId,
        /// What happened to the directory.
        pub directory: ChangeInfo,
        /// Bits of [`open_result`].
        pub flags: u32,
        /// The attributes that were set.
        pub set: Bitmap,
        /// A delegation that came with it.
        pub delegation: Delegation<'a>,
    }
}

record! {
    /// CLOSE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CloseArgs {
        /// Counts the owner's operations (4.0).
        pub sequence: u32,
        /// The open.
        pub state: StateId,
    }
}

record! {
    /// OPEN_CONFIRM (4.0)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenConfirmArgs {
        /// The open.
        pub state: StateId,
        /// Counts the owner's operations.
        pub sequence: u32,
    }
}

record! {
    /// OPEN_DOWNGRADE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenDowngradeArgs {
        /// The open.
        pub state: StateId,
        /// Counts the owner's operations (4.0).
        pub sequence: u32,
        /// Bits of [`share_access`] that stay.
        pub share_access: u32,
        /// Bits of [`share_deny`] that stay.
        pub share_deny: u32,
    }
}

/// `deleg_claim4`: by what right WANT_DELEGATION asks for the current file (4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegationClaim {
    /// None in particular.
    File,
    /// A delegation to the client before it started anew.
    PreviousClient,
    /// A delegation from before the server started anew.
    Previous(DelegationType),
}

impl Encode for DelegationClaim {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::File => w.u32(4),
            Self::PreviousClient => w.u32(6),
            Self::Previous(delegation) => {
                w.u32(1);
                delegation.encode(w);
            }
        }
    }
}

impl Decode<'_> for DelegationClaim {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            1 => DelegationType::decode(r).map(Self::Previous),
            4 => Ok(Self::File),
            6 => Ok(Self::PreviousClient),
            value => Err(XdrError::BadValue {
                what: "deleg_claim4",
                value,
            }),
        }
    }
}

record! {
    /// WANT_DELEGATION (4.1)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WantDelegationArgs {
        /// A wish of [`share_access`].
        pub want: u32,
        /// By what right.
        pub claim: DelegationClaim,
    }
}

record! {
    /// GET_DIR_DELEGATION (4.1)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDirDelegationArgs {
        /// Tell when there is room for it.
        pub signal_when_available: bool,
        /// Notifications that the client wants.
        pub notifications: Bitmap,
        /// How late changes of entries may be told.
        pub child_delay: Time,
        /// How late changes of the directory may be told.
        pub directory_delay: Time,
        /// Attributes of entries to be told.
        pub child_attributes: Bitmap,
        /// Attributes of the directory to be told.
        pub directory_attributes: Bitmap,
    }
}

/// What GET_DIR_DELEGATION found (4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirDelegation {
    /// The delegation.
    Granted(GrantedDirDelegation),
    /// None now. Whether the server will tell when there is one.
    Unavailable(bool),
}

record! {
    /// `GET_DIR_DELEGATION4resok`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GrantedDirDelegation {
        /// Goes with the cookies of READDIR.
        pub verifier: Verifier,
        /// The delegation.
        pub state: StateId,
        /// Notifications that will come.
        pub notifications: Bitmap,
        /// Attributes of entries that will be told.
        pub child_attributes: Bitmap,
        /// Attributes of the directory that will be told.
        pub directory_attributes: Bitmap,
    }
}

impl Encode for DirDelegation {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Granted(delegation) => {
                w.u32(0);
                delegation.encode(w);
            }
            Self::Unavailable(signal) => w.words([1, (*signal).into()]),
        }
    }
}

impl Decode<'_> for DirDelegation {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        match r.u32()? {
            0 => Decode::decode(r).map(Self::Granted),
            1 => r.bool().map(Self::Unavailable),
            value => Err(XdrError::BadValue {
                what: "gddrnf4_status",
                value,
            }),
        }
    }
}

/// OPEN
pub type OpenResult<'a> = Result<OpenOk<'a>, Status>;
/// CLOSE, OPEN_CONFIRM, OPEN_DOWNGRADE, LOCKU: the new stateid.
pub type StateIdResult = Result<StateId, Status>;
/// WANT_DELEGATION
pub type WantDelegationResult<'a> = Result<Delegation<'a>, Status>;
/// GET_DIR_DELEGATION
pub type GetDirDelegationResult = Result<DirDelegation, Status>;
