//! Options of a client. Every field has a default that suits a first program.

use crate::record::Recorder;
use odafs_common::session::Identity;
use std::{fmt, time::Duration};

/// Options of a [`Client`](crate::Client). The fields say their defaults.
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
#[derive(Clone)]
pub struct Options {
    /// Which routes a read may take. The default is [`Route::Policy`].
    pub route: Route,
    /// How a thread waits for an answer.
    pub wait: Wait,
    /// Whether this process keeps pages between reads. The default is [`Cache::CloseToOpen`].
    pub cache: Cache,
    /// Memory in bytes that the data cache and the directory of references share. The default is 64 MiB. Beside it the
    /// client keeps what it wrote until that is synced, to send it again if the server restarts: up to 64 MiB.
    pub memory_bytes: u64,
    /// How long one call may take, including reconnecting and retrying. The default is 30 s. A long read or write takes
    /// many calls: it may take longer, as long as each is answered in this time after the one before.
    pub deadline: Duration,
    /// Connections of each kind, at most; 8 by default. The client makes one at the start, and the others when
    /// threads collide.
    pub lanes: u32,
    /// Which MAC guarded requests carry, where the server offers a choice.
    pub mac: MacPreference,
    /// How the data of an ODAFS READ by RPC comes back.
    pub transfer: Transfer,
    /// How calls travel over RDMA. Only `odafs://` and `odafs+verbs://` use it.
    pub rdma: Rdma,
    /// When the client fetches references.
    pub eager: Eager,
    /// The caller's ids in each RPC (AUTH_SYS): by default those of the process. Fabrics that know their peer ignore
    /// them.
    pub credential: Credential,
    /// The client's X25519 secret key, for servers that admit clients by key. They list its [`public_key`].
    pub identity: Option<[u8; 32]>,
    /// The server's X25519 public key. If it is given, the client refuses a server with another one.
    pub server_key: Option<[u8; 32]>,
    /// The recorder of what the client does, if any. With one, reads take somewhat longer; `None` costs them nothing.
    pub record: Option<Recorder>,
    /// Seed of the policy's probe jitter. The same seed with the same inputs gives the same routes.
    pub seed: u64,
}

/// The secret key stays out.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A field that is added must be named here.
        let Self {
            route,
            wait,
            cache,
            memory_bytes,
            deadline,
            lanes,
            mac,
            transfer,
            rdma,
            eager,
            credential,
            identity,
            server_key,
            record,
            seed,
        } = self;
        f.debug_struct("Options")
            .field("route", route)
            .field("wait", wait)
            .field("cache", cache)
            .field("memory_bytes", memory_bytes)
            .field("deadline", deadline)
            .field("lanes", lanes)
            .field("mac", mac)
            .field("transfer", transfer)
            .field("rdma", rdma)
            .field("eager", eager)
            .field("credential", credential)
            .field("identity", &identity.map(|_| "secret"))
            .field("server_key", server_key)
            .field("record", record)
            .field("seed", seed)
            .finish()
    }
}

/// The X25519 public key of an [`Options::identity`].
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

/// Which routes a read may take. The default is [`Route::Policy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Route {
    /// The cheapest of RPC and the direct routes that the server grants. The client measures them now and again, by
    /// size of the read.
    #[default]
    Policy,
    /// RPC only. The client opens no session.
    Rpc,
    /// Guarded direct reads wherever the client has a reference, RPC otherwise.
    Guarded,
    /// One-sided direct reads wherever the client has a reference, RPC otherwise. Connecting fails if the server
    /// grants no more than guarded reads.
    OneSided,
}

/// How a thread waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wait {
    /// Poll for 50 us, then sleep in the kernel. If answers take longer, sleep at once for a while. Each connection
    /// learns this for itself.
    #[default]
    Adaptive,
    /// Poll until the answer is there. This has the shortest latency and takes a whole processor.
    Spin,
    /// Poll for a given time, then sleep in the kernel.
    Block {
        /// Time spent polling before the thread sleeps.
        spin: Duration,
    },
}

/// Whether this process keeps pages between reads. The default is [`Cache::CloseToOpen`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cache {
    /// Keep pages, and check them against the server when a file is opened, as NFS clients do. With
    /// [`Route::Policy`], the client keeps a page where a hit saves more than keeping costs. With the other routes it
    /// keeps every page.
    #[default]
    CloseToOpen,
    /// Keep pages of files that the server has delegated to this client: until the client has given the file back, for
    /// half a second at most, nobody else changes it. So every read sees what it would see at the server, and needs no
    /// check. The client asks again with a read, two or three times a second. While the server refuses (others change
    /// the file, or there is no session), nothing is kept of the file, as with [`Cache::Off`].
    Delegated,
    /// Keep no pages: every read sees the server.
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
    /// By RDMA Write into the client's registered memory, ahead of the reply (fabrics only).
    Direct,
}

/// How calls travel over RDMA (RPC-over-RDMA version 1, RFC 8166). Keep the defaults; the other values are there for
/// measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rdma {
    /// Who moves what does not fit a message.
    pub design: RdmaDesign,
    /// How many calls a connection may have under way. The default is `Fixed(64)`.
    pub credits: RdmaCredits,
    /// How the client lends memory to the server.
    pub registration: Registration,
}

/// Who moves what does not fit a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RdmaDesign {
    /// The server moves them. It reads the data of calls from the client's memory, and writes the data of replies
    /// there.
    #[default]
    ReadWrite,
    /// Each side fetches what the other sends, and tells it when done. Only a server that offers this does it (`odafs
    /// serve --design read-read`); with others it is the same as [`ReadWrite`](Self::ReadWrite).
    ReadRead,
}

/// How many calls a connection may have under way. The default is `Fixed(64)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RdmaCredits {
    /// The client always asks for this many.
    Fixed(u32),
    /// The client asks for few, and for more while many calls are under way.
    Adaptive,
}

impl Default for RdmaCredits {
    fn default() -> Self {
        Self::Fixed(64)
    }
}

/// How the client lends memory to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Registration {
    /// The client registers memory for each call, and frees it with the call.
    PerOperation,
    /// Memory stays registered. The client lends it for each call under a fresh tag, for exactly the range that the
    /// call needs.
    #[default]
    Pooled,
    /// Memory stays registered and lent. A server may reach it after the call, too.
    Cached,
}

/// When the client fetches references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Eager {
    /// With the replies of reads, which carry them.
    #[default]
    Lazy,
    /// With the opening of a file: those of the whole file.
    OnOpen,
}

/// The caller's ids in each RPC: AUTH_SYS (RFC 5531 section 8.2 and appendix A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further group ids. The protocol carries 16 at most; the client leaves out the rest.
    pub groups: Vec<u32>,
}

impl Credential {
    /// The effective ids of this process, and at most 16 of its further groups.
    pub fn of_process() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.iter().map(|g| g.as_raw()).take(16).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_key_is_not_printed() {
        let options = Options {
            identity: Some([0xa5; 32]),
            ..Options::default()
        };
        let printed = format!("{options:?}");
        assert!(printed.contains("identity: Some(\"secret\")"), "{printed}");
        assert!(
            !printed.contains("165") && !printed.contains("a5"),
            "{printed}"
        );
    }
}
