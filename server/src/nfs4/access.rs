//! ACCESS (RFC 7530, section 16.1; RFC 8881, section 18.1).

use odafs_common::wire::nfs4::{AccessArgs, AccessOk, access};

use super::compound::{Compound, Done};
use super::object::Object;
use crate::vfs::FileType;
use crate::vfs::attributes::access as granted;

/// The rights that there are to what is no directory. Those to extended attributes are not told.
const FILE: u32 = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE;
/// The rights that there are to a directory.
const DIRECTORY: u32 =
    access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE;
/// What everyone may do with directories of the pseudo file system.
const PSEUDO: u32 = access::READ | access::LOOKUP;

pub(super) fn access(c: &Compound<'_>, arguments: AccessArgs) -> Done<AccessOk> {
    let object = match c.object()? {
        Object::Pseudo(_) => {
            let supported = arguments.access & DIRECTORY;
            let access = supported & PSEUDO;
            return Ok(AccessOk { supported, access });
        }
        Object::Real(object) => object,
    };
    // Where this takes no waiting, the question of rights does not either.
    let there_are = match c.attributes(object)?.kind {
        FileType::Directory => DIRECTORY,
        _ => FILE,
    };
    let supported = arguments.access & there_are;
    let access = granted(c.export, &c.who, object, supported)?;
    Ok(AccessOk { supported, access })
}
