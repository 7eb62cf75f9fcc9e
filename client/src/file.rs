//! An open file.

use crate::{
    buffer::Buffer,
    client::Client,
    counter,
    delegation::Asking,
    directory,
    error::{PathError, ReadError, WriteError},
    metadata::Metadata,
    nfs::{
        NfsError, references,
        write::{self, Stability},
    },
    open_file::OpenFile,
    read,
    record::{Operation, length_of},
    request::{IntoRequest, ReadRequest},
    route::{RouteOrder, SizeClass},
    shared::Shared,
    state::{FileState, Moment},
    trace::ReadTrace,
    types::Attributes,
};
use std::{ops::Range, path::Path};

/// The most pages whose references are asked for at once: 256 MiB.
const WILL_NEED_PAGES: u64 = 65_536;

/// An open file. It is cheap to clone. Many threads may read and write at once.
///
/// A read or write that exceeds the deadline is an error. No data reach the caller's buffer after it returns.
#[derive(Clone)]
pub struct File {
    client: Client,
    inner: OpenFile,
}

impl File {
    /// `inner` is a file of `client`.
    pub(crate) fn new(client: Client, inner: OpenFile) -> Self {
        Self { client, inner }
    }

    fn shared(&self) -> &Shared {
        self.inner.shared()
    }

    pub(crate) fn state(&self) -> &FileState {
        self.inner.state()
    }

    /// The file as reads and writes see it.
    pub(crate) fn inner(&self) -> &OpenFile {
        &self.inner
    }

    /// The path with which the file was opened, as the caller gave it.
    pub fn path(&self) -> &str {
        self.inner.path()
    }

    /// The client that opened the file.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The attributes of the file, fetched now (GETATTR).
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn metadata(&self) -> Result<Metadata, PathError> {
        let of = |file| Operation::Stat { file };
        let path = Path::new(self.path());
        self.shared()
            .recorded(path, of, Metadata::initial, || self.fetch_metadata())
    }

    fn fetch_metadata(&self) -> Result<Metadata, PathError> {
        match self.shared().nfs().attributes(&self.state().handle) {
            Ok(attributes) => {
                self.state().revalidate(&attributes);
                Ok(attributes.into())
            }
            Err(error) => Err(error.at("stat", self.path())),
        }
    }

    /// Checks what the client caches of the file against the server, as opening it does. It reads the file's change
    /// counter directly (one-sided or guarded) where it can, else it calls GETATTR. Under a delegation
    /// ([`Cache::Delegated`](crate::Cache::Delegated)) there is nothing to check. Returns true if all of it still held.
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn revalidate(&self) -> Result<bool, PathError> {
        let before = self.state().moment();
        if self
            .shared()
            .is_delegated(self.state(), &mut Asking::default())
        {
            return Ok(self.state().still(before));
        }
        if let Some(same) = counter::unchanged(self.shared(), self.state()) {
            return Ok(same);
        }
        let before = self.state().moment();
        self.metadata()?;
        Ok(self.state().still(before))
    }

    /// The attributes of the file, fetched now (GETATTR), with what [`is_still`](Self::is_still) needs to tell later
    /// whether the file is still this version.
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn snapshot(&self) -> Result<Snapshot, PathError> {
        match self.shared().nfs().attributes(&self.state().handle) {
            Ok(attributes) => Ok(Snapshot {
                moment: self.state().revalidate(&attributes),
                attributes,
            }),
            Err(error) => Err(error.at("stat", self.path())),
        }
    }

    /// As [`snapshot`](Self::snapshot), without a call: the server has just told these attributes of this file.
    pub fn snapshot_of(&self, attributes: &Attributes) -> Snapshot {
        Snapshot {
            moment: self.state().revalidate(attributes),
            attributes: *attributes,
        }
    }

    /// Whether others than this client have changed the file since the snapshot, as far as the client can tell: it is
    /// true, too, where it cannot. It costs what [`revalidate`](Self::revalidate) costs.
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn changed_by_others(&self, snapshot: &Snapshot) -> Result<bool, PathError> {
        let changed = || self.state().generation() != snapshot.moment.generation;
        if !changed() {
            self.revalidate()?;
        }
        Ok(changed())
    }

    /// Whether the file is still the version of the snapshot. If so, all that this client has read of it since is of
    /// that one version. It costs what [`revalidate`](Self::revalidate) costs. It is false, too, where the client
    /// cannot tell; after another [`snapshot`](Self::snapshot) it can again.
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn is_still(&self, snapshot: &Snapshot) -> Result<bool, PathError> {
        Ok(self.state().still(snapshot.moment)
            && self.revalidate()?
            && self.state().still(snapshot.moment))
    }

