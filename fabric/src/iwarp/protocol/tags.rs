//! The steering tags of a stream: what the peer may read and write.

use super::rdmap::Fatal;
use crate::fabric::{Access, SteeringTag};
use crate::memory::mapping::Mapping;
use crate::memory::{Region, Target};
use crate::sync::Arc;
use std::collections::VecDeque;
use std::io;

/// Most tags of a stream.
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
        /// What the peer may do.
        access: Access,
    },
    /// Memory of an arena, to be read only.
    Exposed(Arc<Mapping>),
}

/// Why a peer may not do what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such tag.
    Tag,
    /// Beyond its memory.
    Bounds,
    /// Beyond 2^64.
    Wrap,
    /// It does not give that right.
    Rights,
}

impl Refusal {
    /// As told to a peer that reads.
    pub fn of_read(self) -> Fatal {
        match self {
            Refusal::Tag => Fatal::READ_TAG,
            Refusal::Bounds => Fatal::READ_BOUNDS,
            Refusal::Wrap => Fatal::READ_WRAP,
            Refusal::Rights => Fatal::RIGHTS,
        }
    }

    /// As told to a peer that writes.
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
struct Slot {
    /// Last 8 bits of the tag; others at each use of the slot.
    key: u8,
    memory: Option<TaggedMemory>,
    /// What was bound for the peer to write, and has not come.
    due: usize,
    /// Some of that has come.
    begun: bool,
}

/// The tags: 24 bits that find a slot, 8 bits that tell its uses apart.
#[derive(Default)]
pub struct Tags {
    slots: Vec<Slot>,
    /// First in, first out, so that a key comes again as late as it can.
    free: VecDeque<u32>,
    /// What is due of all slots.
    due: usize,
    /// What is due of the slots that have begun.
    under_way: usize,
}

impl Tags {
    /// Names memory that is made once its tag is known.
    pub fn enter(
        &mut self,
        memory: impl FnOnce(SteeringTag) -> io::Result<TaggedMemory>,
    ) -> io::Result<SteeringTag> {
        let fresh = self.free.is_empty();
        let index = match self.free.front() {
            Some(index) => *index as usize,
            None if self.slots.len() < TAGS_MAX => {
                self.slots.push(Slot::default());
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

    /// So many bytes are bound under a tag for the peer to write, which it will probably do.
    pub fn expect(&mut self, tag: SteeringTag, bytes: usize) {
        if let Some(index) = self.index(tag) {
            let slot = &mut self.slots[index];
            (slot.due, slot.begun) = (bytes, false);
            self.due += bytes;
        }
    }

    /// So many bytes have come under a tag.
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

    /// Bytes that were bound for the peer to write and have not come.
    pub fn due(&self) -> usize {
        self.due
    }

    /// Bytes that are probably on their way: the rest of what has begun to come.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether there is such a tag.
    pub fn holds(&self, tag: SteeringTag) -> bool {
        self.index(tag).is_some()
    }

    /// Where `length` bytes lie, if the peer may use them so.
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

    /// Forgets a tag. `false`: there is none such.
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

    /// Forgets a tag because the peer says so. `false`: it may not.
    pub fn remove_remotely(&mut self, tag: SteeringTag) -> bool {
        let region = self.index(tag).is_some_and(|index| {
            matches!(self.slots[index].memory, Some(TaggedMemory::Region { .. }))
        });
        region && self.remove(tag)
    }
}
