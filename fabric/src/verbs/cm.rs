//! RDMA-CM: event channels and the identifiers of connections.

#![allow(unsafe_code)]

use super::sys::{self, CmEvent, CmId, ConnParam, EventChannel, event};
use super::{VerbsError, context};
use crate::clock::{self, Nanos};
use ibverbs_sys::{ibv_qp_attr, ibv_qp_state};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::{CStr, c_int};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// How often a request is repeated before the peer counts as gone.
const RETRIES: u8 = 7;
/// Repeat for ever while the peer has posted no receive.
const RETRIES_WITHOUT_RECEIVE: u8 = 7;

/// The channel for the events of some connections.
pub struct Channel(NonNull<EventChannel>);

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// A channel whose events are polled.
    pub fn new() -> io::Result<Arc<Channel>> {
        // SAFETY: there is nothing that the call could break.
        let channel = unsafe { sys::rdma_create_event_channel() };
        let Some(channel) = NonNull::new(channel) else {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                // librdmacm returns this for a kernel without RDMA, and for one whose last device has gone.
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => match context::names() {
                    Ok(names) if names.is_empty() => VerbsError::NoDevice,
                    _ => VerbsError::NoModule,
                },
                Some(libc::EACCES | libc::EPERM) => VerbsError::NoPermission {
                    device: "/dev/infiniband/rdma_cm".into(),
                    error,
                },
                _ => VerbsError::Failed {
                    what: "rdma_create_event_channel",
                    error,
                },
            }
            .into());
        };
        let channel = Arc::new(Channel(channel));
        rustix::io::ioctl_fionbio(channel.as_fd(), true)?;
        Ok(channel)
    }

    /// The next event, if there is one.
    pub fn poll(&self) -> io::Result<Option<Event>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel lives, and the event is ours until it is acknowledged below.
        if unsafe { sys::rdma_get_cm_event(self.0.as_ptr(), &mut event) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: librdmacm has just filled it in, and `copy` keeps nothing of it but plain values.
        let copied = unsafe { Event::copy(&*event) };
        // SAFETY: it was got above, and is acknowledged once.
        unsafe { sys::rdma_ack_cm_event(event) };
        Ok(Some(copied))
    }

    /// The next event, if it comes before `until`.
    pub fn wait(&self, until: Nanos) -> io::Result<Event> {
        loop {
            if let Some(event) = self.poll()? {
                return Ok(event);
            }
            let left = until.since(clock::now());
            if left.0 == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let timeout = Timespec {
                tv_sec: (left.0 / 1_000_000_000) as i64,
                tv_nsec: (left.0 % 1_000_000_000) as _,
            };
            // An interrupted wait is a spurious wake-up.
            let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timeout));
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.0.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: each identifier holds its channel, so none is left; and all events are acknowledged.
        unsafe { sys::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// What happened to a connection.
pub struct Event {
    /// The connection. Only for comparisons.
    pub of: usize,
    /// The kind of event.
    pub kind: CmEventKind,
    /// The system's error, if something failed.
    pub status: i32,
    /// The peer's private data.
    pub private_data: Vec<u8>,
    /// The most RDMA Reads that this end may have under way at the peer.
    pub outbound_reads: u8,
    /// The most RDMA Reads that the peer wants to have under way here.
    pub inbound_reads: u8,
    /// The new connection of a [`CmEventKind::Request`], which nobody owns yet.
    new: *mut CmId,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmEventKind {
    AddressResolved,
    RouteResolved,
    Request,
    Response,
    Established,
    Rejected,
    Unreachable,
    Disconnected,
    /// The device has gone.
    Removed,
    Failed,
    Other,
}

impl Event {
    /// # Safety
    /// The event is as librdmacm filled it in.
    unsafe fn copy(event: &CmEvent) -> Event {
        let kind = match event.event {
            event::ADDR_RESOLVED => CmEventKind::AddressResolved,
            event::ROUTE_RESOLVED => CmEventKind::RouteResolved,
            event::CONNECT_REQUEST => CmEventKind::Request,
            event::CONNECT_RESPONSE => CmEventKind::Response,
            event::ESTABLISHED => CmEventKind::Established,
            event::REJECTED => CmEventKind::Rejected,
            event::UNREACHABLE => CmEventKind::Unreachable,
            event::DISCONNECTED => CmEventKind::Disconnected,
            event::DEVICE_REMOVAL => CmEventKind::Removed,
            event::ADDR_ERROR | event::ROUTE_ERROR | event::CONNECT_ERROR => CmEventKind::Failed,
            _ => CmEventKind::Other,
        };
        let speaks = matches!(
            kind,
            CmEventKind::Request
                | CmEventKind::Response
                | CmEventKind::Established
                | CmEventKind::Rejected
        );
        let (data, length) = (event.conn.private_data, event.conn.private_data_len);
        let private_data = if speaks && !data.is_null() && length > 0 {
            // SAFETY: so many bytes are there, says librdmacm, which bounds them by its own buffer of 256.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) }.to_vec()
        } else {
            Vec::new()
        };
        Event {
            of: event.id as usize,
            kind,
            status: event.status,
            private_data,
            outbound_reads: event.conn.initiator_depth,
            inbound_reads: event.conn.responder_resources,
            new: match kind {
                CmEventKind::Request => event.id,
                _ => ptr::null_mut(),
            },
        }
    }

    /// The connection of a [`CmEventKind::Request`]. Its events come to the listener's channel.
    pub fn take_new(&mut self, channel: &Arc<Channel>) -> Option<Id> {
        let id = NonNull::new(std::mem::replace(&mut self.new, ptr::null_mut()))?;
        Some(Id {
            id,
            channel: Arc::clone(channel),
        })
    }
}

/// A connection, or a listener, as RDMA-CM knows it.
pub struct Id {
    id: NonNull<CmId>,
    channel: Arc<Channel>,
}

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Id {}

/// The terms of a connection.
pub struct ConnectTerms<'a> {
    pub private_data: &'a [u8],
    /// The most RDMA Reads that the peer may have under way here.
    pub inbound_reads: u8,
    /// The most RDMA Reads that this end may have under way there.
    pub outbound_reads: u8,
    pub queue: u32,
}

impl Id {
    /// A new one.
    pub fn new(channel: &Arc<Channel>) -> io::Result<Id> {
        let mut id = ptr::null_mut();
        // SAFETY: the channel lives for as long as the identifier.
        let result = unsafe {
            sys::rdma_create_id(channel.0.as_ptr(), &mut id, ptr::null_mut(), sys::PS_TCP)
        };
        check(result)?;
        Ok(Id {
            id: NonNull::new(id).ok_or(io::ErrorKind::OutOfMemory)?,
            channel: Arc::clone(channel),
        })
    }

    /// Its name in events.
    pub fn number(&self) -> usize {
        self.id.as_ptr() as usize
    }

    /// The channel of its events.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    fn raw(&self) -> &CmId {
        // SAFETY: it lives until it is dropped, and the reference no longer than a method here. librdmacm changes its
        // fields in calls with it, which are ours, and as it takes the events of an address or a route from the channel:
        // of an identifier that has these, the one thread that made it takes events until then.
        unsafe { self.id.as_ref() }
    }

    /// Name of the device, if it has one.
    pub fn device(&self) -> Option<String> {
        let verbs = NonNull::new(self.raw().verbs)?;
        // SAFETY: librdmacm holds the device open for as long as the identifier lives, and its name is a C string.
        let name = unsafe { CStr::from_ptr((*verbs.as_ref().device).name.as_ptr()) };
        Some(name.to_string_lossy().into_owned())
    }

    /// The peer.
    pub fn peer(&self) -> Option<SocketAddr> {
        from_raw(&self.raw().addresses.destination)
    }

    /// Binds to an address of this host.
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        let mut raw = to_raw(address);
        // SAFETY: the address is a whole `sockaddr_storage`, which is copied.
        check(unsafe { sys::rdma_bind_addr(self.id.as_ptr(), ptr::from_mut(&mut raw).cast()) })
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENODEV | libc::EADDRNOTAVAIL) => {
                    VerbsError::NoDeviceAt(address.ip()).into()
                }
                _ => error,
            })
    }

    /// Its port, after the bind to 0.
    pub fn port(&self) -> u16 {
        // SAFETY: it only reads the identifier.
        u16::from_be(unsafe { sys::rdma_get_src_port(self.id.as_ptr()) })
    }

    /// Listens.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the identifier lives.
        check(unsafe { sys::rdma_listen(self.id.as_ptr(), backlog) })
    }

    /// Looks for a device that leads to `address`. [`CmEventKind::AddressResolved`] follows.
    pub fn resolve_address(&self, address: SocketAddr, timeout: Nanos) -> io::Result<()> {
        let mut raw = to_raw(address);
        // SAFETY: the address is a whole `sockaddr_storage`, which is copied.
        check(unsafe {
            sys::rdma_resolve_addr(
                self.id.as_ptr(),
                ptr::null_mut(),
                ptr::from_mut(&mut raw).cast(),
                millis(timeout),
            )
        })
    }

    /// Looks for the route to the peer. [`CmEventKind::RouteResolved`] follows.
    pub fn resolve_route(&self, timeout: Nanos) -> io::Result<()> {
        // SAFETY: the identifier lives.
        check(unsafe { sys::rdma_resolve_route(self.id.as_ptr(), millis(timeout)) })
    }

    /// Asks for the connection.
    pub fn connect(&self, terms: &ConnectTerms<'_>) -> io::Result<()> {
        let mut param = param(terms)?;
        // SAFETY: the private data outlives the call, which copies it.
        check(unsafe { sys::rdma_connect(self.id.as_ptr(), &mut param) })
    }

    /// Accepts the connection.
    pub fn accept(&self, terms: &ConnectTerms<'_>) -> io::Result<()> {
        let mut param = param(terms)?;
        // SAFETY: the private data outlives the call, which copies it.
        check(unsafe { sys::rdma_accept(self.id.as_ptr(), &mut param) })
    }

    /// Confirms that the response was processed and the queue pair is ready.
    pub fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier lives.
        check(unsafe { sys::rdma_establish(self.id.as_ptr()) })
    }

    /// Refuses the connection.
    pub fn reject(&self, reason: &[u8]) {
        let length = u8::try_from(reason.len()).unwrap_or(u8::MAX);
        // SAFETY: so many bytes are there, and are copied.
        unsafe { sys::rdma_reject(self.id.as_ptr(), reason.as_ptr().cast(), length) };
    }

    /// Ends the connection.
    pub fn disconnect(&self) {
        // SAFETY: the identifier lives. It fails where there is no connection any more.
        unsafe { sys::rdma_disconnect(self.id.as_ptr()) };
    }

    /// Makes its events come to `channel` from now on.
    pub fn migrate(&mut self, channel: &Arc<Channel>) -> io::Result<()> {
        // SAFETY: both live. Each event is acknowledged as it is taken (else this would block), and the old channel is given
        // up only once the identifier has left it.
        check(unsafe { sys::rdma_migrate_id(self.id.as_ptr(), channel.0.as_ptr()) })?;
        self.channel = Arc::clone(channel);
        Ok(())
    }

    /// What its queue pair needs for a state.
    pub fn queue_attributes(&self, state: ibv_qp_state::Type) -> io::Result<(ibv_qp_attr, c_int)> {
        let (mut attributes, mut mask) = (ibv_qp_attr::default(), 0);
        attributes.qp_state = state;
        // SAFETY: it only fills in the two.
        check(unsafe { sys::rdma_init_qp_attr(self.id.as_ptr(), &mut attributes, &mut mask) })?;
        Ok((attributes, mask))
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: it is ours, is destroyed once, and no queue pair was made by librdmacm. Each event is acknowledged as it
        // is taken (`Channel::poll`), so that this waits at most for a thread that is between the two.
        unsafe { sys::rdma_destroy_id(self.id.as_ptr()) };
    }
}

