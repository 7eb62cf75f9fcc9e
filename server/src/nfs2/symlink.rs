//! SYMLINK (RFC 1094, section 2.2.14).

use odafs_common::wire::nfs2::{MAX_PATH, SetAttributes, Status, SymlinkArgs};

use super::{Context, Done, convert};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn symlink(context: &Context<'_>, arguments: SymlinkArgs<'_>) -> Done<()> {
    context.may_block()?;
    let target = context.payload(arguments.target);
    if target.len() > MAX_PATH as usize {
        return Err(Status::NameTooLong.into());
    }
    let directory = context.object(arguments.place.directory)?;
    let new = convert::set_attributes(&SetAttributes {
        size: None,
        ..arguments.attributes
    })?;
    let _change = Change::begin(context.export, directory);
    let (name, target) = (arguments.place.name, target.to_vec());
    namespace::symlink(context.export, &context.who, directory, name, &target, &new)?;
    Ok(())
}
