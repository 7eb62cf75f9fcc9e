//! Writing: all the branching of a write, and of what else changes a file's bytes or rights, top to bottom.

use std::sync::Arc;

use odafs_common::wire::nfs3::{Attributes, SetAttributes, Stable, Time, WccData};

use crate::export::Export;
use crate::file::File;
use crate::store::{Credential, ObjectId, StoreError};

/// A change that was refused, and the attributes around it as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Why.
    pub error: StoreError,
    /// The file before and after.
    pub wcc: WccData,
}

/// What became of a write.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Bytes written: at least one, fewer than given if space ran out.
    pub count: u32,
    /// How far they got; never less than asked for.
    pub committed: Stable,
    /// Write verifier: another one whenever unstable data may have been lost.
    pub verifier: [u8; 8],
    /// The file before and after.
    pub wcc: WccData,
}

/// Writes `data` at `offset`. May block.
pub fn write(
    _export: &Export,
    _who: &Credential,
    _file: &Arc<File>,
    _offset: u64,
    _data: &[u8],
    _stable: Stable,
) -> Result<Written, Refused> {
    todo!()
}

/// COMMIT: all that was written is on stable storage when it returns; the write verifier. May block.
pub fn commit(_export: &Export, _file: &Arc<File>) -> Result<([u8; 8], WccData), Refused> {
    todo!()
}

/// SETATTR of any object. With `guard`, only if the object's ctime is still that (else NOTSYNC). May block.
pub fn set_attributes(
    _export: &Export,
    _who: &Credential,
    _object: ObjectId,
    _new: &SetAttributes,
    _guard: Option<Time>,
) -> Result<WccData, Refused> {
    todo!()
}

/// Attributes as of now; an outside change that they show is taken note of. May block.
pub fn attributes(_export: &Export, _object: ObjectId) -> Result<Attributes, StoreError> {
    todo!()
}
