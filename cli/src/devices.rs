//! `odafs devices`: lists RDMA devices, their capabilities, and how to use them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, bail};
use clap::Args;
use odafs_bench::table::{Table, bytes};
use odafs_fabric::ReadOrder;
use odafs_fabric::verbs::{self, Device, Port};
use serde::Serialize;

use crate::{Usage, output};

/// The port of NFS over RDMA.
const PORT: u16 = 20049;

/// Show RDMA devices, their capabilities, and how to use them
#[derive(Args)]
#[command(after_help = "Examples:
  odafs devices
  odafs devices --json | jq '.[] | select(.one_sided == \"ordered\") | .name'

This needs a program that was built with --features verbs. docs/RDMA.md is the guide.

one-sided reads   `ordered` devices answer RDMA Reads in the order of their posts, and each from
                  front to back. A client then reads a page and its stamp in one round trip, if
                  `serve --read-order` says that the network keeps the order too. With `fence`
                  it asks for the stamp after it has the page: one more round trip.
memory windows    save one registration for each call with long data
on-demand paging  saves pinning the page cache (`serve --odp`)
reads in, out     how many RDMA Reads a connection may have under way, as responder and requester")]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A device as it is printed.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    transport: &'static str,
    firmware: &'a str,
    vendor: u32,
    part: u32,
    /// `ordered` or `fence`.
    one_sided: &'static str,
    memory_windows: bool,
    on_demand_paging: bool,
    region_bytes_max: u64,
    regions_max: u32,
    inbound_reads_max: u32,
    outbound_reads_max: u32,
    read_pieces_max: u32,
    ports: Vec<ShownPort<'a>>,
}

#[derive(Serialize)]
struct ShownPort<'a> {
    number: u8,
    state: &'static str,
    link: &'static str,
    mtu_bytes: u32,
    interface: Option<&'a str>,
    addresses: &'a [IpAddr],
    gids: Vec<String>,
    /// How to serve and to reach it, one for each address.
    serve: Vec<String>,
    url: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    check_built_in()?;
    let devices = verbs::devices()?;
    if arguments.json {
        let shown: Vec<_> = devices.iter().map(shown).collect();
        return output::json(&shown);
    }
    print(&devices)
}

/// The address to measure at: the given one, or that of the first device that has one.
pub fn address(given: Option<IpAddr>) -> Result<IpAddr> {
    check_built_in()?;
    if let Some(given) = given {
        return Ok(given);
    }
    let devices = verbs::devices()?;
    let Some(address) = devices.iter().flat_map(Device::reachable_at).next() else {
        bail!(
            "no RDMA device has an active port with an address: see `odafs devices`, or name an address with --address"
        );
    };
    Ok(address)
}

/// Asking a program that was built without the fabric for RDMA devices is wrong usage.
fn check_built_in() -> Result<()> {
    if !verbs::BUILT_IN {
        bail!(Usage(verbs::NOT_BUILT_IN.to_owned()));
    }
    Ok(())
}

fn order(device: &Device) -> &'static str {
    match device.read_order {
        ReadOrder::Ordered => "ordered",
        ReadOrder::Rising => "rising",
        ReadOrder::Fence => "fence",
    }
}

fn link(port: &Port) -> &'static str {
    match port.ethernet {
        true => "Ethernet",
        false => "InfiniBand",
    }
}

/// The option and the URL for an address.
fn usage(address: IpAddr) -> (String, String) {
    let at = SocketAddr::new(address, PORT);
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    (format!("--verbs {at}"), format!("odafs+verbs://{host}/"))
}

fn usages(port: &Port) -> impl Iterator<Item = (String, String)> {
    port.reachable_at().map(usage)
}

fn shown(device: &Device) -> Shown<'_> {
    Shown {
        name: &device.name,
        transport: device.transport.name(),
        firmware: &device.firmware,
        vendor: device.vendor,
        part: device.vendor_part,
        one_sided: order(device),
        memory_windows: device.windows,
        on_demand_paging: device.on_demand_paging,
        region_bytes_max: device.max_mr_size,
        regions_max: device.max_mr,
        inbound_reads_max: device.max_qp_rd_atom,
        outbound_reads_max: device.max_qp_init_rd_atom,
        read_pieces_max: device.max_sge_rd,
        ports: device.ports.iter().map(shown_port).collect(),
    }
}

