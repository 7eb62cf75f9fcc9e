//! Reading. All the branching of a read is in this file, from top to bottom. What it calls are leaves.

use odafs_fabric::memory::FrameNumber;
use odafs_fabric::sync::Arc;
use odafs_nic::calls::ChunkSource;

use crate::store::{Attributes, Credential, Status, access, may_read};
use crate::vfs::advice::Pattern;
use crate::vfs::change;
use crate::vfs::export::Exports;
use crate::vfs::file::{Facts, File, Leaf, PageLock};
use crate::vfs::fill;

/// How far a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Use only what is in memory (also the store's) and not locked. Never block. For threads that poll.
    ResidentOnly,
    /// Wait for locks and for the store.
    MayBlock,
}

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub count: u32,
}

/// What a range keeps that begins at or behind the end of the file, in bytes.
const GROWTH_BYTES: u64 = 4096;

impl ReadRange {
    /// At most `count` bytes from `offset` on. A reply reserves room for all of them, so they end where the file ends now.
    ///
    /// A range that begins there keeps some bytes nevertheless: the file may grow before it is read. A read that brings
    /// nothing without having met the end of the file is a failure to clients (Linux reports EIO, libnfs EFAULT).
    pub fn within(file: &File, offset: u64, count: u32) -> Self {
        let most = match file.attributes().size.saturating_sub(offset) {
            0 => GROWTH_BYTES.min(u64::MAX - offset),
            left => left,
        };
        let count = u64::from(count).min(most) as u32;
        Self { offset, count }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadDone {
    /// Number of bytes read, which is less than asked for only at the end of the file.
    pub count: u32,
    /// Whether the last of them is the last of the file, or no bytes follow the offset.
    pub eof: bool,
    /// Attributes of the file that are not older than the data.
    pub attributes: Attributes,
    /// The file's change counter from before the data was read.
    pub change: u64,
}

/// Why a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFailed {
    /// [`Effort::ResidentOnly`] was not enough. Call again from a thread that may block.
    NotResident,
    /// A status for the client.
    Status(Status),
}

impl From<Status> for ReadFailed {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The most bytes that a thread that polls copies for one call, since its other callers wait meanwhile.
const POLLED_BYTES_MAX: u32 = 64 << 10;
/// The most bytes that it pins for one call, for others to move.
const POLLED_PINNED_BYTES_MAX: u32 = 1 << 20;
/// The most bytes that it fills for one call.
const POLLED_FILL_BYTES_MAX: u64 = 64 << 10;
/// How often a read that met an outside truncation is tried again.
const TRIES: usize = 3;

/// Reads `range` into the front of `data`, as far as it fits.
pub fn read(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: ReadRange,
    effort: Effort,
    data: &mut [u8],
) -> Result<ReadDone, ReadFailed> {
    read_as(export, who, file, range, Pattern::Normal, effort, data)
}

/// As [`read`], for a reader who has said in which order.
pub fn read_as(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: ReadRange,
    pattern: Pattern,
    effort: Effort,
    data: &mut [u8],
) -> Result<ReadDone, ReadFailed> {
    let count = range
        .count
        .min(u32::try_from(data.len()).unwrap_or(u32::MAX));
    let range = ReadRange { count, ..range };
    let mut target = Copied { data, pattern };
    read_to(export, who, file, range, effort, &mut target)
}

/// Reads `range` as pieces to be sent by RDMA Write: parts of pinned frames, and copies of what could not be pinned.
pub fn read_pinned(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: ReadRange,
    effort: Effort,
) -> Result<(ReadDone, Vec<ChunkSource>), ReadFailed> {
    read_pinned_as(export, who, file, range, Pattern::Normal, effort)
}

/// As [`read_pinned`], for a reader who has said in which order.
pub fn read_pinned_as(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: ReadRange,
    pattern: Pattern,
    effort: Effort,
) -> Result<(ReadDone, Vec<ChunkSource>), ReadFailed> {
    let mut target = Pieces {
        pieces: Vec::new(),
        pattern,
    };
    let done = read_to(export, who, file, range, effort, &mut target)?;
    Ok((done, target.pieces))
}

fn read_to(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: ReadRange,
    effort: Effort,
    target: &mut impl Target,
) -> Result<ReadDone, ReadFailed> {
    export.promises().look(file.object(), effort)?;
    change::recheck_unwatched(export, file, effort)?;
    for _ in 1..TRIES {
        match pass(export, who, file, range, effort, target)? {
            Pass::Done(done) => return Ok(done),
            Pass::FoundShort(_) => {
                target.restart();
                change::check(export, file)?;
            }
        }
    }
    // Someone keeps cutting the file. The missing bytes read as zeros this time.
    let (Pass::Done(done) | Pass::FoundShort(done)) =
        pass(export, who, file, range, effort, target)?;
    Ok(done)
}

enum Pass {
    Done(ReadDone),
    /// The store's file is shorter than its attributes say.
    FoundShort(ReadDone),
}

/// One pass over the pages of the range, under the file's gate.
fn pass(
    export: &Exports,
    who: &Credential,
    file: &Arc<File>,
    range: ReadRange,
    effort: Effort,
    target: &mut impl Target,
) -> Result<Pass, ReadFailed> {
    let gate = file.enter(effort).ok_or(ReadFailed::NotResident)?;
    if gate.gone {
        return Err(Status::Stale.into());
    }
    // The counter must be older than the attributes, because clients rely on that.
    let change = file.change();
    let facts = file.facts();
    check_right(export, who, file, &facts, effort)?;
    let attributes = facts.attributes;

    let left = attributes.size.saturating_sub(range.offset);
    let count = u64::from(range.count).min(left) as u32;
    if effort == Effort::ResidentOnly && count > target.polled_bytes_max() {
        return Err(ReadFailed::NotResident);
    }
    let (mut short, mut filled) = (false, false);
    let mut done = 0;
    let mut near: Option<Arc<Leaf>> = None;
    while done < count {
        let wanted = Wanted {
            offset: range.offset + u64::from(done),
            count: count - done,
            size: attributes.size,
        };
        let page = export.page().index(wanted.offset);
        let leaf = match (effort, near.take()) {
            // A leaf that is held is not pruned.
            (Effort::ResidentOnly, Some(near)) if near.holds(page) => near,
            _ => file.leaf(page),
        };
        let leaf = &*near.insert(leaf);
        let lock = leaf
            .lock_with(Leaf::slot(page), effort)
            .ok_or(ReadFailed::NotResident)?;
        done += match lock.frame() {
            Some(frame) => hit(export, &lock, frame, wanted, target, done),
            // A thread that polls fills only once for a call.
            None if filled && effort == Effort::ResidentOnly => {
                drop(lock);
                file.prune(leaf);
                return Err(ReadFailed::NotResident);
            }
            None => {
                filled = true;
                let missed = miss(export, file, lock, wanted, effort, target, done);
                file.prune(leaf);
                let (bytes, found_short) = missed?;
                short |= found_short;
                bytes
            }
        };
    }
    let found = ReadDone {
        count,
        eof: range.offset.saturating_add(count.into()) >= attributes.size,
        attributes,
        change,
    };
    if short {
        return Ok(Pass::FoundShort(found));
    }
    export.metrics().reads.increment();
    export.metrics().read_bytes.add(count.into());
    Ok(Pass::Done(found))
}

/// Checks the right to read the file: by its attributes where these decide, else by asking the store.
pub(crate) fn check_right(
    export: &Exports,
    who: &Credential,
    file: &File,
    facts: &Facts,
    effort: Effort,
) -> Result<(), ReadFailed> {
    let granted = if facts.mode_decides {
        may_read(&facts.attributes, who)
    } else if effort == Effort::ResidentOnly {
        return Err(ReadFailed::NotResident);
    } else {
        // As in `may_read`, the owner may always read, and so may those who may execute.
        let mask = access::READ | access::EXECUTE;
        let asked = export.store().access(who, file.object(), mask);
        who.uid == facts.attributes.uid || asked.map_err(|error| error.status)? != 0
    };
    match granted {
        true => Ok(()),
        false => Err(Status::Access.into()),
    }
}

/// The rest of the range. All of it lies before the end of the file, which has `size` bytes.
#[derive(Clone, Copy)]
struct Wanted {
    offset: u64,
    count: u32,
    size: u64,
}

/// Takes the wanted bytes of a resident page.
fn hit(
    export: &Exports,
    lock: &PageLock<'_>,
    frame: FrameNumber,
    wanted: Wanted,
    target: &mut impl Target,
    done: u32,
) -> u32 {
    let page = export.page();
    let within = page.within(wanted.offset) as u32;
    let length = wanted.count.min(page.bytes() as u32 - within);
    debug_assert_eq!(lock.frame(), Some(frame));
    export.cache().prefetch(frame, within, length);
    target.take_frame(export, done, frame, within, length);
    export.cache().touch(frame);
    export.metrics().page_hits.increment();
    length
}

/// Fills a page that is not resident, and others of the range and beyond. Returns the bytes taken, and whether the file
/// turned out shorter than expected.
fn miss(
    export: &Exports,
    file: &Arc<File>,
    lock: PageLock<'_>,
    wanted: Wanted,
    effort: Effort,
    target: &mut impl Target,
    done: u32,
) -> Result<(u32, bool), ReadFailed> {
    let page = export.page();
    let within = page.within(wanted.offset);
    let span = (within + wanted.count as usize).div_ceil(page.bytes()) as u32;
    let limit = export.read_ahead_pages();
    let first = lock.page();
    let pattern = target.pattern();
    let run = match pattern {
        Pattern::Normal => file.sequence().next_run(first, span.min(limit), limit),
        Pattern::Sequential => limit,
        Pattern::Random => span.clamp(1, limit),
    };
    // What is read in no order says nothing of what comes next.
    let note = || {
        if pattern != Pattern::Random {
            file.sequence().filled(first, run);
        }
    };
    if effort == Effort::ResidentOnly && page.start(run.into()) > POLLED_FILL_BYTES_MAX {
        return Err(ReadFailed::NotResident);
    }
    // Ahead of the read, so that those who read beside it go on where this run ends. A thread that polls may find nothing at
    // hand, and then whoever reads in its place takes this run.
    if effort == Effort::MayBlock {
        note();
    }
    let filled = fill::fill(export, file, lock, run, wanted.size, effort)?;
    if effort == Effort::ResidentOnly {
        note();
    }
    let bytes = &filled.bytes()[within..];
    let length = bytes.len().min(wanted.count as usize);
    target.take_bytes(done, &bytes[..length]);
    let pages = (within + length).div_ceil(page.bytes());
    export.metrics().page_misses.add(pages as u64);
    Ok((length as u32, filled.short))
}

/// The destination of the data.
trait Target {
    /// The order in which its reader reads.
    fn pattern(&self) -> Pattern;

