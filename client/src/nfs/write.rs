//! Writes: UNSTABLE, then COMMIT. What a restart of the server loses in between is sent again (RFC 1813 section
//! 3.3.21).

use crate::{
    calls::misbehaved,
    error::{CallError, Status, WriteError},
    nfs::{
        NfsError, WRITE,
        pipeline::{self, Next, Work},
    },
    open_file::OpenFile,
    shared::Shared,
    state::{Fate, FileState, KeptWrite},
    transport::{Broken, PlacedData},
    types::Changed,
};
use odafs_common::wire::{
    nfs3::{self, Payload, Stable},
    xdr::{Decode as _, Encode, Reader},
};
use odafs_fabric::{
    Region,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use std::collections::BTreeMap;

/// The most unstable bytes of one file to keep for sending again. Beyond that they are committed first.
const UNSTABLE_MAX: u64 = 32 << 20;
/// The same for all files of a client.
const UNSTABLE_OF_ALL_MAX: u64 = 64 << 20;
/// How often lost data is sent again before that is an error.
const RESENDS_MAX: u32 = 5;

/// When the server may answer a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// At once. A restart of the server may lose the data until it is committed (UNSTABLE).
    Unstable,
    /// When the data is on stable storage (FILE_SYNC).
    Stable,
}

impl From<Stability> for Stable {
    fn from(from: Stability) -> Self {
        match from {
            Stability::Unstable => Self::Unstable,
            Stability::Stable => Self::FileSync,
        }
    }
}

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WriteCall {
    from: usize,
    bytes: u32,
}

/// All calls of one write.
struct Send<'w> {
    shared: &'w Shared,
    file: &'w FileState,
    data: &'w [u8],
    offset: u64,
    stable: Stability,
    failed: Option<Status>,
    /// Parts that were sent and have no definite answer.
    unanswered: Vec<WriteCall>,
}

/// Writes all of `data`.
pub fn write(
    file: &OpenFile,
    data: &[u8],
    offset: u64,
    stable: Stability,
) -> Result<(), WriteError> {
    if data.is_empty() {
        return Ok(());
    }
    if offset.checked_add(data.len() as u64).is_none() {
        return Err(WriteError::Server {
            verb: "write",
            path: file.path().to_owned(),
            offset,
            status: Status::FILE_TOO_LARGE,
        });
    }
    if file.state().unstable.lock().bytes + data.len() as u64 > UNSTABLE_MAX {
        sync(file)?;
    }
    if file.shared().unstable.load(Relaxed) > UNSTABLE_OF_ALL_MAX {
        settle(file);
    }
    let state = file.state();
    let _order = state.order.read();
    let (sent, unanswered) = send(file.shared(), state, data, offset, stable);
    let mut unstable = state.unstable.lock();
    for WriteCall { from, bytes } in unanswered {
        let data = &data[from..][..bytes as usize];
        unstable.keep(offset + from as u64, data, Fate::Unanswered);
    }
    drop(unstable);
    sent.map_err(|error| told("write", file, offset, error))
}

/// Sends `data`, and keeps what the server may lose of it. Returns the parts that the server may have written without
/// saying so, which the caller must keep. The caller holds the file's [`FileState::order`].
fn send(
    shared: &Shared,
    file: &FileState,
    data: &[u8],
    offset: u64,
    stable: Stability,
) -> (Result<(), NfsError>, Vec<WriteCall>) {
    let piece_max = shared.write_max.min(shared.calls.link().piece_max());
    // Split at page boundaries, so that the server never reads a page to change a part of it.
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < data.len() {
        let at = offset + from as u64;
        let aligned = u64::from(piece_max) - if piece_max >= 4096 { at % 4096 } else { 0 };
        let bytes = (data.len() - from).min(aligned as usize);
        pieces.push(WriteCall {
            from,
            bytes: bytes as u32,
        });
        from += bytes;
    }
    let mut work = Send {
        shared,
        file,
        data,
        offset,
        stable,
        failed: None,
        unanswered: Vec::new(),
    };
    let _changing = shared.changes(file);
    file.mark_write();
    let done = pipeline::run(&shared.calls, None, &WRITE, &mut work, pieces, 0);
    let Send {
        failed, unanswered, ..
    } = work;
    // In this order: a read that began earlier must not be cached now.
    file.mark_write();
    forget(shared, file, offset, data.len() as u64);
    let sent = match failed {
        Some(status) => Err(NfsError::Status(status)),
        None => done.map_err(NfsError::Call),
    };
    (sent, unanswered)
}

/// The write may have been done nevertheless: the server had the data, and could not make it stable.
fn says_nothing(failed: nfs3::Status) -> bool {
    matches!(failed, nfs3::Status::Io | nfs3::Status::ServerFault)
}

