//! Protection domains, and the memory registered in them.

#![allow(unsafe_code)]

use super::VerbsError;
use super::context::Context;
use crate::fabric::{Access, ReadOrder, Remote, SteeringTag};
use crate::memory::mapping::Mapping;
use crate::memory::{Arena, Region};
use crate::sync::Mutex;
use ibverbs_sys::{IBV_MW_TYPE_2, ibv_access_flags, ibv_mr, ibv_mw, ibv_pd};
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Size of a slot in bytes: the longest message.
pub const SLOT_BYTES: usize = 4096;

/// Number of slots that are registered at a time.
const SLAB_SLOTS: usize = 64;

/// Number of slots of a domain: those of 4,096 connections with all their receives posted.
const SLOTS_MAX: usize = 2 << 20;

const LOCAL: u32 = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const ON_DEMAND: u32 = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
const BINDS: u32 = ibv_access_flags::IBV_ACCESS_MW_BIND.0;

/// The peer's rights in libibverbs' flags.
pub fn flags(access: Access) -> u32 {
    let read = u32::from(access.remote_read) * ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    let write = u32::from(access.remote_write) * ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    read | write
}

/// A protection domain. What is registered in one cannot be used in another.
pub struct Pd {
    pd: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    fn new(context: &Arc<Context>) -> io::Result<Arc<Pd>> {
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { ibverbs_sys::ibv_alloc_pd(context.raw()) });
        Ok(Arc::new(Pd {
            pd: pd.ok_or_else(io::Error::last_os_error)?,
            context: Arc::clone(context),
        }))
    }

    /// For calls of libibverbs while `self` lives.
    pub fn raw(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: all that was made in the domain holds it.
        unsafe { ibverbs_sys::ibv_dealloc_pd(self.pd.as_ptr()) };
    }
}

/// Memory that is registered with the device.
pub struct Registration {
    /// `None` after the deregistration.
    region: Mutex<Option<NonNull<ibv_mr>>>,
    local_key: u32,
    tag: SteeringTag,
    memory: Arc<dyn Registrable>,
    _pd: Arc<Pd>,
}

// SAFETY: libibverbs may be called from any thread, and the region is behind a lock.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// Memory that can be registered: it stays in its place as long as it lives.
pub trait Registrable: Send + Sync {
    /// The memory.
    fn mapping(&self) -> &Mapping;
}

impl Registrable for Mapping {
    fn mapping(&self) -> &Mapping {
        self
    }
}

impl Registrable for Region {
    fn mapping(&self) -> &Mapping {
        self.memory()
    }
}

impl Registration {
    /// Registers a range of memory.
    fn new(
        pd: &Arc<Pd>,
        memory: Arc<dyn Registrable>,
        offset: usize,
        length: usize,
        access: u32,
    ) -> io::Result<Registration> {
        let region = tell(pd, memory.mapping(), offset, length, access)?;
        Ok(Registration::of(pd, region, memory))
    }

    /// Registers memory and creates a region of it.
    fn of_region(
        pd: &Arc<Pd>,
        memory: Mapping,
        access: u32,
    ) -> io::Result<(Registration, Arc<Region>)> {
        let mr = tell(pd, &memory, 0, memory.len(), access)?;
        // SAFETY: the region is ours.
        let tag = SteeringTag(unsafe { mr.as_ref().rkey });
        let offset = memory.address(0, 0) as u64;
        let region = Arc::new(Region::at(memory, Remote { tag, offset }));
        let kept: Arc<dyn Registrable> = Arc::clone(&region) as _;
        Ok((Registration::of(pd, mr, kept), region))
    }

    fn of(pd: &Arc<Pd>, region: NonNull<ibv_mr>, memory: Arc<dyn Registrable>) -> Registration {
        // SAFETY: the region is ours.
        let (local_key, tag) = unsafe { (region.as_ref().lkey, region.as_ref().rkey) };
        Registration {
            region: Mutex::new(Some(region)),
            local_key,
            tag: SteeringTag(tag),
            memory,
            _pd: Arc::clone(pd),
        }
    }

    /// The key for this end's own work requests.
    pub fn local_key(&self) -> u32 {
        self.local_key
    }

    /// The key for the peer.
    pub fn tag(&self) -> SteeringTag {
        self.tag
    }

