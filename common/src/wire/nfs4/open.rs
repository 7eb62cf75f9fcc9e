//! Opens and delegations (RFC 7530, sections 16.2 and 16.16 to 16.19; RFC 8881, sections 18.2, 18.16, 18.18, 18.39 and
//! 18.49).

use super::acl::Ace;
use super::types::{ChangeInfo, Name, RawAttributes, StateId, StateOwner, Time, Verifier};
use super::{Bitmap, Status};

/// Bits of [`OpenArgs::share_access`] and the like.
pub mod share_access {
    /// Read.
    pub const READ: u32 = 1;
    /// Write.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
    /// The bits that say which delegation the client wants (4.1): one of the next six values.
    pub const WANT_MASK: u32 = 0xff00;
    /// The server chooses.
    pub const WANT_NO_PREFERENCE: u32 = 0;
    /// A read delegation.
    pub const WANT_READ: u32 = 0x100;
    /// A write delegation.
    pub const WANT_WRITE: u32 = 0x200;
    /// Either.
    pub const WANT_ANY: u32 = 0x300;
    /// None.
    pub const WANT_NONE: u32 = 0x400;
    /// Cancels an earlier request.
    pub const WANT_CANCEL: u32 = 0x500;
    /// The server signals later if it has room for a delegation (4.1).
    pub const SIGNAL_WHEN_AVAILABLE: u32 = 0x1_0000;
    /// The server pushes a delegation later if nobody conflicts (4.1).
    pub const PUSH_WHEN_UNCONTENDED: u32 = 0x2_0000;
    /// A delegation of timestamps (4.2, RFC 9754).
    pub const DELEGATION_TIMESTAMPS: u32 = 0x10_0000;
    /// A delegation instead of an open (4.2, RFC 9754).
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
    /// Locks behave as in POSIX.
    pub const LOCKTYPE_POSIX: u32 = 0x04;
    /// The file stays while it is open, even if it is removed (4.1).
    pub const PRESERVE_UNLINKED: u32 = 0x08;
    /// There is a delegation instead of an open (4.2, RFC 9754).
    pub const NO_OPEN_STATEID: u32 = 0x10;
    /// CB_NOTIFY_LOCK may come (4.1).
    pub const MAY_NOTIFY_LOCK: u32 = 0x20;
}

