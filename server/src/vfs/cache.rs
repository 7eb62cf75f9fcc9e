//! The page cache: which frame of the arena holds which page, and to which pages references were issued.
//!
//! The life of a frame:
//!
//! ```text
//!            allocate             publish              reference
//!   free ───────────────► blank ───────────► resident ───────────► handed out
//!    ▲    (unpublished)                       │     ▲                 │   │
//!    │                                 retire │     └──── revoke ─────┘   │ retire
//!    │                                        ▼                           ▼
//!    ├◄──────────────────────────────────────── not pinned ◄──────────────┤
//!    └◄── last pin gone ── limbo ◄───────────────── pinned ◄──────────────┘
//! ```
//!
//! Everything about a page changes under its page lock (see [`crate::vfs::file`]).

use odafs_common::exception::Exception;
use odafs_common::page::PageSize;
use odafs_common::reference::{AccessKey, Epoch, Handle, Reference};
use odafs_common::wire::odafs::PageReference;
use odafs_fabric::memory::{Arena, FrameNumber};
use odafs_fabric::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use odafs_fabric::sync::{Arc, Mutex, OnceLock, Weak};
use odafs_nic::capability::ReaderClass;
use odafs_nic::host_vm::PageCache;
use odafs_nic::nic::Nic;
use odafs_nic::tpt::TptEntry;

use crate::vfs::counters::{COUNTER_HANDLES, ChangeCounters};
use crate::vfs::file::{Facts, Leaf, PageLock};
use crate::vfs::keys::Keys;
use crate::vfs::metrics::{Metrics, Reason};
use crate::vfs::read::Effort;

/// The page cache of an export.
pub(crate) struct Cache {
    arena: Arc<Arena>,
    page: PageSize,
    /// By frame number.
    frames: Box<[Frame]>,
    /// Frames before this one hold change counters.
    first: u32,
    free: Mutex<Free>,
    /// Where pageout continues.
    hand: AtomicU32,
    counters: Arc<ChangeCounters>,
    /// Set when the export is complete. It is weak, because the NIC holds the cache.
    nic: OnceLock<Weak<Nic>>,
    keys: Keys,
    metrics: Arc<Metrics>,
}

/// The server's own view of a frame.
#[derive(Default)]
struct Frame {
    owner: Mutex<Option<FrameOwner>>,
    grant: HandedOut,
    /// The page came in, and nobody has asked for it since.
    fresh: AtomicBool,
    /// Whether the last page handed out was paged out, rather than changed.
    paged_out: AtomicBool,
}

/// The page that a frame holds.
#[derive(Clone)]
struct FrameOwner {
    leaf: Arc<Leaf>,
    slot: usize,
}

/// What was handed out of a frame. The page's lock guards it.
#[derive(Default)]
struct HandedOut {
    key: AtomicU64,
    epoch: AtomicU64,
    /// `length << 32 | class`, or 0 if nothing was handed out.
    extent: AtomicU64,
}

impl HandedOut {
    fn load(&self) -> Option<(AccessKey, Epoch, u32, ReaderClass)> {
        let extent = self.extent.load(Ordering::Relaxed);
        (extent != 0).then(|| {
            (
                AccessKey(self.key.load(Ordering::Relaxed)),
                Epoch(self.epoch.load(Ordering::Relaxed)),
                (extent >> 32) as u32,
                ReaderClass(extent as u32),
            )
        })
    }

    fn store(&self, key: AccessKey, epoch: Epoch, length: u32, class: ReaderClass) {
        self.key.store(key.0, Ordering::Relaxed);
        self.epoch.store(epoch.0, Ordering::Relaxed);
        let extent = u64::from(length) << 32 | u64::from(class.0);
        self.extent.store(extent, Ordering::Relaxed);
    }

    fn is_given(&self) -> bool {
        self.extent.load(Ordering::Relaxed) != 0
    }

    /// Was it given?
    fn clear(&self) -> bool {
        self.extent.swap(0, Ordering::Relaxed) != 0
    }
}

struct Free {
    frames: Vec<FrameNumber>,
    /// Frames without a page that are still pinned.
    limbo: Vec<FrameNumber>,
}

/// A page's use, as the CLOCK algorithm knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heat {
    /// Nobody has asked for it yet.
    fresh: bool,
    /// It was used since the hand last passed.
    referenced: bool,
}

impl Cache {
    /// A cache in all frames of `arena` that the change counters leave.
    pub(crate) fn new(
        arena: Arc<Arena>,
        page: PageSize,
        counter_frames: u32,
        counters: Arc<ChangeCounters>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let frames = arena.frames();
        // In this order runs of a file lie together in memory.
        let free = (counter_frames..frames).rev().map(FrameNumber).collect();
        Self {
            arena,
            page,
            frames: (0..frames).map(|_| Frame::default()).collect(),
            first: counter_frames,
            free: Mutex::new(Free {
                frames: free,
                limbo: Vec::new(),
            }),
            hand: AtomicU32::new(counter_frames),
            counters,
            nic: OnceLock::new(),
            keys: Keys::default(),
            metrics,
        }
    }

