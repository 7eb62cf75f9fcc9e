//! Reading: all the branching of a read is in this file, top to bottom; what it calls are leaves.

use std::sync::Arc;

use odafs_common::wire::nfs3::{Attributes, Status};

use crate::export::Export;
use crate::file::File;
use crate::store::Credential;

/// How far a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Only what is in memory and not locked: for threads that poll. Never blocks.
    ResidentOnly,
    /// Waits for locks and for the store.
    MayBlock,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub count: u32,
}

/// What a read found.
#[derive(Clone, Copy, Debug)]
pub struct ReadDone {
    /// Bytes read: fewer than asked for only at the end of the file.
    pub count: u32,
    /// The last of them is the last of the file, or nothing is behind the offset.
    pub eof: bool,
    /// Attributes of the file, not older than the data.
    pub attributes: Attributes,
    /// The file's change counter from before the data was read.
    pub change: u64,
}

/// Why a read found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFailed {
    /// It takes more than [`Effort::ResidentOnly`]: call again from a thread that may block.
    NotResident,
    /// For the client.
    Status(Status),
}

/// Reads `range` into the front of `data`, which must have room for `range.count` bytes.
pub fn read(
    _export: &Export,
    _who: &Credential,
    _file: &Arc<File>,
    _range: ReadRange,
    _effort: Effort,
    _data: &mut [u8],
) -> Result<ReadDone, ReadFailed> {
    todo!()
}