/// Cached pages of this range are outdated, even if the write failed, because it may have been done.
fn forget(shared: &Shared, file: &FileState, offset: u64, bytes: u64) {
    let size = shared.page(shared.session().as_deref());
    let last = offset.saturating_add(bytes.saturating_sub(1));
    shared.forget_pages(file, size, size.index(offset), size.index(last));
}

impl Work for Send<'_> {
    type Item = WriteCall;

    fn send(
        &mut self,
        piece: WriteCall,
        _: usize,
        _: Option<&Arc<Region>>,
        put: &mut dyn FnMut(&dyn Encode) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        if !self.unanswered.contains(&piece) {
            self.unanswered.push(piece);
        }
        put(&nfs3::WriteArgs {
            file: self.file.handle.wire(),
            offset: self.offset + piece.from as u64,
            count: piece.bytes,
            stable: self.stable.into(),
            data: Payload(&self.data[piece.from..][..piece.bytes as usize]),
        })
    }

    fn take(
        &mut self,
        piece: WriteCall,
        _: usize,
        _: Option<&Arc<Region>>,
        _: Option<PlacedData<'_>>,
        result: &mut Reader<'_>,
    ) -> Result<Next<WriteCall>, CallError> {
        match nfs3::WriteResult::decode(result).map_err(|error| misbehaved(&WRITE, &error))? {
            Ok(written) => self.written(piece, &written),
            Err(failed) => Ok(self.refused(piece, failed.status)),
        }
    }
}

impl Send<'_> {
    fn answered(&mut self, piece: WriteCall) {
        self.unanswered.retain(|sent| *sent != piece);
    }

    /// Wait for the answers to calls under way. Otherwise the server might still do them after later writes.
    fn refused(&mut self, piece: WriteCall, status: nfs3::Status) -> Next<WriteCall> {
        if !says_nothing(status) {
            self.answered(piece);
        }
        if status == nfs3::Status::Jukebox && self.failed.is_none() {
            return Next::Later(piece);
        }
        self.failed.get_or_insert(Status::from(status));
        Next::Drain
    }

    fn written(
        &mut self,
        piece: WriteCall,
        written: &nfs3::WriteOk,
    ) -> Result<Next<WriteCall>, CallError> {
        let bytes = written.count;
        if bytes == 0 || bytes > piece.bytes {
            return Err(misbehaved(&WRITE, &"a count of bytes that were not sent"));
        }
        self.answered(piece);
        let offset = self.offset + piece.from as u64;
        let data = &self.data[piece.from..][..bytes as usize];
        self.shared.written.fetch_add(u64::from(bytes), Relaxed);
        self.resized(&written.wcc.into(), offset);
        let fate = match written.committed {
            Stable::Unstable => Fate::Unstable(written.verifier),
            _ => Fate::Stable,
        };
        self.file.unstable.lock().keep(offset, data, fate);
        if bytes == piece.bytes || self.failed.is_some() {
            return Ok(Next::Done);
        }
        Ok(Next::More(WriteCall {
            from: piece.from + bytes as usize,
            bytes: piece.bytes - bytes,
        }))
    }

    /// A file that grew has another page at its old end.
    fn resized(&self, changed: &Changed, offset: u64) {
        if let Some((before, after)) = self.file.wrote(changed)
            && after > before
        {
            // A read that began earlier must not be cached.
            self.file.mark_write();
            forget(
                self.shared,
                self.file,
                before,
                offset.saturating_sub(before) + 1,
            );
        }
    }
}

/// Commits other files until half of the limit is free. They may be closed or removed, so perhaps nobody will ever sync
/// them.
fn settle(file: &OpenFile) {
    let shared = file.shared();
    let is_gone = Status::STALE;
    for state in shared.unstable_files() {
        if shared.unstable.load(Relaxed) <= UNSTABLE_OF_ALL_MAX / 2 {
            return;
        }
        // The sibling is gone before anybody asks whether the file is open.
        let synced = sync(&file.sibling(state.clone()));
        match synced {
            Ok(()) => {}
            // Nobody is left to sync a file that is closed and gone. Any handle that has it open shall hear of the
            // loss.
            Err(WriteError::Server { status, .. }) if status == is_gone => {
                if !is_open(&state) {
                    state.unstable.lock().take();
                }
            }
            // An error of one file is kept until a sync of that file reports it.
            Err(WriteError::Server { .. } | WriteError::Lost { .. }) => {}
            // An error of the connection applies to all files.
            Err(WriteError::Call { .. }) => return,
        }
    }
}

/// Whether a caller has the file open. The table holds one reference, this function another.
fn is_open(file: &Arc<FileState>) -> bool {
    Arc::strong_count(file) > 2
}

