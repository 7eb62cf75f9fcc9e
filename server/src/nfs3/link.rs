//! LINK (RFC 1813, section 3.3.15).

use odafs_common::wire::nfs3::{Failed, LinkArgs, LinkData, LinkResult};
use odafs_common::wire::xdr::{Encode as _, Writer};

use super::{Context, Tried};
use crate::vfs::around::Change;
use crate::vfs::namespace;

pub(super) fn link(context: &Context<'_>, arguments: LinkArgs<'_>, w: &mut Writer<'_>) -> Tried {
    context.may_block()?;
    add_name(context, &arguments).encode(w);
    Ok(())
}

fn add_name(context: &Context<'_>, arguments: &LinkArgs<'_>) -> LinkResult {
    let refuse = |status| Failed {
        status,
        rest: LinkData::default(),
    };
    let file = context.object(arguments.file).map_err(refuse)?;
    let directory = context.object(arguments.place.directory).map_err(refuse)?;
    let change = Change::begin(context.export, directory);
    let linked = namespace::link(
        context.export,
        &context.who,
        file,
        directory,
        arguments.place.name,
    );
    let directory = change.end().into();
    match linked {
        Ok(attributes) => Ok(LinkData {
            attributes: Some(attributes.into()),
            directory,
        }),
        Err(error) => Err(Failed {
            status: error.into(),
            rest: LinkData {
                attributes: context.attributes(file),
                directory,
            },
        }),
    }
}
