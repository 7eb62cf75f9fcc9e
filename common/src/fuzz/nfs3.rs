use super::check;
use crate::wire::nfs3::*;
use crate::wire::xdr::{Decode as _, Writer};

/// The first byte is the procedure, the rest are its arguments.
pub fn args(bytes: &[u8]) {
    let Some((procedure, args)) = procedure(bytes) else {
        return;
    };
    match procedure {
        Procedure::Null => check!((), args),
        Procedure::GetAttributes
        | Procedure::ReadLink
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf => check!(FileHandle<'_>, args),
        Procedure::SetAttributes => check!(SetAttributesArgs<'_>, args),
        Procedure::Lookup | Procedure::Remove | Procedure::RemoveDirectory => {
            check!(DirectoryName<'_>, args);
        }
        Procedure::Access => check!(AccessArgs<'_>, args),
        Procedure::Read => check!(ReadArgs<'_>, args),
        Procedure::Write => check!(WriteArgs<'_>, args),
        Procedure::Create => check!(CreateArgs<'_>, args),
        Procedure::MakeDirectory => check!(MakeDirectoryArgs<'_>, args),
        Procedure::Symlink => check!(SymlinkArgs<'_>, args),
        Procedure::MakeNode => check!(MakeNodeArgs<'_>, args),
        Procedure::Rename => check!(RenameArgs<'_>, args),
        Procedure::Link => check!(LinkArgs<'_>, args),
        Procedure::ReadDir => check!(ReadDirArgs<'_>, args),
        Procedure::ReadDirPlus => check!(ReadDirPlusArgs<'_>, args),
        Procedure::Commit => check!(CommitArgs<'_>, args),
    }
}

/// The first byte is the procedure, the rest is its result.
pub fn results(bytes: &[u8]) {
    let Some((procedure, result)) = procedure(bytes) else {
        return;
    };
    match procedure {
        Procedure::Null => check!((), result),
        Procedure::GetAttributes => check!(GetAttributesResult, result),
        Procedure::SetAttributes => check!(SetAttributesResult, result),
        Procedure::Lookup => check!(LookupResult<'_>, result),
        Procedure::Access => check!(AccessResult, result),
        Procedure::ReadLink => check!(ReadLinkResult<'_>, result),
        Procedure::Read => check!(ReadResult<'_>, result),
        Procedure::Write => check!(WriteResult, result),
        Procedure::Create | Procedure::MakeDirectory | Procedure::Symlink | Procedure::MakeNode => {
            check!(CreateResult<'_>, result)
        }
        Procedure::Remove | Procedure::RemoveDirectory => check!(RemoveResult, result),
        Procedure::Rename => check!(RenameResult, result),
        Procedure::Link => check!(LinkResult, result),
        Procedure::ReadDir => {
            check!(ReadDirResult<'_>, result);
            if let Ok(Ok(list)) = ReadDirResult::from_bytes(result) {
                rewrite(result, list.attributes, list.verifier, list.eof, |w| {
                    list.entries.iter().all(|entry| w.push(entry))
                });
            }
        }
        Procedure::ReadDirPlus => {
            check!(ReadDirPlusResult<'_>, result);
            if let Ok(Ok(list)) = ReadDirPlusResult::from_bytes(result) {
                rewrite(result, list.attributes, list.verifier, list.eof, |w| {
                    list.entries.iter().all(|entry| w.push_plus(entry))
                });
            }
        }
        Procedure::FsStat => check!(FsStatResult, result),
        Procedure::FsInfo => check!(FsInfoResult, result),
        Procedure::PathConf => check!(PathConfResult, result),
        Procedure::Commit => check!(CommitResult, result),
    }
}

fn procedure(bytes: &[u8]) -> Option<(Procedure, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((Procedure::from_code(u32::from(*first) % 22)?, rest))
}

/// Writes a list again entry by entry: it takes the budget that the whole list takes, and not a byte less.
fn rewrite(
    result: &[u8],
    attributes: Option<Attributes>,
    verifier: [u8; 8],
    eof: bool,
    push_all: impl Fn(&mut EntryWriter<'_, '_>) -> bool,
) {
    let whole = result.len() as u32 - 4;
    for total in [whole, whole - 1] {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        let budget = EntryBudget {
            total,
            directory: u32::MAX,
        };
        let mut list = EntryWriter::begin(&mut w, budget, attributes.as_ref(), verifier);
        let all = push_all(&mut list);
        let done = list.finish(eof && all);
        assert!(bytes.len() as u64 <= 4 + u64::from(total));
        assert_eq!(bytes.is_empty(), done.is_err());
        assert_eq!(bytes.len() == result.len(), total == whole);
    }
}
