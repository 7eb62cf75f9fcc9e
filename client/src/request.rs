//! Reads of a batch.

use std::ops::Range;

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
