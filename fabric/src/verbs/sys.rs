//! Names of libibverbs and librdmacm. `ibverbs-sys` has no `rdma_*`: those that are used are declared here, as in
//! rdma-core's `rdma_cma.h`; the sizes below were taken from that header by a C compiler.

#![allow(unsafe_code)]

use ibverbs_sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_type, ibv_srq};
use std::ffi::{c_int, c_void};

/// `struct rdma_event_channel`
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// `struct rdma_addr`: two `sockaddr_storage`, and what belongs to InfiniBand addresses.
#[repr(C)]
pub struct Addresses {
    pub source: libc::sockaddr_storage,
    pub destination: libc::sockaddr_storage,
    ib: [u64; 5],
}

/// `struct rdma_cm_id`
#[repr(C)]
pub struct CmId {
    pub verbs: *mut ibv_context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub addresses: Addresses,
    path_rec: *mut c_void,
    num_paths: c_int,
    padding: c_int,
    ps: c_int,
    pub port_num: u8,
    event: *mut CmEvent,
    send_cq_channel: *mut c_void,
    send_cq: *mut c_void,
    recv_cq_channel: *mut c_void,
    recv_cq: *mut c_void,
    srq: *mut ibv_srq,
    pd: *mut ibv_pd,
    qp_type: ibv_qp_type::Type,
}

/// `struct rdma_conn_param`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// `struct rdma_cm_event`; of its parameters only those of a connection are used.
#[repr(C)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_int,
    pub status: c_int,
    pub conn: ConnParam,
    rest: [u64; 4],
}

const _: () = {
    assert!(size_of::<EventChannel>() == 4);
    assert!(size_of::<Addresses>() == 296);
    assert!(size_of::<CmId>() == 416);
    assert!(size_of::<ConnParam>() == 24);
    assert!(size_of::<CmEvent>() == 80);
    assert!(std::mem::offset_of!(CmId, addresses) == 32);
    assert!(std::mem::offset_of!(CmId, addresses.destination) == 160);
    assert!(std::mem::offset_of!(CmId, port_num) == 348);
    assert!(std::mem::offset_of!(CmId, qp_type) == 408);
    assert!(std::mem::offset_of!(ConnParam, private_data_len) == 8);
    assert!(std::mem::offset_of!(ConnParam, srq) == 14);
    assert!(std::mem::offset_of!(ConnParam, qp_num) == 16);
    assert!(std::mem::offset_of!(CmEvent, event) == 16);
    assert!(std::mem::offset_of!(CmEvent, status) == 20);
    assert!(std::mem::offset_of!(CmEvent, conn) == 24);
};

/// `enum rdma_cm_event_type`
pub mod event {
    use std::ffi::c_int;
    pub const ADDR_RESOLVED: c_int = 0;
    pub const ADDR_ERROR: c_int = 1;
    pub const ROUTE_RESOLVED: c_int = 2;
    pub const ROUTE_ERROR: c_int = 3;
    pub const CONNECT_REQUEST: c_int = 4;
    pub const CONNECT_RESPONSE: c_int = 5;
    pub const CONNECT_ERROR: c_int = 6;
    pub const UNREACHABLE: c_int = 7;
    pub const REJECTED: c_int = 8;
    pub const ESTABLISHED: c_int = 9;
    pub const DISCONNECTED: c_int = 10;
    pub const DEVICE_REMOVAL: c_int = 11;
}

/// `RDMA_PS_TCP`
pub const PS_TCP: c_int = 0x0106;

#[link(name = "rdmacm")]
// SAFETY: names, arguments and results are those that `rdma_cma.h` declares, and the structures behind the pointers are
// laid out as its own, which the assertions above hold to.
unsafe extern "C" {
    pub fn rdma_create_event_channel() -> *mut EventChannel;
    pub fn rdma_destroy_event_channel(channel: *mut EventChannel);
    pub fn rdma_create_id(
        channel: *mut EventChannel,
        id: *mut *mut CmId,
        context: *mut c_void,
        ps: c_int,
    ) -> c_int;
    pub fn rdma_destroy_id(id: *mut CmId) -> c_int;
    pub fn rdma_bind_addr(id: *mut CmId, address: *mut libc::sockaddr) -> c_int;
    pub fn rdma_resolve_addr(
        id: *mut CmId,
        source: *mut libc::sockaddr,
        destination: *mut libc::sockaddr,
        timeout_ms: c_int,
    ) -> c_int;
    pub fn rdma_resolve_route(id: *mut CmId, timeout_ms: c_int) -> c_int;
    pub fn rdma_init_qp_attr(id: *mut CmId, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int;
    pub fn rdma_connect(id: *mut CmId, param: *mut ConnParam) -> c_int;
    pub fn rdma_establish(id: *mut CmId) -> c_int;
    pub fn rdma_listen(id: *mut CmId, backlog: c_int) -> c_int;
    pub fn rdma_accept(id: *mut CmId, param: *mut ConnParam) -> c_int;
    pub fn rdma_reject(id: *mut CmId, private_data: *const c_void, length: u8) -> c_int;
    pub fn rdma_disconnect(id: *mut CmId) -> c_int;
    pub fn rdma_get_cm_event(channel: *mut EventChannel, event: *mut *mut CmEvent) -> c_int;
    pub fn rdma_ack_cm_event(event: *mut CmEvent) -> c_int;
    pub fn rdma_migrate_id(id: *mut CmId, channel: *mut EventChannel) -> c_int;
    pub fn rdma_get_src_port(id: *mut CmId) -> u16;
}
