use super::mapping::Mapping;
use crate::fabric::{Remote, SteeringTag};
use std::sync::atomic::Ordering::Acquire;
#[cfg(not(shuttle))]
use std::sync::atomic::{
    Ordering::{Relaxed, Release},
    fence,
};

/// Memory that a peer may read and write at any time. All access is by relaxed word copies. What comes out is untrusted
/// bytes, perhaps torn, never undefined behaviour.
pub struct Region {
    memory: Mapping,
    tag: SteeringTag,
    /// Address of the first byte under the tag.
    base: u64,
    /// Memory of this process, reachable only through this value.
    own: bool,
    /// Released together with the memory.
    _charge: Option<Box<dyn Send + Sync>>,
}

impl Region {
    pub(crate) fn new(memory: Mapping, tag: SteeringTag) -> Self {
        Self {
            memory,
            tag,
            base: 0,
            own: false,
            _charge: None,
        }
    }

    /// A region whose first byte has another address than 0.
    #[cfg(feature = "verbs")]
    pub(crate) fn at(memory: Mapping, remote: Remote) -> Self {
        Self {
            base: remote.offset,
            ..Self::new(memory, remote.tag)
        }
    }

    /// A region of no queue pair.
    pub(super) fn own(memory: Mapping) -> Self {
        Self {
            own: true,
            ..Self::new(memory, SteeringTag(0))
        }
    }

    pub(crate) fn is_own(&self) -> bool {
        self.own
    }

    pub(super) fn memory_mut(&mut self) -> &mut Mapping {
        &mut self.memory
    }

    /// A region that counts against an account.
    pub(crate) fn charged(memory: Mapping, tag: SteeringTag, charge: Box<dyn Send + Sync>) -> Self {
        Self {
            memory,
            tag,
            base: 0,
            own: false,
            _charge: Some(charge),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tag under which the peer reaches it.
    pub fn tag(&self) -> SteeringTag {
        self.tag
    }

    /// The place of the byte at `offset`, for the peer.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            tag: self.tag,
            offset: self.base + offset as u64,
        }
    }

    /// Copies from the region. Returns `false`, and does nothing, if the range is out of bounds.
    #[must_use]
    #[inline]
    pub fn load(&self, offset: usize, into: &mut [u8]) -> bool {
        let holds = self.memory.holds(offset, into.len());
        if holds {
            self.memory.load(offset, into);
        }
        holds
    }

    /// Copies into the region. Returns `false`, and does nothing, if the range is out of bounds.
    #[must_use]
    #[inline]
    pub fn store(&self, offset: usize, from: &[u8]) -> bool {
        let holds = self.memory.holds(offset, from.len());
        if holds {
            self.memory.store(offset, from);
        }
        holds
    }

    /// Sets the word at `offset` (a multiple of 8) to `mark`, after all earlier stores. Returns `false`, and does
    /// nothing, if it is out of bounds.
    #[cfg(not(shuttle))]
    #[must_use]
    pub(crate) fn mark(&self, offset: usize, mark: u64) -> bool {
        let holds = self.memory.holds(offset, 8) && offset.is_multiple_of(8);
        if holds {
            fence(Release);
            self.memory.word(offset).store(mark, Relaxed);
        }
        holds
    }

    /// Whether the word at `offset` (a multiple of 8) is `mark`. If it is, the earlier stores of an honest peer are
    /// there.
    #[inline]
    pub fn marked(&self, offset: usize, mark: u64) -> bool {
        let holds = self.memory.holds(offset, 8) && offset.is_multiple_of(8);
        holds && self.memory.word(offset).load(Acquire) == mark
    }

    /// Copies into the region from other memory. Returns `false`, and does nothing, if a range is out of bounds, or
    /// both are the same memory.
    #[must_use]
    pub(crate) fn copy_from(
        &self,
        offset: usize,
        from: &Mapping,
        at: usize,
        length: usize,
    ) -> bool {
        self.memory.try_copy(offset, from, at, length)
    }

    pub(crate) fn memory(&self) -> &Mapping {
        &self.memory
    }
}
