//! The operations of a COMPOUND, by their numbers (RFC 7863, section 2; RFC 8276, section 8.4).

use super::*;
use crate::wire::xdr::{Decode, Encode, Reader, Writer, XdrError};

enumeration! {
    /// `nfs_opnum4`
    pub enum OpCode ("nfs_opnum4") {
        /// Asks for the caller's rights.
        Access = 3,
        /// Ends an open.
        Close = 4,
        /// Brings data to stable storage.
        Commit = 5,
        /// Makes anything but a regular file.
        Create = 6,
        /// Gives up the delegations that a client had before it restarted.
        DelegationPurge = 7,
        /// Gives a delegation back.
        DelegationReturn = 8,
        /// Reads attributes.
        GetAttributes = 9,
        /// Reads the current file handle.
        GetFileHandle = 10,
        /// Makes a hard link.
        Link = 11,
        /// Locks a range.
        Lock = 12,
        /// Looks for a lock that conflicts.
        LockTest = 13,
        /// Unlocks a range.
        Unlock = 14,
        /// Makes the object of a name the current one.
        Lookup = 15,
        /// Makes the parent directory the current object.
        LookupParent = 16,
        /// Fails if attributes are the same.
        VerifyNot = 17,
        /// Opens a regular file.
        Open = 18,
        /// Makes the directory of named attributes the current object.
        OpenAttributeDirectory = 19,
        /// Confirms an open (4.0).
        OpenConfirm = 20,
        /// Gives up a part of an open.
        OpenDowngrade = 21,
        /// Sets the current file handle.
        PutFileHandle = 22,
        /// Makes the public directory the current object.
        PutPublicFileHandle = 23,
        /// Makes the root the current object.
        PutRootFileHandle = 24,
        /// Reads data.
        Read = 25,
        /// Reads a directory.
        ReadDir = 26,
        /// Reads a symbolic link.
        ReadLink = 27,
        /// Removes a name.
        Remove = 28,
        /// Renames.
        Rename = 29,
        /// Renews the lease (4.0).
        Renew = 30,
        /// Makes the saved object the current one.
        RestoreFileHandle = 31,
        /// Saves the current file handle.
        SaveFileHandle = 32,
        /// The security flavours for a name.
        SecInfo = 33,
        /// Sets attributes.
        SetAttributes = 34,
        /// Names a client (4.0).
        SetClientId = 35,
        /// Confirms its id (4.0).
        SetClientIdConfirm = 36,
        /// Fails if attributes differ.
        Verify = 37,
        /// Writes data.
        Write = 38,
        /// Forgets a lock owner (4.0).
        ReleaseLockOwner = 39,
        /// Changes the program and credential of callbacks (4.1).
        BackchannelCtl = 40,
        /// Adds a connection to a session (4.1).
        BindConnection = 41,
        /// Names a client (4.1).
        ExchangeId = 42,
        /// Makes a session (4.1).
        CreateSession = 43,
        /// Ends a session (4.1).
        DestroySession = 44,
        /// Forgets a stateid (4.1).
        FreeStateId = 45,
        /// Asks for a delegation of a directory (4.1).
        GetDirDelegation = 46,
        /// Of layouts: refused.
        GetDeviceInfo = 47,
        /// Of layouts: refused.
        GetDeviceList = 48,
        /// Of layouts: refused.
        LayoutCommit = 49,
        /// Of layouts: refused.
        LayoutGet = 50,
        /// Of layouts: refused.
        LayoutReturn = 51,
        /// The security flavours for the current file handle (4.1).
        SecInfoNoName = 52,
        /// Takes a slot of a session (4.1).
        Sequence = 53,
        /// Of SP4_SSV: refused.
        SetSsv = 54,
        /// Asks which stateids are valid (4.1).
        TestStateId = 55,
        /// Asks for a delegation (4.1).
        WantDelegation = 56,
        /// Forgets a client (4.1).
        DestroyClientId = 57,
        /// Says that the client has reclaimed all that it wants to (4.1).
        ReclaimComplete = 58,
        /// Reserves space for data (4.2).
        Allocate = 59,
        /// Copies data (4.2).
        Copy = 60,
        /// Announces a copy by another server (4.2).
        CopyNotify = 61,
        /// Makes a hole (4.2).
        Deallocate = 62,
        /// Says how data will be used (4.2).
        IoAdvise = 63,
        /// Of layouts: refused.
        LayoutError = 64,
        /// Of layouts: refused.
        LayoutStats = 65,
        /// Stops a copy (4.2).
        OffloadCancel = 66,
        /// Asks how far a copy is (4.2).
        OffloadStatus = 67,
        /// Reads data and holes (4.2).
        ReadPlus = 68,
        /// Looks for data or a hole (4.2).
        Seek = 69,
        /// Writes a pattern (4.2).
        WriteSame = 70,
        /// Copies data by sharing their blocks (4.2).
        Clone = 71,
        /// Reads an extended attribute (4.2).
        GetXattr = 72,
        /// Sets an extended attribute (4.2).
        SetXattr = 73,
        /// Lists extended attributes (4.2).
        ListXattrs = 74,
        /// Removes an extended attribute (4.2).
        RemoveXattr = 75,
        /// Stands in results for a number that is no operation of the minor version.
        Illegal = 10044,
    }
}

