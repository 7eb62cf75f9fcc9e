//! MOUNT version 3 of the small server: one export, whose root is the first file.

use odafs_common::wire::{
    mount3::{DirPath, Export, Exports, MountOk, MountResult},
    nfs3::FileHandle,
    xdr::{Encode as _, Writer},
};

const MNT: u32 = 1;

/// Writes the result of a call: of MNT, else of EXPORT.
pub fn answer(procedure: u32, w: &mut Writer<'_>) {
    if procedure == MNT {
        let root = 1u64.to_be_bytes();
        MountResult::Ok(MountOk {
            file: FileHandle(&root),
            flavors: vec![1],
        })
        .encode(w);
        return;
    }
    Exports(vec![Export {
        directory: DirPath(b"/export"),
        groups: vec![],
    }])
    .encode(w);
}
