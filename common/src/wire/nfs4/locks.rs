//! Locks on ranges of bytes (RFC 7530, sections 16.10 to 16.12; RFC 8881, sections 18.10 to 18.12).

use super::Status;
use super::types::{StateId, StateOwner};
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

enumeration! {
    /// `nfs_lock_type4`
    pub enum LockType ("nfs_lock_type4") {
        /// Shared.
        Read = 1,
        /// Exclusive.
        Write = 2,
        /// Shared, and the client waits for it.
        ReadWait = 3,
        /// Exclusive, and the client waits for it.
        WriteWait = 4,
    }
}

union! {
    /// `locker4`: the owner of a lock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Locker<'a> ("locker4") {
        /// The owner of a lock of this open.
        Existing(owner: ExistingLockOwner) = 0,
        /// An owner that is new to this open.
        New(owner: OpenToLockOwner<'a>) = 1,
    }
}

record! {
    /// `open_to_lock_owner4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenToLockOwner<'a> {
        /// Counts the open owner's operations (4.0).
        pub open_sequence: u32,
        /// The open.
        pub open: StateId,
        /// Counts the lock owner's operations (4.0).
        pub lock_sequence: u32,
        /// The lock owner.
        pub owner: StateOwner<'a>,
    }
}

record! {
    /// `exist_lock_owner4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExistingLockOwner {
        /// The owner's locks of the file.
        pub lock: StateId,
        /// Counts the lock owner's operations (4.0).
        pub lock_sequence: u32,
    }
}

record! {
    /// LOCK
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockArgs<'a> {
        /// The type of the lock.
        pub kind: LockType,
        /// Whether the client held the lock before the server restarted.
        pub reclaim: bool,
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. `u64::MAX`: all from there on.
        pub length: u64,
        /// Its owner.
        pub locker: Locker<'a>,
    }
}

record! {
    /// `LOCK4denied`: a lock that conflicts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockDenied<'a> {
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. `u64::MAX`: all from there on.
        pub length: u64,
        /// The type of the lock.
        pub kind: LockType,
        /// Its owner.
        pub owner: StateOwner<'a>,
    }
}

failure! {
    /// Why LOCK or LOCKT failed.
    pub enum LockFailed<'a> {
        /// [`Status::Denied`], with the lock that conflicts.
        Denied(LockDenied<'a>) = Denied,
    }
}

record! {
    /// LOCKT
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockTestArgs<'a> {
        /// The type of the lock.
        pub kind: LockType,
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. `u64::MAX`: all from there on.
        pub length: u64,
        /// The owner that the lock would have.
        pub owner: StateOwner<'a>,
    }
}

record! {
    /// LOCKU
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UnlockArgs {
        /// Ignored.
        pub kind: LockType,
        /// Counts the lock owner's operations (4.0).
        pub sequence: u32,
        /// The owner's locks of the file.
        pub lock: StateId,
        /// The first byte.
        pub offset: u64,
        /// The number of bytes. `u64::MAX`: all from there on.
        pub length: u64,
    }
}

/// LOCK
pub type LockResult<'a> = Result<StateId, LockFailed<'a>>;
/// LOCKT
pub type LockTestResult<'a> = Result<(), LockFailed<'a>>;
