//! SETATTR (RFC 1094, section 2.2.3).

use odafs_common::wire::nfs2::{Attributes, SetAttributesArgs};

use super::{Context, Done, convert};
use crate::vfs::attributes;

pub(super) fn setattr(context: &Context<'_>, arguments: SetAttributesArgs<'_>) -> Done<Attributes> {
    context.may_block()?;
    let object = context.object(arguments.file)?;
    let new = convert::set_attributes(&arguments.attributes)?;
    let around = attributes::set(context.export, &context.who, object, &new, None)
        .map_err(|refused| refused.error)?;
    context.attributes_after(around.after, object)
}
