//! How to reach a server: over a fabric, or by TCP alone.

#[cfg(not(shuttle))]
use crate::default_socket;
use crate::{
    error::ConnectError,
    options::{Rdma, Wait},
    rdma::{self, RdmaTransport},
    tcp::NfsTcpTransport,
    transport::{FabricTransport, RpcTransport},
    url::{Host, ServerAddress, Url},
};
use odafs_common::connect::{PrivateData, Role};
use odafs_fabric::{QueuePair, RemoteInvalidation, clock::Nanos, sync::Arc};
use std::io;

/// Makes connections to one server over a fabric.
///
/// The built-in fabrics are named by URLs. Tests bring their own: see [`Client::over`](crate::Client::over).
pub trait Dial: Send + Sync {
    /// Makes a new connection. `private_data` tells the server its purpose.
    ///
    /// # Errors
    /// No server answers, or the server refuses the connection.
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>>;

    /// Makes a new connection whose private data depends on which of the client's tags the peer can invalidate.
    ///
    /// # Errors
    /// The same as [`dial`](Self::dial).
    fn dial_with(
        &self,
        private_data: &dyn Fn(RemoteInvalidation) -> Vec<u8>,
        deadline: Nanos,
    ) -> io::Result<Box<dyn QueuePair>> {
        self.dial(&private_data(RemoteInvalidation::Any), deadline)
    }

    /// The fabric's name: `shm`, `tcp`, `verbs` or `sim`.
    fn fabric(&self) -> &'static str;

    /// The server's address, for messages.
    fn address(&self) -> String;

    /// How calls travel over its connections.
    fn rpc_over(&self) -> RpcOver {
        RpcOver::Messages
    }
}

/// How calls travel over the connections of a fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RpcOver {
    /// Each call and each reply is one message.
    Messages,
    /// As RPC-over-RDMA (RFC 8166). Long data lies in memory that the peer reads or writes.
    Rdma,
}

/// The way to a server.
#[derive(Clone)]
pub enum Link {
    /// A fabric: RPC, and direct reads if the server grants them.
    Fabric(Arc<dyn Dial>, Rdma),
    /// RPC over TCP.
    NfsTcp(Host),
}

impl Link {
    /// The link for a URL.
    pub fn of(url: &Url, rdma: Rdma) -> Result<Self, ConnectError> {
        match &url.server {
            ServerAddress::NfsTcp(host) => Ok(Self::NfsTcp(host.clone())),
            #[cfg(not(shuttle))]
            ServerAddress::Verbs(_) if !odafs_fabric::verbs::BUILT_IN => {
                Err(ConnectError::NoFabric {
                    fabric: "verbs",
                    remedy: odafs_fabric::verbs::NOT_BUILT_IN,
                })
            }
            #[cfg(not(shuttle))]
            ServerAddress::Verbs(host) => Ok(Self::Fabric(Arc::new(Verbs(host.clone())), rdma)),
            #[cfg(not(shuttle))]
            ServerAddress::Shm(socket) => Ok(Self::Fabric(Arc::new(Shm(socket.clone())), rdma)),
            #[cfg(not(shuttle))]
            ServerAddress::DefaultShm => match default_socket::find() {
                Ok(socket) => Ok(Self::Fabric(Arc::new(Shm(socket)), rdma)),
                Err(source) => Err(ConnectError::Unreachable {
                    server: url.server.to_string(),
                    source,
                }),
            },
            #[cfg(not(shuttle))]
            ServerAddress::Iwarp(host) => {
                let host = host.clone();
                Ok(Self::Fabric(Arc::new(Iwarp { host, crc: url.crc }), rdma))
            }
            #[cfg(shuttle)]
            ServerAddress::Shm(_)
            | ServerAddress::DefaultShm
            | ServerAddress::Iwarp(_)
            | ServerAddress::Verbs(_) => {
                let _ = rdma;
                Err(ConnectError::NoFabric {
                    fabric: "real",
                    remedy: "the simulator has its own",
                })
            }
        }
    }

    /// A new connection for RPC.
    pub fn rpc(&self, wait: Wait, deadline: Nanos) -> io::Result<Box<dyn RpcTransport>> {
        match self {
            Self::Fabric(fabric, rdma) if fabric.rpc_over() == RpcOver::Rdma => {
                let ours = |invalidation| rdma::private_data(*rdma, invalidation);
                let pair = fabric.dial_with(&|known| ours(known).encode().to_vec(), deadline)?;
                let ours = ours(pair.remote_invalidation());
                Ok(Box::new(RdmaTransport::new(pair, &ours, *rdma, wait)))
            }
            Self::Fabric(fabric, _) => {
                let said = PrivateData {
                    role: Role::Rpc,
                    one_sided: false,
                    nonce: [0; 16],
                };
                let pair = fabric.dial(&said.encode(), deadline)?;
                Ok(Box::new(FabricTransport::new(pair, wait)))
            }
            Self::NfsTcp(host) => Ok(Box::new(NfsTcpTransport::connect(host, wait, deadline)?)),
        }
    }