fn param(terms: &ConnectTerms<'_>) -> io::Result<ConnParam> {
    let length = u8::try_from(terms.private_data.len());
    Ok(ConnParam {
        private_data: terms.private_data.as_ptr().cast(),
        private_data_len: length.map_err(|_| io::ErrorKind::InvalidInput)?,
        responder_resources: terms.inbound_reads,
        initiator_depth: terms.outbound_reads,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES_WITHOUT_RECEIVE,
        srq: 0,
        qp_num: terms.queue,
    })
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn millis(span: Nanos) -> c_int {
    c_int::try_from(span.0 / 1_000_000)
        .unwrap_or(c_int::MAX)
        .max(1)
}

fn to_raw(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all zeros are a valid `sockaddr_storage`.
    let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = ptr::from_mut(&mut raw);
    match address {
        SocketAddr::V4(v4) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` is large enough and aligned for each kind of address.
            unsafe { place.cast::<libc::sockaddr_in>().write(address) };
        }
        SocketAddr::V6(v6) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(address) };
        }
    }
    raw
}

/// The address, if it is one of IP.
pub fn from_raw(raw: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match c_int::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what it is.
            let v4 = unsafe { &*ptr::from_ref(raw).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some((IpAddr::V4(ip), u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*ptr::from_ref(raw).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some((IpAddr::V6(ip), u16::from_be(v6.sin6_port)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for address in ["10.0.2.15:20049", "[fe80::1]:7"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(from_raw(&to_raw(address)), Some(address));
        }
    }
}
