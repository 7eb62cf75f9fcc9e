//! Copies the bytes of a file from a server.

use std::io::Write;

use anyhow::Result;
use odafs::{Buffer, File};

/// Bytes of one read.
const READ_BYTES: usize = 4 << 20;

/// Writes all of `file` to `out`, and calls `told` with the number of bytes so far. Unless `keep_to_route` is set, the
/// server may write into this process's memory by RDMA.
pub fn copy(
    file: &File,
    keep_to_route: bool,
    out: &mut impl Write,
    mut told: impl FnMut(u64),
) -> Result<()> {
    let mut buffer = Buffer::new(READ_BYTES)?;
    let mut offset = 0;
    loop {
        let bytes = match keep_to_route {
            true => file.read_at(&mut buffer, offset)?,
            false => file.read_into(&mut buffer, 0..READ_BYTES, offset)?,
        };
        if bytes == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..bytes])?;
        offset += bytes as u64;
        told(offset);
    }
}
