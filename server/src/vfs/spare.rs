//! Lends frames without a page for incoming data.

use odafs_fabric::memory::FrameNumber;
use odafs_fabric::sync::Arc;
use odafs_nic::registration::Frames;

use crate::vfs::export::Exports;

/// Lends frames of an export's page cache.
pub(crate) struct SpareFrames(Arc<Exports>);

impl SpareFrames {
    pub(crate) fn of(export: Arc<Exports>) -> Self {
        Self(export)
    }
}

impl Frames for SpareFrames {
    fn take(&self) -> Option<FrameNumber> {
        self.0.cache().allocate()
    }

    fn give(&self, frame: FrameNumber) {
        self.0.cache().give_back(frame);
    }
}
