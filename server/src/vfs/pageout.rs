//! Pageout by the CLOCK algorithm, over the arena's reference bits. RPC reads and the NIC set these. A page's first use
//! sets no bit, so that a scan does not drive out other pages.

use crate::vfs::cache::Cache;
use crate::vfs::metrics::Reason;
use crate::vfs::read::Effort;

/// The most frames to free at a time. Whoever runs out of frames frees a few more for others.
const LOT_MAX: u32 = 16;
/// The most frames that a thread that polls looks at, which takes about 10 us.
const POLLED_STEPS_MAX: u32 = 256;

impl Cache {
    /// Frees a few frames. False if there are none to free. It passes over locked and pinned pages, because pageout never
    /// waits. The hand makes up to two rounds, since the first may only clear reference bits. A thread that polls looks at
    /// a few frames only, and the next call continues from there.
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
