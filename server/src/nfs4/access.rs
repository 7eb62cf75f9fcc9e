//! ACCESS (RFC 7530, section 16.1; RFC 8881, section 18.1).

use odafs_common::wire::nfs4::{AccessArgs, AccessOk, access};

use super::compound::{Compound, Done};
use super::object::Object;
use crate::vfs::attributes::access as granted;

/// The rights that a server can tell: without extended attributes.
const TOLD: u32 = access::READ
    | access::LOOKUP
    | access::MODIFY
    | access::EXTEND
    | access::DELETE
    | access::EXECUTE;
/// What everyone may do with directories of the pseudo file system.
const PSEUDO: u32 = access::READ | access::LOOKUP;

pub(super) fn access(c: &Compound<'_>, arguments: AccessArgs) -> Done<AccessOk> {
    let supported = arguments.access & TOLD;
    let access = match c.object()? {
        Object::Pseudo(_) => supported & PSEUDO,
        Object::Real(object) => {
            // Where this takes no waiting, the question of rights does not either.
            c.attributes(object)?;
            granted(c.export, &c.who, object, supported)?
        }
    };
    Ok(AccessOk { supported, access })
}