impl OpCode {
    /// The first minor version that has the operation.
    pub const fn minor_version(self) -> u32 {
        match self.code() {
            0..=39 => 0,
            40..=58 => 1,
            _ => 2,
        }
    }

    /// Whether later minor versions refuse the operation with [`Status::NotSupp`] (RFC 8881, section 17).
    pub const fn is_of_minor_version_0_alone(self) -> bool {
        matches!(
            self,
            Self::OpenConfirm
                | Self::Renew
                | Self::SetClientId
                | Self::SetClientIdConfirm
                | Self::ReleaseLockOwner
        )
    }
}

/// Declares the operations: those `with` arguments, `bare` ones without, and `refused` ones whose arguments are never read.
macro_rules! operations {
    (
        with { $($name:ident($args:ty) -> $result:ty,)* }
        bare { $($bare:ident -> $bare_result:ty,)* }
        refused { $($refused:ident,)* }
    ) => {
        /// `nfs_argop4`: an operation and its arguments.
        #[allow(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Operation<'a> {
            $(#[doc = concat!("[`OpCode::", stringify!($name), "`]")] $name($args),)*
            $(#[doc = concat!("[`OpCode::", stringify!($bare), "`]")] $bare,)*
        }

        impl<'a> Operation<'a> {
            /// Its number.
            pub const fn code(&self) -> OpCode {
                match self {
                    $(Self::$name(_) => OpCode::$name,)*
                    $(Self::$bare => OpCode::$bare,)*
                }
            }

            /// Reads the arguments. `None`: the operation is refused.
            pub(super) fn arguments(
                code: OpCode,
                r: &mut Reader<'a>,
            ) -> Result<Option<Self>, XdrError> {
                Ok(Some(match code {
                    $(OpCode::$name => Self::$name(Decode::decode(r)?),)*
                    $(OpCode::$bare => Self::$bare,)*
                    $(OpCode::$refused)|* | OpCode::Illegal => return Ok(None),
                }))
            }
        }

        impl Encode for Operation<'_> {
            fn encode(&self, w: &mut Writer<'_>) {
                self.code().encode(w);
                match self {
                    $(Self::$name(args) => args.encode(w),)*
                    $(Self::$bare => {})*
                }
            }
        }

        /// `nfs_resop4`: an operation's result.
        #[allow(clippy::large_enum_variant, reason = "one lives at a time, on the stack")]
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum OperationResult<'a> {
            $(#[doc = concat!("[`OpCode::", stringify!($name), "`]")] $name($result),)*
            $(#[doc = concat!("[`OpCode::", stringify!($bare), "`]")] $bare($bare_result),)*
            $(#[doc = concat!("[`OpCode::", stringify!($refused), "`]")] $refused(Status),)*
            /// [`OpCode::Illegal`]
            Illegal(Status),
        }

        impl OperationResult<'_> {
            /// The operation's number.
            pub const fn code(&self) -> OpCode {
                match self {
                    $(Self::$name(_) => OpCode::$name,)*
                    $(Self::$bare(_) => OpCode::$bare,)*
                    $(Self::$refused(_) => OpCode::$refused,)*
                    Self::Illegal(_) => OpCode::Illegal,
                }
            }
        }

        impl Encode for OperationResult<'_> {
            fn encode(&self, w: &mut Writer<'_>) {
                self.code().encode(w);
                match self {
                    $(Self::$name(result) => result.encode(w),)*
                    $(Self::$bare(result) => result.encode(w),)*
                    $(Self::$refused(status) => status.encode(w),)*
                    Self::Illegal(status) => status.encode(w),
                }
            }
        }

        impl<'a> Decode<'a> for OperationResult<'a> {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                Ok(match OpCode::decode(r)? {
                    $(OpCode::$name => Self::$name(Decode::decode(r)?),)*
                    $(OpCode::$bare => Self::$bare(Decode::decode(r)?),)*
                    $(OpCode::$refused => Self::$refused(failure(r)?),)*
                    OpCode::Illegal => Self::Illegal(failure(r)?),
                })
            }
        }
    };
}

/// The number and the arguments. Unlike [`Operations`] this does not check the minor version.
impl<'a> Decode<'a> for Operation<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let code = OpCode::decode(r)?;
        Self::arguments(code, r)?.ok_or(XdrError::BadValue {
            what: "operation whose arguments are known",
            value: code.code(),
        })
    }
}

