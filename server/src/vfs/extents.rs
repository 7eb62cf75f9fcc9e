//! Data and holes of files. The store is asked while the gate of the file is shared, so that readers never see half of a
//! change of a whole range.

use core::ops::Range;

use odafs_fabric::memory::FrameNumber;
use odafs_fabric::sync::{Arc, RwLockReadGuard};

use crate::store::{Credential, Extent, Status};
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::file::{File, Leaf, Standing};
use crate::vfs::read::{Effort, ReadFailed, check_right};

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first byte.
    pub offset: u64,
    /// Whether that is the end of the file.
    pub eof: bool,
}

/// The first data, or the first hole, at or behind `offset`. If no data follows, the result is the end of the file. NXIO if
/// `offset` is not within the file. May block.
pub fn seek(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    offset: u64,
    what: Extent,
) -> Result<Found, ReadFailed> {
    let _gate = enter(export, who, file)?;
    let (store, object) = (export.store(), file.object());
    let found = store.seek(object, offset, what);
    let found = found.map_err(|error| error.status)?;
    let size = store.getattr(object).map_err(|error| error.status)?.size;
    Ok(Found {
        offset: found.unwrap_or(size),
        eof: found.is_none_or(|found| found >= size),
    })
}

/// A part of the bytes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Whether it is data or a hole.
    pub what: Extent,
    /// Length in bytes.
    pub length: u64,
    /// Whether the file ends with it or before.
    pub eof: bool,
}

/// What is at the beginning of the bytes from `offset` to `end`, of which there is at least one. All that is wanted of a page
/// is part of a hole or none of it, so that it is of one moment. May block.
pub fn part(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    offset: u64,
    end: u64,
) -> Result<Part, ReadFailed> {
    let _gate = enter(export, who, file)?;
    let size = file.attributes().size;
    let (mut what, mut border) = look(export, file, offset, end, size);
    if what == Extent::Hole
        && let Some(pages) = first_with_data(export, file, offset, border)
    {
        let start = export.page().start(pages.start);
        (what, border) = match start > offset {
            true => (Extent::Hole, start),
            false => (Extent::Data, export.page().start(pages.end).min(border)),
        };
    }
    Ok(Part {
        what,
        length: border - offset,
        eof: border >= size,
    })
}

/// What the store says of these bytes, and where that ends: at a border of pages, or at `end`. Where it does not know, or has
/// just lost some of them, all are left to the read. The store may know of a later end of the file than its attributes say:
/// no hole goes beyond the end that these say.
fn look(export: &Exports, file: &File, offset: u64, end: u64, size: u64) -> (Extent, u64) {
    if offset >= size {
        return (Extent::Data, end);
    }
    let (store, page) = (export.store(), export.page());
    let data = match store.seek(file.object(), offset, Extent::Data) {
        Ok(None) if end <= size => return (Extent::Hole, end),
        Ok(Some(data)) if data >= end => return (Extent::Hole, end.min(size)),
        Ok(Some(data)) => data,
        Ok(None) | Err(_) => return (Extent::Data, end),
    };
    let border = page.start(page.index(data));
    if border > offset {
        return (Extent::Hole, border.min(size));
    }
    match store.seek(file.object(), data, Extent::Hole) {
        Ok(Some(hole)) if hole > data => {
            let last = page.start(page.index(hole - 1));
            let border = last.saturating_add(page.bytes() as u64);
            (Extent::Data, border.min(end))
        }
        _ => (Extent::Data, end),
    }
}

/// The first pages of these bytes that are in memory and do not look like a hole, without a gap. Those that begin behind the
/// first byte are cut after one page. A write of a page that is under way, and may have made the hole, is over when the page is
/// looked at.
fn first_with_data(
    export: &Exports,
    file: &Arc<File>,
    offset: u64,
    end: u64,
) -> Option<Range<u64>> {
    let pages = export.page().span(offset, end - offset)?;
    let (first, last) = pages.into_inner();
    let mut behind = first;
    let leaves = file.leaves_from(first).into_iter();
    for leaf in leaves.take_while(|leaf| leaf.first() <= last) {
        for page in first.max(leaf.first())..=last.min(leaf.last()) {
            let lock = leaf.lock(Leaf::slot(page));
            let has_data = lock.frame().is_some_and(|frame| !is_zero(export, frame));
            match (has_data, page == behind) {
                (true, true) => behind += 1,
                (true, false) if behind == first => return Some(page..page + 1),
                (false, _) if behind == first => {}
                _ => return Some(first..behind),
            }
        }
    }
    (behind > first).then_some(first..behind)
}

/// Whether all bytes of a frame are zeros, as in a page of a hole that somebody has read.
fn is_zero(export: &Exports, frame: FrameNumber) -> bool {
    const STEP: usize = 512;
    let arena = export.cache().arena();
    let mut part = [0; STEP];
    (0..export.page().bytes()).step_by(STEP).all(|at| {
        arena.copy_out(frame, at as u32, &mut part);
        part == [0; STEP]
    })
}

/// Whether a file takes less of the store than its size says: it has holes, or is compressed. Others may have holes too, if they
/// have space behind their end. Asks nobody.
pub fn may_have_holes(file: &File) -> bool {
    let known = file.attributes();
    known.used < known.size
}

/// Shares the gate with those who may read the file.
pub(super) fn enter<'f>(
    export: &Exports,
    who: &Credential,
    file: &'f Arc<File>,
) -> Result<RwLockReadGuard<'f, Standing>, ReadFailed> {
    export.promises().look(file.object(), Effort::MayBlock)?;
    change::recheck_unwatched(export, file, Effort::MayBlock)?;
    let gate = file.enter_blocking();
    if gate.gone {
        return Err(Status::Stale.into());
    }
    check_right(export, who, file, &file.facts(), Effort::MayBlock)?;
    Ok(gate)
}

#[cfg(test)]
#[path = "extents_tests.rs"]
mod tests;
