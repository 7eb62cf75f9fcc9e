//! GETATTR (RFC 1094, section 2.2.2).

use odafs_common::wire::nfs2::{Attributes, FileHandle};

use super::{Context, Done};

pub(super) fn getattr(context: &Context<'_>, file: FileHandle<'_>) -> Done<Attributes> {
    context.attributes(context.object(file)?)
}