union! {
    /// `createhow4`: what to do about a file that is there, and the attributes of a new one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CreateHow<'a> ("createmode4") {
        /// A file that is there is opened.
        Unchecked(attributes: RawAttributes<'a>) = 0,
        /// A file that is there is an error.
        Guarded(attributes: RawAttributes<'a>) = 1,
        /// A file that was made with the same verifier is opened. Any other file that is there is an error.
        Exclusive(verifier: Verifier) = 2,
        /// The same, with attributes (4.1).
        ExclusiveWith(verifier: Verifier, attributes: RawAttributes<'a>) = 3,
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

union! {
    /// `open_claim4`: the file to open, and the delegation by which.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Claim<'a> ("open_claim_type4") {
        /// The file of this name in the current directory.
        Null(name: Name<'a>) = 0,
        /// The current file, which the client had open before the server restarted, with this delegation.
        Previous(delegation: DelegationType) = 1,
        /// The file of this name, by a delegation.
        DelegateCurrent(state: StateId, name: Name<'a>) = 2,
        /// The file of this name, by a delegation that the client had before it restarted.
        DelegatePrevious(name: Name<'a>) = 3,
        /// The current file (4.1).
        File = 4,
        /// The current file, by a delegation (4.1).
        DelegateCurrentFile(state: StateId) = 5,
        /// The current file, by a delegation that the client had before it restarted (4.1).
        DelegatePreviousFile = 6,
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
        /// The owner of the open.
        pub owner: StateOwner<'a>,
        /// `openflag4`: how to make the file. `None`: the file must be there.
        pub create: Option<CreateHow<'a>>,
        /// The file, and the delegation by which it is opened.
        pub claim: Claim<'a>,
    }
}

union! {
    /// `nfs_space_limit4`: how much a client may keep to itself before it has to write.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SpaceLimit ("limit_by4") {
        /// So that the file stays at this size or below, in bytes.
        Size(bytes: u64) = 1,
        /// This many blocks of this many bytes.
        Blocks(blocks: u32, bytes: u32) = 2,
    }
}

union! {
    /// `open_none_delegation4` (4.1): why there is no delegation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum WhyNone ("why_no_delegation4") {
        /// The client did not want one.
        NotWanted = 0,
        /// Others conflict. Whether the server will push it later.
        Contention(push: bool) = 1,
        /// The server has no room. Whether it will signal when it has.
        Resource(signal: bool) = 2,
        /// Not for this type of file.
        NotSupportedType = 3,
        /// No write delegations for this type of file.
        WriteNotSupportedType = 4,
        /// Cannot be upgraded.
        NotSupportedUpgrade = 5,
        /// Cannot be downgraded.
        NotSupportedDowngrade = 6,
        /// The client no longer wants one.
        Cancelled = 7,
        /// A directory.
        IsDirectory = 8,
    }
}

record! {
    /// `open_read_delegation4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadDelegation<'a> {
        /// The delegation.
        pub state: StateId,
        /// Whether it is already recalled.
        pub recall: bool,
        /// The users who may open the file for reading without ACCESS.
        pub permissions: Ace<'a>,
    }
}

record! {
    /// `open_write_delegation4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteDelegation<'a> {
        /// The delegation.
        pub state: StateId,
        /// Whether it is already recalled.
        pub recall: bool,
        /// How much the client may keep to itself.
        pub space_limit: SpaceLimit,
        /// The users who may open the file without ACCESS.
        pub permissions: Ace<'a>,
    }
}

union! {
    /// `open_delegation4`, by [`DelegationType`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Delegation<'a> ("open_delegation_type4") {
        /// None.
        None = 0,
        /// For reading.
        Read(delegation: ReadDelegation<'a>) = 1,
        /// For writing.
        Write(delegation: WriteDelegation<'a>) = 2,
        /// None, with the reason: in 4.1 and later, for clients that said what they want.
        NoneBecause(why: WhyNone) = 3,
    }
}

record! {
    /// An open file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenOk<'a> {
        /// The open.
        pub state: StateId,
        /// The change attributes of the directory.
        pub directory: ChangeInfo,
        /// Bits of [`open_result`].
        pub flags: u32,
        /// The attributes that were set.
        pub set: Bitmap,
        /// The delegation that comes with it.
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

union! {
    /// `deleg_claim4`: by what right WANT_DELEGATION asks for the current file (4.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DelegationClaim ("deleg_claim4") {
        /// A delegation from before the server restarted.
        Previous(delegation: DelegationType) = 1,
        /// None in particular.
        File = 4,
        /// A delegation that the client had before it restarted.
        PreviousClient = 6,
    }
}

record! {
    /// WANT_DELEGATION (4.1)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WantDelegationArgs {
        /// A `WANT` value of [`share_access`].
        pub want: u32,
        /// By what right.
        pub claim: DelegationClaim,
    }
}

record! {
    /// GET_DIR_DELEGATION (4.1)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDirDelegationArgs {
        /// Whether the server is to signal when it has room for one.
        pub signal_when_available: bool,
        /// Notifications that the client wants.
        pub notifications: Bitmap,
        /// The longest delay of notifications about entries.
        pub child_delay: Time,
        /// The longest delay of notifications about the directory.
        pub directory_delay: Time,
        /// Attributes of entries that notifications carry.
        pub child_attributes: Bitmap,
        /// Attributes of the directory that notifications carry.
        pub directory_attributes: Bitmap,
    }
}

union! {
    /// What GET_DIR_DELEGATION found (4.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DirDelegation ("gddrnf4_status") {
        /// The delegation.
        Granted(delegation: GrantedDirDelegation) = 0,
        /// None now. Whether the server will signal when there is one.
        Unavailable(signal: bool) = 1,
    }
}

record! {
    /// `GET_DIR_DELEGATION4resok`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GrantedDirDelegation {
        /// The verifier of READDIR's cookies.
        pub verifier: Verifier,
        /// The delegation.
        pub state: StateId,
        /// Notifications that will come.
        pub notifications: Bitmap,
        /// Attributes of entries that notifications will carry.
        pub child_attributes: Bitmap,
        /// Attributes of the directory that notifications will carry.
        pub directory_attributes: Bitmap,
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
