//! What a caller may ask of a client. Every field has a default that suits a first program.

use crate::record::Recorder;
use odafs_common::session::Identity;
use std::time::Duration;

/// Options of a [`Client`](crate::Client).
///
/// ```
/// use odafs::{Options, Route, Wait};
/// use std::time::Duration;
///
/// let options = Options {
///     route: Route::Policy,
///     wait: Wait::Block { spin: Duration::from_micros(5) },
///     ..Options::default()
/// };
/// assert_eq!(options.deadline, Duration::from_secs(30));
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Which routes a read may take.
    pub route: Route,
    /// How a thread waits for an answer.
    pub wait: Wait,
    /// Whether pages are kept in this process between reads.
    pub cache: Cache,
    /// Bytes that the data cache and the directory of references share.
    pub memory_bytes: u64,
    /// How long any one call may take, reconnecting and retrying included.
    pub deadline: Duration,
    /// Connections of each kind at most. One is made at the start, the others when threads collide.
    pub lanes: u32,
    /// Which MAC guarded requests carry, where the server offers a choice.
    pub mac: MacPreference,
    /// How the data of an ODAFS READ by RPC comes back.
    pub transfer: Transfer,
    /// How calls travel over RDMA.
    pub rdma: Rdma,
    /// When references are fetched.
    pub eager: Eager,
    /// Who the RPCs say they come from (AUTH_SYS). Fabrics that know their peer ignore it.
    pub credential: Credential,
    /// Our X25519 secret key, for servers that admit clients by key ([`public_key`] is what they list).
    pub identity: Option<[u8; 32]>,
    /// The server's X25519 public key; when given, a server with another one is refused.
    pub server_key: Option<[u8; 32]>,
    /// Where what the client does is recorded, if anywhere. Reads then take somewhat longer; `None` costs them nothing.
    pub record: Option<Recorder>,
    /// Seed of the policy's probe jitter. The same seed and the same inputs take the same routes.
    pub seed: u64,
}

/// The public key of an [`Options::identity`].
pub fn public_key(identity: &[u8; 32]) -> [u8; 32] {
    Identity::from_secret(*identity).public().0
}

impl Default for Options {
    fn default() -> Self {
        Self {
            route: Route::Policy,
            wait: Wait::default(),
            cache: Cache::CloseToOpen,
            memory_bytes: 64 << 20,
            deadline: Duration::from_secs(30),
            lanes: 8,
            mac: MacPreference::Fastest,
            transfer: Transfer::Inline,
            rdma: Rdma::default(),
            eager: Eager::Lazy,
            credential: Credential::of_process(),
            identity: None,
            server_key: None,
            record: None,
            seed: 0,
        }
    }
}

/// Which routes a read may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Route {
    /// The one that costs least, of RPC and what the server grants: measured by size of the read, now and again.
    #[default]
    Policy,
    /// RPC only: no session is opened.
    Rpc,
    /// Guarded direct reads whenever there is a reference, RPC otherwise.
    Guarded,
    /// One-sided direct reads whenever there is a reference, RPC otherwise. Connecting fails where the server
    /// grants no more than guarded reads.
    OneSided,
}

/// How a thread waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wait {
    /// Poll for 50 us, then sleep in the kernel; sleep at once for a while where answers do not come within that. Each
    /// connection learns it for itself.
    #[default]
    Adaptive,
    /// Poll until it is there: the shortest latency, a whole processor.
    Spin,
    /// Poll for so long, then sleep in the kernel.
    Block {
        /// Time spent polling before the thread sleeps.
        spin: Duration,
    },
}

/// Whether pages are kept in this process between reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cache {
    /// Kept, and checked against the server when a file is opened, as NFS clients do. With [`Route::Policy`] a page is kept
    /// where a hit saves more than keeping costs; with the other routes every page is.
    #[default]
    CloseToOpen,
    /// Every read sees the server.
    Off,
}

/// Which MAC guarded requests carry, where the server offers a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MacPreference {
    /// Keyed BLAKE3 where the server has it, else HMAC-SHA-256.
    #[default]
    Fastest,
    /// HMAC-SHA-256 only.
    HmacSha256,
    /// Keyed BLAKE3 only.
    Blake3,
}

/// How the data of an ODAFS READ by RPC comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transfer {
    /// In the reply.
    #[default]
    Inline,
    /// By RDMA Write into our registered memory, ahead of the reply (fabrics only).
    Direct,
}

/// How calls travel over RDMA (RPC-over-RDMA version 1, RFC 8166). The defaults are right; the others are there to be
/// measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rdma {
    /// Who moves what does not fit a message.
    pub design: RdmaDesign,
    /// How many calls a connection may have under way.
    pub credits: RdmaCredits,
    /// How memory is lent to the server.
    pub registration: Registration,
}

/// Who moves what does not fit a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RdmaDesign {
    /// The server: it reads the data of calls from our memory, and writes those of replies there.
    #[default]
    ReadWrite,
    /// Each fetches what the other sends, and says so when it has. Only a server that offers it does
    /// (`odafs serve --design read-read`); with others it is the same as [`ReadWrite`](Self::ReadWrite).
    ReadRead,
}

/// How many calls a connection may have under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RdmaCredits {
    /// So many are asked for, always.
    Fixed(u32),
    /// Few are asked for, more while many calls are under way.
    Adaptive,
}

impl Default for RdmaCredits {
    fn default() -> Self {
        Self::Fixed(64)
    }
}

/// How memory is lent to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Registration {
    /// It is registered for each call, and freed with it.
    PerOperation,
    /// It stays registered, and is lent for each call under a fresh tag for exactly the range that the call needs.
    #[default]
    Pooled,
    /// It stays registered and lent: a server may reach it after the call too.
    Cached,
}

/// When references are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Eager {
    /// As they ride on the replies of reads.
    #[default]
    Lazy,
    /// The whole file's, when it is opened.
    OnOpen,
}

/// Who the RPCs say they come from: AUTH_SYS (RFC 5531 section 8.2 and appendix A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further groups; the protocol carries 16 at most, the rest is left out.
    pub groups: Vec<u32>,
}

impl Credential {
    /// The ids of this process.
    pub fn of_process() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|g| g.as_raw()).take(16).collect(),
        }
    }
}
