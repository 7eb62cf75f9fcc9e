//! GETATTR (RFC 7530, section 16.7; RFC 8881, section 18.7).

use odafs_common::wire::nfs4::{
    GetAttributesArgs, OpCode, ResultWriter, Status, check_asked, encode_get_attributes,
};

use super::asking;
use super::attributes::{self, Beside, FileSystem};
use super::compound::{Compound, Done};
use super::object::Object;

pub(super) fn getattr(
    c: &Compound<'_>,
    arguments: &GetAttributesArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    check_asked(&arguments.asked)?;
    let asked = arguments.asked.and(c.supported());
    let object = c.object()?;
    if let Object::Real(real) = object
        && let Some(known) = asking::attributes(c, real)
    {
        let system = FileSystem::of(c, real, &asked)?;
        let beside = Beside::of(c, real, &known, &asked)?;
        attributes::with_known(c, real, &known, (&system, &beside), |all| {
            encode_get_attributes(all, &asked, w.start(OpCode::GetAttributes));
        });
        return Ok(Status::Ok);
    }
    attributes::with(c, object, &asked, |all| {
        encode_get_attributes(all, &asked, w.start(OpCode::GetAttributes));
    })?;
    Ok(Status::Ok)
}
