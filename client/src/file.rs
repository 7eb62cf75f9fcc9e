//! An open file.

use crate::{
    client::Client,
    error::{PathError, ReadError, WriteError},
    metadata::Metadata,
    trace::Traced,
};

/// An open file. Cheap to clone; reads and writes of many threads go on side by side.
///
/// A read or write that meets the deadline is an error; it never leaves data to land in the caller's buffer later.
#[derive(Debug, Clone)]
pub struct File {
    client: Client,
}

impl File {
    /// The client that opened it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What is known about the file, fetched now.
    ///
    /// # Errors
    /// The file is gone, or the call failed.
    pub fn metadata(&self) -> Result<Metadata, PathError> {
        todo!()
    }

    /// Reads into `buf` from `offset` on; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// The server refused it, or the call failed.
    pub fn read_at(&self, _buf: &mut [u8], _offset: u64) -> Result<usize, ReadError> {
        todo!()
    }

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at), and when the file ends before.
    pub fn read_exact_at(&self, _buf: &mut [u8], _offset: u64) -> Result<(), ReadError> {
        todo!()
    }

    /// Many reads at once, all in flight together; each request then knows how many bytes it got.
    ///
    /// # Errors
    /// The first that failed; the others may or may not have been served.
    pub fn read_batch(&self, _requests: &mut [ReadRequest<'_>]) -> Result<(), ReadError> {
        todo!()
    }

    /// As [`read_at`](Self::read_at), and tells which route each part took and why.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_traced(&self, _buf: &mut [u8], _offset: u64) -> Result<Traced, ReadError> {
        todo!()
    }

    /// Reads only what needs no waiting: the data cache, or one-sided from shared memory. `None` when it would wait.
    pub fn try_read_at(&self, _buf: &mut [u8], _offset: u64) -> Option<usize> {
        todo!()
    }

    /// The whole file, as it is while it is read.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_to_end(&self) -> Result<Vec<u8>, ReadError> {
        todo!()
    }

    /// Writes all of `data` at `offset`, unstable: a crash of the server may lose it until [`sync`](Self::sync).
    ///
    /// # Errors
    /// The server refused it, or the call failed.
    pub fn write_at(&self, _data: &[u8], _offset: u64) -> Result<(), WriteError> {
        todo!()
    }

    /// Writes all of `data` at `offset`; it is on the server's stable storage when this returns.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_stable_at(&self, _data: &[u8], _offset: u64) -> Result<(), WriteError> {
        todo!()
    }

    /// Brings all that was written through this client to stable storage; what a restart of the server lost is sent
    /// again.
    ///
    /// # Errors
    /// The server refused it, the call failed, or lost data could not be sent again.
    pub fn sync(&self) -> Result<(), WriteError> {
        todo!()
    }

    /// Asks for the references of `length` bytes from `offset` on (an eager query); returns how many were learned.
    ///
    /// # Errors
    /// The server has no ODAFS program, or the call failed.
    pub fn learn(&self, _offset: u64, _length: u64) -> Result<u64, ReadError> {
        todo!()
    }
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// First byte, in the file.
    pub offset: u64,
    /// Where the bytes go.
    pub buf: &'a mut [u8],
    /// Bytes read; set by [`File::read_batch`].
    pub bytes: usize,
}

impl<'a> ReadRequest<'a> {
    /// A read of `buf.len()` bytes from `offset` on.
    pub fn new(offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            offset,
            buf,
            bytes: 0,
        }
    }
}
