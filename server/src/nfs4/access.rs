//! ACCESS (RFC 7530, section 16.1; RFC 8881, section 18.1).

use odafs_common::wire::nfs4::{AccessArgs, AccessOk, access};

use super::compound::{Compound, Done};
use super::object::Object;
use crate::vfs::attributes::{access as granted, kind};
use crate::vfs::{FileType, ObjectId, xattrs};

/// The rights to an object that is no directory.
const FILE: u32 = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE;
/// The rights to a directory.
const DIRECTORY: u32 =
    access::READ | access::LOOKUP | access::MODIFY | access::EXTEND | access::DELETE;
/// The rights that everyone has to directories of the pseudo file system.
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
    // If this need not wait, neither need the question of rights below.
    let known = match kind(c.export, object, c.effort)? {
        FileType::Directory => DIRECTORY,
        _ => FILE,
    };
    let supported = arguments.access & known;
    let access = granted(c.export, &c.who, object, supported)?;
    let (also_supported, also) = xattr_rights(c, arguments.access, object)?;
    Ok(AccessOk {
        supported: supported | also_supported,
        access: access | also,
    })
}

/// The rights to extended attributes (RFC 8276, section 8.3), which are those to the data.
fn xattr_rights(c: &Compound<'_>, asked: u32, object: ObjectId) -> Done<(u32, u32)> {
    let reading = access::XATTR_READ | access::XATTR_LIST;
    let supported = asked & (reading | access::XATTR_WRITE);
    if c.minor < 2 || supported == 0 || !xattrs::supported(c.export) {
        return Ok((0, 0));
    }
    let both = access::READ | access::MODIFY;
    let data = granted(c.export, &c.who, object, both)?;
    let mut has = 0;
    if data & access::READ != 0 {
        has |= reading;
    }
    if data & access::MODIFY != 0 {
        has |= access::XATTR_WRITE;
    }
    Ok((supported, supported & has))
}
