//! MKNOD (RFC 1813, section 3.3.11).

use odafs_common::wire::nfs3::{MakeNode, MakeNodeArgs, SetAttributes};
use odafs_common::wire::xdr::Writer;

use super::{Context, Tried, made};
use crate::vfs::namespace;
use crate::vfs::{Special, Status};

pub(super) fn mknod(
    context: &Context<'_>,
    arguments: MakeNodeArgs<'_>,
    w: &mut Writer<'_>,
) -> Tried {
    context.may_block()?;
    made::reply(context, &arguments.place, w, |directory, name| {
        let (what, new) = special(arguments.what)?;
        namespace::mknod(
            context.export,
            &context.who,
            directory,
            name,
            what,
            &new.into(),
        )
    });
    Ok(())
}

fn special(what: MakeNode) -> Result<(Special, SetAttributes), Status> {
    Ok(match what {
        MakeNode::Fifo(attributes) => (Special::Fifo, attributes),
        MakeNode::Socket(attributes) => (Special::Socket, attributes),
        MakeNode::Character(attributes, device) => (
            Special::CharacterDevice {
                major: device.major,
                minor: device.minor,
            },
            attributes,
        ),
        MakeNode::Block(attributes, device) => (
            Special::BlockDevice {
                major: device.major,
                minor: device.minor,
            },
            attributes,
        ),
        MakeNode::Other(_) => return Err(Status::BadType),
    })
}
