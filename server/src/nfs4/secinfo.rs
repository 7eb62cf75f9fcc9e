//! SECINFO and SECINFO_NO_NAME (RFC 7530, section 16.31; RFC 8881, sections 18.29 and 18.45). The answer is always
//! AUTH_SYS and, behind it, AUTH_NONE: every rule of access takes callers that claim nothing, as nobody.

use odafs_common::wire::nfs4::{List, MAX_FLAVORS, Name, SecInfo, SecInfoStyle};
use odafs_common::wire::rpc::{FLAVOR_NONE, FLAVOR_SYS};

use super::compound::{Compound, Done};
use super::lookup;

type Flavors<'a> = List<SecInfo<'a>, MAX_FLAVORS>;

/// SECINFO
pub(super) fn secinfo<'a>(c: &mut Compound<'_>, name: Name<'_>) -> Done<Flavors<'a>> {
    c.may_block()?;
    lookup::find(c, name)?;
    Ok(flavors(c))
}

/// SECINFO_NO_NAME
pub(super) fn no_name<'a>(c: &mut Compound<'_>, style: SecInfoStyle) -> Done<Flavors<'a>> {
    c.may_block()?;
    c.object()?;
    if style == SecInfoStyle::Parent {
        lookup::parent(c)?;
    }
    Ok(flavors(c))
}

fn flavors<'a>(c: &mut Compound<'_>) -> Flavors<'a> {
    // Both operations take the current file handle away, but not in minor version 0.
    if c.minor > 0 {
        c.drop_current();
    }
    List([FLAVOR_SYS, FLAVOR_NONE].map(SecInfo::Flavor).into())
}
