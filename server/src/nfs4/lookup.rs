//! LOOKUP and LOOKUPP (RFC 7530, sections 16.13 and 16.14; RFC 8881, sections 18.13 and 18.14).

use odafs_common::wire::nfs4::{Name, Status};

use super::compound::{Compound, Done, Stop};
use super::object::{Object, not_a_directory};
use crate::vfs::attributes::attributes;
use crate::vfs::namespace;
use crate::vfs::read::Effort;
use crate::vfs::{self, FileType, ObjectId};

pub(super) fn lookup(c: &mut Compound<'_>, name: Name<'_>) -> Done<()> {
    let found = find(c, name)?;
    c.set_current(found);
    Ok(())
}

/// What a name in the current directory stands for.
pub(super) fn find(c: &Compound<'_>, name: Name<'_>) -> Done<Object> {
    let object = c.object()?;
    check(name)?;
    match object {
        Object::Pseudo(depth) => {
            let below = c.server.tree.below(depth);
            let below = below.filter(|(known, _)| *known == name.0);
            below.map(|(_, object)| object).ok_or(Status::NoEnt.into())
        }
        Object::Real(directory) => in_directory(c, directory, name.0).map(Object::Real),
    }
}

/// Refuses the names that version 4 allows in no directory: the empty name, `.`, `..`, and names with a slash or a NUL.
pub(super) fn check(name: Name<'_>) -> Done<()> {
    match name.0 {
        [] => Err(Status::Inval.into()),
        b"." | b".." => Err(Status::BadName.into()),
        name if name.contains(&b'/') || name.contains(&0) => Err(Status::BadName.into()),
        _ => Ok(()),
    }
}

fn in_directory(c: &Compound<'_>, directory: ObjectId, name: &[u8]) -> Done<ObjectId> {
    let (export, who) = (c.export, &c.who);
    let found = match c.effort {
        Effort::ResidentOnly => {
            let found = namespace::lookup_at_hand(export, who, directory, name);
            found.ok_or(Stop::Blocks)?.map(|(object, _)| object)
        }
        // Unlike `lookup`, this asks no client with a delegation: LOOKUP returns no attributes.
        Effort::MayBlock => namespace::find(export, who, directory, name),
    };
    match found {
        Ok(object) => {
            namespace::check_found(export, directory, object, &|tag| c.acting.check(tag))?;
            Ok(object)
        }
        Err(error) if error.status == vfs::Status::NotDir => {
            c.may_block()?;
            let known = attributes(export, directory);
            let status = known.map_or(Status::NotDir, |known| not_a_directory(known.kind));
            Err(status.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// LOOKUPP: makes the parent of the current directory the current object.
pub(super) fn parent(c: &mut Compound<'_>) -> Done<()> {
    let object = c.object()?;
    let above = match (object, c.server.tree.above(object)) {
        (_, Some(above)) => above,
        (Object::Real(directory), None) if !c.server.tree.is_export_root(directory) => {
            c.may_block()?;
            let kind = c.attributes(directory)?.kind;
            if kind != FileType::Directory {
                return Err(not_a_directory(kind).into());
            }
            let (above, _) = namespace::lookup(c.export, &c.who, directory, b"..")?;
            Object::Real(above)
        }
        _ => return Err(Status::NoEnt.into()),
    };
    c.set_current(above);
    Ok(())
}
