//! The bytes of files from a server.

use std::io::Write;

use anyhow::Result;
use odafs::{Buffer, File};

/// Bytes of one read.
const READ_BYTES: usize = 4 << 20;

/// Writes all of `file` to `out`; `told` hears how much that is by now. Without a route to keep to, the server writes into
/// memory of ours where RDMA lets it.
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
