use super::check;
use crate::wire::mount1;
use crate::wire::nfs2::*;

/// The first byte is the procedure, the rest are its arguments.
pub fn args(bytes: &[u8]) {
    let Some((procedure, args)) = procedure(bytes) else {
        return;
    };
    match procedure {
        Procedure::Null | Procedure::Root | Procedure::WriteCache => check!((), args),
        Procedure::GetAttributes | Procedure::ReadLink | Procedure::StatFs => {
            check!(FileHandle<'_>, args);
        }
        Procedure::SetAttributes => check!(SetAttributesArgs<'_>, args),
        Procedure::Lookup | Procedure::Remove | Procedure::RemoveDirectory => {
            check!(DirectoryName<'_>, args);
        }
        Procedure::Read => check!(ReadArgs<'_>, args),
        Procedure::Write => check!(WriteArgs<'_>, args),
        Procedure::Create | Procedure::MakeDirectory => check!(CreateArgs<'_>, args),
        Procedure::Rename => check!(RenameArgs<'_>, args),
        Procedure::Link => check!(LinkArgs<'_>, args),
        Procedure::Symlink => check!(SymlinkArgs<'_>, args),
        Procedure::ReadDir => check!(ReadDirArgs<'_>, args),
    }
}

/// The first byte is the procedure, the rest is its result.
pub fn results(bytes: &[u8]) {
    let Some((procedure, result)) = procedure(bytes) else {
        return;
    };
    match procedure {
        Procedure::Null | Procedure::Root | Procedure::WriteCache => check!((), result),
        Procedure::GetAttributes | Procedure::SetAttributes | Procedure::Write => {
            check!(AttributesResult, result);
        }
        Procedure::Lookup | Procedure::Create | Procedure::MakeDirectory => {
            check!(ObjectResult<'_>, result);
        }
        Procedure::ReadLink => check!(ReadLinkResult<'_>, result),
        Procedure::Read => check!(ReadResult<'_>, result),
        Procedure::Remove
        | Procedure::Rename
        | Procedure::Link
        | Procedure::Symlink
        | Procedure::RemoveDirectory => check!(ChangeResult, result),
        Procedure::ReadDir => check!(ReadDirResult<'_>, result),
        Procedure::StatFs => check!(StatFsResult, result),
    }
}

/// Results of MOUNT, versions 1 and 2: the first byte chooses between those of MNT and of PATHCONF.
pub fn mount1(bytes: &[u8]) {
    match bytes.split_first() {
        Some((procedure, rest)) if procedure % 2 == 1 => check!(mount1::MountResult<'_>, rest),
        Some((_, rest)) => check!(mount1::PathConf, rest),
        None => {}
    }
}

fn procedure(bytes: &[u8]) -> Option<(Procedure, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((Procedure::from_code(u32::from(*first) % 18)?, rest))
}
