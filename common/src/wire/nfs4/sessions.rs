//! Clients and sessions of minor versions 1 and 2 (RFC 8881, sections 18.33 to 18.38, 18.46, 18.48, 18.50 and 18.51).
//! DESTROY_SESSION takes a [`SessionId`] alone, FREE_STATEID a [`StateId`].

use super::security::CallbackSecurities;
use super::types::{AtMostOne, ClientOwner, List, Opaque, SessionId, StateId, Time};
use super::{Bitmap, Status};

/// The most stateids that decoders take in one TEST_STATEID.
pub const MAX_STATE_IDS: u32 = 4096;

/// Bits of [`ExchangeIdArgs::flags`] and [`ExchangeIdOk::flags`].
pub mod exchange_id_flag {
    /// The client follows referrals.
    pub const SUPPORTS_MOVED_REFER: u32 = 0x1;
    /// The client follows migrations.
    pub const SUPPORTS_MOVED_MIGRATION: u32 = 0x2;
    /// The client takes fencing (4.2).
    pub const SUPPORTS_FENCE_OPS: u32 = 0x4;
    /// Stateids belong to principals.
    pub const BIND_PRINCIPAL_STATEID: u32 = 0x100;
    /// The server has no pNFS.
    pub const USE_NON_PNFS: u32 = 0x1_0000;
    /// The server hands out layouts.
    pub const USE_PNFS_MDS: u32 = 0x2_0000;
    /// The server stores data for layouts.
    pub const USE_PNFS_DS: u32 = 0x4_0000;
    /// The client updates what it has confirmed.
    pub const UPDATE_CONFIRMED: u32 = 0x4000_0000;
    /// The client id is confirmed. Of the server alone.
    pub const CONFIRMED: u32 = 0x8000_0000;
    /// The bits that a client may set.
    pub const ARGUMENTS: u32 = 0x4007_0107;
}

record! {
    /// `state_protect_ops4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ProtectedOperations {
        /// Operations that need the credential.
        pub must_enforce: Bitmap,
        /// Operations that may use it.
        pub must_allow: Bitmap,
    }
}

record! {
    /// `ssv_sp_parms4`: decoded so that it can be refused.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SsvParameters<'a> {
        /// The operations to protect.
        pub operations: ProtectedOperations,
        /// Hashes that the client knows.
        pub hashes: List<Opaque<'a>, 64>,
        /// Ciphers that the client knows.
        pub ciphers: List<Opaque<'a>, 64>,
        /// How many versions of the secret count.
        pub window: u32,
        /// Contexts that the client wants.
        pub handles: u32,
    }
}

union! {
    /// `state_protect4_a`: how the client wants its state to be protected.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum StateProtection<'a> ("state_protect_how4") {
        /// SP4_NONE
        None = 0,
        /// SP4_MACH_CRED
        MachineCredential(operations: ProtectedOperations) = 1,
        /// SP4_SSV
        Ssv(parameters: SsvParameters<'a>) = 2,
    }
}

record! {
    /// `nfs_impl_id4`: which software it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Implementation<'a> {
        /// Domain of its maker.
        pub domain: Opaque<'a>,
        /// Name and version.
        pub name: Opaque<'a>,
        /// When it was built.
        pub date: Time,
    }
}

record! {
    /// EXCHANGE_ID
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ExchangeIdArgs<'a> {
        /// The client's name and verifier.
        pub client: ClientOwner<'a>,
        /// Bits of [`exchange_id_flag`].
        pub flags: u32,
        /// How its state is to be protected.
        pub protection: StateProtection<'a>,
        /// The software that it is.
        pub implementation: AtMostOne<Implementation<'a>>,
    }
}

union! {
    /// `state_protect4_r`: how the state is protected. The third way, SP4_SSV, is neither offered nor understood.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum GrantedProtection ("state_protect_how4") {
        /// SP4_NONE
        None = 0,
        /// SP4_MACH_CRED
        MachineCredential(operations: ProtectedOperations) = 1,
    }
}