    /// From now on, tells the NIC of issued references.
    pub(crate) fn set_nic(&self, nic: &Arc<Nic>) {
        let _ = self.nic.set(Arc::downgrade(nic));
    }

    fn nic(&self) -> Option<Arc<Nic>> {
        self.nic.get()?.upgrade()
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(crate) fn page(&self) -> PageSize {
        self.page
    }

    pub(crate) fn counters(&self) -> &Arc<ChangeCounters> {
        &self.counters
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Number of frames that can hold pages.
    pub(crate) fn capacity(&self) -> u32 {
        self.frames.len() as u32 - self.first
    }

    /// Number of frames that hold pages or are about to.
    pub(crate) fn used(&self) -> u32 {
        let free = self.free.lock().frames.len() as u32;
        self.capacity().saturating_sub(free)
    }

    /// Moves the hand of pageout to the next frame, and returns the one where it was.
    pub(crate) fn advance_hand(&self) -> FrameNumber {
        let step = self.hand.fetch_add(1, Ordering::Relaxed);
        FrameNumber(self.first + step % self.capacity().max(1))
    }

    fn frame(&self, frame: FrameNumber) -> &Frame {
        &self.frames[frame.0 as usize]
    }

    /// A blank frame, which is unpublished and contains any bytes. Pages out if need be. `None` if all frames are locked,
    /// pinned or in use.
    pub(crate) fn allocate(&self) -> Option<FrameNumber> {
        self.allocate_with(Effort::MayBlock)
    }

    /// As [`Cache::allocate`], for a thread that polls. It looks at a few frames only, so it may miss others.
    pub(crate) fn allocate_with(&self, effort: Effort) -> Option<FrameNumber> {
        loop {
            let mut free = self.free.lock();
            if let Some(frame) = free.frames.pop() {
                return Some(frame);
            }
            if self.leave_limbo(&mut free) {
                continue;
            }
            drop(free);
            if !self.page_out(effort) {
                self.metrics.frames_short.increment();
                return None;
            }
        }
    }

    /// Frees frames that are no longer pinned. Returns whether there was one.
    fn leave_limbo(&self, free: &mut Free) -> bool {
        let Free { frames, limbo } = free;
        limbo.retain(|frame| {
            let pinned = self.arena.is_pinned(*frame);
            if !pinned {
                frames.push(*frame);
            }
            pinned
        });
        !frames.is_empty()
    }

    /// Gives back a frame of [`Cache::allocate`] that never held a page.
    pub(crate) fn give_back(&self, frame: FrameNumber) {
        self.put_back(frame, self.arena.is_pinned(frame));
    }

    fn put_back(&self, frame: FrameNumber, pinned: bool) {
        let mut free = self.free.lock();
        if pinned {
            free.limbo.push(frame);
        } else {
            free.frames.push(frame);
        }
    }

    /// The page in a frame, for pageout: its leaf and its place there. `None` if someone uses it.
    pub(crate) fn owner(&self, frame: FrameNumber) -> Option<(Arc<Leaf>, usize)> {
        let owner = self.frame(frame).owner.try_lock()?;
        owner
            .as_ref()
            .map(|owner| (Arc::clone(&owner.leaf), owner.slot))
    }

    /// Puts the page, which was nowhere, into this blank frame.
    pub(crate) fn publish(&self, page: &mut PageLock<'_>, frame: FrameNumber) {
        let owner = FrameOwner {
            leaf: Arc::clone(page.leaf()),
            slot: page.slot(),
        };
        *self.frame(frame).owner.lock() = Some(owner);
        self.frame(frame).fresh.store(true, Ordering::Relaxed);
        self.arena.take_referenced(frame);
        self.arena.publish(frame);
        page.put(frame);
    }

    /// Prefetches what pinning, sending and touching these bytes of a frame will read.
    pub(crate) fn prefetch(&self, frame: FrameNumber, offset: u32, length: u32) {
        odafs_fabric::memory::prefetch(&self.frame(frame).fresh);
        self.arena
            .prefetch(self.arena.address(frame) + u64::from(offset), length);
    }

    /// Notes that someone asked for the page. The first time does not count as a use for pageout. A scan asks for each
    /// page once, and must not drive out pages that are used again and again.
    pub(crate) fn touch(&self, frame: FrameNumber) {
        let fresh = &self.frame(frame).fresh;
        if fresh.load(Ordering::Relaxed) {
            fresh.store(false, Ordering::Relaxed);
        } else {
            self.arena.set_referenced(frame);
        }
    }

    /// The use of the page in a frame, which counts as unused from now on.
    pub(crate) fn take_heat(&self, frame: FrameNumber) -> Heat {
        Heat {
            fresh: self.frame(frame).fresh.load(Ordering::Relaxed),
            referenced: self.arena.take_referenced(frame),
        }
    }

    /// Carries the use of a page over from its old frame.
    pub(crate) fn warm(&self, frame: FrameNumber, heat: Heat) {
        self.frame(frame).fresh.store(heat.fresh, Ordering::Relaxed);
        if heat.referenced {
            self.arena.set_referenced(frame);
        }
    }

    /// Removes the page from its frame. Its references are worthless when this returns.
    pub(crate) fn retire(&self, page: &mut PageLock<'_>, reason: Reason) {
        let Some(frame) = page.take() else { return };
        let pinned = self.arena.unpublish(frame);
        self.withdraw(frame, reason);
        let owner = self.frame(frame).owner.lock().take();
        drop(owner);
        self.put_back(frame, pinned);
    }

    /// Revokes the references to a page that stays in its frame. They are worthless when this returns.
    pub(crate) fn revoke(&self, page: &PageLock<'_>, reason: Reason) {
        let Some(frame) = page.frame() else { return };
        if self.frame(frame).grant.is_given() {
            self.arena.revoke(frame);
            self.withdraw(frame, reason);
        }
    }

    /// Revokes the references to a page that is about to be replaced, and that counts as handed out until then. They are
    /// worthless when this returns.
    pub(crate) fn outdate(&self, page: &PageLock<'_>) {
        if let Some(frame) = page.frame()
            && self.frame(frame).grant.is_given()
        {
            self.arena.unpublish(frame);
        }
    }

    /// What follows once the stamp has moved.
    fn withdraw(&self, frame: FrameNumber, reason: Reason) {
        if self.frame(frame).grant.clear() {
            let paged_out = &self.frame(frame).paged_out;
            paged_out.store(reason == Reason::Pageout, Ordering::Relaxed);
            self.metrics.stale(reason);
            self.forget_handle(Handle(frame.0));
        }
    }

    /// Tells the NIC of what was handed out.
    pub(crate) fn enter_handle(&self, handle: Handle, entry: TptEntry) {
        if let Some(nic) = self.nic() {
            nic.tpt_enter(handle, entry);
        }
    }

    /// For pages, the NIC's entry is no protection (the stamp is); without it the NIC can tell what happened.
    pub(crate) fn forget_handle(&self, handle: Handle) {
        if let Some(nic) = self.nic() {
            nic.tpt_remove(handle);
        }
    }

    /// Prepares a write in place, and returns the page's frame, which is then unpublished. `None` if the page is nowhere,
    /// handed out or pinned.
    pub(crate) fn unpublish_unshared(&self, page: &PageLock<'_>) -> Option<FrameNumber> {
        let frame = page.frame()?;
        if self.frame(frame).grant.is_given() || self.arena.is_pinned(frame) {
            return None;
        }
        if self.arena.unpublish(frame) {
            // It was pinned in between. Nobody can pin it any more, and it stays valid until it is retired.
            self.arena.publish(frame);
            return None;
        }
        Some(frame)
    }

    /// A reference to a resident page, for readers of the file's class. The caller holds the file's gate and has admitted
    /// the session to the class.
    pub(crate) fn reference(&self, page: &PageLock<'_>, facts: &Facts) -> Option<PageReference> {
        let frame = page.frame()?;
        let class = facts.class?;
        let grant = &self.frame(frame).grant;
        let address = self.page.start(frame.0.into());
        let handle = Handle(frame.0);
        let (key, epoch, length) = match grant.load() {
            Some((key, epoch, length, _)) => (key, epoch, length),
            None => {
                let behind = facts
                    .attributes
                    .size
                    .saturating_sub(self.page.start(page.page()));
                let length = behind.min(self.page.bytes() as u64) as u32;
                if length == 0 {
                    return None;
                }
                // The page's lock makes sure that this is the epoch of this frame and this content.
                let (key, epoch) = (self.keys.next(), self.arena.current_epoch());
                grant.store(key, epoch, length, class);
                let entry = TptEntry {
                    frame,
                    address,
                    length,
                    key,
                    epoch,
                    class,
                };
                self.enter_handle(handle, entry);
                (key, epoch, length)
            }
        };
        self.metrics.references.increment();
        let reference = Reference {
            address,
            length,
            handle,
            key,
            epoch,
        };
        Some(PageReference {
            page: page.page(),
            reference,
        })
    }
}

impl PageCache for Cache {
    /// The stamp of a frame of change counters never moves.
    fn may_keep(&self, handle: Handle) -> bool {
        handle.0 < COUNTER_HANDLES
    }

    /// Engines call this, so it tries locks and never waits for one.
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        if handle.0 >= COUNTER_HANDLES {
            return self.counters.fault(handle);
        }
        let number = FrameNumber(handle.0);
        let frame = self
            .frames
            .get(handle.0 as usize)
            .ok_or(Exception::NotResident)?;
        let gone = || match frame.paged_out.load(Ordering::Relaxed) {
            true => Exception::NotResident,
            false => Exception::Stale,
        };
        let owner = frame.owner.try_lock().ok_or(Exception::Busy)?.clone();
        let owner = owner.ok_or_else(gone)?;
        let page = owner.leaf.try_lock(owner.slot).ok_or(Exception::Busy)?;
        if page.frame() != Some(number) {
            return Err(gone());
        }
        let (key, epoch, length, class) = frame.grant.load().ok_or_else(gone)?;
        Ok(TptEntry {
            frame: number,
            address: self.page.start(handle.0.into()),
            length,
            key,
            epoch,
            class,
        })
    }
}
