//! The server's memory as its clients see it: the arena, its stamps, pins and epochs.
//!
//! The rule, with one check and no lock: a reference carries the epoch of its issue, and a frame's stamp moves above
//! every epoch issued so far *before* its content may change. A reader that copies the data, passes an acquire fence
//! and then finds that the stamp is not above the reference's epoch has copied exactly the page for which the reference
//! was issued. A client's own [`Frames`] follow the same rule.

#![allow(unsafe_code)]

mod ahead;
mod arena;
mod copy;
mod frames;
mod gather;
mod hints;
mod life;
pub(crate) mod mapping;
#[cfg(not(shuttle))]
pub(crate) mod memfd;
mod own;
mod pinned;
mod protocol;
mod region;
mod stretch;
mod target;
mod view;

pub use ahead::would_pay as prefetch_would_pay;
#[cfg(not(shuttle))]
pub use arena::SharedArena;
pub use arena::{Arena, ArenaConfig};
pub use frames::{Frames, Label};
pub use gather::Gather;
pub use hints::{collapse, prefetch};
pub use life::{LifeView, LifeWord};
pub use own::Own;
pub use pinned::Pinned;
pub use protocol::PinRefused;
pub use region::Region;
pub use stretch::Stretch;
#[cfg(not(shuttle))]
pub(crate) use stretch::Vectors;
pub(crate) use target::Target;
pub use view::ArenaView;

/// The atomics that live in shared memory: never shuttle's, whose size is their own.
mod atomic {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[cfg(all(test, loom))]
mod explored;

/// Number of a frame: a page-sized slot of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameNumber(pub u32);

/// Lets another task run under `--cfg shuttle`: what shuttle's own atomics do at every access.
#[inline(always)]
fn schedule_point() {
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}
