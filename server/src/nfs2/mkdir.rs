//! MKDIR (RFC 1094, section 2.2.15).

use odafs_common::wire::nfs2::{CreateArgs, SetAttributes};

use super::object::Object;
use super::{Context, Done, convert};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn mkdir(context: &Context<'_>, arguments: CreateArgs<'_>) -> Done<Object> {
    context.may_block()?;
    let directory = context.object(arguments.place.directory)?;
    let new = convert::set_attributes(&SetAttributes {
        size: None,
        ..arguments.attributes
    })?;
    let _change = Change::begin(context.export, directory);
    let name = arguments.place.name;
    let made = namespace::mkdir(context.export, &context.who, directory, name, &new)?;
    Ok(Object::new(context, made))
}
