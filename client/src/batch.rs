//! Batches over several files.

use crate::{
    client::Client, error::ReadError, file::File, open_file::OpenFile, read, record::RecordedRead,
    request::BatchRead,
};
use odafs_fabric::sync::Arc;

/// One read of a batch over several files.
#[derive(Debug)]
pub struct FileRequest<'a> {
    /// The file.
    pub file: &'a File,
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Memory for the bytes; its length is how many are asked for.
    pub buf: &'a mut [u8],
    /// Length read in bytes; [`Client::read_batch`] sets it.
    pub bytes: usize,
}

impl<'a> FileRequest<'a> {
    /// A read of `buf.len()` bytes from `offset` of `file` on.
    pub fn new(file: &'a File, offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            file,
            offset,
            buf,
            bytes: 0,
        }
    }
}

impl<'f> BatchRead<'f> for FileRequest<'f> {
    fn file(&self) -> Option<&'f OpenFile> {
        Some(self.file.inner())
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn length(&self) -> usize {
        self.buf.len()
    }

    fn buf(&mut self) -> &mut [u8] {
        self.buf
    }

    fn set_bytes(&mut self, bytes: usize) {
        self.bytes = bytes;
    }
}

impl Client {
    /// Makes many reads of any of this client's files, all in flight together. All direct reads go over one connection, and all
    /// calls over another, one behind the other. Afterwards `bytes` of each request says how many bytes it got. Once the client
    /// has references to the pages and takes them from shared memory, this allocates nothing.
    ///
    /// Requests of one file should follow one another. The client chooses a route for each such row of requests.
    ///
    /// # Errors
    /// The error of the first read that failed; it names the file. The other reads may or may not have been served.
    ///
    /// # Panics
    /// If a file is [not of this client](Self::has_opened).
    pub fn read_batch(&self, requests: &mut [FileRequest<'_>]) -> Result<(), ReadError> {
        let ours = |request: &FileRequest<'_>| self.has_opened(request.file);
        assert!(requests.iter().all(ours), "a file of another client");
        let Some(first) = requests.first() else {
            return Ok(());
        };
        let file = first.file.inner();
        let Some(began) = file.records_from() else {
            return read::read_files(file, requests);
        };
        let result = read::read_files(file, requests);
        for row in requests.chunk_by(|one, next| one.file.path() == next.file.path()) {
            let reads = row.iter().map(|request| RecordedRead {
                offset: request.offset,
                bytes: request.buf.len(),
                got: request.bytes,
            });
            let of = row[0].file.inner();
            of.note_reads(began, result.is_err(), reads);
        }
        result
    }

    /// Whether a file was opened by this client or a clone of it.
    pub fn has_opened(&self, file: &File) -> bool {
        Arc::ptr_eq(self.shared(), file.client().shared())
    }
}
