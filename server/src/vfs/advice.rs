//! What clients say beforehand of how they use a file (RFC 7862, section 15.5): in which order they read it, and what they will
//! need.

use odafs_fabric::sync::Arc;

use crate::store::Credential;
use crate::vfs::export::Exports;
use crate::vfs::extents::enter;
use crate::vfs::file::{File, Leaf};
use crate::vfs::fill::fill;
use crate::vfs::read::{Effort, ReadFailed};
use crate::vfs::space::Range;

/// The most bytes that [`will_need`] brings into memory: it takes a thread for as long as a long read.
const WILL_NEED_BYTES_MAX: u64 = 1 << 20;

/// The order in which somebody reads a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Nothing was said: the server sees what is read.
    #[default]
    Normal,
    /// From front to back: each miss fills as much as may be filled at once.
    Sequential,
    /// In no order: a miss fills what is read.
    Random,
}

/// Whose frames may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// Those of pages that have not been used for longest.
    Any,
    /// Those that are free. If there are too few, nothing is done.
    Free,
}

/// Brings the first pages of a range into memory: 1 MiB at most, and a quarter of the cache. Returns false, and may have done
/// less, if there are no frames for them, or nothing to bring. May block.
pub fn will_need(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: Range,
    frames: Frames,
) -> Result<bool, ReadFailed> {
    let _gate = enter(export, who, file)?;
    let (page, size) = (export.page(), file.attributes().size);
    let cache = export.cache();
    let left = size.saturating_sub(range.offset);
    let Some(pages) = page.span(range.offset, range.length.min(left)) else {
        return Ok(false);
    };
    let (first, last) = pages.into_inner();
    let share = WILL_NEED_BYTES_MAX.min(page.start(u64::from(cache.capacity() / 4)));
    let last = last.min(first + page.index(share).saturating_sub(1));
    let free = u64::from(cache.capacity() - cache.used());
    if frames == Frames::Free && free < last - first + 1 {
        return Ok(false);
    }
    let mut at = first;
    while at <= last {
        let leaf = file.leaf(at);
        let missing = leaf.try_lock(Leaf::slot(at));
        let Some(lock) = missing.filter(|lock| lock.frame().is_none()) else {
            // It is there, or whoever is at it brings it.
            file.prune(&leaf);
            at += 1;
            continue;
        };
        let run = (last - at + 1).min(export.read_ahead_pages().into());
        let filled = fill(export, file, lock, run as u32, size, Effort::MayBlock);
        let resident = leaf.lock(Leaf::slot(at)).frame().is_some();
        file.prune(&leaf);
        let filled = filled?;
        if filled.short || !resident {
            return Ok(false);
        }
        at += filled.bytes().len().div_ceil(page.bytes()) as u64;
    }
    Ok(true)
}
