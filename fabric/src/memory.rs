//! The server's memory as its clients see it: the arena, its stamps, pins and epochs.
//!
//! The rule (one check, no lock): a reference carries the epoch of its issue, and a frame's
//! stamp moves above every epoch issued so far *before* its content may change. So whoever
//! copies the data, then passes an acquire fence, then finds the stamp not above the
//! reference's epoch, has copied nothing but the page that the reference was issued for.

#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod view;

#[cfg(not(loom))]
pub use arena::{Arena, ArenaConfig, PinRefused, SharedArena};
#[cfg(not(loom))]
pub use life::{LifeView, LifeWord};
#[cfg(not(loom))]
pub use region::Region;
#[cfg(not(loom))]
pub use view::ArenaView;

/// Number of a frame: a page-sized slot of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameNumber(pub u32);
