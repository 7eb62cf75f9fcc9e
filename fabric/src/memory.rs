//! The server's memory as its clients see it: the arena, its stamps, pins and epochs.
//!
//! The rule (one check, no lock): a reference carries the epoch of its issue, and a frame's
//! stamp moves above every epoch issued so far *before* its content may change. So whoever
//! copies the data, then passes an acquire fence, then finds the stamp not above the
//! reference's epoch, has copied nothing but the page that the reference was issued for.

#![allow(unsafe_code)]

#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
pub(crate) mod mapping;
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod memfd;
mod protocol;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod view;

#[cfg(not(loom))]
pub use arena::{Arena, ArenaConfig};
#[cfg(not(any(loom, shuttle)))]
pub use arena::SharedArena;
#[cfg(not(loom))]
pub use life::{LifeView, LifeWord};
pub use protocol::PinRefused;
#[cfg(not(loom))]
pub use region::Region;
#[cfg(not(loom))]
pub use view::ArenaView;

/// The atomics that live in shared memory: never shuttle's, whose size is their own.
mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(not(loom))]
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

/// Number of a frame: a page-sized slot of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameNumber(pub u32);

/// Lets another task run under `--cfg shuttle`: what shuttle's own atomics do at every access.
#[inline(always)]
fn schedule_point() {
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}
