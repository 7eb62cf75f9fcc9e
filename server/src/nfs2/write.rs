//! WRITE (RFC 1094, section 2.2.9). The data is on stable storage before the reply: there is no COMMIT.

use odafs_common::wire::nfs2::{Attributes, Status, WriteArgs};
use odafs_fabric::memory::Gather;

use super::convert::SIZE_MAX;
use super::{Context, Done};
use crate::vfs::write::{Stable, write as write_pages};

pub(super) fn write(context: &Context<'_>, arguments: WriteArgs<'_>) -> Done<Attributes> {
    context.may_block()?;
    let data = context.payload(arguments.data);
    let file = context.file(arguments.file)?;
    let offset = u64::from(arguments.offset);
    let end = offset + data.len() as u64;
    if end.max(file.attributes().size) > SIZE_MAX {
        return Err(Status::FBig.into());
    }
    // The reply has no count, so the call writes all of the data or fails.
    let mut done = 0;
    loop {
        let mut rest = Gather::new();
        rest.push_part(&data, done, data.len() - done);
        let written = write_pages(
            context.export,
            &context.who,
            &file,
            offset + done as u64,
            rest,
            Stable::FileSync,
        )
        .map_err(|refused| refused.error)?;
        done += written.count as usize;
        if done >= data.len() {
            return context.attributes_after(written.around.after, file.object());
        }
        if written.count == 0 {
            return Err(Status::Io.into());
        }
    }
}
