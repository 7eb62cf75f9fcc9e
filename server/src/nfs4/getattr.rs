//! GETATTR (RFC 7530, section 16.7; RFC 8881, section 18.7).

use odafs_common::wire::nfs4::{
    Attributes, GetAttributesArgs, OpCode, ResultWriter, Status, check_asked, encode_get_attributes,
};

use super::compound::{Compound, Done};
use super::object::Object;
use super::{attributes, cb_getattr};

pub(super) fn getattr(
    c: &Compound<'_>,
    arguments: &GetAttributesArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    check_asked(&arguments.asked)?;
    let asked = arguments.asked.and(c.supported());
    let object = c.object()?;
    let encode = |all: &Attributes<'_>| {
        encode_get_attributes(all, &asked, w.start(OpCode::GetAttributes));
    };
    if let Object::Real(real) = object
        && let Some(known) = cb_getattr::attributes(c, real)
    {
        attributes::with_known(c, real, &known, &asked, encode)?;
    } else {
        attributes::with(c, object, &asked, encode)?;
    }
    Ok(Status::Ok)
}
