use super::VerbsError;
use crate::fabric::ReadOrder;
use std::net::IpAddr;

/// How a device speaks to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
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
    /// Its name.
    pub name: String,
    /// How it speaks.
    pub transport: Transport,
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

/// The RDMA devices of this host.
pub fn devices() -> Result<Vec<Device>, VerbsError> {
    Err(VerbsError::NoDevice)
}