    /// Address of a byte, the same for the device and the peer.
    pub fn address(&self, offset: usize, length: usize) -> u64 {
        self.memory.mapping().address(offset, length) as u64
    }

    /// Deregisters the memory. Returns whether that succeeded. What the device still does with it fails.
    pub fn end(&self) -> bool {
        let mut region = self.region.lock();
        if let Some(mr) = *region {
            // SAFETY: the region is ours and ends once; the memory outlives this call.
            match ended(|| unsafe { ibverbs_sys::ibv_dereg_mr(mr.as_ptr()) }) {
                Ok(()) => *region = None,
                Err(error) => tracing::warn!(%error, "memory cannot be deregistered"),
            }
        }
        region.is_none()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.end() {
            // With on-demand paging, the device would reach whatever is mapped there next.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// Registers a range of memory, which the caller keeps in its place until it is deregistered.
fn tell(
    pd: &Pd,
    memory: &Mapping,
    offset: usize,
    length: usize,
    access: u32,
) -> io::Result<NonNull<ibv_mr>> {
    let address = memory.address(offset, length).cast_mut();
    // SAFETY: the range was just checked, and the device reaches it by its pages, which the kernel keeps for it.
    let region =
        unsafe { ibverbs_sys::ibv_reg_mr(pd.raw(), address.cast(), length, access.cast_signed()) };
    NonNull::new(region).ok_or_else(|| refused(length))
}

#[cfg(test)]
thread_local! {
    /// The device releases nothing that this thread waits for.
    pub static REFUSES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes the device release something.
fn ended(end: impl FnOnce() -> c_int) -> io::Result<()> {
    #[cfg(test)]
    if REFUSES.get() {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    match end() {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.abs())),
    }
}

fn refused(bytes: usize) -> io::Error {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
            VerbsError::LockedMemory { bytes, error }.into()
        }
        _ => error,
    }
}

/// A memory window: a tag for a range of a registration.
pub struct Window {
    /// `None` after the release.
    window: Option<NonNull<ibv_mw>>,
    /// What it is for. `None`: it is bound to nothing, and can be used for anything.
    of: Option<Arc<Registration>>,
    tag: u32,
    _pd: Arc<Pd>,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Window {}

impl Window {
    /// A window that is bound to nothing yet.
    pub fn new(pd: &Arc<Pd>) -> io::Result<Window> {
        let context = pd.context().raw();
        // SAFETY: the context is open.
        let allocate = unsafe { (*context).ops.alloc_mw }.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the domain lives.
        let window = NonNull::new(unsafe { allocate(pd.raw(), IBV_MW_TYPE_2) });
        let window = window.ok_or_else(io::Error::last_os_error)?;
        Ok(Window {
            window: Some(window),
            of: None,
            // SAFETY: the window is ours.
            tag: unsafe { window.as_ref().rkey },
            _pd: Arc::clone(pd),
        })
    }

    /// Prepares the window for ranges of `registration`, under a tag that differs from the last one in its low 8 bits,
    /// which its owner chooses.
    pub fn prepare(&mut self, registration: &Arc<Registration>) {
        self.of = Some(Arc::clone(registration));
        self.tag = self.tag & !0xff | self.tag.wrapping_add(1) & 0xff;
    }

    /// The device has ended its tag.
    pub fn ended(&mut self) {
        self.of = None;
        // A device's library names the window by its last tag when it is bound again, and leaves recording that to the
        // caller.
        if let Some(window) = &mut self.window {
            // SAFETY: the window is ours, and no work request under way names it.
            unsafe { window.as_mut() }.rkey = self.tag;
        }
    }

    /// The tag for the next bind.
    pub fn tag(&self) -> SteeringTag {
        SteeringTag(self.tag)
    }

