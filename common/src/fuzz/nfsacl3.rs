use super::check;
use crate::wire::nfsacl3::*;

/// The first byte is the procedure; the second says whether the rest are its arguments or its result.
pub fn nfsacl3(bytes: &[u8]) {
    let [code, result, rest @ ..] = bytes else {
        return;
    };
    match (Procedure::from_code(u32::from(*code) % 3), result % 2 == 1) {
        (Some(Procedure::GetAcl), false) => check!(GetAclArgs<'_>, rest),
        (Some(Procedure::GetAcl), true) => check!(GetAclResult, rest),
        (Some(Procedure::SetAcl), false) => check!(SetAclArgs<'_>, rest),
        (Some(Procedure::SetAcl), true) => check!(SetAclResult, rest),
        _ => check!((), rest),
    }
}