    /// The most bytes that a thread that polls takes for one call.
    fn polled_bytes_max(&self) -> u32;

    /// Takes bytes of a frame. The page is locked.
    fn take_frame(
        &mut self,
        export: &Exports,
        at: u32,
        frame: FrameNumber,
        within: u32,
        length: u32,
    );

    fn take_bytes(&mut self, at: u32, bytes: &[u8]);

    /// Drops the bytes taken so far.
    fn restart(&mut self);
}

/// Copies the data into place.
struct Copied<'a> {
    data: &'a mut [u8],
    pattern: Pattern,
}

impl Target for Copied<'_> {
    fn pattern(&self) -> Pattern {
        self.pattern
    }

    fn polled_bytes_max(&self) -> u32 {
        POLLED_BYTES_MAX
    }

    fn take_frame(
        &mut self,
        export: &Exports,
        at: u32,
        frame: FrameNumber,
        within: u32,
        length: u32,
    ) {
        let into = &mut self.data[at as usize..(at + length) as usize];
        export.cache().arena().copy_out(frame, within, into);
    }

    fn take_bytes(&mut self, at: u32, bytes: &[u8]) {
        self.data[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn restart(&mut self) {}
}

/// Collects the data for sending.
struct Pieces {
    pieces: Vec<ChunkSource>,
    pattern: Pattern,
}

impl Target for Pieces {
    fn pattern(&self) -> Pattern {
        self.pattern
    }

    fn polled_bytes_max(&self) -> u32 {
        POLLED_PINNED_BYTES_MAX
    }

    fn take_frame(
        &mut self,
        export: &Exports,
        _at: u32,
        frame: FrameNumber,
        within: u32,
        length: u32,
    ) {
        let arena = export.cache().arena();
        let now = arena.current_epoch();
        self.pieces.push(match arena.pin(frame, now, now) {
            Ok(frame) => ChunkSource::Frame {
                frame,
                offset: within,
                length,
            },
            Err(_) => {
                let mut copy = vec![0; length as usize];
                arena.copy_out(frame, within, &mut copy);
                ChunkSource::Bytes(copy)
            }
        });
    }

    fn take_bytes(&mut self, _at: u32, bytes: &[u8]) {
        self.pieces.push(ChunkSource::Bytes(bytes.to_vec()));
    }

    fn restart(&mut self) {
        self.pieces.clear();
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
