//! The names of procedures and statuses in metrics and logs, and the file that a call concerns.

use odafs_common::wire::nfs3::{FileHandle, MAX_NAME, Procedure, Status};
use odafs_common::wire::xdr::{Decode as _, Reader};

use crate::vfs::export::Exports;
use crate::vfs::read::Effort;

/// The procedures' names in RFC 1813, by number.
pub const PROCEDURES: [&str; Procedure::ALL.len()] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];

/// The statuses of every procedure but NULL.
pub fn statuses(procedure: u32) -> Vec<(u32, String)> {
    let named = |status: &Status| (status.code(), format!("{status:?}").to_lowercase());
    match Procedure::from_code(procedure) {
        None | Some(Procedure::Null) => Vec::new(),
        Some(_) => Status::ALL.iter().map(named).collect(),
    }
}

/// The inode number of the first file handle of a call, and the name in that directory if the call has one.
pub fn about(export: &Exports, procedure: u32, mut arguments: Reader<'_>) -> Option<String> {
    use Procedure as P;
    let handle = FileHandle::decode(&mut arguments).ok()?;
    let file = export.resolve(handle.0, Effort::ResidentOnly).ok()?;
    let number = file.ino;
    let has_name = matches!(
        P::from_code(procedure)?,
        P::Lookup
            | P::Create
            | P::MakeDirectory
            | P::Symlink
            | P::MakeNode
            | P::Remove
            | P::RemoveDirectory
            | P::Rename
    );
    let name = has_name.then(|| arguments.opaque("name", MAX_NAME).ok());
    Some(match name.flatten() {
        Some(name) => format!("{number}/{}", name.escape_ascii()),
        None => number.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_procedure_has_its_name_and_statuses() {
        assert_eq!(PROCEDURES[Procedure::Read.code() as usize], "READ");
        assert_eq!(
            PROCEDURES[Procedure::ReadDirPlus.code() as usize],
            "READDIRPLUS"
        );
        assert_eq!(PROCEDURES[Procedure::Commit.code() as usize], "COMMIT");
        assert!(statuses(0).is_empty() && statuses(22).is_empty());
        assert!(statuses(6).contains(&(10001, "badhandle".to_owned())));
    }
}
