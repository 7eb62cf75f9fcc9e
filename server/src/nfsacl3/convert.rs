//! Conversions between lists of the wire and the server's own.
//!
//! On the wire each list has a mask; without one, the server sends the permissions of the owning group. The entries of the
//! owner and of the owning group have their ids.

use odafs_common::wire::nfs3::Status;
use odafs_common::wire::nfsacl3::{Acls, Entry, mask, tag};

use crate::vfs::acls::NewAcls;
use crate::vfs::{Acl, AclEntry, AclTag, Attributes};

/// The entries of a list, of an object with these attributes.
pub(super) fn entries(list: &Acl, of: &Attributes, flag: u32) -> Vec<Entry> {
    let entry = |tag, id, permissions: u8| Entry {
        tag: tag | flag,
        id,
        permissions: permissions.into(),
    };
    let mut out = Vec::with_capacity(list.entries().len() + 1);
    for known in list.entries() {
        let granted = known.permissions;
        if list.is_minimal() && known.tag == AclTag::Other {
            let group = list.granted_to(AclTag::OwningGroup).unwrap_or(0);
            out.push(entry(tag::MASK, 0, group));
        }
        out.push(match known.tag {
            AclTag::Owner => entry(tag::OWNER, of.uid, granted),
            AclTag::User(uid) => entry(tag::USER, uid, granted),
            AclTag::OwningGroup => entry(tag::OWNING_GROUP, of.gid, granted),
            AclTag::Group(gid) => entry(tag::GROUP, gid, granted),
            AclTag::Mask => entry(tag::MASK, 0, granted),
            AclTag::Other => entry(tag::OTHER, 0, granted),
        });
    }
    out
}

/// The entries of a default list.
pub(super) fn inherited(list: Option<&Acl>, of: &Attributes) -> Vec<Entry> {
    list.map_or_else(Vec::new, |list| entries(list, of, tag::DEFAULT))
}

/// The lists that a client sets. Fails with INVAL for what is no list, and for an access list without entries, because the mode
/// alone might grant more.
pub(super) fn lists(acls: &Acls) -> Result<NewAcls, Status> {
    let named = |bit| acls.mask & bit != 0;
    let whole = |bit, count, entries: &[Entry]| !named(bit) || count as usize == entries.len();
    let consistent = whole(mask::ACCESS, acls.access_count, &acls.access)
        && whole(mask::DEFAULT, acls.default_count, &acls.default);
    if acls.mask & !mask::ALL != 0 || !consistent {
        return Err(Status::Inval);
    }
    let access = named(mask::ACCESS)
        .then(|| list(&acls.access))
        .transpose()?;
    let default = match (named(mask::DEFAULT), acls.default.as_slice()) {
        (false, _) => None,
        (true, []) => Some(None),
        (true, entries) => Some(Some(list(entries)?)),
    };
    Ok(NewAcls { access, default })
}

fn list(entries: &[Entry]) -> Result<Acl, Status> {
    let entry = |entry: &Entry| {
        let tag = match entry.tag & !tag::DEFAULT {
            tag::OWNER => AclTag::Owner,
            tag::USER => AclTag::User(entry.id),
            tag::OWNING_GROUP => AclTag::OwningGroup,
            tag::GROUP => AclTag::Group(entry.id),
            tag::MASK => AclTag::Mask,
            tag::OTHER => AclTag::Other,
            _ => return None,
        };
        let permissions = match tag {
            // Solaris sets more bits here.
            AclTag::Mask => entry.permissions & 7,
            _ => entry.permissions,
        };
        let permissions = u8::try_from(permissions).ok()?;
        Some(AclEntry { tag, permissions })
    };
    let entries: Option<Vec<AclEntry>> = entries.iter().map(entry).collect();
    let mut entries = entries.ok_or(Status::Inval)?;
    let granted = |entries: &[AclEntry], tag| {
        let found = entries.iter().find(|entry| entry.tag == tag);
        found.map(|entry| entry.permissions)
    };
    let of_mode = entries.len() == 4
        && granted(&entries, AclTag::Mask) == granted(&entries, AclTag::OwningGroup);
    if of_mode {
        entries.retain(|entry| entry.tag != AclTag::Mask);
    }
    Ok(Acl::new(entries)?)
}