    /// A new connection for direct reads, on fabrics.
    pub fn direct(&self, one_sided: bool, deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        match self {
            Self::Fabric(fabric, _) => {
                let said = PrivateData {
                    role: Role::Direct,
                    one_sided,
                    nonce: [0; 16],
                };
                fabric.dial(&said.encode(), deadline)
            }
            Self::NfsTcp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// How calls travel over the fabric, if there is one.
    pub fn rpc_over(&self) -> Option<RpcOver> {
        match self {
            Self::Fabric(fabric, _) => Some(fabric.rpc_over()),
            Self::NfsTcp(_) => None,
        }
    }

    /// The longest data of one call, in bytes: what fits a message of every fabric, or more where messages may be
    /// longer.
    pub fn piece_max(&self) -> u32 {
        match self {
            Self::Fabric(fabric, _) if fabric.rpc_over() == RpcOver::Messages => 64 << 10,
            Self::Fabric(..) => 256 << 10,
            Self::NfsTcp(_) => 512 << 10,
        }
    }

    /// The fabric's name, or `nfs` for TCP alone.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fabric(fabric, _) => fabric.fabric(),
            Self::NfsTcp(_) => "nfs",
        }
    }

    /// The server's address, for messages.
    pub fn address(&self) -> String {
        match self {
            Self::Fabric(fabric, _) => fabric.address(),
            Self::NfsTcp(host) => host.to_string(),
        }
    }
}

/// A server on this host has at least this long to answer, however near the deadline is.
#[cfg(not(shuttle))]
const SHM_ANSWERS: Nanos = Nanos::from_millis(100);

#[cfg(not(shuttle))]
struct Shm(std::path::PathBuf);

#[cfg(not(shuttle))]
impl Dial for Shm {
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        use odafs_fabric::shm::{ConnectOptions, connect};
        let standard = ConnectOptions::default();
        // The connection keeps this time for its registrations, too.
        let options = ConnectOptions {
            timeout: left(deadline).max(SHM_ANSWERS).min(standard.timeout),
        };
        connect(&self.0, private_data, &options)
    }

    fn fabric(&self) -> &'static str {
        "shm"
    }

    fn address(&self) -> String {
        self.0.display().to_string()
    }
}

/// iWARP over TCP.
#[cfg(not(shuttle))]
struct Iwarp {
    host: Host,
    crc: bool,
}

#[cfg(not(shuttle))]
impl Dial for Iwarp {
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        use odafs_fabric::iwarp::{ConnectOptions, connect};
        self.host.first_that_answers(|address| {
            let standard = ConnectOptions::default();
            let options = ConnectOptions {
                crc: self.crc,
                deadline: left(deadline).min(standard.deadline),
                ..standard
            };
            connect(address, private_data, &options)
        })
    }

    fn fabric(&self) -> &'static str {
        "tcp"
    }

    fn address(&self) -> String {
        self.host.to_string()
    }

    fn rpc_over(&self) -> RpcOver {
        RpcOver::Rdma
    }
}

/// An RDMA device, through RDMA-CM.
#[cfg(not(shuttle))]
struct Verbs(Host);

#[cfg(not(shuttle))]
impl Dial for Verbs {
    fn dial(&self, private_data: &[u8], deadline: Nanos) -> io::Result<Box<dyn QueuePair>> {
        self.dial_with(&|_| private_data.to_vec(), deadline)
    }

    fn dial_with(
        &self,
        private_data: &dyn Fn(RemoteInvalidation) -> Vec<u8>,
        deadline: Nanos,
    ) -> io::Result<Box<dyn QueuePair>> {
        use odafs_fabric::verbs::{ConnectOptions, connect_with};
        self.0.first_that_answers(|address| {
            let standard = ConnectOptions::default();
            let options = ConnectOptions {
                deadline: left(deadline).min(standard.deadline),
                ..standard
            };
            connect_with(address, private_data, &options)
        })
    }

    fn fabric(&self) -> &'static str {
        "verbs"
    }

    fn address(&self) -> String {
        self.0.to_string()
    }

    fn rpc_over(&self) -> RpcOver {
        RpcOver::Rdma
    }
}

#[cfg(not(shuttle))]
impl Host {
    /// The result of `connect` for the first of the host's addresses that answers.
    fn first_that_answers<T>(
        &self,
        connect: impl Fn(std::net::SocketAddr) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut failed = None;
        for address in self.addresses()? {
            match connect(address) {
                Ok(pair) => return Ok(pair),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(no_address))
    }
}

impl Host {
    /// The addresses of the host. An unknown name is a host that cannot be reached; the resolver's error numbers are
    /// not the system's.
    pub(crate) fn addresses(&self) -> io::Result<impl Iterator<Item = std::net::SocketAddr>> {
        use std::net::ToSocketAddrs as _;
        (self.name.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| match error.raw_os_error() {
                Some(_) => error,
                None => io::Error::new(io::ErrorKind::HostUnreachable, error),
            })
    }
}

/// The resolver knows the name, but no address for it.
pub(crate) fn no_address() -> io::Error {
    let told = "the host's name has no address";
    io::Error::new(io::ErrorKind::HostUnreachable, told)
}

#[cfg(not(shuttle))]
fn left(deadline: Nanos) -> Nanos {
    deadline.since(odafs_fabric::clock::now())
}