/// A status that must be a failure. The results of successes are not known here.
fn failure(r: &mut Reader<'_>) -> Result<Status, XdrError> {
    match Status::decode(r)? {
        Status::Ok => Err(XdrError::BadValue {
            what: "failure",
            value: 0,
        }),
        status => Ok(status),
    }
}

operations! {
    with {
        Access(AccessArgs) -> AccessResult,
        Close(CloseArgs) -> StateIdResult,
        Commit(CommitArgs) -> CommitResult,
        Create(CreateArgs<'a>) -> CreateResult,
        DelegationPurge(u64) -> StatusResult,
        DelegationReturn(StateId) -> StatusResult,
        GetAttributes(GetAttributesArgs) -> GetAttributesResult<'a>,
        Link(Name<'a>) -> ChangeResult,
        Lock(LockArgs<'a>) -> LockResult<'a>,
        LockTest(LockTestArgs<'a>) -> LockTestResult<'a>,
        Unlock(UnlockArgs) -> StateIdResult,
        Lookup(Name<'a>) -> StatusResult,
        VerifyNot(RawAttributes<'a>) -> StatusResult,
        Open(OpenArgs<'a>) -> OpenResult<'a>,
        OpenAttributeDirectory(OpenAttributeDirectoryArgs) -> StatusResult,
        OpenConfirm(OpenConfirmArgs) -> StateIdResult,
        OpenDowngrade(OpenDowngradeArgs) -> StateIdResult,
        PutFileHandle(FileHandle<'a>) -> StatusResult,
        Read(ReadArgs) -> ReadResult<'a>,
        ReadDir(ReadDirArgs) -> ReadDirResult<'a>,
        Remove(Name<'a>) -> ChangeResult,
        Rename(RenameArgs<'a>) -> RenameResult,
        Renew(u64) -> StatusResult,
        SecInfo(Name<'a>) -> SecInfoResult<'a>,
        SetAttributes(SetAttributesArgs<'a>) -> SetAttributesResult,
        SetClientId(SetClientIdArgs<'a>) -> SetClientIdResult<'a>,
        SetClientIdConfirm(ClientIdConfirm) -> StatusResult,
        Verify(RawAttributes<'a>) -> StatusResult,
        Write(WriteArgs<'a>) -> WriteResult,
        ReleaseLockOwner(StateOwner<'a>) -> StatusResult,
        BackchannelCtl(BackchannelCtlArgs<'a>) -> StatusResult,
        BindConnection(BindConnectionArgs) -> BindConnectionResult,
        ExchangeId(ExchangeIdArgs<'a>) -> ExchangeIdResult<'a>,
        CreateSession(CreateSessionArgs<'a>) -> CreateSessionResult,
        DestroySession(SessionId) -> StatusResult,
        FreeStateId(StateId) -> StatusResult,
        GetDirDelegation(GetDirDelegationArgs) -> GetDirDelegationResult,
        SecInfoNoName(SecInfoStyle) -> SecInfoResult<'a>,
        Sequence(SequenceArgs) -> SequenceResult,
        TestStateId(TestStateIdArgs) -> TestStateIdResult,
        WantDelegation(WantDelegationArgs) -> WantDelegationResult<'a>,
        DestroyClientId(u64) -> StatusResult,
        ReclaimComplete(ReclaimCompleteArgs) -> StatusResult,
        Allocate(RangeArgs) -> StatusResult,
        Copy(CopyArgs<'a>) -> CopyResult,
        CopyNotify(CopyNotifyArgs<'a>) -> CopyNotifyResult<'a>,
        Deallocate(RangeArgs) -> StatusResult,
        IoAdvise(IoAdviseArgs) -> IoAdviseResult,
        OffloadCancel(StateId) -> StatusResult,
        OffloadStatus(StateId) -> OffloadStatusResult,
        ReadPlus(ReadPlusArgs) -> ReadPlusResult<'a>,
        Seek(SeekArgs) -> SeekResult,
        WriteSame(WriteSameArgs<'a>) -> WriteSameResult,
        Clone(CloneArgs) -> StatusResult,
        GetXattr(Name<'a>) -> GetXattrResult<'a>,
        SetXattr(SetXattrArgs<'a>) -> ChangeResult,
        ListXattrs(ListXattrsArgs) -> ListXattrsResult<'a>,
        RemoveXattr(Name<'a>) -> ChangeResult,
    }
    bare {
        GetFileHandle -> GetFileHandleResult<'a>,
        LookupParent -> StatusResult,
        PutPublicFileHandle -> StatusResult,
        PutRootFileHandle -> StatusResult,
        ReadLink -> ReadLinkResult<'a>,
        RestoreFileHandle -> StatusResult,
        SaveFileHandle -> StatusResult,
    }
    refused {
        GetDeviceInfo,
        GetDeviceList,
        LayoutCommit,
        LayoutGet,
        LayoutReturn,
        SetSsv,
        LayoutError,
        LayoutStats,
    }
}