fn shown_port(port: &Port) -> ShownPort<'_> {
    let (serve, url) = usages(port).unzip();
    ShownPort {
        number: port.number,
        state: port.state.name(),
        link: link(port),
        mtu_bytes: port.mtu,
        interface: port.netdev.as_deref(),
        addresses: &port.addresses,
        gids: port.gids.iter().map(ToString::to_string).collect(),
        serve,
        url,
    }
}

fn print(devices: &[Device]) -> Result<()> {
    let mut table = Table::new([
        "<device",
        "<transport",
        "<one-sided reads",
        "<memory windows",
        "<on-demand paging",
        "reads in, out",
        "largest region",
        "<firmware",
    ]);
    let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for device in devices {
        let reads = [device.max_qp_rd_atom, device.max_qp_init_rd_atom].map(|n| n.to_string());
        table.row(vec![
            device.name.clone(),
            device.transport.name().to_owned(),
            order(device).to_owned(),
            word(device.windows),
            word(device.on_demand_paging),
            reads.join(", "),
            bytes(device.max_mr_size),
            device.firmware.clone(),
        ]);
    }
    output::table(&table)?;
    output::text("\n")?;
    print_ports(devices)?;
    print_usages(devices)
}

fn print_ports(devices: &[Device]) -> Result<()> {
    let mut table = Table::new([
        "<port",
        "<state",
        "<link",
        "MTU",
        "<interface",
        "<addresses",
        "<GIDs",
    ]);
    for device in devices {
        for port in &device.ports {
            let addresses: Vec<_> = port.addresses.iter().map(IpAddr::to_string).collect();
            let gids = port.gids.iter().map(ToString::to_string);
            table.row(vec![
                format!("{}/{}", device.name, port.number),
                port.state.name().to_owned(),
                link(port).to_owned(),
                port.mtu.to_string(),
                port.netdev.clone().unwrap_or_default(),
                addresses.join(", "),
                gids.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    output::table(&table)
}

fn print_usages(devices: &[Device]) -> Result<()> {
    for device in devices {
        let mut any = false;
        for (serve, url) in device.ports.iter().flat_map(usages) {
            any = true;
            output::text(&format!(
                "\n{}: odafs serve DIR {serve}; clients: {url}",
                device.name
            ))?;
        }
        if !any {
            output::text(&format!(
                "\n{}: no port is active and has an address, so nobody can connect through this device (remedy: ip addr \
                 add ADDR/BITS dev INTERFACE; on InfiniBand, set up IPoIB and a subnet manager)",
                device.name
            ))?;
        }
    }
    output::text("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use odafs_fabric::verbs::{DeviceTransport, PortState};

    fn device(state: PortState) -> Device {
        Device {
            name: "rxe0".into(),
            transport: DeviceTransport::RoCE,
            firmware: String::new(),
            vendor: 0xff_ffff,
            vendor_part: 0,
            ports: vec![Port {
                number: 1,
                state,
                ethernet: true,
                mtu: 1024,
                netdev: Some("eth0".into()),
                addresses: vec![
                    [10, 0, 0, 1].into(),
                    "2001:db8::1".parse().unwrap(),
                    "fe80::1".parse().unwrap(),
                ],
                gids: vec!["::ffff:10.0.0.1".parse().unwrap()],
            }],
            read_order: ReadOrder::Ordered,
            windows: true,
            on_demand_paging: false,
            max_mr_size: u64::MAX,
            max_mr: 524_287,
            max_qp_rd_atom: 128,
            max_qp_init_rd_atom: 128,
            max_sge: 32,
            max_sge_rd: 32,
            max_qp_wr: 1 << 14,
        }
    }

    #[test]
    fn each_address_says_how_to_serve_and_how_to_reach_it() {
        let active = device(PortState::Active);
        let json = serde_json::to_value(shown(&active)).unwrap();
        assert_eq!(json["one_sided"], "ordered");
        let port = &json["ports"][0];
        assert_eq!(
            port["serve"],
            serde_json::json!(["--verbs 10.0.0.1:20049", "--verbs [2001:db8::1]:20049"])
        );
        for url in port["url"].as_array().unwrap() {
            url.as_str().unwrap().parse::<odafs::Url>().unwrap();
        }
        let down = device(PortState::Down);
        assert_eq!(usages(&down.ports[0]).count(), 0);
        assert_eq!(down.reachable_at().count(), 0);
    }
}