record! {
    /// `server_owner4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ServerOwner<'a> {
        /// Equal for connections that one session can use.
        pub minor: u64,
        /// Equal for connections that one client id can use.
        pub major: Opaque<'a>,
    }
}

record! {
    /// A client id.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ExchangeIdOk<'a> {
        /// The client id.
        pub client_id: u64,
        /// The sequence number of the first CREATE_SESSION.
        pub sequence: u32,
        /// Bits of [`exchange_id_flag`].
        pub flags: u32,
        /// How the state is protected.
        pub protection: GrantedProtection,
        /// The server's owner.
        pub owner: ServerOwner<'a>,
        /// Servers of one scope have the same client ids and stateids.
        pub scope: Opaque<'a>,
        /// The software that it is.
        pub implementation: AtMostOne<Implementation<'a>>,
    }
}

record! {
    /// `channel_attrs4`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChannelAttributes {
        /// Padding of messages over RDMA, in bytes.
        pub header_padding: u32,
        /// The longest call, in bytes.
        pub max_request: u32,
        /// The longest reply, in bytes.
        pub max_response: u32,
        /// The longest reply that is kept for retries, in bytes.
        pub max_response_cached: u32,
        /// The most operations of a compound.
        pub max_operations: u32,
        /// The most calls at once: slots.
        pub max_requests: u32,
        /// Incoming RDMA Reads at once.
        pub rdma_reads: AtMostOne<u32>,
    }
}

/// Bits of [`CreateSessionArgs::flags`] and [`CreateSessionOk::flags`].
pub mod create_session_flag {
    /// Replies are kept over restarts of the server.
    pub const PERSIST: u32 = 0x1;
    /// The connection takes callbacks too.
    pub const BACK_CHANNEL: u32 = 0x2;
    /// The connection changes to RDMA.
    pub const RDMA: u32 = 0x4;
}

record! {
    /// CREATE_SESSION
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CreateSessionArgs<'a> {
        /// The client id.
        pub client_id: u64,
        /// Counts the client's CREATE_SESSIONs.
        pub sequence: u32,
        /// Bits of [`create_session_flag`].
        pub flags: u32,
        /// The channel of calls.
        pub fore: ChannelAttributes,
        /// The channel of callbacks.
        pub back: ChannelAttributes,
        /// The RPC program of callbacks.
        pub callback_program: u32,
        /// Credentials of callbacks.
        pub callback_security: CallbackSecurities<'a>,
    }
}

record! {
    /// A session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateSessionOk {
        /// The session.
        pub session: SessionId,
        /// The sequence number of the call.
        pub sequence: u32,
        /// Bits of [`create_session_flag`].
        pub flags: u32,
        /// The channel of calls.
        pub fore: ChannelAttributes,
        /// The channel of callbacks.
        pub back: ChannelAttributes,
    }
}

record! {
    /// BACKCHANNEL_CTL
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct BackchannelCtlArgs<'a> {
        /// The RPC program of callbacks.
        pub callback_program: u32,
        /// Credentials of callbacks.
        pub callback_security: CallbackSecurities<'a>,
    }
}

enumeration! {
    /// `channel_dir_from_client4`
    pub enum WantedChannel ("channel_dir_from_client4") {
        /// Calls.
        Fore = 1,
        /// Callbacks.
        Back = 2,
        /// Calls, and also callbacks if the server allows it.
        ForeOrBoth = 3,
        /// Callbacks, and also calls if the server allows it.
        BackOrBoth = 7,
    }
}

enumeration! {
    /// `channel_dir_from_server4`
    pub enum GrantedChannel ("channel_dir_from_server4") {
        /// Calls.
        Fore = 1,
        /// Callbacks.
        Back = 2,
        /// Both.
        Both = 3,
    }
}

