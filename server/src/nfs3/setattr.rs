//! SETATTR (RFC 1813, section 3.3.2).

use odafs_common::wire::nfs3::{Failed, SetAttributesArgs, SetAttributesResult, WccData};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::attributes;

pub(super) fn setattr(
    context: &Context<'_>,
    arguments: SetAttributesArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    set(context, &arguments).encode(w);
    Ok(())
}

fn set(context: &Context<'_>, arguments: &SetAttributesArgs<'_>) -> SetAttributesResult {
    let object = context.object(arguments.file).map_err(|status| Failed {
        status,
        rest: WccData::default(),
    })?;
    let (new, guard) = (arguments.attributes.into(), arguments.guard.map(Into::into));
    attributes::set(context.export, &context.who, object, &new, guard)
        .map(WccData::from)
        .map_err(|refused| Failed {
            status: refused.error.into(),
            rest: refused.around.into(),
        })
}
