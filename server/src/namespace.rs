//! Operations on names that reach the pages of files: thin functions that call the store and then revoke.
//! Those on directories alone (MKDIR, RMDIR, SYMLINK, MKNOD, READDIR …) go to the store directly. All may block.

use odafs_common::wire::nfs3::Attributes;

use crate::export::Export;
use crate::store::{CreateHow, Created, Credential, ObjectId, StoreError};

/// CREATE; an existing file is cut to the size asked for.
pub fn create(
    _export: &Export,
    _who: &Credential,
    _directory: ObjectId,
    _name: &[u8],
    _how: CreateHow<'_>,
) -> Result<Created, StoreError> {
    todo!()
}

/// REMOVE; if it was the last link, the file's references are worth nothing when this returns.
pub fn remove(
    _export: &Export,
    _who: &Credential,
    _directory: ObjectId,
    _name: &[u8],
) -> Result<(), StoreError> {
    todo!()
}

/// RENAME; a file whose last link was replaced is gone as after [`remove`].
pub fn rename(
    _export: &Export,
    _who: &Credential,
    _from: (ObjectId, &[u8]),
    _to: (ObjectId, &[u8]),
) -> Result<(), StoreError> {
    todo!()
}

/// LINK; the attributes of the object afterwards.
pub fn link(
    _export: &Export,
    _who: &Credential,
    _object: ObjectId,
    _directory: ObjectId,
    _name: &[u8],
) -> Result<Attributes, StoreError> {
    todo!()
}

/// LOOKUP; an outside change that the attributes show is taken note of.
pub fn lookup(
    _export: &Export,
    _who: &Credential,
    _directory: ObjectId,
    _name: &[u8],
) -> Result<(ObjectId, Attributes), StoreError> {
    todo!()
}
