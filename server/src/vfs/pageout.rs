//! Pageout: CLOCK over the arena's reference bits, which RPC reads and the NIC both set. A page's first use sets
//! none, so that scans pass through.

use crate::vfs::cache::Cache;
use crate::vfs::metrics::Reason;
use crate::vfs::read::Effort;

/// Frames to free at a time, at most: whoever runs out pays for a few others too.
const LOT_MAX: u32 = 16;
/// Frames that a thread that polls looks at, at most: some ten microseconds.
const POLLED_STEPS_MAX: u32 = 256;

impl Cache {
    /// Frees a few frames; false if there are none to be had. A page that is locked or pinned is passed
    /// over: pageout never waits. Two rounds of the hand: the first may do no more than take reference bits. A thread that
    /// polls goes on for a few frames only; the next one goes on from there.
    pub(crate) fn page_out(&self, effort: Effort) -> bool {
        let lot = (self.capacity() / 16).clamp(1, LOT_MAX);
        let mut freed = 0;
        let steps = match effort {
            Effort::ResidentOnly => POLLED_STEPS_MAX.min(2 * self.capacity()),
            Effort::MayBlock => 2 * self.capacity(),
        };
        for _ in 0..steps {
            let frame = self.advance_hand();
            if self.arena().take_referenced(frame) || self.arena().is_pinned(frame) {
                continue;
            }
            let Some((leaf, slot)) = self.owner(frame) else {
                continue;
            };
            let Some(mut page) = leaf.try_lock(slot) else {
                continue;
            };
            if page.frame() != Some(frame) {
                continue;
            }
            self.retire(&mut page, Reason::Pageout);
            drop(page);
            self.metrics().evictions.increment();
            if let Some(file) = leaf.file() {
                file.prune(&leaf);
            }
            freed += 1;
            if freed == lot {
                break;
            }
        }
        freed > 0
    }
}
