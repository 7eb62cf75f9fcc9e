//! Memory in use for a call.

use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::{Arena, FrameNumber, Region};
use odafs_fabric::sync::Arc;
use odafs_fabric::{Local, Remote, Sink};

use super::Frames;
use super::budget::Charge;

/// A registered region and what it is charged for.
pub(super) struct Buffer {
    pub region: Arc<Region>,
    /// Since when nobody uses it.
    pub idle_since: Nanos,
    pub _charges: [Charge; 2],
}

/// Frames, given back when the last who looks at them is gone.
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

/// Memory in use for a call. To be given back to the [`Registrar`](super::Registrar) that leased it.
pub struct Lease {
    pub(super) memory: Memory,
    pub(super) length: usize,
}

pub(super) enum Memory {
    Buffer { buffer: Buffer, name: Name },
    Frames(Arc<FrameLease>),
}

/// The tag of a lease.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// The region's own, and the peer has no right to it.
    Local,
    /// The region's own.
    Own(Remote),
    /// A fresh one.
    Bound(Remote),
}

/// The bytes of a [`Lease`], for whoever copies them: they stay what they are for as long.
#[derive(Clone)]
pub struct Contents(Held);

#[derive(Clone)]
enum Held {
    Region(Arc<Region>),
    Frames(Arc<FrameLease>),
}

impl Contents {
    /// Copies from `offset` on. `false` (and nothing useful done) if the range is beyond the lease.
    #[must_use]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        match &self.0 {
            Held::Region(region) => region.load(offset, into),
            Held::Frames(lease) => lease.load(offset, into),
        }
    }
}

impl FrameLease {
    fn load(&self, mut offset: usize, mut into: &mut [u8]) -> bool {
        let page = self.arena.page().bytes();
        while !into.is_empty() {
            let Some(frame) = self.frames.get(offset / page) else {
                return false;
            };
            let within = offset % page;
            let (part, rest) = into.split_at_mut(into.len().min(page - within));
            self.arena.copy_out(*frame, within as u32, part);
            offset += part.len();
            into = rest;
        }
        true
    }
}

impl Lease {
    pub(super) fn of(buffer: Buffer, name: Name, length: usize) -> Lease {
        Lease {
            memory: Memory::Buffer { buffer, name },
            length,
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the peer finds its first byte, if it does.
    pub fn remote(&self) -> Option<Remote> {
        match &self.memory {
            Memory::Buffer {
                name: Name::Own(remote) | Name::Bound(remote),
                ..
            } => Some(*remote),
            Memory::Buffer { .. } | Memory::Frames(_) => None,
        }
    }

    /// Its bytes.
    pub fn contents(&self) -> Contents {
        Contents(match &self.memory {
            Memory::Buffer { buffer, .. } => Held::Region(Arc::clone(&buffer.region)),
            Memory::Frames(lease) => Held::Frames(Arc::clone(lease)),
        })
    }

    /// Copies into it. `false` if the range is beyond it.
    #[must_use]
    pub fn store(&self, offset: usize, from: &[u8]) -> bool {
        match &self.memory {
            Memory::Buffer { buffer, .. } => buffer.region.store(offset, from),
            Memory::Frames(_) => false,
        }
    }

    /// The longest range from `offset` on that one RDMA Read can fill, up to `length` bytes.
    pub fn sink(&self, offset: usize, length: usize) -> (Sink<'_>, usize) {
        match &self.memory {
            Memory::Buffer { buffer, .. } => (
                Sink::Region(Local {
                    region: &buffer.region,
                    offset,
                    length,
                }),
                length,
            ),
            Memory::Frames(lease) => {
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
