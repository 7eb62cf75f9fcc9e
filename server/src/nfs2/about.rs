//! What metrics and logs call procedures and statuses, and which file a call is about.

use odafs_common::wire::nfs2::{FileHandle, MAX_PATH, Procedure, Status};
use odafs_common::wire::xdr::{Decode as _, Reader};

use crate::vfs::export::Exports;
use crate::vfs::read::Effort;

/// The names of RFC 1094, by number.
pub const PROCEDURES: [&str; Procedure::ALL.len()] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];

/// The statuses of every procedure that has a result.
pub fn statuses(procedure: u32) -> Vec<(u32, String)> {
    let named = |status: &Status| (status.code(), format!("{status:?}").to_lowercase());
    match Procedure::from_code(procedure) {
        None | Some(Procedure::Null | Procedure::Root | Procedure::WriteCache) => Vec::new(),
        Some(_) => Status::ALL.iter().map(named).collect(),
    }
}

/// The number of the file that a call begins with, and the name in it.
pub fn about(export: &Exports, procedure: u32, mut arguments: Reader<'_>) -> Option<String> {
    use Procedure as P;
    let handle = FileHandle::decode(&mut arguments).ok()?;
    let handle = export.handle_of_short(handle.0).ok()?;
    let number = export.resolve(&handle, Effort::ResidentOnly).ok()?.ino;
    let has_name = matches!(
        P::from_code(procedure)?,
        P::Lookup
            | P::Create
            | P::MakeDirectory
            | P::Symlink
            | P::Remove
            | P::RemoveDirectory
            | P::Rename
    );
    let name = has_name.then(|| arguments.opaque("name", MAX_PATH).ok());
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
        assert_eq!(PROCEDURES[Procedure::StatFs.code() as usize], "STATFS");
        assert!(statuses(0).is_empty() && statuses(3).is_empty() && statuses(18).is_empty());
        assert!(statuses(6).contains(&(27, "fbig".to_owned())));
    }
}
