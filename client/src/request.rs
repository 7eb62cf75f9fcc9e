//! Reads of a batch.

use crate::open_file::OpenFile;
use std::ops::Range;

/// A read of a batch, of the batch's one file or of a file of its own.
pub trait BatchRead<'f> {
    /// The file, if the batch is of several.
    fn file(&self) -> Option<&'f OpenFile>;

    /// First byte, as an offset in the file.
    fn offset(&self) -> u64;

    /// Length asked for in bytes.
    fn length(&self) -> usize;

    /// Memory for the bytes.
    fn buf(&mut self) -> &mut [u8];

    /// Stores the length read in bytes.
    fn set_bytes(&mut self, bytes: usize);
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Memory for the bytes; its length is how many are asked for.
    pub buf: &'a mut [u8],
    /// Length read in bytes; [`File::read_batch`](crate::File::read_batch) sets it.
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

impl<'f> BatchRead<'f> for ReadRequest<'_> {
    fn file(&self) -> Option<&'f OpenFile> {
        None
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

/// One read into registered memory.
#[derive(Debug, Clone)]
pub struct IntoRequest {
    /// Range of the buffer for the bytes; its length is how many are asked for.
    pub range: Range<usize>,
    /// First byte, as an offset in the file.
    pub offset: u64,
    /// Length read in bytes; [`File::read_batch_into`](crate::File::read_batch_into) sets it.
    pub bytes: usize,
}

impl IntoRequest {
    /// A read of as many bytes as `range` has, from `offset` on.
    pub fn new(range: Range<usize>, offset: u64) -> Self {
        Self {
            range,
            offset,
            bytes: 0,
        }
    }
}
