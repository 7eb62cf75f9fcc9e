//! FSSTAT (RFC 1813, section 3.3.18).

use odafs_common::wire::nfs3::{FileHandle, FsStatOk};
use odafs_common::wire::xdr::Writer;

use super::{Context, Tried};
use crate::vfs::attributes::space;

pub(super) fn fsstat(context: &Context<'_>, root: FileHandle<'_>, w: &mut Writer<'_>) -> Tried {
    context.about_file_system(root, w, space, |space, attributes| FsStatOk {
        attributes,
        total_bytes: space.total_bytes,
        free_bytes: space.free_bytes,
        available_bytes: space.available_bytes,
        total_files: space.total_files,
        free_files: space.free_files,
        available_files: space.available_files,
        invariant_seconds: 0,
    })
}
