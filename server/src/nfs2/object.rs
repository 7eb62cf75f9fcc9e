//! What LOOKUP, CREATE and MKDIR answer: a handle and attributes.

use odafs_common::wire::nfs2::{Attributes, FileHandle, ObjectOk};
use odafs_common::wire::xdr::{Encode, Writer};

use super::Context;
use crate::vfs::{self, ObjectId, ShortHandle};

/// An object as its client gets to know it.
pub(super) struct Object {
    handle: ShortHandle,
    attributes: Attributes,
}

impl Object {
    pub fn new(context: &Context<'_>, (object, attributes): (ObjectId, vfs::Attributes)) -> Self {
        Self {
            handle: context.export.short_handle(object),
            attributes: attributes.into(),
        }
    }
}

impl Encode for Object {
    fn encode(&self, w: &mut Writer<'_>) {
        ObjectOk {
            file: FileHandle(&self.handle),
            attributes: self.attributes,
        }
        .encode(w);
    }
}
