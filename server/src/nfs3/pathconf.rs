//! PATHCONF (RFC 1813, section 3.3.20).

use odafs_common::wire::nfs3::{FileHandle, PathConfOk};
use odafs_common::wire::xdr::Writer;

use super::{Context, Tried};
use crate::vfs::attributes::limits;

pub(super) fn pathconf(context: &Context<'_>, object: FileHandle<'_>, w: &mut Writer<'_>) -> Tried {
    context.about_file_system(object, w, limits, |limits, attributes| PathConfOk {
        attributes,
        link_max: limits.link_max,
        name_max: limits.name_max,
        no_truncate: limits.no_trunc,
        chown_restricted: limits.chown_restricted,
        case_insensitive: limits.case_insensitive,
        case_preserving: limits.case_preserving,
    })
}
