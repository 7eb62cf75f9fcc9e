//! What the fabric is told and tells: plain values, also where it is not built in.

use crate::clock::Nanos;
use crate::fabric::ReadOrder;
use std::net::IpAddr;

/// What to do where the fabric is not built in.
pub const NOT_BUILT_IN: &str = "this program was built without RDMA devices. To build it with them: apt-get install cmake \
    pkg-config libclang-dev libnl-3-dev libnl-route-3-dev libibverbs-dev librdmacm-dev; cargo build --release --features \
    verbs. It then needs libibverbs.so.1 and librdmacm.so.1 wherever it runs (packages rdma-core, ibverbs-providers)";

/// Receives that a connection may have posted at a time, if nothing else is said.
pub(super) const RECEIVES: u32 = 256;

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: u32,
    /// Connection requests at a time that have not become connections.
    pub handshakes: u32,
    /// How long it may take from a request to a connection.
    pub handshake_deadline: Nanos,
    /// Receives that a connection may have posted at a time, as far as the device has room for them.
    pub receives: u32,
    /// Whether the arena is registered for on-demand paging where the device offers it: its pages are not pinned then.
    pub odp: bool,
    /// What is said of the order in which the peer's RDMA Reads see memory here. It is the device's and the network's
    /// doing, and nothing tells it.
    pub read_order: ReadOrder,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshakes: 256,
            handshake_deadline: Nanos::from_secs(5),
            receives: RECEIVES,
            odp: false,
            read_order: ReadOrder::Fence,
        }
    }
}

/// What a client wants of its connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// RDMA Reads of our registered memory that the peer may have under way.
    pub inbound_reads: u32,
    /// RDMA Reads that we want to have under way.
    pub outbound_reads: u32,
    /// RDMA Reads that we may have under way even if the peer offers fewer: for tests of what its device refuses.
    #[doc(hidden)]
    pub reads_at_least: u8,
    /// How long the connect may take.
    pub deadline: Nanos,
    /// Whether memory is registered for on-demand paging where the device offers it.
    pub odp: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            inbound_reads: 128,
            outbound_reads: 128,
            reads_at_least: 0,
            deadline: Nanos::from_secs(10),
            odp: false,
        }
    }
}

/// How a device speaks to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTransport {
    /// InfiniBand.
    InfiniBand,
    /// InfiniBand's transport over Ethernet.
    RoCE,
    /// RDMA over TCP.
    IWarp,
    /// Something else.
    Other,
}

/// An RDMA device.
#[derive(Clone, Debug)]
pub struct Device {
    /// As the kernel names it, such as `mlx5_0`.
    pub name: String,
    /// How it speaks.
    pub transport: DeviceTransport,
    /// Version of its firmware.
    pub firmware: String,
    /// PCI number of its vendor; 0 of soft devices.
    pub vendor: u32,
    /// Number of the part by its vendor.
    pub vendor_part: u32,
    /// Its ports.
    pub ports: Vec<Port>,
    /// What is known of the order of its RDMA Reads.
    pub read_order: ReadOrder,
    /// Memory windows of type 2.
    pub windows: bool,
    /// On-demand paging for reliable connections.
    pub on_demand_paging: bool,
    /// Longest memory region, in bytes.
    pub max_mr_size: u64,
    /// Memory regions.
    pub max_mr: u32,
    /// RDMA Reads of one peer that may be under way.
    pub max_qp_rd_atom: u32,
    /// RDMA Reads to one peer that may be under way.
    pub max_qp_init_rd_atom: u32,
    /// Pieces of memory of a message.
    pub max_sge: u32,
    /// Pieces of memory of an RDMA Read.
    pub max_sge_rd: u32,
    /// Work requests of a queue.
    pub max_qp_wr: u32,
}

/// A port of a device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number, from 1.
    pub number: u8,
    /// What it does.
    pub state: PortState,
    /// Whether it is Ethernet (RoCE, iWARP) rather than InfiniBand.
    pub ethernet: bool,
    /// GIDs that are set, as IPv6 addresses.
    pub gids: Vec<std::net::Ipv6Addr>,
    /// The network interface, if it has one.
    pub netdev: Option<String>,
    /// Addresses of that interface: what to listen at and to connect to.
    pub addresses: Vec<IpAddr>,
    /// Longest packet, in bytes.
    pub mtu: u32,
}

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Usable.
    Active,
    /// Not connected.
    Down,
    /// On the way up, or unknown.
    Other,
}

impl DeviceTransport {
    /// As messages and tables name it.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceTransport::InfiniBand => "InfiniBand",
            DeviceTransport::RoCE => "RoCE",
            DeviceTransport::IWarp => "iWARP",
            DeviceTransport::Other => "other",
        }
    }
}

impl PortState {
    /// As messages and tables name it.
    pub const fn name(self) -> &'static str {
        match self {
            PortState::Active => "active",
            PortState::Down => "down",
            PortState::Other => "not active",
        }
    }
}

impl Port {
    /// Addresses at which it can be connected to; those of the link alone (fe80::) name no interface.
    pub fn reachable_at(&self) -> impl Iterator<Item = IpAddr> {
        let active = self.state == PortState::Active;
        let named = |address: &IpAddr| match address {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        };
        self.addresses
            .iter()
            .copied()
            .filter(move |address| active && named(address))
    }
}

impl Device {
    /// Addresses at which its ports can be connected to.
    pub fn reachable_at(&self) -> impl Iterator<Item = IpAddr> {
        self.ports.iter().flat_map(Port::reachable_at)
    }
}
