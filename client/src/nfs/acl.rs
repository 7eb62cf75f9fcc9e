//! NFSACL, version 3: access control lists beside NFS version 3.

use super::{
    Nfs, NfsError,
    procedure::{Asks, Number, Procedure},
};
use crate::{
    acl::{AclEntry, AclTag, Acls},
    handle::FileHandle,
};
use odafs_common::wire::{
    nfsacl3::{self, GetAclArgs, GetAclResult, mask, tag},
    xdr::{Decode as _, XdrError},
};

const GETACL: Procedure = Procedure {
    name: "GETACL",
    number: Number::Acl(nfsacl3::Procedure::GetAcl),
    idempotent: true,
    asks: Asks::NOTHING,
};

impl Nfs<'_> {
    /// The lists of a file.
    pub fn acls(&self, file: &FileHandle) -> Result<Acls, NfsError> {
        let arguments = GetAclArgs {
            file: file.wire(),
            mask: mask::ACCESS | mask::DEFAULT,
        };
        self.ask(&GETACL, &arguments, |r| {
            Ok(match GetAclResult::decode(r)? {
                Ok(got) => Ok(Acls {
                    access: list(&got.acls.access)?,
                    inherited: entries(&got.acls.default)?,
                }),
                Err(failed) => Err(failed.status),
            })
        })
    }
}

/// The access list. It is empty if it says what the mode says: then the mask is that of the owning group, because on the
/// wire each list has one.
fn list(wire: &[nfsacl3::Entry]) -> Result<Vec<AclEntry>, XdrError> {
    let list = entries(wire)?;
    let granted = |tag| {
        let mut list = list.iter();
        list.find(|entry| entry.tag == tag)
            .map(|entry| entry.permissions)
    };
    let group = granted(AclTag::OwningGroup);
    let plain = granted(AclTag::Mask).is_none_or(|mask| Some(mask) == group);
    match plain && !list.iter().any(|entry| entry.tag.is_named()) {
        true => Ok(Vec::new()),
        false => Ok(list),
    }
}

fn entries(wire: &[nfsacl3::Entry]) -> Result<Vec<AclEntry>, XdrError> {
    let mut list = wire.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    list.sort_unstable();
    Ok(list)
}

fn entry(wire: &nfsacl3::Entry) -> Result<AclEntry, XdrError> {
    let wrong = |what, value| Err(XdrError::BadValue { what, value });
    let tag = match wire.tag & !tag::DEFAULT {
        tag::OWNER => AclTag::Owner,
        tag::USER => AclTag::User(wire.id),
        tag::OWNING_GROUP => AclTag::OwningGroup,
        tag::GROUP => AclTag::Group(wire.id),
        tag::MASK => AclTag::Mask,
        tag::OTHER => AclTag::Other,
        _ => return wrong("tag of an access control list", wire.tag),
    };
    match u8::try_from(wire.permissions) {
        Ok(permissions @ 0..=7) => Ok(AclEntry { tag, permissions }),
        _ => wrong("permissions of an access control list", wire.permissions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(tag: u32, id: u32, permissions: u32) -> nfsacl3::Entry {
        nfsacl3::Entry {
            tag,
            id,
            permissions,
        }
    }

    #[test]
    fn a_list_that_says_what_the_mode_says_is_empty() {
        let of = |group, mask| {
            [
                wire(tag::OTHER, 0, 4),
                wire(tag::OWNER, 7, 6),
                wire(tag::MASK, 0, mask),
                wire(tag::OWNING_GROUP, 8, group),
            ]
        };
        assert!(list(&of(5, 5)).unwrap().is_empty());
        assert!(list(&[]).unwrap().is_empty());
        let masked = list(&of(5, 6)).unwrap();
        let tags: Vec<_> = masked.iter().map(|entry| entry.tag).collect();
        use AclTag as T;
        assert_eq!(tags, [T::Owner, T::OwningGroup, T::Mask, T::Other]);
        let mut named = of(5, 5).to_vec();
        named.push(wire(tag::USER, 9, 0));
        let named = list(&named).unwrap();
        let nine = AclEntry {
            tag: T::User(9),
            permissions: 0,
        };
        assert_eq!((named.len(), named[1]), (5, nine));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for wrong in [wire(3, 0, 4), wire(0, 0, 4), wire(tag::OWNER, 0, 8)] {
            assert!(list(&[wrong]).is_err(), "{wrong:?}");
        }
        let inherited = entries(&[wire(tag::OWNER | tag::DEFAULT, 0, 7)]).unwrap();
        assert_eq!(inherited[0].tag, AclTag::Owner);
    }
}
