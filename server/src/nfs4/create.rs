//! CREATE, of everything but regular files (RFC 7530, section 16.4; RFC 8881, section 18.4).

use odafs_common::wire::nfs4::{CreateArgs, CreateOk, CreateType, Status};

use super::attributes::NewObject;
use super::compound::{Compound, Done};
use super::object::Object;
use super::{convert, lookup};
use crate::vfs::around::Change;
use crate::vfs::{Special, namespace};

pub(super) fn create(c: &mut Compound<'_>, arguments: &CreateArgs<'_>) -> Done<CreateOk> {
    c.may_block()?;
    let directory = c.real()?;
    c.check_directory(directory)?;
    lookup::check(arguments.name)?;
    let usual = match arguments.kind {
        CreateType::Directory => (0o755, true),
        _ => (0o644, false),
    };
    let asked = NewObject::parse(c, &arguments.attributes, c.supported(), usual)?;
    let new = asked.attributes;
    let target = match arguments.kind {
        CreateType::Symlink(target) => c.payload(target.0).to_vec(),
        _ => Vec::new(),
    };
    let (export, who, name) = (c.export, &c.who, arguments.name.0);
    let special = |what| namespace::mknod(export, who, directory, name, what, &new);
    let change = Change::begin(export, directory);
    let made = match arguments.kind {
        CreateType::Directory => namespace::mkdir(export, who, directory, name, &new),
        CreateType::Symlink(_) => namespace::symlink(export, who, directory, name, &target, &new),
        CreateType::Fifo => special(Special::Fifo),
        CreateType::Socket => special(Special::Socket),
        CreateType::Character(device) => special(Special::CharacterDevice {
            major: device.major,
            minor: device.minor,
        }),
        CreateType::Block(device) => special(Special::BlockDevice {
            major: device.major,
            minor: device.minor,
        }),
        CreateType::Other(_) => return Err(Status::BadType.into()),
    };
    let around = change.end();
    let (object, _) = made?;
    c.set_current(Object::Real(object));
    Ok(CreateOk {
        directory: convert::change_info(&around),
        set: asked.finish(c, object),
    })
}
