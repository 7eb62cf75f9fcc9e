//! A running server: everything wired together.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::ServerConfig;

/// Where a server listens: the real ports, open listeners only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// NFS, MOUNT and portmapper over TCP.
    pub nfs: Option<SocketAddr>,
    /// iWARP.
    pub rdma: Option<SocketAddr>,
    /// Socket of the shared-memory fabric.
    pub shm: Option<PathBuf>,
    /// RDMA hardware.
    pub verbs: Option<SocketAddr>,
    /// Metrics.
    pub metrics: Option<SocketAddr>,
}

/// Why a server did not start. The text names the thing and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
    /// Anything of the system's.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// An option that cannot be met.
    #[error("{0}")]
    Config(String),
}

/// A running server. Dropping it stops it without draining.
pub struct Server {
    addresses: Addresses,
}

impl Server {
    /// Opens the state, the store and the listeners, and serves until [`Server::shutdown`].
    pub fn start(_config: ServerConfig) -> Result<Server, StartError> {
        todo!()
    }

    /// Where it listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Drains and stops: no new connections, references worth nothing, calls under way finished.
    pub fn shutdown(self) {
        todo!()
    }
}