    /// For a work request that binds it.
    pub fn raw(&self) -> *mut ibv_mw {
        self.window.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// For a work request that binds it. Null if there is no memory any more.
    pub fn region(&self) -> *mut ibv_mr {
        let region = self.of.as_ref().and_then(|of| *of.region.lock());
        region.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Releases the window and its tag. Returns whether that succeeded.
    pub fn end(&mut self) -> bool {
        let Some(window) = self.window else {
            return true;
        };
        // SAFETY: the window is ours, its context is open (the domain holds it), and ends once.
        let result = ended(|| unsafe {
            let deallocate = (*window.as_ref().context).ops.dealloc_mw;
            deallocate.map_or(libc::EOPNOTSUPP, |deallocate| deallocate(window.as_ptr()))
        });
        match result {
            Ok(()) => self.window = None,
            Err(error) => tracing::warn!(%error, "a memory window cannot be ended"),
        }
        self.window.is_none()
    }

    /// Whether it is one over `registration`.
    pub fn is_of(&self, registration: &Arc<Registration>) -> bool {
        (self.of.as_ref()).is_some_and(|of| Arc::ptr_eq(of, registration))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !self.end() {
            // The peer could reach whatever is mapped there next.
            std::mem::forget(self.of.take());
        }
    }
}

/// The registrations of an arena.
struct OfArena {
    data: Arc<Mapping>,
    /// For our own reads and writes.
    local: Arc<Registration>,
    /// For the peers' reads: the frames, and the stamps.
    exposed: Option<[Arc<Registration>; 2]>,
}

/// A protection domain, and what its connections share.
pub struct Domain {
    pd: Arc<Pd>,
    on_demand: bool,
    read_order: ReadOrder,
    arenas: Mutex<Vec<OfArena>>,
    pool: Arc<Pool>,
}

impl Domain {
    /// A new one on a device. Its queue pairs announce `read_order`.
    pub fn new(device: &str, on_demand: bool, read_order: ReadOrder) -> io::Result<Arc<Domain>> {
        let context = Context::open(device)?;
        let on_demand = on_demand && {
            let offered = pages_on_demand(&context);
            if !offered {
                tracing::warn!(device, "no on-demand paging: memory for RDMA is pinned");
            }
            offered
        };
        let pd = Pd::new(&context)?;
        Ok(Arc::new(Domain {
            pool: Arc::new(Pool {
                pd: Arc::clone(&pd),
                state: Mutex::default(),
            }),
            pd,
            on_demand,
            read_order,
            arenas: Mutex::default(),
        }))
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The device.
    pub fn context(&self) -> &Context {
        &self.pd.context
    }

    /// Whether the device has gone. If so, nothing new is created in it.
    pub fn lose(&self) {
        self.context().lose();
    }

    /// The order of RDMA Reads that its queue pairs announce.
    pub fn read_order(&self) -> ReadOrder {
        self.read_order
    }

    /// Whether memory is registered for on-demand paging.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand
    }

    fn flags(&self, access: Access) -> u32 {
        let binds = u32::from(self.context().has_windows()) * BINDS;
        let on_demand = u32::from(self.on_demand) * ON_DEMAND;
        LOCAL | flags(access) | binds | on_demand
    }

    /// Memory with this access for the peer, and access for this end.
    pub fn region(
        &self,
        length: usize,
        access: Access,
    ) -> io::Result<(Arc<Registration>, Arc<Region>)> {
        let memory = Mapping::new(length)?;
        let (registration, region) = Registration::of_region(&self.pd, memory, self.flags(access))?;
        Ok((Arc::new(registration), region))
    }

    /// One more registration of a range of memory.
    pub fn again(
        &self,
        memory: Arc<dyn Registrable>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Arc<Registration>> {
        let flags = self.flags(access);
        Registration::new(&self.pd, memory, offset, length, flags).map(Arc::new)
    }

    fn register_plain(
        &self,
        memory: &Arc<Mapping>,
        access: Access,
        written: bool,
    ) -> io::Result<Arc<Registration>> {
        let mut flags = flags(access) | (u32::from(written) * LOCAL);
        if self.on_demand {
            flags |= ON_DEMAND;
        }
        let kept: Arc<dyn Registrable> = Arc::clone(memory) as _;
        Registration::new(&self.pd, kept, 0, memory.len(), flags).map(Arc::new)
    }

    /// The arena, registered only for this end's own reads and writes. At the first use, the whole arena is registered.
    pub fn arena(&self, arena: &Arc<Arena>) -> io::Result<Arc<Registration>> {
        let mut arenas = self.arenas.lock();
        if let Some(known) = arenas
            .iter()
            .find(|known| Arc::ptr_eq(&known.data, arena.data()))
        {
            return Ok(Arc::clone(&known.local));
        }
        let local = self.register_plain(arena.data(), Access::LOCAL, true)?;
        arenas.push(OfArena {
            data: Arc::clone(arena.data()),
            local: Arc::clone(&local),
            exposed: None,
        });
        Ok(local)
    }

    /// The arena and its stamps, registered for the peers to read.
    pub fn exposed(&self, arena: &Arc<Arena>) -> io::Result<[Remote; 2]> {
        self.arena(arena)?;
        let mut arenas = self.arenas.lock();
        let known = arenas
            .iter_mut()
            .find(|known| Arc::ptr_eq(&known.data, arena.data()))
            .ok_or(io::ErrorKind::NotFound)?;
        if known.exposed.is_none() {
            let frames = self.register_plain(arena.data(), Access::READ, false)?;
            let stamps = match arena.layout().is_beside() {
                true => Arc::clone(&frames),
                false => self.register_plain(arena.stamps(), Access::READ, false)?,
            };
            known.exposed = Some([frames, stamps]);
        }
        let exposed = known.exposed.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok([&exposed[0], &exposed[1]].map(|registration| Remote {
            tag: registration.tag(),
            offset: registration.address(0, 0),
        }))
    }

    /// A slot for a message.
    pub fn slot(&self) -> io::Result<MessageSlot> {
        self.pool.take()
    }
}

/// Whether a device accepts memory whose pages are not pinned. This tries it, because the query for it is no function
/// of the library.
pub fn pages_on_demand(context: &Arc<Context>) -> bool {
    let tried = || {
        let pd = Pd::new(context)?;
        let memory = Arc::new(Mapping::new(SLOT_BYTES)?);
        Registration::new(&pd, memory, 0, SLOT_BYTES, LOCAL | ON_DEMAND)
    };
    tried().is_ok()
}

/// The slots of a domain's connections. An idle connection has only those of its receives.
struct Pool {
    pd: Arc<Pd>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    free: Vec<(Arc<Slab>, usize)>,
    slots: usize,
}

struct Slab {
    memory: Arc<Mapping>,
    registration: Registration,
}

impl Pool {
    fn take(self: &Arc<Self>) -> io::Result<MessageSlot> {
        let mut state = self.state.lock();
        if state.free.is_empty() {
            if state.slots >= SLOTS_MAX {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            let slab = self.slab();
            let slab = slab
                .inspect_err(|error| tracing::warn!(%error, "no memory for messages"))
                .map(Arc::new)?;
            state.slots += SLAB_SLOTS;
            let slots = (0..SLAB_SLOTS).map(|at| (Arc::clone(&slab), at * SLOT_BYTES));
            state.free.extend(slots);
        }
        let free = state.free.pop();
        let (slab, offset) = free.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MessageSlot {
            slab,
            offset,
            pool: Arc::clone(self),
        })
    }

    fn slab(&self) -> io::Result<Slab> {
        let memory = Arc::new(Mapping::new(SLAB_SLOTS * SLOT_BYTES)?);
        let kept: Arc<dyn Registrable> = Arc::clone(&memory) as _;
        let registration = Registration::new(&self.pd, kept, 0, memory.len(), LOCAL)?;
        Ok(Slab {
            memory,
            registration,
        })
    }
}

/// Registered memory for a message, or for a part of a longer write.
pub struct MessageSlot {
    slab: Arc<Slab>,
    offset: usize,
    pool: Arc<Pool>,
}

impl MessageSlot {
    /// Copies into it.
    pub fn store(&self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= SLOT_BYTES, "beyond the slot");
        self.slab.memory.store(self.offset + offset, from);
    }

    /// Copies from it.
    pub fn load(&self, into: &mut [u8]) {
        assert!(into.len() <= SLOT_BYTES, "beyond the slot");
        self.slab.memory.load(self.offset, into);
    }

    /// Its address, for the device.
    pub fn address(&self) -> u64 {
        self.slab.registration.address(self.offset, SLOT_BYTES)
    }

    /// The key for the device.
    pub fn local_key(&self) -> u32 {
        self.slab.registration.local_key()
    }
}

impl Drop for MessageSlot {
    fn drop(&mut self) {
        let slab = Arc::clone(&self.slab);
        self.pool.state.lock().free.push((slab, self.offset));
    }
}
