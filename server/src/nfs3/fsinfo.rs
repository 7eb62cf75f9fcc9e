//! FSINFO (RFC 1813, section 3.3.19).

use odafs_common::wire::nfs3::{Attributes, FileHandle, FsInfoOk, Time, properties};
use odafs_common::wire::xdr::Writer;

use super::{Context, DATA_BYTES_MAX, Tried};
use crate::vfs::FileSystemLimits;
use crate::vfs::attributes::limits;

/// The preferred size of a READDIR request, in bytes.
const DIRECTORY_BYTES: u32 = 64 << 10;

pub(super) fn fsinfo(context: &Context<'_>, root: FileHandle<'_>, w: &mut Writer<'_>) -> Tried {
    context.about_file_system(root, w, limits, |limits, attributes| {
        info(context, attributes, &limits)
    })
}

fn info(
    context: &Context<'_>,
    attributes: Option<Attributes>,
    limits: &FileSystemLimits,
) -> FsInfoOk {
    let page = context.export.page().bytes() as u32;
    let seconds = limits.time_delta_ns / 1_000_000_000;
    FsInfoOk {
        attributes,
        read_max: DATA_BYTES_MAX,
        read_preferred: DATA_BYTES_MAX,
        read_multiple: page,
        write_max: DATA_BYTES_MAX,
        write_preferred: DATA_BYTES_MAX,
        write_multiple: page,
        directory_preferred: DIRECTORY_BYTES,
        file_max: limits.size_max,
        time_delta: Time {
            seconds,
            nanoseconds: limits.time_delta_ns % 1_000_000_000,
        },
        properties: properties::LINK
            | properties::SYMLINK
            | properties::HOMOGENEOUS
            | properties::CAN_SET_TIME,
    }
}
