//! Memory in use for a call.

use std::fmt;
use std::ops::Range;

use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, FrameNumber, Gather, Region};
use odafs_fabric::sync::Arc;
use odafs_fabric::{Local, Remote, Sink};

use super::Frames;
use super::budget::Charge;

/// A registered region, and the account that it counts against.
pub(super) struct Buffer {
    pub region: Arc<Region>,
    /// Since when nobody has used it.
    pub idle_since: Nanos,
    pub charges: Arc<[Charge; 2]>,
}

/// Frames, which are returned when their last user is gone.
pub(super) struct FrameLease {
    pub frames: Vec<FrameNumber>,
    pub supply: Arc<dyn Frames>,
    pub arena: Arc<Arena>,
    pub _charges: [Charge; 2],
}

impl Drop for FrameLease {
    fn drop(&mut self) {
        self.frames
            .drain(..)
            .for_each(|frame| self.supply.give(frame));
    }
}

/// Memory in use for a call. Return it to the [`Registrar`](super::Registrar) that leased it.
pub struct Lease {
    pub(super) memory: LeasedMemory,
    pub(super) length: usize,
}

pub(super) enum LeasedMemory {
    Buffer { buffer: Buffer, name: Name },
    Frames(Arc<FrameLease>),
}

/// The tag of a lease.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// The region's own, to which the peer has no right.
    Local,
    /// The region's own.
    Own(Remote),
    /// A fresh one.
    Bound(Remote),
}

/// The bytes of a [`Lease`], for whoever copies them. While this exists, nothing else is read into their memory. But
/// the peer may reach it, if the fabric shares memory with it.
#[derive(Clone)]
pub struct Contents(Held);

#[derive(Clone)]
enum Held {
    Region {
        region: Arc<Region>,
        /// A connection may end before the readers of its memory do. The memory counts against it until then.
        _charges: Option<Arc<[Charge; 2]>>,
    },
    Frames(Arc<FrameLease>),
}

impl Contents {
    /// The place of a range of them. `None` if it exceeds the lease.
    pub fn gather(&self, range: &Range<usize>) -> Option<Gather<'_>> {
        let mut gather = Gather::new();
        match &self.0 {
            Held::Region { region, .. } => gather
                .push_region(region, range.start, range.len())
                .then_some(gather),
            Held::Frames(lease) => lease.gather(range, &mut gather).then_some(gather),
        }
    }

    /// Copies from `offset` on. Returns `false` if the range exceeds the lease.
    #[must_use]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        let gather = self.gather(&(offset..offset.saturating_add(into.len())));
        if let Some(gather) = &gather {
            gather.load(0, into);
        }
        gather.is_some()
    }
}

impl From<Arc<Region>> for Contents {
    fn from(region: Arc<Region>) -> Self {
        Self(Held::Region {
            region,
            _charges: None,
        })
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Held::Region { .. } => "Region",
            Held::Frames(_) => "Frames",
        })
    }
}

impl FrameLease {
    fn gather<'a>(&'a self, range: &Range<usize>, into: &mut Gather<'a>) -> bool {
        let page = self.arena.page();
        let mut offset = range.start;
        while offset < range.end {
            let Some(frame) = self.frames.get(offset >> page.shift()) else {
                return false;
            };
            let within = offset % page.bytes();
            let length = (range.end - offset).min(page.bytes() - within);
            into.push_frame(&self.arena, *frame, within as u32, length as u32);
            offset += length;
        }
        true
    }
}

impl Lease {
    pub(super) fn of(buffer: Buffer, name: Name, length: usize) -> Lease {
        Lease {
            memory: LeasedMemory::Buffer { buffer, name },
            length,
        }
    }

    /// Length that was asked for, in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the peer finds its first byte, if it does.
    pub fn remote(&self) -> Option<Remote> {
        match &self.memory {
            LeasedMemory::Buffer {
                name: Name::Own(remote) | Name::Bound(remote),
                ..
            } => Some(*remote),
            LeasedMemory::Buffer { .. } | LeasedMemory::Frames(_) => None,
        }
    }

    /// Its bytes.
    pub fn contents(&self) -> Contents {
        Contents(match &self.memory {
            LeasedMemory::Buffer { buffer, .. } => Held::Region {
                region: Arc::clone(&buffer.region),
                _charges: Some(Arc::clone(&buffer.charges)),
            },
            LeasedMemory::Frames(lease) => Held::Frames(Arc::clone(lease)),
        })
    }

    /// Copies into it. Returns `false` if the range exceeds it.
    #[must_use]
    pub fn store(&self, offset: usize, from: &[u8]) -> bool {
        match &self.memory {
            LeasedMemory::Buffer { buffer, .. } => buffer.region.store(offset, from),
            LeasedMemory::Frames(_) => false,
        }
    }

    /// The longest range from `offset` on that one RDMA Read can fill, up to `length` bytes.
    pub fn sink(&self, offset: usize, length: usize) -> (Sink<'_>, usize) {
        match &self.memory {
            LeasedMemory::Buffer { buffer, .. } => (
                Sink::Region(Local {
                    region: &buffer.region,
                    offset,
                    length,
                }),
                length,
            ),
            LeasedMemory::Frames(lease) => {
                let page = lease.arena.page().bytes();
                let within = offset % page;
                let length = length.min(page - within);
                let sink = Sink::Frame {
                    arena: &lease.arena,
                    frame: lease.frames[offset / page],
                    offset: within as u32,
                    length: length as u32,
                };
                (sink, length)
            }
        }
    }
}
