//! The use of the frames. Everything that changes the cache is behind one lock.

use super::{
    Block,
    index::{Index, Indexed},
    order::{Order, Places},
};
use odafs_fabric::memory::{Frames, Label};
use std::io;

/// The memory of a cache: its frames, and the index of their blocks.
pub struct Core {
    pub frames: Frames,
    index: Index,
}

/// A block that was found in a frame.
pub struct Found {
    pub frame: u32,
    /// The frame's stamp. If it still validates after loads from the frame, they were of the block.
    pub epoch: odafs_common::reference::Epoch,
    /// Generation of the file when the frame was filled.
    pub generation: u64,
    /// Number of valid bytes.
    pub length: usize,
}

/// What the frames are used for.
#[derive(Debug, Default)]
pub struct FrameKeeper {
    /// Number of frames that may be used.
    limit: u32,
    /// Frames from this one on have no memory.
    fresh: u32,
    /// Number of further frames that may get memory for now. `None`: up to the limit.
    allowance: Option<u32>,
    /// Number of frames that the last unsuccessful caller asked for.
    refused: usize,
    /// Frames before that one that hold nothing.
    free: Vec<u32>,
    /// Frames that are being filled.
    lent: Vec<u32>,
    /// Frames that hold a block.
    held: u32,
    /// The order in which blocks are evicted.
    order: Order,
}

/// Number of bits for the valid bytes in the second word of a label.
const LENGTH_BITS: u32 = 13;

impl Core {
    /// Room for this many frames.
    pub fn new(frames: u32) -> io::Result<Self> {
        Ok(Self {
            frames: Frames::reserve(frames)?,
            index: Index::new(frames),
        })
    }

    /// Bytes of memory for each frame.
    pub const BYTES: usize = Frames::BYTES + Index::BYTES;

    /// The frame that holds a block, of any generation.
    #[inline]
    pub fn find(&self, block: Block) -> Option<Found> {
        let mut frames = self.index.find(block.hash());
        frames.find_map(|frame| self.holds(frame, block))
    }

    /// The same, of a block that is to be copied whole and is far away: prefetches the frame while its label is looked at.
    #[inline]
    pub fn find_far(&self, block: Block) -> Option<Found> {
        let mut frames = self.index.find(block.hash());
        frames.find_map(|frame| {
            self.frames.prefetch_whole(frame);
            self.holds(frame, block)
        })
    }

    /// Prefetches the frame that may hold a block.
    #[inline]
    pub fn prefetch(&self, block: Block) {
        if let Some(frame) = self.index.find(block.hash()).next() {
            self.frames.prefetch_to_load(frame);
        }
    }

    #[inline]
    fn holds(&self, frame: u32, block: Block) -> Option<Found> {
        let (epoch, [file, place, generation]) = self.frames.label(frame)?;
        let here = file == block.file && place >> LENGTH_BITS == block.number;
        here.then_some(Found {
            frame,
            epoch,
            generation,
            length: (place & ((1 << LENGTH_BITS) - 1)) as usize,
        })
    }
}

impl Places for Core {
    fn uses(&self, frame: u32) -> u64 {
        self.frames.uses(frame)
    }

    fn set_uses(&self, frame: u32, uses: u64) {
        self.frames.set_uses(frame, uses);
    }

    fn hash(&self, frame: u32) -> u64 {
        let label = self.frames.label(frame);
        label.map_or(0, |(_, label)| block(label).hash())
    }
}

fn label(block: Block, generation: u64, length: usize) -> Label {
    let place = block.number << LENGTH_BITS | length as u64;
    [block.file, place, generation]
}

fn block([file, place, _]: Label) -> Block {
    Block {
        file,
        number: place >> LENGTH_BITS,
    }
}

impl FrameKeeper {
    /// Nothing is held, and nothing may be until there is a limit.
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Number of frames that hold a block.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Number of frames that have memory. They are the first ones.
    pub fn with_memory(&self) -> u32 {
        self.fresh
    }

    /// Sets how many more frames may get memory for now. `None`: up to the limit.
    pub fn allow(&mut self, allowance: Option<u32>) {
        self.allowance = allowance;
    }

