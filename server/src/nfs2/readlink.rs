//! READLINK (RFC 1094, section 2.2.6).

use odafs_common::wire::nfs2::{FileHandle, MAX_PATH, Payload, Status};
use odafs_common::wire::xdr::{Encode, Writer};

use super::{Context, Done};
use crate::vfs::namespace;

/// The target of a symbolic link.
pub(super) struct Target(Vec<u8>);

impl Encode for Target {
    fn encode(&self, w: &mut Writer<'_>) {
        Payload(&self.0).encode(w);
    }
}

pub(super) fn readlink(context: &Context<'_>, link: FileHandle<'_>) -> Done<Target> {
    context.may_block()?;
    let target = namespace::readlink(context.export, context.object(link)?)?;
    match target.len() > MAX_PATH as usize {
        true => Err(Status::NameTooLong.into()),
        false => Ok(Target(target)),
    }
}
