//! READLINK (RFC 7530, section 16.25; RFC 8881, section 18.24).

use odafs_common::wire::nfs4::{OpCode, Payload, ReadLinkOk, ResultWriter, Status};

use super::compound::{Compound, Done};
use super::object::Object;
use crate::vfs::{self, namespace};

pub(super) fn readlink(c: &Compound<'_>, w: &mut ResultWriter<'_, '_>) -> Done<Status> {
    c.may_block()?;
    let other = if c.minor > 0 {
        Status::WrongType
    } else {
        Status::Inval
    };
    let Object::Real(link) = c.object()? else {
        return Err(other.into());
    };
    match namespace::readlink(c.export, link) {
        Ok(target) => {
            let target = Payload(&target);
            w.push(OpCode::ReadLink, &Ok::<_, Status>(ReadLinkOk { target }));
            Ok(Status::Ok)
        }
        Err(error) if error.status == vfs::Status::Inval => Err(other.into()),
        Err(error) => Err(error.into()),
    }
}
