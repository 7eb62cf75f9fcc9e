//! CB_COMPOUND: the calls of a server to its clients (RFC 7530 and RFC 7531; RFC 8881, section 20; RFC 7862, section 16).

use super::*;
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// The most lists of referring calls, and calls in one, that decoders take.
pub const MAX_REFERRING: u32 = 1024;

record! {
    /// The header of a CB_COMPOUND, before its operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CallbackHeader<'a> {
        /// Any bytes. The reply returns them.
        pub tag: Opaque<'a>,
        /// The minor version.
        pub minor_version: u32,
        /// The `callback_ident` of SETCLIENTID (4.0). Ignored later.
        pub ident: u32,
        /// The number of operations that follow.
        pub operations: u32,
    }
}

enumeration! {
    /// `nfs_cb_opnum4`
    pub enum CallbackCode ("nfs_cb_opnum4") {
        /// Reads attributes that a write delegation keeps from the server.
        GetAttributes = 3,
        /// Recalls a delegation.
        Recall = 4,
        /// Of layouts: never sent.
        LayoutRecall = 5,
        /// Of directory delegations: never sent.
        Notify = 6,
        /// Hands over a delegation: never sent.
        PushDelegation = 7,
        /// Recalls any state (4.1).
        RecallAny = 8,
        /// Says that there is room for more state: never sent.
        RecallableObjectAvailable = 9,
        /// Takes slots back (4.1).
        RecallSlot = 10,
        /// Takes a slot of a session (4.1).
        Sequence = 11,
        /// Cancels requests for delegations: never sent.
        WantsCancelled = 12,
        /// Says that a lock may be free (4.1).
        NotifyLock = 13,
        /// Of layouts: never sent.
        NotifyDeviceId = 14,
        /// Says how a copy ended (4.2).
        Offload = 15,
        /// Stands in results for a number that is no operation.
        Illegal = 10044,
    }
}

record! {
    /// CB_GETATTR
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CallbackGetAttributesArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// The attributes asked for: `change` and `size`.
        pub asked: Bitmap,
    }
}

record! {
    /// CB_RECALL
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecallArgs<'a> {
        /// The delegation.
        pub state: StateId,
        /// Whether the file will be truncated to nothing, so that its data need not be written.
        pub truncate: bool,
        /// The file.
        pub file: FileHandle<'a>,
    }
}

/// Numbers in [`RecallAnyArgs::types`].
pub mod recall_any {
    /// Read delegations.
    pub const READ_DELEGATIONS: u32 = 0;
    /// Write delegations.
    pub const WRITE_DELEGATIONS: u32 = 1;
    /// Directory delegations.
    pub const DIRECTORY_DELEGATIONS: u32 = 2;
}

record! {
    /// CB_RECALL_ANY
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecallAnyArgs {
        /// How many the client may keep.
        pub keep: u32,
        /// Numbers of [`recall_any`].
        pub types: Bitmap,
    }
}

record! {
    /// CB_RECALL_SLOT
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecallSlotArgs {
        /// The highest slot that the client should use.
        pub target_highest_slot: u32,
    }
}

record! {
    /// `referring_call4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReferringCall {
        /// The call's sequence id.
        pub sequence: u32,
        /// Its slot.
        pub slot: u32,
    }
}

record! {
    /// `referring_call_list4`: calls whose replies the callback may overtake.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReferringCalls {
        /// Their session.
        pub session: SessionId,
        /// The calls.
        pub calls: List<ReferringCall, MAX_REFERRING>,
    }
}

record! {
    /// CB_SEQUENCE
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CallbackSequenceArgs {
        /// The session.
        pub session: SessionId,
        /// Counts the slot's callbacks.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot with a callback under way.
        pub highest_slot: u32,
        /// Whether the slot has to keep the reply for repetitions.
        pub cache: bool,
        /// Calls whose replies this may overtake.
        pub referring: List<ReferringCalls, MAX_REFERRING>,
    }
}

record! {
    /// A slot that a callback has taken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CallbackSequenceOk {
        /// The session.
        pub session: SessionId,
        /// The sequence number of the callback.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot that the client takes.
        pub highest_slot: u32,
        /// The highest slot that the server should use.
        pub target_highest_slot: u32,
    }
}

