//! RDMA adapters, hardware or software (`rdma_rxe`, `siw`), through libibverbs and librdmacm.

mod cm;
mod context;
mod device;
mod domain;
mod drain;
mod error;
mod keepalive;
mod listener;
mod pair;
mod queue;
#[cfg(test)]
mod refused_tests;
mod sys;
mod types;
mod waiting;
mod wakeup;

pub use device::devices;
pub use error::VerbsError;
pub use listener::Listener;
pub use types::{ConnectOptions, Device, DeviceTransport, Limits, NOT_BUILT_IN, Port, PortState};

use crate::clock::{self, Nanos};
use crate::fabric::{self, Peer, QueuePair, REFUSED, ReadOrder, RemoteInvalidation};
use cm::{Channel, CmEventKind, ConnectTerms, Event, Id};
use domain::Domain;
use pair::{Made, Pair};
use queue::Queue;
use std::io;
use std::net::SocketAddr;

/// Whether this program was built with the fabric.
pub const BUILT_IN: bool = true;

/// Connects to a listener, or to any other peer that RDMA-CM reaches. Blocks until the connection is established.
pub fn connect(
    address: SocketAddr,
    private_data: &[u8],
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    connect_with(address, |_| private_data.to_vec(), options)
}

/// As above, with private data that depends on the capabilities of the device towards the peer.
pub fn connect_with(
    address: SocketAddr,
    private_data: impl FnOnce(RemoteInvalidation) -> Vec<u8>,
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    let until = clock::now() + options.deadline;
    let channel = Channel::new()?;
    let id = Id::new(&channel)?;
    let resolve = || {
        id.resolve_address(address, left(until)?)?;
        expect(&channel, until, address, &[CmEventKind::AddressResolved])?;
        id.resolve_route(left(until)?)?;
        expect(&channel, until, address, &[CmEventKind::RouteResolved]).map(drop)
    };
    resolve().map_err(|error| no_way(error, address))?;
    let device = id.device().ok_or(VerbsError::NoDevice)?;
    // Responses are processed in the order of the requests. How the peer makes them is up to it.
    let domain = Domain::new(&device, options.odp, ReadOrder::Ordered)?;
    let private_data = private_data(device::remote_invalidation(domain.context()));
    fabric::check_private_data(&private_data)?;
    let attributes = *domain.context().attributes();
    let most = |wanted: u32, device: i32| {
        let most = u32::try_from(device).unwrap_or(0).min(READS_MAX);
        wanted.min(most) as u8
    };
    let inbound_reads = most(options.inbound_reads, attributes.max_qp_rd_atom);
    let outbound_reads = most(options.outbound_reads, attributes.max_qp_init_rd_atom);
    let queue = Queue::new(domain.pd(), types::RECEIVES)?;
    let number = queue.number();
    let mut pair = Pair::initialized(Made {
        queue,
        id,
        domain,
        peer: Peer::Address(address),
        private_data: Vec::new(),
        reads_max: 0,
        reads: options.inbound_reads > 0,
        is_server: false,
        place: None,
    })?;
    let (queue, id) = pair.parts();
    id.connect(&ConnectTerms {
        private_data: &private_data,
        inbound_reads,
        outbound_reads,
        queue: number,
    })?;
    let answer = expect(
        &channel,
        until,
        address,
        &[CmEventKind::Response, CmEventKind::Established],
    )?;
    let offered = outbound_reads.min(answer.outbound_reads);
    let outbound_reads = offered.max(options.reads_at_least);
    if answer.kind == CmEventKind::Response {
        queue.connect(id, inbound_reads, outbound_reads)?;
        id.establish()?;
    }
    pair.answered(answer.private_data, outbound_reads.into());
    Ok(Box::new(pair))
}

/// The most RDMA Reads of a connection in each direction.
const READS_MAX: u32 = 128;

/// The next event, which should be one of these.
fn expect(
    channel: &Channel,
    until: Nanos,
    address: SocketAddr,
    kinds: &[CmEventKind],
) -> io::Result<Event> {
    let event = channel.wait(until)?;
    if kinds.contains(&event.kind) && event.status == 0 {
        return Ok(event);
    }
    Err(match event.kind {
        CmEventKind::Rejected => {
            let end = event.private_data.iter().rposition(|byte| *byte != 0);
            let reason = &event.private_data[..end.map_or(0, |end| end + 1)];
            let reason = match reason {
                [] => format!("nobody takes RDMA connections at {address}"),
                reason => format!("{REFUSED}: {}", String::from_utf8_lossy(reason)),
            };
            io::Error::new(io::ErrorKind::ConnectionRefused, reason)
        }
        CmEventKind::Unreachable => {
            let what = format!("{address} does not answer to RDMA");
            io::Error::new(io::ErrorKind::HostUnreachable, what)
        }
        _ if event.status < 0 => io::Error::from_raw_os_error(-event.status),
        kind => io::Error::other(format!("{kind:?} instead of {kinds:?}")),
    })
}

/// Perhaps no device leads to an address.
fn no_way(error: io::Error, address: SocketAddr) -> io::Error {
    match (error.raw_os_error(), context::names()) {
        (_, Err(no_list)) => no_list.into(),
        (_, Ok(names)) if names.is_empty() => VerbsError::NoDevice.into(),
        (Some(libc::ENODEV | libc::EADDRNOTAVAIL), _) => {
            VerbsError::NoDeviceAt(address.ip()).into()
        }
        _ => error,
    }
}

/// Time until a deadline that has not passed.
fn left(until: Nanos) -> io::Result<Nanos> {
    match until.since(clock::now()) {
        Nanos(0) => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}