    /// A caller that wanted this many frames was refused.
    pub fn refuse(&mut self, frames: usize) {
        self.refused = frames;
    }

    /// How many frames the last refused caller wanted.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Whether a caller that wants this many frames is refused until more may get memory.
    pub fn is_starved(&self, frames: usize) -> bool {
        self.allowance.is_some_and(|left| {
            let grows_on = left < self.limit.saturating_sub(self.fresh);
            grows_on && self.free.len() + (left as usize) < frames
        })
    }

    /// Lends a frame to fill, if there is one. Nothing is evicted while more memory may still be taken.
    pub fn lend(&mut self, core: &Core) -> Option<u32> {
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None if self.fresh < self.limit => {
                if let Some(left) = &mut self.allowance {
                    *left = left.checked_sub(1)?;
                }
                self.fresh += 1;
                self.fresh - 1
            }
            None => self.evict(core)?,
        };
        self.lent.push(frame);
        Some(frame)
    }

    /// Takes back a frame in which nothing was kept.
    pub fn take_back(&mut self, core: &Core, frame: u32) {
        self.lent.retain(|lent| *lent != frame);
        self.free.push(frame);
        self.trim(core);
    }

    /// Whether there are more frames than allowed.
    pub fn is_beyond_limit(&self) -> bool {
        self.fresh > self.limit
    }

    /// Publishes a block in a borrowed frame that has been filled. Returns true if an eighth more memory would have
    /// kept the block since the last time.
    pub fn publish(
        &mut self,
        core: &Core,
        frame: u32,
        block: Block,
        generation: u64,
        length: usize,
    ) -> bool {
        self.lent.retain(|lent| *lent != frame);
        core.frames.publish(frame, label(block, generation, length));
        let hash = block.hash();
        if let Indexed::Crowded(frames) = core.index.insert(hash, frame) {
            let unused = frames.iter().find(|frame| core.frames.uses(**frame) == 0);
            self.drop_frame(core, *unused.unwrap_or(&frames[0]));
            core.index.insert(hash, frame);
        }
        self.held += 1;
        self.order.insert(frame, hash, core, self.limit)
    }

    /// Drops a block.
    pub fn remove(&mut self, core: &Core, block: Block) {
        if let Some(found) = core.find(block) {
            self.drop_frame(core, found.frame);
        }
    }

    /// Sets the limit. Memory beyond it is given back.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Gives back the frames beyond the limit, except those before one that is being filled.
    pub fn trim(&mut self, core: &Core) {
        let before = self.fresh;
        while self.fresh > self.limit && !self.lent.contains(&(self.fresh - 1)) {
            self.fresh -= 1;
            if core.frames.label(self.fresh).is_some() {
                self.order.remove(self.fresh);
                self.close(core, self.fresh);
            }
        }
        if self.fresh < before {
            self.free.retain(|frame| *frame < self.fresh);
            core.frames.give_back(self.fresh, before);
        }
    }

    /// Prefetches what the next eviction looks at, and where the following page will be filled. All of that is far
    /// apart, and meanwhile the thread fetches the next page.
    pub fn prefetch(&self, core: &Core) {
        if self.fresh < self.limit || !self.free.is_empty() {
            return;
        }
        let [next, second] = self.order.next(self.limit);
        if let Some(frame) = next {
            // Its label was prefetched when it was second.
            let hash = core.hash(frame);
            core.index.prefetch(hash);
            self.order.prefetch(hash);
            core.frames.prefetch_to_fill(frame);
        }
        if let Some(frame) = second {
            core.frames.prefetch_label(frame);
        }
    }

    fn evict(&mut self, core: &Core) -> Option<u32> {
        let frame = self.order.evict(core, self.limit)?;
        self.close(core, frame);
        Some(frame)
    }

    fn drop_frame(&mut self, core: &Core, frame: u32) {
        self.order.remove(frame);
        self.close(core, frame);
        self.free.push(frame);
    }

    /// Takes a frame's content away from readers.
    fn close(&mut self, core: &Core, frame: u32) {
        let hash = core.hash(frame);
        core.frames.unpublish(frame);
        core.index.remove(hash, frame);
        self.held -= 1;
    }
}
