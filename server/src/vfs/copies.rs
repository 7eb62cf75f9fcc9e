//! Copies and clones: bytes of one file become those of another, without coming by the page cache. What is written goes to the
//! store before it goes to the cache, so that the store has all bytes of the source.
//!
//! The gates of both files are closed for each piece, the lower object's first: so copies in opposite directions take turns,
//! and nobody sees bytes in the target that others cannot see in the source yet. Between two pieces others may write to the
//! source, and what they write may be copied (RFC 7862, section 15.2.3).
//!
//! One call makes a copy, or the beginning of it ([`copy`]). [`LongCopy`] makes a copy step by step.

use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::sync::Arc;

use crate::store::{Credential, ObjectId, Status, StoreError};
use crate::vfs::attributes::attributes;
use crate::vfs::export::Exports;
use crate::vfs::file::File;
use crate::vfs::read::{Effort, ReadFailed, check_right};
use crate::vfs::space::{Made, Range, alone, for_good};
use crate::vfs::write::sync;

/// Bytes of a file, from this one on.
#[derive(Clone, Copy, Debug)]
pub struct FileOffset<'a> {
    /// The file.
    pub file: &'a Arc<File>,
    /// The first byte.
    pub offset: u64,
}

/// What became of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Bytes copied: fewer than asked for if space ran out or it took too long. None only where none were to be copied, or
    /// the source ended early.
    pub count: u64,
    /// Write verifier: another one whenever unstable data may have been lost. The copy may be, until a commit.
    pub verifier: [u8; 8],
}

/// How much one call does.
#[derive(Clone, Copy)]
struct Bounds {
    /// The most bytes with the target's gate closed.
    piece: u64,
    /// The most bytes.
    bytes: u64,
    /// No piece begins later.
    time: Nanos,
}

/// The most bytes with the target's gate closed.
pub const PIECE: u64 = 1 << 20;
/// The most bytes that [`copy`] copies.
pub const MOST: u64 = 64 << 20;

const BOUNDS: Bounds = Bounds {
    piece: PIECE,
    bytes: MOST,
    time: Nanos::from_secs(1),
};

/// Copies `count` bytes, or all from the first one on if that is 0. It may copy only the beginning; the caller goes on with the
/// rest. INVAL where the source does not have them. May block.
pub fn copy(
    export: &Exports,
    who: &Credential,
    from: FileOffset<'_>,
    to: FileOffset<'_>,
    count: u64,
) -> Result<Copied, StoreError> {
    copy_within(export, who, from, to, count, BOUNDS)
}

fn copy_within(
    export: &Exports,
    who: &Credential,
    from: FileOffset<'_>,
    to: FileOffset<'_>,
    count: u64,
    bounds: Bounds,
) -> Result<Copied, StoreError> {
    let (count, _) = to_take(export, who, from, to, count)?;
    // From before the data: if a sync fails in between, the client will see that the verifier is another.
    let verifier = export.verifier();
    let begun = clock::now();
    let wanted = count.min(bounds.bytes);
    let mut done = 0;
    loop {
        let piece = (wanted - done).min(bounds.piece);
        match copy_piece(export, who, (from, to), done, piece) {
            Ok(0) => break,
            Ok(copied) => done += copied,
            // It is said to who asks for the rest.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        if done >= wanted || clock::now().since(begun) > bounds.time {
            break;
        }
    }
    if export.wants_sync(to.file.object()) {
        sync(export, to.file, true)?;
    }
    export.metrics().writes.increment();
    export.metrics().written_bytes.add(done);
    Ok(Copied {
        count: done,
        verifier,
    })
}

/// A copy that is made step by step.
pub struct LongCopy {
    who: Credential,
    from: (Arc<File>, u64),
    to: (Arc<File>, u64),
    left: u64,
    piece: u64,
}

impl LongCopy {
    /// A copy of `count` bytes, or of all behind the first if that is 0, in steps of at most `piece` bytes. INVAL where the
    /// source does not have them; also what would be the refusal of the first step. May block.
    pub fn new(
        export: &Exports,
        who: &Credential,
        from: FileOffset<'_>,
        to: FileOffset<'_>,
        count: u64,
        piece: u64,
    ) -> Result<Self, StoreError> {
        let (left, _) = to_take(export, who, from, to, count)?;
        copy_piece(export, who, (from, to), 0, 0)?;
        Ok(Self {
            who: who.clone(),
            from: (Arc::clone(from.file), from.offset),
            to: (Arc::clone(to.file), to.offset),
            left,
            piece,
        })
    }

    /// Bytes that are still to be copied.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Copies the next bytes, if the caller may still read and write them: how many. 0: there are no more, since the source
    /// ends. May block.
    pub fn step(&mut self, export: &Exports) -> Result<u64, StoreError> {
        let (source, target) = (&self.from.0, &self.to.0);
        let facts = source.facts();
        check_right(export, &self.who, source, &facts, Effort::MayBlock).map_err(refusal)?;
        let from = FileOffset {
            file: source,
            offset: self.from.1,
        };
        let to = FileOffset {
            file: target,
            offset: self.to.1,
        };
        let most = self.left.min(self.piece);
        let copied = copy_piece(export, &self.who, (from, to), 0, most)?;
        let metrics = export.metrics();
        metrics.writes.increment();
        metrics.written_bytes.add(copied);
        if export.store().wants_sync(target.object()) {
            sync(export, target, true)?;
        }
        self.from.1 += copied;
        self.to.1 += copied;
        self.left -= copied;
        Ok(copied)
    }
}