    /// As [`is_still`](Self::is_still), without waiting: it answers under a delegation, and where the change counter lies in
    /// shared memory.
    /// `None` if it would have to wait.
    pub fn try_is_still(&self, snapshot: &Snapshot) -> Option<bool> {
        if !self.state().still(snapshot.moment) {
            return Some(false);
        }
        let same = match self.shared().is_delegated_at_once(self.state()) {
            Some(true) => true,
            _ => counter::unchanged_at_once(self.shared(), self.state())?,
        };
        Some(same && self.state().still(snapshot.moment))
    }

    /// Reads into `buf` from `offset` on, in bytes, and returns how many bytes it read: fewer than `buf` has only at
    /// the end of the file.
    ///
    /// # Errors
    /// The server refused the read, or the call failed.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, ReadError> {
        read::read_at(&self.inner, buf, offset)
    }

    /// Reads into a range of registered memory from `offset` on, in bytes, and returns how many bytes it read: fewer
    /// than the range has only at the end of the file.
    ///
    /// Over RDMA (`odafs://`), the server writes reads of 64 KiB or more into this memory, and the client does not
    /// copy them. Such data come from the server even if they were read before. All else is as
    /// [`read_at`](Self::read_at).
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    ///
    /// # Panics
    /// If the range is beyond the buffer.
    pub fn read_into(
        &self,
        buffer: &mut Buffer,
        range: Range<usize>,
        offset: u64,
    ) -> Result<usize, ReadError> {
        let mut request = [IntoRequest::new(range, offset)];
        self.read_batch_into(buffer, &mut request)?;
        Ok(request[0].bytes)
    }

    /// Makes many reads into registered memory, as [`read_into`](Self::read_into) does: all long ones over RDMA in flight
    /// together, then all others, except those whose ranges overlap.
    ///
    /// # Errors
    /// The error of the first read that failed. The other reads may or may not have been served.
    ///
    /// # Panics
    /// If a range is beyond the buffer.
    pub fn read_batch_into(
        &self,
        buffer: &mut Buffer,
        requests: &mut [IntoRequest],
    ) -> Result<(), ReadError> {
        let within = |r: &Range<usize>| r.start <= r.end && r.end <= buffer.capacity();
        assert!(
            requests.iter().all(|r| within(&r.range)),
            "beyond the buffer"
        );
        read::read_into(&self.inner, buffer, requests)
    }

    /// Fills `buf` from `offset` on, in bytes.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and if the file ends before `buf` is full.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), ReadError> {
        let bytes = self.read_at(buf, offset)?;
        if bytes == buf.len() {
            return Ok(());
        }
        Err(ReadError::EndOfFile {
            path: self.path().to_owned(),
            offset,
            bytes,
            wanted: buf.len(),
        })
    }

    /// Makes many reads, all in flight together. Afterwards `bytes` of each request says how many bytes it got.
    /// [`Client::read_batch`] does this for several files.
    ///
    /// # Errors
    /// The error of the first read that failed. The other reads may or may not have been served.
    pub fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), ReadError> {
        read::read_many(&self.inner, requests, None)
    }

    /// Reads as [`read_at`](Self::read_at) does, and tells which route each part took and why.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_traced(&self, buf: &mut [u8], offset: u64) -> Result<ReadTrace, ReadError> {
        let mut steps = Vec::new();
        let mut request = [ReadRequest::new(offset, buf)];
        read::read_many(&self.inner, &mut request, Some(&mut steps))?;
        Ok(ReadTrace {
            bytes: request[0].bytes,
            steps,
        })
    }

    /// Reads only what needs no waiting: within one page, from the data cache, or one-sided from shared memory.
    /// `None` if it would have to wait.
    pub fn try_read_at(&self, buf: &mut [u8], offset: u64) -> Option<usize> {
        read::at_once(&self.inner, buf, offset)
    }

    /// Reads the whole file. If others change it meanwhile, the result may mix versions.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_to_end(&self) -> Result<Vec<u8>, ReadError> {
        const STEP: u64 = 1 << 20;
        // This is only what the server says, so do not allocate memory for bytes that have not come.
        let size = self.state().attributes().map_or(0, |known| known.size);
        let mut all = Vec::new();
        loop {
            let start = all.len();
            let left = size.saturating_add(1).saturating_sub(start as u64);
            all.resize(start + left.clamp(4096, STEP) as usize, 0);
            let bytes = self.read_at(&mut all[start..], start as u64)?;
            let full = start + bytes == all.len();
            all.truncate(start + bytes);
            if !full {
                return Ok(all);
            }
        }
    }

    /// Writes all of `data` at `offset`, in bytes. The write is unstable: a crash of the server may lose it until
    /// [`sync`](Self::sync).
    ///
    /// The client keeps such data, to send them again after a crash. Beyond 32 MiB of one file or 64 MiB of all
    /// files, a write first waits until the server has committed earlier ones.
    ///
    /// # Errors
    /// The server refused the write, or the call failed. A write whose call failed, or that met an I/O error at the
    /// server, may have taken effect, or take effect later: [`sync`](Self::sync) may send it again, together with
    /// earlier writes that the server lost.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), WriteError> {
        self.write(data, offset, Stability::Unstable)
    }

    /// Writes all of `data` at `offset`, in bytes. When this returns, the data are on the server's stable storage.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_stable_at(&self, data: &[u8], offset: u64) -> Result<(), WriteError> {
        self.write(data, offset, Stability::Stable)
    }

    fn write(&self, data: &[u8], offset: u64, stable: Stability) -> Result<(), WriteError> {
        let length = length_of(data.len());
        let of = |file| Operation::Write {
            file,
            offset,
            length,
        };
        self.inner
            .recorded_change(of, || write::write(&self.inner, data, offset, stable))
    }

    /// Brings all that was written to this file through this client to stable storage, and sends again what a restart
    /// of the server lost. It promises nothing about a write that failed, even if others have seen its data: repeat
    /// that write.
    ///
    /// # Errors
    /// The server refused the commit, the call failed, or lost data could not be sent again.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.inner
            .recorded_change(|file| Operation::Sync { file }, || write::sync(&self.inner))
    }

    /// Drops what the client keeps of unsynced writes to this file, which it would send again after a crash of the server.
    /// For a file that is removed for good: no [`sync`](Self::sync) ever drops that of a file that is gone.
    pub fn forget_unsynced(&self) {
        write::forget_unsynced(&self.inner);
    }

    /// Says that the program will soon read these ranges, in bytes. The client asks for the references of those of
    /// their pages that are in the server's memory, with one call for many ranges, and returns how many came. It asks
    /// for nothing where this file's reads go by RPC, and it reads no data. It leaves out what is beyond 65,536
    /// pages, or beyond what half of the directory has room for.
    ///
    /// # Errors
    /// The call failed. Later reads do not depend on it.
    pub fn will_need(&self, ranges: &[Range<u64>]) -> Result<u64, ReadError> {
        let shared = self.shared();
        let size = shared.page(shared.session().as_deref());
        let direct = |order: Option<RouteOrder>| order.is_none_or(|order| order.choice.is_direct());
        let class = SizeClass::of(size.bytes());
        if shared.session().is_none() || !direct(self.state().orders.get(class)) {
            return Ok(0);
        }
        let (mut left, mut room) = (WILL_NEED_PAGES, shared.directory.room() / 2);
        let mut wanted = Vec::new();
        for range in ranges.iter().filter(|range| range.start < range.end) {
            let first = size.index(range.start);
            let last = size.index(range.end - 1);
            let pages = first..(last + 1).min(first.saturating_add(left.min(room)));
            if pages.is_empty() {
                break;
            }
            left -= pages.end - pages.start;
            room = room.saturating_sub(directory::room_of(&pages));
            wanted.push(references::Wanted::pages(self.state(), &pages, size));
        }
        self.ask(&wanted)
    }

    /// Asks for the references of `length` bytes from `offset` on (an eager query), and returns how many the client
    /// learned.
    ///
    /// # Errors
    /// The server has no ODAFS program, or the call failed.
    pub fn learn(&self, offset: u64, length: u64) -> Result<u64, ReadError> {
        let range = references::Wanted {
            file: self.state(),
            offset,
            length,
        };
        self.ask(&[range])
    }

    fn ask(&self, ranges: &[references::Wanted<'_>]) -> Result<u64, ReadError> {
        let offset = ranges.first().map_or(0, |range| range.offset);
        let path = || self.path().to_owned();
        match references::query(self.shared(), ranges) {
            Ok(answers) => Ok(answers.iter().map(|answer| answer.learned).sum()),
            Err(NfsError::Status(status)) => Err(ReadError::Server {
                path: path(),
                offset,
                status,
            }),
            Err(NfsError::Call(source)) => Err(ReadError::Call {
                path: path(),
                offset,
                source,
            }),
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({})", self.path())
    }
}

/// A version of a file; see [`File::snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    attributes: Attributes,
    moment: Moment,
}

impl Snapshot {
    /// The attributes of this version.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}
