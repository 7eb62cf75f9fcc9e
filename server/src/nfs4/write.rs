//! WRITE (RFC 7530, section 16.36; RFC 8881, section 18.32). The thread that received the call makes a small write itself where
//! that waits for nothing.

use odafs_common::wire::nfs4::{WriteArgs, WriteOk};
use odafs_fabric::memory::Gather;

use super::compound::{Compound, Done, Stop};
use super::state::Io;
use super::{DATA_BYTES_MAX, convert};
use crate::vfs::read::Effort;
use crate::vfs::write::{write as write_pages, write_at_hand};

pub(super) fn write(c: &Compound<'_>, arguments: &WriteArgs<'_>) -> Done<WriteOk> {
    let file = c.file_for(arguments.state, Io::Write)?;
    let mut data: Gather<'_> = c.payload(arguments.data.0);
    data.truncate(DATA_BYTES_MAX as usize);
    let (offset, stable) = (arguments.offset, convert::wanted(arguments.stable));
    let written = match c.effort {
        Effort::MayBlock => write_pages(c.export, &c.who, &file, offset, data, stable),
        Effort::ResidentOnly => {
            let written = write_at_hand(c.export, &c.who, &file, offset, &data, stable);
            written.ok_or(Stop::Blocks)?
        }
    }?;
    Ok(WriteOk {
        count: written.count,
        committed: convert::committed(written.committed),
        verifier: written.verifier,
    })
}
