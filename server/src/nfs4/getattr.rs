//! GETATTR (RFC 7530, section 16.7; RFC 8881, section 18.7).

use odafs_common::wire::nfs4::{
    GetAttributesArgs, OpCode, ResultWriter, Status, check_asked, encode_get_attributes,
};

use super::attributes;
use super::compound::{Compound, Done};

pub(super) fn getattr(
    c: &Compound<'_>,
    arguments: &GetAttributesArgs,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    check_asked(&arguments.asked)?;
    let asked = arguments.asked.and(c.supported());
    attributes::with(c, c.object()?, &asked, |all| {
        encode_get_attributes(all, &asked, w.start(OpCode::GetAttributes));
    })?;
    Ok(Status::Ok)
}