/// Copies some of `piece` bytes, after `done` others. If there are none, the right to write is asked for all the same.
fn copy_piece(
    export: &Exports,
    who: &Credential,
    (from, to): (FileOffset<'_>, FileOffset<'_>),
    done: u64,
    piece: u64,
) -> Result<u64, StoreError> {
    let source = (from.file.object(), from.offset + done);
    let target = (to.file.object(), to.offset + done);
    let store = export.store();
    if piece == 0 {
        return Ok(store.write_at(who, target.0, target.1, &[])? as u64);
    }
    let range = Range {
        offset: target.1,
        length: piece,
    };
    let made = beside(export, who, (from.file, to.file), range, || {
        let copied = store.copy(who, source, target, piece)?;
        Ok(Made {
            touched: copied,
            reaches: if copied == 0 { 0 } else { target.1 + copied },
        })
    })?;
    Ok(made.touched)
}

/// What clones on the object's file system are multiples of, in bytes. `None`: there are none.
pub fn clone_block(export: &Exports, object: ObjectId) -> Option<u32> {
    export.store().clone_block_bytes(object)
}

/// Makes `count` bytes, or all behind the first if that is 0, those of the source, at once and for good. NOTSUPP where the
/// store makes no clones. INVAL where the source does not have these bytes, where they are not in blocks of [`clone_block`]
/// (the last may be cut where the source ends), and where they overlap. May block.
pub fn clone_range(
    export: &Exports,
    who: &Credential,
    from: FileOffset<'_>,
    to: FileOffset<'_>,
    count: u64,
) -> Result<(), StoreError> {
    let block = u64::from(clone_block(export, to.file.object()).ok_or(Status::NotSupp)?);
    let (count, ends) = to_take(export, who, from, to, count)?;
    let in_blocks = |bytes: u64| bytes.is_multiple_of(block);
    let cut = !in_blocks(count) && !ends;
    let same = from.file.object() == to.file.object();
    let overlap = same && from.offset.abs_diff(to.offset) < count;
    if !in_blocks(from.offset) || !in_blocks(to.offset) || cut || overlap {
        return Err(Status::Inval.into());
    }
    let source = (from.file.object(), from.offset);
    let target = (to.file.object(), to.offset);
    let store = export.store();
    if count == 0 {
        return store.write_at(who, target.0, target.1, &[]).map(drop);
    }
    let range = Range {
        offset: to.offset,
        length: count,
    };
    // The file system brings the source to the disk before it shares its blocks: while nobody is kept waiting, then.
    sync(export, from.file, true)?;
    for_good(export, to.file, || {
        beside(export, who, (from.file, to.file), range, || {
            store.clone_range(who, source, target, count)?;
            Ok(Made {
                touched: count,
                reaches: target.1 + count,
            })
        })
    })
}

/// As [`alone`], while nobody changes the source either: the store may hold bytes of a change under way before others can see
/// them, and who has seen them in the target must find them in the source.
fn beside(
    export: &Exports,
    who: &Credential,
    (source, target): (&Arc<File>, &Arc<File>),
    range: Range,
    make: impl FnOnce() -> Result<Made, StoreError>,
) -> Result<Made, StoreError> {
    let (from, to) = (source.object(), target.object());
    // What has to be waited for comes before any gate is closed.
    let _changing = export.promises().ask_to_write(export, who, to)?;
    export.promises().ask_to_look(from)?;
    // Of two gates the lower object's is closed first, everywhere.
    let first = (from < to).then(|| source.close());
    let made = alone(export, who, target, range, |_| {
        let second = (from > to).then(|| source.close());
        let made = make();
        drop(second);
        made
    });
    drop(first);
    made
}

/// How many bytes are meant, if the caller may read them, the source has them and the target can take them; and whether the
/// source ends with them.
fn to_take(
    export: &Exports,
    who: &Credential,
    from: FileOffset<'_>,
    to: FileOffset<'_>,
    count: u64,
) -> Result<(u64, bool), StoreError> {
    let facts = from.file.facts();
    check_right(export, who, from.file, &facts, Effort::MayBlock).map_err(refusal)?;
    let size = attributes(export, from.file.object())?.size;
    let behind = size.checked_sub(from.offset).ok_or(Status::Inval)?;
    let count = match count {
        0 => behind,
        some if some <= behind => some,
        _ => return Err(Status::Inval.into()),
    };
    match to.offset.checked_add(count) {
        Some(end) if end <= i64::MAX as u64 => Ok((count, count == behind)),
        _ => Err(Status::FBig.into()),
    }
}

fn refusal(failed: ReadFailed) -> StoreError {
    match failed {
        ReadFailed::Status(status) => status.into(),
        // A caller that may block never gets this.
        ReadFailed::NotResident => Status::Jukebox.into(),
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