record! {
    /// CB_NOTIFY_LOCK
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NotifyLockArgs<'a> {
        /// The file.
        pub file: FileHandle<'a>,
        /// The owner that was denied a lock.
        pub owner: StateOwner<'a>,
    }
}

/// `offload_info4`: how a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadInfo {
    /// It is done.
    Done(WriteResponse),
    /// It failed with this status, after so many bytes.
    Failed(Status, u64),
}

impl Encode for OffloadInfo {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Done(response) => {
                Status::Ok.encode(w);
                response.encode(w);
            }
            Self::Failed(status, copied) => {
                debug_assert_ne!(*status, Status::Ok);
                status.encode(w);
                w.u64(*copied);
            }
        }
    }
}

impl Decode<'_> for OffloadInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, XdrError> {
        Ok(match Status::decode(r)? {
            Status::Ok => Self::Done(Decode::decode(r)?),
            status => Self::Failed(status, r.u64()?),
        })
    }
}

record! {
    /// CB_OFFLOAD
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OffloadArgs<'a> {
        /// The destination.
        pub file: FileHandle<'a>,
        /// The copy.
        pub state: StateId,
        /// How it ended.
        pub info: OffloadInfo,
    }
}

/// Declares the callbacks with their arguments and results.
macro_rules! callbacks {
    ($($name:ident($args:ty) -> $result:ty,)*) => {
        /// `nfs_cb_argop4`: the operations that are sent.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum CallbackOperation<'a> {
            $(#[doc = concat!("[`CallbackCode::", stringify!($name), "`]")] $name($args),)*
        }

        impl CallbackOperation<'_> {
            /// Its number.
            pub const fn code(&self) -> CallbackCode {
                match self {
                    $(Self::$name(_) => CallbackCode::$name,)*
                }
            }
        }

        impl Encode for CallbackOperation<'_> {
            fn encode(&self, w: &mut Writer<'_>) {
                self.code().encode(w);
                match self {
                    $(Self::$name(args) => args.encode(w),)*
                }
            }
        }

        impl<'a> Decode<'a> for CallbackOperation<'a> {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                Ok(match CallbackCode::decode(r)? {
                    $(CallbackCode::$name => Self::$name(Decode::decode(r)?),)*
                    other => return Err(XdrError::BadValue {
                        what: "callback operation",
                        value: other.code(),
                    }),
                })
            }
        }

        /// `nfs_cb_resop4`: their results.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum CallbackResult<'a> {
            $(#[doc = concat!("[`CallbackCode::", stringify!($name), "`]")] $name($result),)*
            /// [`CallbackCode::Illegal`]
            Illegal(StatusResult),
        }

        impl CallbackResult<'_> {
            /// The operation's number.
            pub const fn code(&self) -> CallbackCode {
                match self {
                    $(Self::$name(_) => CallbackCode::$name,)*
                    Self::Illegal(_) => CallbackCode::Illegal,
                }
            }

            /// The operation's status.
            pub fn status(&self) -> Status {
                let failed = match self {
                    $(Self::$name(result) => result.as_ref().err(),)*
                    Self::Illegal(result) => result.as_ref().err(),
                };
                failed.copied().unwrap_or(Status::Ok)
            }
        }

        impl Encode for CallbackResult<'_> {
            fn encode(&self, w: &mut Writer<'_>) {
                self.code().encode(w);
                match self {
                    $(Self::$name(result) => result.encode(w),)*
                    Self::Illegal(result) => result.encode(w),
                }
            }
        }

        impl<'a> Decode<'a> for CallbackResult<'a> {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                Ok(match CallbackCode::decode(r)? {
                    $(CallbackCode::$name => Self::$name(Decode::decode(r)?),)*
                    CallbackCode::Illegal => Self::Illegal(Decode::decode(r)?),
                    other => return Err(XdrError::BadValue {
                        what: "callback operation",
                        value: other.code(),
                    }),
                })
            }
        }
    };
}

callbacks! {
    GetAttributes(CallbackGetAttributesArgs<'a>) -> GetAttributesResult<'a>,
    Recall(RecallArgs<'a>) -> StatusResult,
    RecallAny(RecallAnyArgs) -> StatusResult,
    RecallSlot(RecallSlotArgs) -> StatusResult,
    Sequence(CallbackSequenceArgs) -> Result<CallbackSequenceOk, Status>,
    NotifyLock(NotifyLockArgs<'a>) -> StatusResult,
    Offload(OffloadArgs<'a>) -> StatusResult,
}
