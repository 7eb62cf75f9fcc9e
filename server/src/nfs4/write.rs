//! WRITE (RFC 7530, section 16.36; RFC 8881, section 18.32).

use odafs_common::wire::nfs4::{WriteArgs, WriteOk};

use super::compound::{Compound, Done};
use super::state::Io;
use super::{DATA_BYTES_MAX, convert};
use crate::vfs::write::write as write_pages;

pub(super) fn write(c: &mut Compound<'_>, arguments: &WriteArgs<'_>) -> Done<WriteOk> {
    c.may_block()?;
    let file = c.file_for(arguments.state, Io::Write)?;
    let mut data = c.payload(arguments.data.0);
    data.truncate(DATA_BYTES_MAX as usize);
    let stable = convert::wanted(arguments.stable);
    let written = write_pages(c.export, &c.who, &file, arguments.offset, data, stable)?;
    Ok(WriteOk {
        count: written.count,
        committed: convert::committed(written.committed),
        verifier: written.verifier,
    })
}
