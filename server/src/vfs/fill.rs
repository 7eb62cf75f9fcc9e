//! Filling pages from the store, with one read for a run of neighbours.

use odafs_fabric::sync::{Arc, Mutex};

use crate::vfs::export::Exports;
use crate::vfs::file::{File, Leaf, PageLock};
use crate::vfs::read::{Effort, ReadFailed};

/// Buffers for reads of the store, which are kept for the next read.
#[derive(Default)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// The most buffers that are kept. Further ones go back to the allocator.
    const IDLE_MAX: usize = 16;

    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.idle.lock().pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    fn put(&self, buffer: Vec<u8>) {
        let mut idle = self.idle.lock();
        if idle.len() < Self::IDLE_MAX {
            idle.push(buffer);
        }
    }
}

/// The result of a fill.
pub(crate) struct Filled<'a> {
    buffers: &'a Buffers,
    bytes: Vec<u8>,
    /// Whether the file was shorter than its attributes say.
    pub short: bool,
}

impl Filled<'_> {
    /// The bytes from the start of the first page to the end of the run or of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        self.buffers.put(std::mem::take(&mut self.bytes));
    }
}

/// Reads `first`, which is locked and not in memory, and up to `run - 1` pages after it, as far as nobody is
/// at them and they are not in memory either. `size` is the file's; `first` begins before it. All page locks
/// are held from the store's read until the pages are in memory. Pages for which there is no frame are read
/// nevertheless. Without [`Effort::MayBlock`] only what the store has at hand.
pub(crate) fn fill<'e>(
    export: &'e Exports,
    file: &Arc<File>,
    first: PageLock<'_>,
    run: u32,
    size: u64,
    effort: Effort,
) -> Result<Filled<'e>, ReadFailed> {
    let page = export.page();
    let start = page.start(first.page());
    let pages_left = (size - start).div_ceil(page.bytes() as u64);
    let run = u64::from(run).clamp(1, pages_left);
    let leaves: Vec<Arc<Leaf>> = (first.page() + 1..first.page() + run)
        .map(|next| file.leaf(next))
        .collect();
    let filled = fill_run(export, file, first, &leaves, size, effort);
    if !matches!(&filled, Ok(filled) if !filled.short) {
        // Removes leaves that were made in vain. The list has a leaf once for each of its pages.
        let mut leaves = leaves;
        leaves.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for leaf in &leaves {
            file.prune(leaf);
        }
    }
    filled
}

/// Fills `first` and the pages after it. `leaves` has a leaf for each page.
fn fill_run<'e>(
    export: &'e Exports,
    file: &Arc<File>,
    mut first: PageLock<'_>,
    leaves: &[Arc<Leaf>],
    size: u64,
    effort: Effort,
) -> Result<Filled<'e>, ReadFailed> {
    let page = export.page();
    let start = page.start(first.page());
    let mut others = lock_absent(first.page() + 1, leaves);

    let length = ((1 + others.len()) * page.bytes()).min((size - start) as usize);
    let mut filled = Filled {
        buffers: export.buffers(),
        bytes: export.buffers().take(length),
        short: false,
    };
    let (store, object) = (export.store(), file.object());
    let read = match effort {
        Effort::MayBlock => store
            .read_at(object, start, &mut filled.bytes)
            .map_err(|error| error.status)?,
        Effort::ResidentOnly if store.read_at_hand(object, start, &mut filled.bytes) => length,
        Effort::ResidentOnly => return Err(ReadFailed::NotResident),
    };
    filled.short = read < length;
    filled.bytes[read..].fill(0);

    let metrics = export.metrics();
    metrics.fills.increment();
    metrics.filled_bytes.add(read as u64);
    if filled.short {
        // The bytes do not fit the attributes, so nothing is kept of them.
        return Ok(filled);
    }
    let mut pieces = filled.bytes.chunks(page.bytes());
    if let Some(piece) = pieces.next() {
        put(export, &mut first, piece, effort);
        if let Some(frame) = first.frame() {
            export.cache().touch(frame);
        }
    }
    for (lock, piece) in others.iter_mut().zip(pieces) {
        if !put(export, lock, piece, effort) {
            break;
        }
    }
    Ok(filled)
}

/// Gives the page, which is nowhere, a frame with this content and zeros behind it. False if there is no frame.
fn put(export: &Exports, lock: &mut PageLock<'_>, content: &[u8], effort: Effort) -> bool {
    let cache = export.cache();
    let Some(frame) = cache.allocate_with(effort) else {
        return false;
    };
    let page = export.page().bytes();
    cache.arena().copy_in(frame, 0, content);
    if content.len() < page {
        cache.arena().zero(frame, content.len() as u32, page as u32);
    }
    cache.publish(lock, frame);
    true
}

/// Locks pages from `from` on, one for each leaf, up to the first that is locked or in memory.
fn lock_absent(from: u64, leaves: &[Arc<Leaf>]) -> Vec<PageLock<'_>> {
    leaves
        .iter()
        .zip(from..)
        .map_while(|(leaf, page)| {
            leaf.try_lock(Leaf::slot(page))
                .filter(|lock| lock.frame().is_none())
        })
        .collect()
}
