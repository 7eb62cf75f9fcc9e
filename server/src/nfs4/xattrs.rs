//! GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276, section 8.4): the attributes that Linux calls `user.NAME`, by
//! NAME.

use odafs_common::wire::nfs4::{
    ChangeInfo, List, ListXattrsArgs, ListXattrsOk, Name, OpCode, ResultWriter, SetXattrArgs,
    SetXattrOption, Status, XattrValue,
};

use super::compound::{Compound, Done, Stop, Written, plain};
use super::convert;
use crate::vfs::{self, ObjectId, XattrHow, xattrs};

/// Bytes of a result of LISTXATTRS besides the names: cookie, count and end.
const LIST_BYTES: usize = 16;

/// GETXATTR
pub(super) fn get(c: &Compound<'_>, name: Name<'_>, w: &mut ResultWriter<'_, '_>) -> Written {
    let object = object(c)?;
    let value = xattrs::get(c.export, &c.who, object, name.0).map_err(stop)?;
    // Number and status of the operation, the length of the value, and padding come besides.
    if value.len() + 16 > c.room(w) {
        return Err(Status::RepTooBig.into());
    }
    plain(w, OpCode::GetXattr, XattrValue(&value))
}

/// SETXATTR
pub(super) fn set(c: &Compound<'_>, arguments: &SetXattrArgs<'_>) -> Done<ChangeInfo> {
    let object = object(c)?;
    let how = match arguments.option {
        SetXattrOption::Either => XattrHow::Either,
        SetXattrOption::Create => XattrHow::Create,
        SetXattrOption::Replace => XattrHow::Replace,
    };
    let pair = (arguments.name.0, arguments.value.0);
    let around = xattrs::set(c.export, &c.who, object, pair, how).map_err(stop)?;
    Ok(convert::change_info(&around))
}

/// REMOVEXATTR
pub(super) fn remove(c: &Compound<'_>, name: Name<'_>) -> Done<ChangeInfo> {
    let object = object(c)?;
    let around = xattrs::remove(c.export, &c.who, object, name.0).map_err(stop)?;
    Ok(convert::change_info(&around))
}

/// LISTXATTRS. A cookie is the number of names that were listed before.
pub(super) fn list(
    c: &Compound<'_>,
    arguments: &ListXattrsArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Written {
    let object = object(c)?;
    let names = xattrs::list(c.export, &c.who, object).map_err(stop)?;
    let first = usize::try_from(arguments.cookie).unwrap_or(usize::MAX);
    let left = names.get(first..).ok_or(Status::BadCookie)?;
    let room = (arguments.max_count as usize).min(c.room(w).saturating_sub(16));
    let mut bytes = LIST_BYTES;
    let fitting = left.iter().take_while(|name| {
        bytes += 4 + name.len().next_multiple_of(4);
        bytes <= room
    });
    let fitting: Vec<Name<'_>> = fitting.map(|name| Name(name)).collect();
    if fitting.is_empty() && !left.is_empty() {
        return Err(Status::TooSmall.into());
    }
    let ok = ListXattrsOk {
        cookie: (first + fitting.len()) as u64,
        eof: fitting.len() == left.len(),
        names: List(fitting),
    };
    plain(w, OpCode::ListXattrs, ok)
}

fn object(c: &Compound<'_>) -> Done<ObjectId> {
    c.may_block()?;
    c.real()
}

/// The failure of an operation on extended attributes. The store's statuses are those of files.
fn stop(error: vfs::StoreError) -> Stop {
    match error.status {
        vfs::Status::NoEnt => Status::NoXattr.into(),
        vfs::Status::FBig => Status::Xattr2Big.into(),
        _ => error.into(),
    }
}