/// Commits all unstable writes, and sends again what a restarted server has lost. One thread at a time: one that finds
/// nothing to commit must not return before another has committed it.
pub fn sync(file: &OpenFile) -> Result<(), WriteError> {
    let state = file.state();
    let _one = state.syncing.lock();
    state.unstable.lock().committing = true;
    let synced = sync_all(file, state);
    state.unstable.lock().committing = false;
    synced
}

/// Drops what is kept to be sent again.
pub fn forget_unsynced(file: &OpenFile) {
    let state = file.state();
    let _one = state.syncing.lock();
    state.unstable.lock().take();
}

fn sync_all(file: &OpenFile, state: &FileState) -> Result<(), WriteError> {
    for _ in 0..RESENDS_MAX {
        let writes = state.unstable.lock().take();
        if writes.is_empty() {
            return Ok(());
        }
        let committed = match file.shared().nfs().commit(&state.handle) {
            Ok(committed) => committed,
            Err(error) => {
                state.unstable.lock().put_back(writes);
                return Err(told("sync", file, 0, error));
            }
        };
        state.wrote(&committed.changed);
        // A write without an answer is sent again, so that it hides no less of the lost data than it did. Alone, it is
        // left to its caller, because others may have written there since.
        if !writes
            .iter()
            .any(|write| write.was_lost(committed.verifier))
        {
            return Ok(());
        }
        send_again(file, &writes, committed.verifier)?;
    }
    let kept = &state.unstable.lock().writes;
    let bytes = kept.iter().map(|write| write.data.len() as u64).sum();
    Err(WriteError::Lost {
        path: file.path().to_owned(),
        bytes,
    })
}

/// Sends lost parts of `writes` again: those bytes that no later write, lost or not, has replaced. Stable data is not
/// sent again, because others may have written there since.
fn send_again(file: &OpenFile, writes: &[KeptWrite], verifier: [u8; 8]) -> Result<(), WriteError> {
    let state = file.state();
    let _alone = state.order.write();
    let mut covered = Ranges::default();
    for write in &state.unstable.lock().writes {
        covered.add(write.offset, write.length, |_, _| {});
    }
    let mut lost = Vec::new();
    for write in writes.iter().rev() {
        covered.add(write.offset, write.length, |from, to| {
            if write.is_lost(verifier) {
                let part = (from - write.offset) as usize..(to - write.offset) as usize;
                lost.push(KeptWrite {
                    offset: from,
                    length: to - from,
                    data: write.data[part].into(),
                    fate: Fate::Lost,
                });
            }
        });
    }
    for at in 0..lost.len() {
        let KeptWrite { offset, data, .. } = &lost[at];
        let (sent, _) = send(file.shared(), state, data, *offset, Stability::Unstable);
        if let Err(error) = sent {
            let told = told("sync", file, *offset, error);
            let mut unstable = state.unstable.lock();
            unstable.put_back(lost.into_iter().skip(at).collect());
            return Err(told);
        }
    }
    Ok(())
}

/// Bytes of a file, as ranges that neither overlap nor touch.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, and reports each part of it that was not in before.
    fn add(&mut self, offset: u64, bytes: u64, mut new: impl FnMut(u64, u64)) {
        let (mut from, mut to) = (offset, offset + bytes);
        // From the last to the first. Everything behind `rest` is done.
        let mut rest = to;
        while let Some((&start, &end)) = self.0.range(..=to).next_back()
            && end >= from
        {
            self.0.remove(&start);
            if end < rest {
                new(end.max(offset), rest);
            }
            rest = rest.min(start).max(offset);
            from = from.min(start);
            to = to.max(end);
        }
        if offset < rest {
            new(offset, rest);
        }
        self.0.insert(from, to);
    }
}

fn told(verb: &'static str, file: &OpenFile, offset: u64, error: NfsError) -> WriteError {
    let path = file.path().to_owned();
    match error {
        NfsError::Status(status) => WriteError::Server {
            verb,
            path,
            offset,
            status,
        },
        NfsError::Call(source) => WriteError::Call {
            verb,
            path,
            offset,
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_name_what_is_new() {
        let mut ranges = Ranges::default();
        let mut bytes = [false; 64];
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let offset = random >> 59;
            let count = (random >> 50 & 15) + 1;
            if random >> 40 & 15 == 0 {
                (ranges, bytes) = (Ranges::default(), [false; 64]);
            }
            let expected: Vec<u64> = (offset..offset + count)
                .filter(|at| !bytes[*at as usize])
                .collect();
            let mut named = Vec::new();
            ranges.add(offset, count, |from, to| {
                assert!(from < to);
                named.extend(from..to);
            });
            named.sort_unstable();
            assert_eq!(named, expected);
            bytes[offset as usize..][..count as usize].fill(true);
        }
    }
}
