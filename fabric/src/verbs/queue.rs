//! A queue pair of a device with its completion queues, as far as it is not safe.

#![allow(unsafe_code)]

use super::cm::Id;
use super::domain::{MessageSlot, Pd, Window, flags};
use crate::fabric::{Access, SteeringTag};
use ibverbs_sys::{
    ibv_comp_channel, ibv_cq, ibv_mw_bind_info, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap,
    ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Work requests of a send queue.
pub const DEPTH: usize = 256;

/// Bytes of a message that go into the work request itself, as the device has room: the most first.
const INLINE: [u32; 3] = [220, 80, 0];

/// Completions of one look.
const BATCH: usize = 16;

/// Bytes of a page of memory.
const PAGE: usize = 4096;

/// How long a sender waits whose peer has posted no receive: 0.64 ms.
const WITHOUT_RECEIVE_TIMER: u8 = 12;

/// A queue pair, its completion queues and their channel.
pub struct Queue {
    pair: NonNull<ibv_qp>,
    sends: CompletionQueue,
    receives: CompletionQueue,
    channel: CompletionChannel,
    inline_bytes: usize,
    /// Receives that may be posted at a time.
    receives_max: u32,
    access: Access,
    pd: Arc<Pd>,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Queue {}

struct CompletionQueue(NonNull<ibv_cq>);

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: it is ours, its queue pair is gone, and each event is acknowledged as it is taken (else this would block).
        unsafe { ibverbs_sys::ibv_destroy_cq(self.0.as_ptr()) };
    }
}

struct CompletionChannel(NonNull<ibv_comp_channel>);

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: it is ours, and its completion queues are gone.
        unsafe { ibverbs_sys::ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it is ours, and ends once. After this the device touches no memory on its behalf.
        let result = unsafe { ibverbs_sys::ibv_destroy_qp(self.pair.as_ptr()) };
        if result != 0 {
            let error = io::Error::from_raw_os_error(result.abs());
            tracing::error!(%error, "a queue pair cannot be destroyed");
        }
        // The completion queues and then the channel go as fields, in the order of their declaration.
    }
}

/// Which of the two completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Sends,
    Receives,
}

/// What a work request does.
pub enum Work<'a> {
    /// A message, and a tag of the peer's that it ends.
    Send(Option<SteeringTag>),
    Write {
        tag: SteeringTag,
        address: u64,
    },
    Read {
        tag: SteeringTag,
        address: u64,
    },
    /// Binds a window to a range.
    Bind {
        window: &'a Window,
        address: u64,
        length: u64,
        access: Access,
    },
    /// Ends a tag of ours.
    End(SteeringTag),
}

/// Local memory of a work request.
#[derive(Clone, Copy)]
pub struct GatherEntry {
    pub address: u64,
    pub length: u32,
    pub key: u32,
}

/// Work requests that the device has not been told of.
#[derive(Default)]
pub struct Chain {
    requests: Vec<ibv_send_wr>,
    pieces: Vec<ibv_sge>,
}

// SAFETY: of what the requests point to, requests and pieces are set anew when they are posted, and windows and regions
// belong to the same `Pair`, which outlives its chain's last post.
unsafe impl Send for Chain {}

