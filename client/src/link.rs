//! How a server is reached: over a fabric, or by TCP alone.

use crate::{
    error::ConnectError,
    options::Wait,
    tcp::TcpTransport,
    transport::{FabricTransport, Transport},
    url::{Host, ServerAddress},
};
use odafs_common::connect::{PrivateData, Role};
use odafs_fabric::{QueuePair, clock::Nanos, sync::Arc};
use std::io;

/// A fabric and an address on it: how connections to one server are made.
///
/// URLs name those that are built in. Tests bring their own, see [`Client::over`](crate::Client::over).
pub trait Dial: Send + Sync {
    /// A new connection; `private_data` tells the server what for.
    ///
    /// # Errors
    /// Nobody answers, or the server refuses.
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>>;

    /// The fabric's name: `shm`, `tcp`, `verbs` or `sim`.
    fn fabric(&self) -> &'static str;

    /// The server's address, for messages.
    fn address(&self) -> String;
}

/// How a server is reached.
#[derive(Clone)]
pub enum Link {
    /// Over a fabric: RPC, and direct reads where the server grants them.
    Fabric(Arc<dyn Dial>),
    /// RPC over TCP.
    Tcp(Host),
}

impl Link {
    /// The link that a URL asks for.
    pub fn of(address: &ServerAddress) -> Result<Self, ConnectError> {
        match address {
            ServerAddress::Nfs(host) => Ok(Self::Tcp(host.clone())),
            ServerAddress::Shm(socket) => Self::shm(socket),
            ServerAddress::Tcp(_) => Err(ConnectError::NoFabric {
                fabric: "tcp",
                remedy: "use odafs+shm:// on one host, or nfs:// between hosts",
            }),
            ServerAddress::Verbs(_) => Err(ConnectError::NoFabric {
                fabric: "verbs",
                remedy: "build with the cargo feature `verbs`, or use nfs://",
            }),
        }
    }

    #[cfg(not(shuttle))]
    fn shm(socket: &std::path::Path) -> Result<Self, ConnectError> {
        Ok(Self::Fabric(Arc::new(Shm(socket.to_owned()))))
    }

    #[cfg(shuttle)]
    fn shm(_: &std::path::Path) -> Result<Self, ConnectError> {
        Err(ConnectError::NoFabric {
            fabric: "shm",
            remedy: "the simulator has its own fabric",
        })
    }

    /// A new connection for RPC.
    pub fn rpc(&self, wait: Wait, deadline: Nanos) -> io::Result<Box<dyn Transport>> {
        match self {
            Self::Fabric(fabric) => {
                let said = PrivateData {
                    role: Role::Rpc,
                    one_sided: false,
                    nonce: [0; 16],
                };
                let pair = fabric.dial(&said.encode(), deadline)?;
                Ok(Box::new(FabricTransport::new(pair, wait)))
            }
            Self::Tcp(host) => Ok(Box::new(TcpTransport::connect(host, wait, deadline)?)),
        }
    }

    /// A new connection for direct reads, on fabrics.
    pub fn direct(&self, one_sided: bool, deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        match self {
            Self::Fabric(fabric) => {
                let said = PrivateData {
                    role: Role::Direct,
                    one_sided,
                    nonce: [0; 16],
                };
                fabric.dial(&said.encode(), deadline)
            }
            Self::Tcp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Name of the fabric; `nfs` for TCP alone.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fabric(fabric) => fabric.fabric(),
            Self::Tcp(_) => "nfs",
        }
    }

    /// The server's address, for messages.
    pub fn address(&self) -> String {
        match self {
            Self::Fabric(fabric) => fabric.address(),
            Self::Tcp(host) => host.to_string(),
        }
    }
}

#[cfg(not(shuttle))]
struct Shm(std::path::PathBuf);

#[cfg(not(shuttle))]
impl Dial for Shm {
    fn dial(&self, private_data: &[u8], _: Nanos) -> io::Result<Box<dyn QueuePair>> {
        odafs_fabric::shm::connect(
            &self.0,
            private_data,
            &odafs_fabric::shm::ConnectOptions::default(),
        )
    }

    fn fabric(&self) -> &'static str {
        "shm"
    }

    fn address(&self) -> String {
        self.0.display().to_string()
    }
}
