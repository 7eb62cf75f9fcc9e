//! Passes a client's calls to its recorder.

use super::{
    format::{Initial, Operation},
    recorder::{Recorder, length_of},
};
use crate::{
    error::{PathError, ReadError, WriteError},
    metadata::Metadata,
    open_file::OpenFile,
    shared::Shared,
    types::FileKind,
};
use odafs_fabric::clock::{self, Nanos};
use std::{os::unix::ffi::OsStrExt as _, path::Path};

/// One read of a call: its first byte, the length asked for, and the length read.
pub struct RecordedRead {
    pub offset: u64,
    pub bytes: usize,
    pub got: usize,
}

impl Metadata {
    /// What a trace says about the file that has a name.
    pub(crate) fn initial(&self) -> Initial {
        match self.kind {
            FileKind::Directory => Initial::Directory,
            _ => Initial::Bytes(self.size),
        }
    }
}

impl Shared {
    /// The path of a name from the export's root. A relative one starts at the URL's path.
    fn rooted(&self, path: &Path) -> Vec<u8> {
        let path = path.as_os_str().as_bytes();
        match path.starts_with(b"/") {
            true => path.to_vec(),
            false => [&self.url.path, path].join(&b'/'),
        }
    }

    /// Makes a call, and records an operation on a name. `initial` says what had the name before, if the call succeeds.
    pub(crate) fn recorded<T>(
        &self,
        path: &Path,
        of: impl FnOnce(u32) -> Operation,
        before: impl FnOnce(&T) -> Initial,
        call: impl FnOnce() -> Result<T, PathError>,
    ) -> Result<T, PathError> {
        let Some(recorder) = &self.options.record else {
            return call();
        };
        let began = clock::now();
        let result = call();
        recorder.note(began, result.is_err(), 1, |names| {
            let initial = result.as_ref().map_or(Initial::Absent, before);
            Some([of(names.number(&self.rooted(path), initial)?)])
        });
        result
    }

    /// The same for an operation on two names. The first is a file's.
    pub(crate) fn recorded_pair<T>(
        &self,
        (from, to): (&Path, &Path),
        of: fn(u32, u32) -> Operation,
        call: impl FnOnce() -> Result<T, PathError>,
    ) -> Result<T, PathError> {
        let Some(recorder) = &self.options.record else {
            return call();
        };
        let began = clock::now();
        let result = call();
        recorder.note(began, result.is_err(), 1, |names| {
            let initial = match result {
                Ok(_) => Initial::Bytes(0),
                Err(_) => Initial::Absent,
            };
            let from = names.number(&self.rooted(from), initial)?;
            let to = names.number(&self.rooted(to), Initial::Absent)?;
            Some([of(from, to)])
        });
        result
    }
}

impl OpenFile {
    fn recorder(&self) -> Option<&Recorder> {
        self.shared().options.record.as_ref()
    }

    /// The present time, if reads are recorded.
    pub(crate) fn records_from(&self) -> Option<Nanos> {
        self.recorder().map(|_| clock::now())
    }

    fn note<O: IntoIterator<Item = Operation>>(
        &self,
        began: Nanos,
        failed: bool,
        count: u64,
        of: impl FnOnce(u32) -> O,
    ) {
        let Some(recorder) = self.recorder() else {
            return;
        };
        recorder.note(began, failed, count, |names| {
            let path = self.shared().rooted(Path::new(self.path()));
            let size = self.state().attributes().map_or(0, |known| known.size);
            Some(of(names.number(&path, Initial::Bytes(size))?))
        });
    }

    /// Records the reads of a call.
    pub(crate) fn note_reads(
        &self,
        began: Nanos,
        failed: bool,
        reads: impl ExactSizeIterator<Item = RecordedRead>,
    ) {
        let count = reads.len() as u64;
        self.note(began, failed, count, |file| {
            reads.enumerate().map(move |(number, read)| {
                let length = length_of(read.bytes);
                Operation::Read {
                    file,
                    offset: read.offset,
                    length,
                    got: length_of(read.got).min(length),
                    together: number > 0,
                }
            })
        });
    }

    /// Records one read, if it has ended.
    pub(crate) fn note_read(
        &self,
        began: Nanos,
        (offset, bytes): (u64, usize),
        got: Result<usize, ()>,
    ) {
        let read = RecordedRead {
            offset,
            bytes,
            got: got.unwrap_or(0),
        };
        self.note_reads(began, got.is_err(), std::iter::once(read));
    }

    /// Makes a call, and records a batch of reads.
    pub(crate) fn recorded_reads<R>(
        &self,
        requests: &mut [R],
        call: impl FnOnce(&mut [R]) -> Result<(), ReadError>,
        asked: impl Fn(&R) -> RecordedRead,
    ) -> Result<(), ReadError> {
        let Some(began) = self.records_from() else {
            return call(requests);
        };
        let result = call(requests);
        self.note_reads(began, result.is_err(), requests.iter().map(asked));
        result
    }

    /// Makes a call, and records a change of the file.
    pub(crate) fn recorded_change(
        &self,
        of: impl FnOnce(u32) -> Operation,
        call: impl FnOnce() -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let Some(began) = self.records_from() else {
            return call();
        };
        let result = call();
        self.note(began, result.is_err(), 1, |file| [of(file)]);
        result
    }
}