impl Chain {
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds one.
    pub fn push(
        &mut self,
        number: u64,
        work: &Work<'_>,
        piece: Option<GatherEntry>,
        signalled: bool,
    ) {
        let mut request = blank();
        request.wr_id = number;
        if signalled {
            request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        let mut remote = |tag: SteeringTag, address| {
            request.wr.rdma.rkey = tag.0;
            request.wr.rdma.remote_addr = address;
        };
        match *work {
            Work::Send(None) => request.opcode = ibv_wr_opcode::IBV_WR_SEND,
            Work::Send(Some(tag)) => {
                request.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
                request.__bindgen_anon_1.invalidate_rkey = tag.0;
                // Where the library of soft iWARP looks for it. No other looks here for a message.
                request.wr.rdma.rkey = tag.0;
            }
            Work::Write { tag, address } => {
                remote(tag, address);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
            }
            Work::Read { tag, address } => {
                remote(tag, address);
                request.opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
            }
            Work::Bind {
                window,
                address,
                length,
                access,
            } => {
                request.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
                request.__bindgen_anon_2.bind_mw.mw = window.raw();
                request.__bindgen_anon_2.bind_mw.rkey = window.tag().0;
                request.__bindgen_anon_2.bind_mw.bind_info = ibv_mw_bind_info {
                    mr: window.region(),
                    addr: address,
                    length,
                    mw_access_flags: flags(access),
                };
            }
            Work::End(tag) => {
                request.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
                request.__bindgen_anon_1.invalidate_rkey = tag.0;
            }
        }
        let piece = piece.unwrap_or(GatherEntry {
            address: 0,
            length: 0,
            key: 0,
        });
        request.num_sge = i32::from(piece.length > 0);
        // Of those that are not signalled, soft iWARP sends a page or more by reference, and calls them over when TCP has
        // been told: the memory would be used again while it is still to be read.
        if piece.length as usize >= PAGE && !matches!(work, Work::Read { .. }) {
            request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        self.pieces.push(ibv_sge {
            addr: piece.address,
            length: piece.length,
            lkey: piece.key,
        });
        self.requests.push(request);
    }

    /// Links them and their pieces; the last one is signalled.
    fn link(&mut self, inline_bytes: usize) -> *mut ibv_send_wr {
        let mut next: *mut ibv_send_wr = ptr::null_mut();
        for (request, piece) in self.requests.iter_mut().zip(&mut self.pieces).rev() {
            if next.is_null() {
                request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
            // Soft iWARP takes no others so.
            let sends = request.opcode == ibv_wr_opcode::IBV_WR_SEND;
            if sends && piece.length > 0 && piece.length as usize <= inline_bytes {
                request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
            }
            request.sg_list = piece;
            request.next = next;
            next = request;
        }
        next
    }

    /// Forgets those before `first`, which the device has; all, if that is none of them.
    fn keep_from(&mut self, first: *const ibv_send_wr) {
        let mut requests = self.requests.iter();
        let posted = requests.position(|request| ptr::eq(request, first));
        let posted = posted.unwrap_or(self.requests.len());
        self.requests.drain(..posted);
        self.pieces.drain(..posted);
    }
}

fn blank() -> ibv_send_wr {
    // SAFETY: all zeros are a valid request, of no pieces and no successor.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A work request that is over.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Its number; all before it are over too.
    pub number: u64,
    pub status: ibv_wc_status::Type,
    pub bytes: u32,
    /// A message told of a tag that it ended.
    pub invalidated: Option<SteeringTag>,
}

impl Done {
    pub fn is_ok(&self) -> bool {
        self.status == ibv_wc_status::IBV_WC_SUCCESS
    }
}

impl Queue {
    /// A queue pair that is not connected, with room for so many receives, or as many as the device has room for.
    pub fn new(pd: &Arc<Pd>, receives: u32) -> io::Result<Queue> {
        let room = u32::try_from(pd.context().attributes().max_qp_wr).unwrap_or(0);
        let receives_max = receives.min(room).max(1);
        let context = pd.context().raw();
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { ibverbs_sys::ibv_create_comp_channel(context) });
        let channel = CompletionChannel(channel.ok_or_else(io::Error::last_os_error)?);
        let completion_queue = |entries: u32| {
            // SAFETY: the context is open and the channel outlives the queue.
            let queue = NonNull::new(unsafe {
                ibverbs_sys::ibv_create_cq(
                    context,
                    entries.cast_signed(),
                    ptr::null_mut(),
                    channel.0.as_ptr(),
                    0,
                )
            });
            io::Result::Ok(CompletionQueue(queue.ok_or_else(io::Error::last_os_error)?))
        };
        let sends = completion_queue(2 * DEPTH as u32)?;
        let receives = completion_queue(2 * receives_max)?;
        let mut refused = None;
        for inline in INLINE {
            let mut wanted = ibv_qp_init_attr {
                qp_context: ptr::null_mut(),
                send_cq: sends.0.as_ptr(),
                recv_cq: receives.0.as_ptr(),
                srq: ptr::null_mut(),
                cap: ibv_qp_cap {
                    max_send_wr: DEPTH as u32,
                    max_recv_wr: receives_max,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: ibv_qp_type::IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: the domain and the completion queues live as long as the queue pair.
            let pair = unsafe { ibverbs_sys::ibv_create_qp(pd.raw(), &mut wanted) };
            match NonNull::new(pair) {
                Some(pair) => {
                    let queue = Queue {
                        pair,
                        sends,
                        receives,
                        channel,
                        inline_bytes: inline as usize,
                        receives_max,
                        access: Access::LOCAL,
                        pd: Arc::clone(pd),
                    };
                    rustix::io::ioctl_fionbio(queue.as_fd(), true)?;
                    return Ok(queue);
                }
                None => refused = Some(io::Error::last_os_error()),
            }
        }
        Err(refused.unwrap_or_else(|| io::ErrorKind::Other.into()))
    }

    /// Receives that may be posted at a time.
    pub fn receives_max(&self) -> u32 {
        self.receives_max
    }

    /// Its number, for RDMA-CM.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is ours.
        unsafe { self.pair.as_ref().qp_num }
    }

    fn modify(&mut self, attributes: &mut ibv_qp_attr, mask: i32) -> io::Result<()> {
        // SAFETY: the queue pair is ours.
        match unsafe { ibverbs_sys::ibv_modify_qp(self.pair.as_ptr(), attributes, mask) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error.abs())),
        }
    }

    /// Takes receives from now on. The peer has these rights.
    pub fn initialize(&mut self, id: &Id, access: Access) -> io::Result<()> {
        let (mut attributes, mask) = id.queue_attributes(ibv_qp_state::IBV_QPS_INIT)?;
        attributes.qp_access_flags = flags(access);
        self.modify(&mut attributes, mask)?;
        self.access = access;
        Ok(())
    }

    /// Is connected from now on, on InfiniBand and RoCE.
    pub fn connect(&mut self, id: &Id, inbound: u8, outbound: u8) -> io::Result<()> {
        let (mut attributes, mask) = id.queue_attributes(ibv_qp_state::IBV_QPS_RTR)?;
        attributes.max_dest_rd_atomic = inbound;
        attributes.min_rnr_timer = WITHOUT_RECEIVE_TIMER;
        self.modify(&mut attributes, mask)?;
        let (mut attributes, mask) = id.queue_attributes(ibv_qp_state::IBV_QPS_RTS)?;
        attributes.max_rd_atomic = outbound;
        self.modify(&mut attributes, mask)
    }

    /// Ends all work requests: the device touches no memory for this queue pair any more.
    pub fn fail(&mut self) {
        let mut attributes = ibv_qp_attr {
            qp_state: ibv_qp_state::IBV_QPS_ERR,
            ..ibv_qp_attr::default()
        };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        // It has failed already then.
        let _ = self.modify(&mut attributes, mask);
    }

    /// Gives the peer these rights, beside those that it has.
    pub fn open(&mut self, access: Access) -> io::Result<()> {
        let access = Access {
            remote_read: self.access.remote_read | access.remote_read,
            remote_write: self.access.remote_write | access.remote_write,
        };
        if access == self.access {
            return Ok(());
        }
        let mut attributes = ibv_qp_attr {
            qp_access_flags: flags(access),
            ..ibv_qp_attr::default()
        };
        let mask = ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0.cast_signed();
        self.modify(&mut attributes, mask)?;
        self.access = access;
        Ok(())
    }

    /// Tells the device of a chain; on an error, those that stay in it were not posted. Its slots and regions live until
    /// their completions.
    pub fn ring(&mut self, chain: &mut Chain) -> io::Result<()> {
        let first = chain.link(self.inline_bytes);
        if first.is_null() {
            return Ok(());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the requests and pieces were just linked and stay where they are during the call, which copies them.
        // The windows that it looks into, and their regions, live: `Pair` gives up none whose bind was not posted. The
        // memory of the pieces is kept by the flights of `Pair` until their completions, or until the queue pair is gone.
        let result = unsafe {
            let post = (*self.pair.as_ref().context).ops.post_send;
            post.map(|post| post(self.pair.as_ptr(), first, &mut bad))
        };
        chain.keep_from(bad);
        match result {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error.abs())),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Posts a receive into a slot, which lives until its completion.
    pub fn receive(&mut self, number: u64, slot: &MessageSlot) -> io::Result<()> {
        let mut piece = ibv_sge {
            addr: slot.address(),
            length: super::domain::SLOT_BYTES as u32,
            lkey: slot.local_key(),
        };
        let mut request = ibv_recv_wr {
            wr_id: number,
            next: ptr::null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: the request lives during the call, and the slot until its completion.
        let result = unsafe {
            let post = (*self.pair.as_ref().context).ops.post_recv;
            post.map(|post| post(self.pair.as_ptr(), &mut request, &mut bad))
        };
        match result {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error.abs())),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn completion_queue(&self, side: Side) -> *mut ibv_cq {
        match side {
            Side::Sends => self.sends.0.as_ptr(),
            Side::Receives => self.receives.0.as_ptr(),
        }
    }

    /// Hands on what is over; whether there may be more.
    pub fn poll(&mut self, side: Side, mut take: impl FnMut(Done)) -> bool {
        let mut found = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let queue = self.completion_queue(side);
        // SAFETY: the queue is ours, and there is room for so many completions.
        let count = unsafe {
            let poll = (*(*queue).context).ops.poll_cq;
            poll.map_or(0, |poll| {
                poll(queue, BATCH as i32, found.as_mut_ptr().cast())
            })
        };
        let count = usize::try_from(count).unwrap_or(0).min(BATCH);
        for completion in &found[..count] {
            // SAFETY: the device's library has filled in so many.
            let completion = unsafe { completion.assume_init_ref() };
            let status = match completion.error() {
                Some((status, _)) => status,
                // A write with an immediate takes a receive, and leaves in it what was there before: somebody else's
                // message. Nothing of ours sends any.
                None if completion.opcode() == ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => {
                    ibv_wc_status::IBV_WC_REM_INV_REQ_ERR
                }
                None => ibv_wc_status::IBV_WC_SUCCESS,
            };
            // Linux's soft RoCE sets the kernel's bit for it, which has another meaning here.
            let told = ibv_wc_flags::IBV_WC_WITH_INV.0
                | (u32::from(self.pd.context().is_rxe()) * ibv_wc_flags::IBV_WC_IP_CSUM_OK.0);
            let ends = side == Side::Receives
                && status == ibv_wc_status::IBV_WC_SUCCESS
                && completion.wc_flags.0 & told != 0;
            take(Done {
                number: completion.wr_id(),
                status,
                bytes: completion.len() as u32,
                invalidated: ends.then_some(SteeringTag(completion.imm_data)),
            });
        }
        count == BATCH
    }

    /// Asks for an event at the next completion.
    pub fn notify(&mut self, side: Side) {
        let queue = self.completion_queue(side);
        // SAFETY: the queue is ours.
        unsafe {
            if let Some(notify) = (*(*queue).context).ops.req_notify_cq {
                notify(queue, 0);
            }
        }
    }

    /// The next event that was asked for, if it has come.
    pub fn event(&mut self) -> Option<Side> {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is ours, and both are filled in.
        let result = unsafe {
            ibverbs_sys::ibv_get_cq_event(self.channel.0.as_ptr(), &mut queue, &mut context)
        };
        if result != 0 {
            return None;
        }
        // SAFETY: the event is one of a queue of ours, and acknowledged once.
        unsafe { ibverbs_sys::ibv_ack_cq_events(queue, 1) };
        Some(match queue == self.sends.0.as_ptr() {
            true => Side::Sends,
            false => Side::Receives,
        })
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.0.as_ref().fd) }
    }
}
