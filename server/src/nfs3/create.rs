//! CREATE (RFC 1813, section 3.3.8).

use odafs_common::wire::nfs3::{CreateArgs, CreateHow as Wanted};
use odafs_common::wire::xdr::Writer;

use super::{Context, Tried, made};
use crate::vfs::namespace;
use crate::vfs::{CreateHow, SetAttributes};

pub(super) fn create(
    context: &Context<'_>,
    arguments: CreateArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    let new = match arguments.how {
        Wanted::Unchecked(new) | Wanted::Guarded(new) => new.into(),
        Wanted::Exclusive(_) => SetAttributes::default(),
    };
    let how = match &arguments.how {
        Wanted::Unchecked(_) => CreateHow::Unchecked(&new),
        Wanted::Guarded(_) => CreateHow::Guarded(&new),
        Wanted::Exclusive(verifier) => CreateHow::Exclusive(*verifier, &new),
    };
    made::reply(context, &arguments.place, w, |directory, name| {
        namespace::create(context.export, &context.who, directory, name, how)
            .map(|created| (created.object, created.attributes))
    });
    Ok(())
}
