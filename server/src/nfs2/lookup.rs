//! LOOKUP (RFC 1094, section 2.2.5).

use odafs_common::wire::nfs2::DirectoryName;

use super::object::Object;
use super::{Context, Done, Failed};
use crate::vfs::namespace;
use crate::vfs::read::Effort;

pub(super) fn lookup(context: &Context<'_>, arguments: DirectoryName<'_>) -> Done<Object> {
    let directory = context.object(arguments.directory)?;
    let (export, who) = (context.export, &context.who);
    let found = match context.effort {
        Effort::ResidentOnly => namespace::lookup_at_hand(export, who, directory, arguments.name)
            .ok_or(Failed::Later)?,
        Effort::MayBlock => namespace::lookup(export, who, directory, arguments.name),
    };
    let found = found?;
    namespace::check_found(export, directory, found.0, &|tag| context.rights.check(tag))?;
    Ok(Object::new(context, found))
}
