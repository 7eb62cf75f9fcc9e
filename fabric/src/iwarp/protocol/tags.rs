//! The steering tags of a stream: the memory that the peer may read and write.

use super::rdmap::Fatal;
use crate::fabric::{Access, SteeringTag};
use crate::memory::mapping::Mapping;
use crate::memory::{Region, Target};
use crate::sync::Arc;
use std::collections::VecDeque;
use std::io;

/// The most tags of a stream.
const TAGS_MAX: usize = 1 << 16;

/// What a tag names.
pub enum TaggedMemory {
    /// A range of a region.
    Region {
        /// The region.
        region: Arc<Region>,
        /// First byte.
        offset: usize,
        /// Its length in bytes.
        length: usize,
        /// The peer's access.
        access: Access,
    },
    /// Memory of an arena, read-only.
    Exposed(Arc<Mapping>),
}

/// Why the peer's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such tag.
    Tag,
    /// The range exceeds the tag's memory.
    Bounds,
    /// The range exceeds 2^64.
    Wrap,
    /// The tag does not grant this access.
    Rights,
}

impl Refusal {
    /// The error code for a peer that reads.
    pub fn of_read(self) -> Fatal {
        match self {
            Refusal::Tag => Fatal::READ_TAG,
            Refusal::Bounds => Fatal::READ_BOUNDS,
            Refusal::Wrap => Fatal::READ_WRAP,
            Refusal::Rights => Fatal::RIGHTS,
        }
    }

    /// The error code for a peer that writes.
    pub fn of_write(self) -> Fatal {
        match self {
            Refusal::Tag => Fatal::WRITE_TAG,
            Refusal::Bounds => Fatal::WRITE_BOUNDS,
            Refusal::Wrap => Fatal::WRITE_WRAP,
            Refusal::Rights => Fatal::RIGHTS,
        }
    }
}

#[derive(Default)]
struct TagSlot {
    /// The low 8 bits of the tag, which differ at each use of the slot.
    key: u8,
    memory: Option<TaggedMemory>,
    /// Number of bytes that were bound for the peer to write and have not come.
    due: usize,
    /// Whether some of them have come.
    begun: bool,
}

/// The tags. 24 bits find a slot, and 8 bits distinguish its uses.
#[derive(Default)]
pub struct Tags {
    slots: Vec<TagSlot>,
    /// First in, first out, so that a tag is reused as late as possible.
    free: VecDeque<u32>,
    /// Number of due bytes of all slots.
    due: usize,
    /// Number of due bytes of the slots that have begun.
    under_way: usize,
}

impl Tags {
    /// Names memory that is created once its tag is known.
    pub fn enter(
        &mut self,
        memory: impl FnOnce(SteeringTag) -> io::Result<TaggedMemory>,
    ) -> io::Result<SteeringTag> {
        let fresh = self.free.is_empty();
        let index = match self.free.front() {
            Some(index) => *index as usize,
            None if self.slots.len() < TAGS_MAX => {
                self.slots.push(TagSlot::default());
                self.slots.len() - 1
            }
            None => {
                let what = format!("the connection has all its {TAGS_MAX} tags");
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
            }
        };
        let tag = SteeringTag((index as u32 + 1) << 8 | u32::from(self.slots[index].key));
        match memory(tag) {
            Ok(memory) => {
                self.slots[index].memory = Some(memory);
                self.free.pop_front();
                Ok(tag)
            }
            Err(error) => {
                if fresh {
                    self.free.push_back(index as u32);
                }
                Err(error)
            }
        }
    }

    fn index(&self, tag: SteeringTag) -> Option<usize> {
        let index = (tag.0 >> 8).checked_sub(1)? as usize;
        let slot = self.slots.get(index)?;
        (u32::from(slot.key) == tag.0 & 0xff && slot.memory.is_some()).then_some(index)
    }

    /// This many bytes are bound under a tag, and the peer will probably write them.
    pub fn expect(&mut self, tag: SteeringTag, bytes: usize) {
        if let Some(index) = self.index(tag) {
            let slot = &mut self.slots[index];
            (slot.due, slot.begun) = (bytes, false);
            self.due += bytes;
        }
    }

    /// This many bytes have come under a tag.
    pub fn came(&mut self, tag: SteeringTag, bytes: usize) {
        let Some(index) = self.index(tag) else {
            return;
        };
        let slot = &mut self.slots[index];
        if !std::mem::replace(&mut slot.begun, true) {
            self.under_way += slot.due;
        }
        let less = bytes.min(slot.due);
        slot.due -= less;
        self.due -= less;
        self.under_way -= less;
    }

    /// Number of bytes that were bound for the peer to write and have not come.
    pub fn due(&self) -> usize {
        self.due
    }

    /// Number of bytes that are probably under way: the rest of what has begun to arrive.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether the tag exists.
    pub fn holds(&self, tag: SteeringTag) -> bool {
        self.index(tag).is_some()
    }

    /// Where `length` bytes lie, if the peer has this access to them.
    pub(crate) fn find(
        &self,
        tag: SteeringTag,
        offset: u64,
        length: usize,
        wanted: Access,
    ) -> Result<(Target, usize), Refusal> {
        let memory = self
            .index(tag)
            .and_then(|index| self.slots[index].memory.as_ref())
            .ok_or(Refusal::Tag)?;
        let end = offset.checked_add(length as u64).ok_or(Refusal::Wrap)?;
        let (bytes, granted) = match memory {
            TaggedMemory::Region { length, access, .. } => (*length, *access),
            TaggedMemory::Exposed(mapping) => (mapping.len(), Access::READ),
        };
        if (wanted.remote_read && !granted.remote_read)
            || (wanted.remote_write && !granted.remote_write)
        {
            return Err(Refusal::Rights);
        }
        if end > bytes as u64 {
            return Err(Refusal::Bounds);
        }
        let at = offset as usize;
        Ok(match memory {
            TaggedMemory::Region { region, offset, .. } => {
                (Target::Region(Arc::clone(region)), offset + at)
            }
            TaggedMemory::Exposed(mapping) => (Target::Mapping(Arc::clone(mapping)), at),
        })
    }

    /// Removes a tag. Returns `false` if there is none.
    pub fn remove(&mut self, tag: SteeringTag) -> bool {
        let Some(index) = self.index(tag) else {
            return false;
        };
        let slot = &mut self.slots[index];
        slot.key = slot.key.wrapping_add(1);
        slot.memory = None;
        let due = std::mem::take(&mut slot.due);
        self.due -= due;
        if std::mem::take(&mut slot.begun) {
            self.under_way -= due;
        }
        self.free.push_back(index as u32);
        true
    }

    /// Removes a tag at the peer's request. Returns `false` if the peer may not do that.
    pub fn remove_remotely(&mut self, tag: SteeringTag) -> bool {
        let region = self.index(tag).is_some_and(|index| {
            matches!(self.slots[index].memory, Some(TaggedMemory::Region { .. }))
        });
        region && self.remove(tag)
    }
}
