//! What operations do, where that decides how a compound is run.

use odafs_common::wire::nfs4::{OpCode, Operations};

use super::OPERATIONS_MAX;
use crate::rpc::drc::Repeats;

/// Whether an operation changes nothing, so that it may run on the thread that polls, and run again.
pub(super) fn changes_nothing(code: OpCode) -> bool {
    use OpCode as C;
    matches!(
        code,
        C::PutFileHandle
            | C::PutRootFileHandle
            | C::PutPublicFileHandle
            | C::GetFileHandle
            | C::SaveFileHandle
            | C::RestoreFileHandle
            | C::GetAttributes
            | C::Access
            | C::Lookup
            | C::Read
            | C::ReadPlus
            | C::Renew
            | C::TestStateId
    )
}

/// What a repetition of a compound of minor version 0 would do.
pub(super) fn repeats<'a>(operations: Operations<'a>) -> Repeats<'a> {
    use OpCode as C;
    let mut found = Repeats::Harmless;
    for operation in operations
        .take(OPERATIONS_MAX as usize)
        .map_while(Result::ok)
    {
        match operation.code() {
            C::Create
            | C::Link
            | C::Open
            | C::OpenConfirm
            | C::OpenDowngrade
            | C::Close
            | C::Lock
            | C::Unlock
            | C::Remove
            | C::Rename
            | C::SetAttributes
            | C::SetXattr
            | C::RemoveXattr
            | C::SetClientId
            | C::SetClientIdConfirm
            | C::ReleaseLockOwner => return Repeats::Change { names: [None; 2] },
            C::Write => found = Repeats::Write,
            _ => {}
        }
    }
    found
}
