//! Which frames are used for what: all that changes the cache, behind one lock.

use super::{
    Block,
    index::{Index, Indexed},
    order::{Order, Places},
};
use odafs_fabric::memory::{Frames, Label};
use std::io;

/// The memory of a cache: frames, and which block is in which.
pub struct Core {
    pub frames: Frames,
    index: Index,
}

/// A block that was found in a frame.
pub struct Found {
    pub frame: u32,
    /// What was loaded of the frame since is the block's, if its stamp still validates this.
    pub epoch: odafs_common::reference::Epoch,
    /// Generation of its file when it was filled.
    pub generation: u64,
    /// Valid bytes.
    pub length: usize,
}

/// What the frames are used for.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Frames that may be used.
    limit: u32,
    /// Frames from here on have no memory.
    fresh: u32,
    /// As many more may be given memory for now; `None`: up to the limit.
    allowance: Option<u32>,
    /// So many were not to be had, when somebody last asked for more than there were.
    refused: usize,
    /// Frames before that hold nothing.
    free: Vec<u32>,
    /// Frames that are being filled.
    lent: Vec<u32>,
    /// Frames that hold a block.
    held: u32,
    /// Which block goes when its frame is needed.
    order: Order,
}

/// Bits of a label's second word for the valid bytes.
const LENGTH_BITS: u32 = 13;

impl Core {
    /// Room for so many frames.
    pub fn new(frames: u32) -> io::Result<Self> {
        Ok(Self {
            frames: Frames::reserve(frames)?,
            index: Index::new(frames),
        })
    }

    /// Bytes of memory for each frame.
    pub const BYTES: usize = Frames::BYTES + Index::BYTES;

    /// The frame that holds a block, of whatever generation.
    #[inline]
    pub fn find(&self, block: Block) -> Option<Found> {
        let mut frames = self.index.find(block.hash());
        frames.find_map(|frame| self.holds(frame, block))
    }

    /// Fetches ahead the frame that may hold a block.
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

impl Keeper {
    /// Nothing is held, and nothing may be until there is a limit.
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Frames that hold a block.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Frames that have memory: the first so many.
    pub fn with_memory(&self) -> u32 {
        self.fresh
    }

    /// As many more frames may be given memory for now; `None`: up to the limit.
    pub fn allow(&mut self, allowance: Option<u32>) {
        self.allowance = allowance;
    }

    /// Somebody was refused so many.
    pub fn refuse(&mut self, frames: usize) {
        self.refused = frames;
    }

    /// How many somebody was refused last.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Are so many frames not to be had until more may be given memory?
    pub fn is_starved(&self, frames: usize) -> bool {
        self.allowance.is_some_and(|left| {
            let grows_on = left < self.limit.saturating_sub(self.fresh);
            grows_on && self.free.len() + (left as usize) < frames
        })
    }

    /// Lends a frame to be filled, if there is one to be had. Nothing is evicted while there is more memory to come.
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

    /// Takes a frame back that nothing was kept in.
    pub fn take_back(&mut self, core: &Core, frame: u32) {
        self.lent.retain(|lent| *lent != frame);
        self.free.push(frame);
        self.trim(core);
    }

    /// Are there more frames than may be?
    pub fn is_beyond_limit(&self) -> bool {
        self.fresh > self.limit
    }

    /// Publishes a block in a frame that was lent and is filled. True if an eighth more memory would have kept
    /// it since the last time.
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

    /// Grows or shrinks what may be used; memory beyond it is given back.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Gives back the frames beyond the limit, but for those before one that is being filled.
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

    /// Fetches ahead what the next eviction looks at, and where the page that follows is filled: all of that is far apart, and
    /// the thread goes for the next page meanwhile.
    pub fn prefetch(&self, core: &Core) {
        if self.fresh < self.limit || !self.free.is_empty() {
            return;
        }
        let [next, second] = self.order.next(self.limit);
        if let Some(frame) = next {
            // Its label was fetched when it was second.
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

    /// Takes what a frame holds from its readers.
    fn close(&mut self, core: &Core, frame: u32) {
        let hash = core.hash(frame);
        core.frames.unpublish(frame);
        core.index.remove(hash, frame);
        self.held -= 1;
    }
}