record! {
    /// BIND_CONN_TO_SESSION
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BindConnectionArgs {
        /// The session.
        pub session: SessionId,
        /// The channel to which to bind the connection.
        pub channel: WantedChannel,
        /// The connection changes to RDMA.
        pub rdma: bool,
    }
}

record! {
    /// A connection that was bound to a session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BindConnectionOk {
        /// The session.
        pub session: SessionId,
        /// The channel to which the connection is bound.
        pub channel: GrantedChannel,
        /// The connection changes to RDMA.
        pub rdma: bool,
    }
}

record! {
    /// SEQUENCE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SequenceArgs {
        /// The session.
        pub session: SessionId,
        /// Counts the slot's calls.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot with a call under way.
        pub highest_slot: u32,
        /// Whether the slot has to keep the reply for repetitions.
        pub cache: bool,
    }
}

/// Bits of [`SequenceOk::status_flags`].
pub mod sequence_status {
    /// No session of the client has a path for callbacks.
    pub const CALLBACK_PATH_DOWN: u32 = 0x1;
    /// Contexts of callbacks are about to expire.
    pub const CALLBACK_GSS_EXPIRING: u32 = 0x2;
    /// Contexts of callbacks have expired.
    pub const CALLBACK_GSS_EXPIRED: u32 = 0x4;
    /// The lease expired, all state is gone.
    pub const EXPIRED_ALL_STATE_REVOKED: u32 = 0x8;
    /// The lease expired, some state is gone.
    pub const EXPIRED_SOME_STATE_REVOKED: u32 = 0x10;
    /// An administrator revoked state.
    pub const ADMIN_STATE_REVOKED: u32 = 0x20;
    /// State that was not returned in time is gone.
    pub const RECALLABLE_STATE_REVOKED: u32 = 0x40;
    /// A file system of the lease has moved.
    pub const LEASE_MOVED: u32 = 0x80;
    /// The server has restarted, and state has to be reclaimed.
    pub const RESTART_RECLAIM_NEEDED: u32 = 0x100;
    /// The session has no path for callbacks.
    pub const CALLBACK_PATH_DOWN_SESSION: u32 = 0x200;
    /// Callbacks fail.
    pub const BACKCHANNEL_FAULT: u32 = 0x400;
    /// A device of layouts has changed.
    pub const DEVICE_ID_CHANGED: u32 = 0x800;
    /// A device of layouts is gone.
    pub const DEVICE_ID_DELETED: u32 = 0x1000;
}

record! {
    /// A slot that a compound has taken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SequenceOk {
        /// The session.
        pub session: SessionId,
        /// The sequence number of the call.
        pub sequence: u32,
        /// The slot.
        pub slot: u32,
        /// The highest slot that the server takes.
        pub highest_slot: u32,
        /// The highest slot that the client should use.
        pub target_highest_slot: u32,
        /// Bits of [`sequence_status`].
        pub status_flags: u32,
    }
}

record! {
    /// TEST_STATEID
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TestStateIdArgs {
        /// The stateids.
        pub states: List<StateId, MAX_STATE_IDS>,
    }
}

record! {
    /// RECLAIM_COMPLETE
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReclaimCompleteArgs {
        /// Whether only the file system of the current file handle is meant.
        pub one_file_system: bool,
    }
}

/// EXCHANGE_ID
pub type ExchangeIdResult<'a> = Result<ExchangeIdOk<'a>, Status>;
/// CREATE_SESSION
pub type CreateSessionResult = Result<CreateSessionOk, Status>;
/// BIND_CONN_TO_SESSION
pub type BindConnectionResult = Result<BindConnectionOk, Status>;
/// SEQUENCE
pub type SequenceResult = Result<SequenceOk, Status>;
/// TEST_STATEID: the status of each stateid.
pub type TestStateIdResult = Result<List<Status, MAX_STATE_IDS>, Status>;
