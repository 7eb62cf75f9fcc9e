//! READLINK (RFC 7530, section 16.25; RFC 8881, section 18.24).

use odafs_common::wire::nfs4::{OpCode, Payload, ReadLinkOk, ResultWriter, Status};
use odafs_common::wire::xdr::Encode as _;
use odafs_nic::calls::ChunkSource;

use super::compound::{Compound, Done};
use super::object::Object;
use crate::vfs::{self, namespace};

pub(super) fn readlink(c: &mut Compound<'_>, w: &mut ResultWriter<'_, '_>) -> Done<Status> {
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
        Ok(target) => answer(c, target, w),
        Err(error) if error.status == vfs::Status::Inval => Err(other.into()),
        Err(error) => Err(error.into()),
    }
}

/// Writes the result. Where the caller has a placement for it, the target goes there, or nowhere.
fn answer(c: &mut Compound<'_>, target: Vec<u8>, w: &mut ResultWriter<'_, '_>) -> Done<Status> {
    match c.placement() {
        None => {
            let target = Payload(&target);
            w.push(OpCode::ReadLink, &Ok::<_, Status>(ReadLinkOk { target }));
            c.placing.inline();
        }
        Some(room) if target.len() > room as usize => return Err(c.too_big().into()),
        Some(_) => {
            let w = w.start(OpCode::ReadLink);
            Status::Ok.encode(w);
            w.length(target.len());
            let (at, bytes) = (w.position(), target.len() as u32);
            c.placing.place(at, bytes, vec![ChunkSource::Bytes(target)]);
        }
    }
    Ok(Status::Ok)
}
