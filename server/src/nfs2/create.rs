//! CREATE (RFC 1094, section 2.2.10). No form of it refuses an existing file. The version has no MKNOD either: as with other
//! servers, the mode has the type of a special file, and the size has the number of a device.

use odafs_common::wire::nfs2::{CreateArgs, SetAttributes, Status, mode};

use super::object::Object;
use super::{Context, Done, convert};
use crate::vfs::around::Change;
use crate::vfs::attributes::access as granted;
use crate::vfs::{self, CreateHow, FileType, ObjectId, Special, access, namespace};

pub(super) fn create(context: &Context<'_>, arguments: CreateArgs<'_>) -> Done<Object> {
    context.may_block()?;
    let directory = context.object(arguments.place.directory)?;
    let name = arguments.place.name;
    let (export, who) = (context.export, &context.who);
    let kind = arguments
        .attributes
        .mode
        .map_or(0, |bits| bits & mode::TYPE);
    let change = Change::begin(export, directory);
    let (made, taken): (_, &[FileType]) = match special(kind, arguments.attributes.size)? {
        None => {
            let new = convert::set_attributes(&arguments.attributes)?;
            let how = CreateHow::Unchecked(&new);
            let created = namespace::create(export, who, directory, name, how);
            let made = created.map(|created| (created.object, created.attributes));
            // A client asks by CREATE whether it may write to an existing file. It opens special files itself.
            let taken: &[FileType] = match kind {
                0 => &SPECIAL,
                _ => &[],
            };
            (made, taken)
        }
        Some((what, taken)) => {
            let new = convert::set_attributes(&SetAttributes {
                size: None,
                ..arguments.attributes
            })?;
            let made = namespace::mknod(export, who, directory, name, what, &new);
            (made, taken)
        }
    };
    drop(change);
    let made = match made {
        Err(error) if error.status == vfs::Status::Exist && !taken.is_empty() => {
            there(context, directory, name, taken)?
        }
        made => made?,
    };
    Ok(Object::new(context, made))
}

/// What CREATE leaves as it is.
const SPECIAL: [FileType; 4] = [
    FileType::Fifo,
    FileType::Socket,
    FileType::Character,
    FileType::Block,
];

/// The special file that the bits of a mode ask for, and what may be there instead.
fn special(kind: u32, size: Option<u32>) -> Done<Option<(Special, &'static [FileType])>> {
    let number = size.unwrap_or_default();
    Ok(Some(match kind {
        0 | mode::REGULAR => return Ok(None),
        mode::PIPE => (Special::Fifo, &[FileType::Fifo]),
        // Systems without pipes in their protocol send them so.
        mode::CHARACTER if size.is_none() => (Special::Fifo, &[FileType::Fifo]),
        mode::SOCKET => (Special::Socket, &[FileType::Socket]),
        mode::CHARACTER => {
            let vfs::Device { major, minor } = convert::device(number);
            let what = Special::CharacterDevice { major, minor };
            (what, &[FileType::Character])
        }
        mode::BLOCK => {
            let vfs::Device { major, minor } = convert::device(number);
            (Special::BlockDevice { major, minor }, &[FileType::Block])
        }
        // Directories and symbolic links have procedures of their own.
        _ => return Err(Status::Io.into()),
    }))
}

/// The object that has the name already, if it is of such a type and the caller may write to it.
fn there(
    context: &Context<'_>,
    directory: ObjectId,
    name: &[u8],
    taken: &[FileType],
) -> Done<(ObjectId, vfs::Attributes)> {
    let found = namespace::lookup(context.export, &context.who, directory, name)?;
    if !taken.contains(&found.1.kind) {
        return Err(Status::Exist.into());
    }
    match granted(context.export, &context.who, found.0, access::MODIFY)? {
        0 => Err(Status::Access.into()),
        _ => Ok(found),
    }
}
