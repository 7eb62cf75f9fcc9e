use super::context::{self, Context};
use super::{Device, DeviceTransport, Port, PortState, VerbsError, domain};
use crate::fabric::{ReadOrder, RemoteInvalidation};
use ibverbs_sys::{IBV_LINK_LAYER_ETHERNET, ibv_port_state};
use std::net::{IpAddr, Ipv6Addr};
use std::{fs, io};

/// The most GIDs of a port to look at.
const GIDS_MAX: i32 = 64;

/// The RDMA devices of this host.
pub fn devices() -> Result<Vec<Device>, VerbsError> {
    let names = context::names()?;
    if names.is_empty() {
        return Err(VerbsError::NoDevice);
    }
    let addresses = context::interface_addresses();
    names.iter().map(|name| device(name, &addresses)).collect()
}

fn device(name: &str, addresses: &[(String, IpAddr)]) -> Result<Device, VerbsError> {
    let context = Context::open(name)?;
    let attributes = *context.attributes();
    let ports: Vec<Port> = (1..=attributes.phys_port_cnt)
        .filter_map(|number| port(name, &context, number, addresses))
        .collect();
    let transport = match (context.is_iwarp(), ports.first()) {
        (true, _) => DeviceTransport::IWarp,
        (false, Some(port)) if port.ethernet => DeviceTransport::RoCE,
        (false, Some(_)) => DeviceTransport::InfiniBand,
        (false, None) => DeviceTransport::Other,
    };
    let count = |value: i32| u32::try_from(value).unwrap_or(0);
    Ok(Device {
        name: name.into(),
        transport,
        firmware: context.firmware(),
        vendor: attributes.vendor_id,
        vendor_part: attributes.vendor_part_id,
        ports,
        read_order: read_order(&context),
        windows: context.has_windows(),
        on_demand_paging: domain::pages_on_demand(&context),
        max_mr_size: attributes.max_mr_size,
        max_mr: count(attributes.max_mr),
        max_qp_rd_atom: count(attributes.max_qp_rd_atom),
        max_qp_init_rd_atom: count(attributes.max_qp_init_rd_atom),
        max_sge: count(attributes.max_sge),
        max_sge_rd: count(attributes.max_sge_rd),
        max_qp_wr: count(attributes.max_qp_wr),
    })
}

/// The order in which a device answers two RDMA Reads. The specifications order the responses, not the accesses to
/// memory: an adapter may have several under way over PCIe. Soft iWARP sends whole pages by reference, so that they are
/// copied after the stamp behind them; within one host its reads are `Rising`, which the device itself cannot know
/// (docs/RDMA.md). Only soft RoCE copies each response before it looks at the next request. But if a network delays
/// packets beyond a retransmission, even its responses may come in another order.
fn read_order(context: &Context) -> ReadOrder {
    match context.is_rxe() {
        true => ReadOrder::Ordered,
        false => ReadOrder::Fence,
    }
}

/// Which tags of this end a peer's Send With Invalidate ends: those of windows, or on soft iWARP those of any region.
pub fn remote_invalidation(context: &Context) -> RemoteInvalidation {
    match (context.has_windows(), context.is_siw()) {
        (true, _) => RemoteInvalidation::Bound,
        (false, true) => RemoteInvalidation::Any,
        (false, false) => RemoteInvalidation::Never,
    }
}

fn port(
    device: &str,
    context: &Context,
    number: u8,
    addresses: &[(String, IpAddr)],
) -> Option<Port> {
    let attributes = context.port(number)?;
    let gids: Vec<[u8; 16]> = (0..attributes.gid_tbl_len.min(GIDS_MAX))
        .filter_map(|index| context.gid(number, index))
        .filter(|gid| *gid != [0; 16])
        .collect();
    let netdev = netdev(device, number, &gids);
    let of_netdev = |(name, _): &&(String, IpAddr)| Some(name) == netdev.as_ref();
    Some(Port {
        number,
        state: match attributes.state {
            ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
            ibv_port_state::IBV_PORT_DOWN => PortState::Down,
            _ => PortState::Other,
        },
        ethernet: context.is_iwarp() || u32::from(attributes.link_layer) == IBV_LINK_LAYER_ETHERNET,
        addresses: addresses
            .iter()
            .filter(of_netdev)
            .map(|(_, address)| *address)
            .collect(),
        netdev,
        gids: gids.into_iter().map(Ipv6Addr::from).collect(),
        mtu: match attributes.active_mtu {
            mtu @ 1..=5 => 128 << mtu,
            _ => 0,
        },
    })
}

/// The network interface of a port: as sysfs says for GIDs, or else the one whose hardware address is the GID, as with
/// iWARP devices.
fn netdev(device: &str, port: u8, gids: &[[u8; 16]]) -> Option<String> {
    let entries = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/ndevs");
    let told = fs::read_dir(entries).ok().and_then(|entries| {
        let read = |entry: io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path()).ok();
        let names = entries.filter_map(read).map(|name| name.trim().to_owned());
        names.filter(|name| !name.is_empty()).min()
    });
    told.or_else(|| {
        let interfaces = fs::read_dir("/sys/class/net").ok()?;
        interfaces.filter_map(Result::ok).find_map(|interface| {
            let text = fs::read_to_string(interface.path().join("address")).ok()?;
            let bytes = text
                .trim()
                .split(':')
                .map(|byte| u8::from_str_radix(byte, 16));
            let hardware: Vec<u8> = bytes.collect::<Result<_, _>>().ok()?;
            let known = hardware.iter().any(|byte| *byte != 0)
                && gids.iter().any(|gid| gid.starts_with(&hardware));
            known.then(|| interface.file_name().to_string_lossy().into_owned())
        })
    })
}
