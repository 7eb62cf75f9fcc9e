//! The network lock manager, version 4 (X/Open XNFS, chapter 14; RFC 1813, appendix II): locks for clients of NFS version 3.

use super::nfs3::FileHandle;
use super::xdr::{Decode, Encode, Reader, Writer, XdrError};

/// Program number.
pub const PROGRAM: u32 = 100_021;
/// The version spoken here: that of NFS version 3.
pub const VERSION: u32 = 4;
/// The longest name of a client (`LM_MAXSTRLEN`), in bytes.
pub const MAX_NAME: u32 = 1024;
/// The longest cookie or owner (`MAXNETOBJ_SZ`), in bytes.
pub const MAX_OBJECT: u32 = 1024;

enumeration! {
    /// The procedures that wait for their result. Those with codes 6 to 15, whose results are calls of their own, are not
    /// listed.
    pub enum Procedure ("NLM procedure") {
        /// Does nothing.
        Null = 0,
        /// [`TestArgs`] to [`TestResult`].
        Test = 1,
        /// [`LockArgs`] to [`LockResult`].
        Lock = 2,
        /// [`CancelArgs`] to [`LockResult`].
        Cancel = 3,
        /// [`UnlockArgs`] to [`LockResult`].
        Unlock = 4,
        /// From the server to the client: [`TestArgs`] to [`LockResult`].
        Granted = 5,
        /// [`ShareArgs`] to [`ShareResult`].
        Share = 20,
        /// [`ShareArgs`] to [`ShareResult`].
        Unshare = 21,
        /// [`LockArgs`] to [`LockResult`], for clients that do not tell when they start anew.
        UnmonitoredLock = 22,
        /// [`FreeAllArgs`] to nothing.
        FreeAll = 23,
    }
}

enumeration! {
    /// `nlm4_stats`
    pub enum Status ("nlm4_stats") {
        /// Done.
        Granted = 0,
        /// Another lock is in the way.
        Denied = 1,
        /// The server has no room for it.
        DeniedNoLocks = 2,
        /// The client is called back when it has the lock.
        Blocked = 3,
        /// The server has restarted, and clients reclaim what they had.
        DeniedGracePeriod = 4,
        /// It would wait for ever.
        Deadlock = 5,
        /// The file system cannot be written to.
        ReadOnly = 6,
        /// The file handle stands for nothing any more.
        StaleHandle = 7,
        /// The range ends behind what offsets can tell.
        TooBig = 8,
        /// Anything else.
        Failed = 9,
    }
}

enumeration! {
    /// `fsh4_mode`: what others may not do.
    pub enum ShareMode ("fsh4_mode") {
        /// They may all.
        DenyNone = 0,
        /// Read.
        DenyRead = 1,
        /// Write.
        DenyWrite = 2,
        /// Read or write.
        DenyBoth = 3,
    }
}

enumeration! {
    /// `fsh4_access`: what the owner does.
    pub enum ShareAccess ("fsh4_access") {
        /// Neither.
        None = 0,
        /// Reads.
        Read = 1,
        /// Writes.
        Write = 2,
        /// Both.
        Both = 3,
    }
}

opaque! {
    /// Opaque bytes of the client's (`netobj`): a cookie, or the owner of a lock.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Object<'a>("netobj", MAX_OBJECT);
}

opaque! {
    /// What a client calls itself, any bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Name<'a>("client name", MAX_NAME);
}

record! {
    /// A range of a file, and who wants it (`nlm4_lock`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Lock<'a> {
        /// The client.
        pub caller: Name<'a>,
        /// The file.
        pub file: FileHandle<'a>,
        /// The owner within the client.
        pub owner: Object<'a>,
        /// A process of the client; part of the owner. (`int32` on the wire.)
        pub process: u32,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0 for everything from there on.
        pub length: u64,
    }
}

record! {
    /// Arguments of TEST and GRANTED (`nlm4_testargs`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TestArgs<'a> {
        /// The client's business.
        pub cookie: Object<'a>,
        /// Nobody else may hold any of it.
        pub exclusive: bool,
        /// The range.
        pub lock: Lock<'a>,
    }
}

