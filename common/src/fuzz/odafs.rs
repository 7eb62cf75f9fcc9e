use super::check;
use crate::wire::odafs::*;
use crate::wire::xdr::Decode as _;

/// The first byte is the procedure, the rest are its arguments (NULL: the parameters of a session).
pub fn args(bytes: &[u8]) {
    let Some((procedure, args)) = procedure(bytes) else {
        return;
    };
    match procedure {
        Procedure::Null => check!(Parameters<'_>, args),
        Procedure::OpenSession => {
            check!(OpenSessionArgs<'_>, args);
            if let Ok(open) = OpenSessionArgs::from_bytes(args) {
                check!(Parameters<'_>, open.parameters);
            }
        }
        Procedure::Read => check!(ReadArgs<'_>, args),
        Procedure::GetRefs => check!(GetRefsArgs<'_>, args),
        Procedure::Rekey => check!(RekeyArgs, args),
        Procedure::CloseSession => check!(CloseSessionArgs, args),
        Procedure::Delegate => check!(DelegateArgs<'_>, args),
    }
}

/// The first byte is the procedure, and the rest is its result (NULL: what a server grants a session).
pub fn results(bytes: &[u8]) {
    let Some((procedure, result)) = procedure(bytes) else {
        return;
    };
    match procedure {
        Procedure::Null => check!(Accepted, result),
        Procedure::OpenSession => check!(OpenSessionResult<'_>, result),
        Procedure::Read => check!(ReadResult<'_>, result),
        Procedure::GetRefs => check!(GetRefsResult, result),
        Procedure::Rekey => check!(RekeyResult, result),
        Procedure::CloseSession => check!(CloseSessionResult, result),
        Procedure::Delegate => check!(DelegateResult, result),
    }
}

fn procedure(bytes: &[u8]) -> Option<(Procedure, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((Procedure::from_code(u32::from(*first) % 7)?, rest))
}
