use odafs_common::page::PageSize;
use odafs_common::reference::Epoch;

/// A client's read-only view of a server's arena.
pub struct ArenaView {}

impl ArenaView {
    /// Copies the bytes at `address` and tells whether they are the page's that was referenced at
    /// `epoch`: the stamps of all frames touched are not above it and the server's life goes on.
    /// `false`: what is in `into` is garbage.
    #[must_use]
    pub fn read(&self, address: u64, into: &mut [u8], epoch: Epoch) -> bool {
        todo!("{address} {into:?} {epoch:?}")
    }

    /// The aligned `u64` at `address`, if it counts (as in [`ArenaView::read`]).
    pub fn read_word(&self, address: u64, epoch: Epoch) -> Option<u64> {
        todo!("{address} {epoch:?}")
    }

    /// Fetches the stamp of the frame at `address` into the cache.
    pub fn prefetch_stamp(&self, address: u64) {
        todo!("{address}")
    }

    /// Fetches `lines` cache lines at `address` and their stamp, ahead of a read.
    pub fn prefetch(&self, address: u64, lines: u32) {
        todo!("{address} {lines}")
    }

    /// Bytes of the arena.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of a frame.
    pub fn page(&self) -> PageSize {
        todo!()
    }

    /// Whether the server's life goes on.
    pub fn is_alive(&self) -> bool {
        todo!()
    }
}
