//! Classifies compounds by what their operations do.

use odafs_common::wire::nfs4::{OpCode, Operations};

use super::OPERATIONS_MAX;
use crate::rpc::drc::Repeats;

/// What a repetition of a compound would do. In 4.1 and later the slots of sessions remember replies.
pub(super) fn repeats<'a>(operations: Operations<'a>) -> Repeats<'a> {
    use OpCode as C;
    if operations.header().minor_version > 0 {
        return Repeats::Remembered;
    }
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

/// Whether a compound may wait for stable storage. One whose data came apart from the message cannot be read to its end here:
/// it writes.
pub(super) fn may_sync(mut operations: Operations<'_>) -> bool {
    operations.any(|it| it.map_or(true, |operation| !syncs_nothing(operation.code())))
}

/// Whether an operation brings nothing to stable storage.
fn syncs_nothing(code: OpCode) -> bool {
    use OpCode as C;
    matches!(
        code,
        C::Sequence
            | C::PutFileHandle
            | C::PutRootFileHandle
            | C::PutPublicFileHandle
            | C::GetFileHandle
            | C::SaveFileHandle
            | C::RestoreFileHandle
            | C::GetAttributes
            | C::Access
            | C::Lookup
            | C::LookupParent
            | C::Verify
            | C::VerifyNot
            | C::SecInfo
            | C::SecInfoNoName
            | C::Read
            | C::ReadPlus
            | C::ReadDir
            | C::ReadLink
            | C::GetXattr
            | C::ListXattrs
            | C::Seek
            | C::IoAdvise
            | C::Renew
            | C::TestStateId
            // Changes wait for it on the threads that may sync, so it must run elsewhere.
            | C::DelegationReturn
    )
}