record! {
    /// Arguments of LOCK (`nlm4_lockargs`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockArgs<'a> {
        /// The client's business.
        pub cookie: Object<'a>,
        /// If it is denied, the client waits.
        pub block: bool,
        /// Nobody else may hold any of it.
        pub exclusive: bool,
        /// The range.
        pub lock: Lock<'a>,
        /// The client had it before the server restarted.
        pub reclaim: bool,
        /// How often the client has started ([`super::nsm`]).
        pub state: u32,
    }
}

record! {
    /// Arguments of CANCEL (`nlm4_cancargs`): those of the LOCK for which the client waits no more.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CancelArgs<'a> {
        /// The client's business.
        pub cookie: Object<'a>,
        /// As in LOCK.
        pub block: bool,
        /// As in LOCK.
        pub exclusive: bool,
        /// The range.
        pub lock: Lock<'a>,
    }
}

record! {
    /// Arguments of UNLOCK (`nlm4_unlockargs`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UnlockArgs<'a> {
        /// The client's business.
        pub cookie: Object<'a>,
        /// The range.
        pub lock: Lock<'a>,
    }
}

record! {
    /// Results of LOCK, CANCEL, UNLOCK and GRANTED (`nlm4_res`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockResult<'a> {
        /// As in the arguments.
        pub cookie: Object<'a>,
        /// What became of it.
        pub status: Status,
    }
}

record! {
    /// A lock in the way (`nlm4_holder`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Holder<'a> {
        /// Nobody else may hold any of it.
        pub exclusive: bool,
        /// A process of its client.
        pub process: u32,
        /// Its owner within its client.
        pub owner: Object<'a>,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0 for everything from there on.
        pub length: u64,
    }
}

/// Results of TEST (`nlm4_testres`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestResult<'a> {
    /// As in the arguments.
    pub cookie: Object<'a>,
    /// The lock in the way ([`Status::Denied`]), or another status.
    pub outcome: Result<Status, Holder<'a>>,
}

impl Encode for TestResult<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        self.cookie.encode(w);
        match &self.outcome {
            Ok(status) => {
                debug_assert_ne!(*status, Status::Denied);
                status.encode(w);
            }
            Err(holder) => {
                Status::Denied.encode(w);
                holder.encode(w);
            }
        }
    }
}

impl<'a> Decode<'a> for TestResult<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let cookie = Object::decode(r)?;
        let outcome = match Status::decode(r)? {
            Status::Denied => Err(Holder::decode(r)?),
            status => Ok(status),
        };
        Ok(Self { cookie, outcome })
    }
}

record! {
    /// An open file as DOS shares it (`nlm4_share`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Share<'a> {
        /// The client.
        pub caller: Name<'a>,
        /// The file.
        pub file: FileHandle<'a>,
        /// The owner within the client.
        pub owner: Object<'a>,
        /// What others may not do.
        pub mode: ShareMode,
        /// What the owner does.
        pub access: ShareAccess,
    }
}

record! {
    /// Arguments of SHARE and UNSHARE (`nlm4_shareargs`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ShareArgs<'a> {
        /// The client's business.
        pub cookie: Object<'a>,
        /// The open file.
        pub share: Share<'a>,
        /// It was open before the server restarted.
        pub reclaim: bool,
    }
}

record! {
    /// Results of SHARE and UNSHARE (`nlm4_shareres`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ShareResult<'a> {
        /// As in the arguments.
        pub cookie: Object<'a>,
        /// What became of it.
        pub status: Status,
        /// Means nothing any more.
        pub sequence: u32,
    }
}

record! {
    /// Arguments of FREE_ALL (`nlm4_notify`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FreeAllArgs<'a> {
        /// The client whose locks are worth nothing any more.
        pub name: Name<'a>,
        /// Not used.
        pub state: u32,
    }
}

#[cfg(test)]
mod tests;
