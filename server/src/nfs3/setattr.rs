//! SETATTR (RFC 1813, section 3.3.2).

use odafs_common::wire::nfs3::{Failed, SetAttributesArgs, SetAttributesResult, WccData};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::wcc::Change;
use super::{Context, Step};
use crate::write::set_attributes;

pub(super) fn setattr(
    context: &Context<'_>,
    arguments: SetAttributesArgs<'_>,
    w: &mut Writer<'_>,
) -> Step {
    context.may_block()?;
    set(context, &arguments).encode(w);
    Ok(())
}

fn set(context: &Context<'_>, arguments: &SetAttributesArgs<'_>) -> SetAttributesResult {
    let object = context.object(arguments.file).map_err(|status| Failed {
        status,
        rest: WccData::default(),
    })?;
    // Names may come to a directory, and go, meanwhile.
    let change = Change::begin(context, object);
    let set = set_attributes(
        context.export,
        &context.who,
        object,
        &arguments.attributes,
        arguments.guard,
    );
    let alone = change.is_alone();
    let told = |wcc: WccData| WccData {
        before: wcc.before.filter(|_| alone),
        ..wcc
    };
    set.map(told).map_err(|refused| Failed {
        status: refused.error.status,
        rest: told(refused.wcc),
    })
}
