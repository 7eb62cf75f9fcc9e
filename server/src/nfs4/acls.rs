//! Access control lists: those of the store (POSIX 1003.1e) as entries of version 4 (RFC 7530, section 6; RFC 8881, section 6),
//! and back (draft-ietf-nfsv4-acl-mapping).
//!
//! A list of the store becomes entries that grant and deny the same. Entries may say more than a list of the store can. They
//! become the list that grants no more than they do; entries that deny what no list can deny are refused.

use odafs_common::wire::nfs4::{
    Ace, Acl as WireAcl, Opaque, Status, ace_flag, ace_mask, ace_type, acl_support,
};

use super::compound::{Compound, Done, Stop};
use super::owners::{Kind, Text};
use crate::vfs::acls::{self, NewAcls};
use crate::vfs::{self, Acl, AclEntry, AclTag, Attributes, FileType, ObjectId};

/// The types of entries that the server supports, as bits of [`acl_support`].
pub(super) const SUPPORT: u32 = acl_support::ALLOW | acl_support::DENY;

const READ: u8 = 4;
const WRITE: u8 = 2;
const EXECUTE: u8 = 1;

/// The permissions that everyone has and nobody can be denied.
const ANYONE: u32 = ace_mask::READ_ATTRIBUTES | ace_mask::READ_ACL | ace_mask::SYNCHRONIZE;
/// The permissions that owners have besides, and cannot be denied.
const OWNER: u32 = ace_mask::WRITE_ATTRIBUTES | ace_mask::WRITE_ACL;
/// An entry with one of these flags belongs to the default list.
const INHERITED: u32 = ace_flag::FILE_INHERIT | ace_flag::DIRECTORY_INHERIT;
/// The flags that entries may have.
const FLAGS: u32 = INHERITED | ace_flag::INHERIT_ONLY | ace_flag::IDENTIFIER_GROUP;

/// The users to whom an entry applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Owner,
    OwningGroup,
    Everyone,
    User(u32),
    Group(u32),
}

/// An entry whose name has become a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    allows: bool,
    flags: u32,
    access: u32,
    who: Who,
}

impl Who {
    /// The name that version 4 gives to whoever is no named user or group.
    fn special(self) -> Option<&'static [u8]> {
        match self {
            Self::Owner => Some(b"OWNER@"),
            Self::OwningGroup => Some(b"GROUP@"),
            Self::Everyone => Some(b"EVERYONE@"),
            Self::User(_) | Self::Group(_) => None,
        }
    }
}

/// The entries of an object with the names in them, as they are sent.
pub(super) struct NamedEntries(Vec<(Entry, Text)>);

impl NamedEntries {
    /// The entries of an object with these attributes. May block.
    pub fn of(c: &Compound<'_>, object: ObjectId, known: &Attributes) -> Done<Self> {
        let directory = known.kind == FileType::Directory;
        let access = acls::access(c.export, object, known.mode)?;
        let default = match directory {
            true => acls::default(c.export, object)?,
            false => None,
        };
        let entries = entries_of(&access, default.as_ref(), directory).into_iter();
        let named = entries.map(|entry| -> Done<(Entry, Text)> {
            let name = match entry.who {
                Who::User(uid) => c.server.owners.text(Kind::User, uid, c.effort)?,
                Who::Group(gid) => c.server.owners.text(Kind::Group, gid, c.effort)?,
                who => Text::Fixed(who.special().unwrap_or_default()),
            };
            Ok((entry, name))
        });
        named.collect::<Done<_>>().map(Self)
    }

    /// The entries of a directory of the pseudo file system, which everyone may look at.
    pub fn of_pseudo() -> Self {
        let entries = entries_of(&Acl::of_mode(0o555), None, true).into_iter();
        let named = |entry: Entry| Some((entry, Text::Fixed(entry.who.special()?)));
        Self(entries.filter_map(named).collect())
    }

    pub fn wire(&self) -> WireAcl<'_> {
        let aces = self.0.iter().map(|(entry, name)| Ace {
            kind: match entry.allows {
                true => ace_type::ALLOW,
                false => ace_type::DENY,
            },
            flags: entry.flags,
            access: entry.access,
            who: Opaque(name.bytes()),
        });
        odafs_common::wire::nfs4::List(aces.collect())
    }
}

/// The lists that a client sets with these entries, if it gives any. May block.
pub(super) fn from_wire(
    c: &Compound<'_>,
    list: Option<&WireAcl<'_>>,
    directory: bool,
) -> Done<Option<NewAcls>> {
    let Some(list) = list else {
        return Ok(None);
    };
    let entry = |ace: &Ace<'_>| -> Done<Entry> {
        let group = ace.flags & ace_flag::IDENTIFIER_GROUP != 0;
        let who = match ace.who.0 {
            b"OWNER@" => Who::Owner,
            b"GROUP@" => Who::OwningGroup,
            b"EVERYONE@" => Who::Everyone,
            name if group => Who::Group(c.server.owners.id(Kind::Group, name)?),
            name => Who::User(c.server.owners.id(Kind::User, name)?),
        };
        let known = [ace_type::ALLOW, ace_type::DENY].contains(&ace.kind);
        if !known || ace.flags & !FLAGS != 0 {
            return Err(Status::AttrNotSupp.into());
        }
        Ok(Entry {
            allows: ace.kind == ace_type::ALLOW,
            flags: ace.flags,
            access: ace.access,
            who,
        })
    };
    let entries: Vec<Entry> = list.0.iter().map(entry).collect::<Done<_>>()?;
    Ok(Some(lists_of(&entries, directory)?))
}

/// The failure to set lists: ATTRNOTSUPP if the store has none.
pub(super) fn refusal(error: vfs::StoreError) -> Stop {
    match error.status {
        vfs::Status::NotSupp => Status::AttrNotSupp.into(),
        _ => error.into(),
    }
}

/// The entries of an object with these lists.
fn entries_of(access: &Acl, default: Option<&Acl>, directory: bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    entries_of_list(access, directory, 0, &mut entries);
    if let Some(list) = default {
        let flags = INHERITED | ace_flag::INHERIT_ONLY;
        entries_of_list(list, directory, flags, &mut entries);
    }
    entries
}

/// Version 4 goes through the entries in order and applies each that concerns the caller. So a user with an entry of its own is
/// denied there what later entries would grant. All groups are granted something before any group is denied anything, because a
/// member of several groups has what any of them has.
fn entries_of_list(list: &Acl, directory: bool, flags: u32, out: &mut Vec<Entry>) {
    let mask = list.mask();
    let of = |tag| list.granted_to(tag).unwrap_or(0);
    let (owner, other) = (of(AclTag::Owner), of(AclTag::Other));
    let mut users = Vec::new();
    let mut groups = vec![(Who::OwningGroup, of(AclTag::OwningGroup) & mask)];
    for entry in list.entries() {
        match entry.tag {
            AclTag::User(uid) => users.push((Who::User(uid), entry.permissions & mask)),
            AclTag::Group(gid) => groups.push((Who::Group(gid), entry.permissions & mask)),
            _ => {}
        }
    }
    let all = |of: &[(Who, u8)]| of.iter().fold(0_u8, |all, (_, granted)| all | *granted);
    let flags_of = |who| match who {
        Who::Group(_) => flags | ace_flag::IDENTIFIER_GROUP,
        _ => flags,
    };
    let allow = |out: &mut Vec<Entry>, who, granted, more| {
        out.push(Entry {
            allows: true,
            flags: flags_of(who),
            access: ANYONE | more | access_of(granted, directory),
            who,
        });
    };
    let deny = |out: &mut Vec<Entry>, who, denied: u8| {
        if denied & 7 != 0 {
            out.push(Entry {
                allows: false,
                flags: flags_of(who),
                access: access_of(denied, directory),
                who,
            });
        }
    };
    let of_groups = all(&groups) | other;
    deny(out, Who::Owner, !owner & (all(&users) | of_groups));
    allow(out, Who::Owner, owner, OWNER);
    for (who, granted) in users {
        deny(out, who, !granted & of_groups);
        allow(out, who, granted, 0);
    }
    for (who, granted) in &groups {
        allow(out, *who, *granted, 0);
    }
    for (who, granted) in &groups {
        deny(out, *who, !granted & other);
    }
    allow(out, Who::Everyone, other, 0);
}

fn access_of(granted: u8, directory: bool) -> u32 {
    let mut access = 0;
    if granted & READ != 0 {
        access |= ace_mask::READ_DATA;
    }
    if granted & WRITE != 0 {
        access |= write_access(directory);
    }
    if granted & EXECUTE != 0 {
        access |= ace_mask::EXECUTE;
    }
    access
}

fn write_access(directory: bool) -> u32 {
    let delete = if directory { ace_mask::DELETE_CHILD } else { 0 };
    ace_mask::WRITE_DATA | ace_mask::APPEND_DATA | delete
}

/// The rights of the store that `access` grants. A right is granted only if all permissions that make it up are there.
fn granted_by(access: u32, directory: bool) -> u8 {
    let has = |wanted| access & wanted == wanted;
    let mut granted = 0;
    if has(ace_mask::READ_DATA) {
        granted |= READ;
    }
    if has(write_access(directory)) {
        granted |= WRITE;
    }
    if has(ace_mask::EXECUTE) {
        granted |= EXECUTE;
    }
    granted
}

/// The lists of an object with these entries. Entries to be inherited make up the default list, whether files or directories
/// inherit them.
fn lists_of(entries: &[Entry], directory: bool) -> Result<NewAcls, Status> {
    let is_inherited = |entry: &&Entry| entry.flags & INHERITED != 0;
    if !directory && entries.iter().any(|entry| is_inherited(&entry)) {
        return Err(Status::AttrNotSupp);
    }
    let inherited: Vec<Entry> = entries.iter().filter(is_inherited).copied().collect();
    let effective = |entry: &&Entry| entry.flags & ace_flag::INHERIT_ONLY == 0;
    let effective: Vec<Entry> = entries.iter().filter(effective).copied().collect();
    let default = match inherited.as_slice() {
        [] => None,
        inherited => Some(list_of(inherited, directory)?),
    };
    Ok(NewAcls {
        access: Some(list_of(&effective, directory)?),
        default: directory.then_some(default),
    })
}

/// Whether an entry applies to the users for whom a tag of the list stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applies {
    No,
    Perhaps,
    Surely,
}

fn applies(entry: Who, tag: AclTag) -> Applies {
    let same = match (entry, tag) {
        (Who::Everyone, _) | (Who::Owner, AclTag::Owner) => true,
        (Who::OwningGroup, AclTag::OwningGroup) => true,
        (Who::User(uid), AclTag::User(of)) => uid == of,
        (Who::Group(gid), AclTag::Group(of)) => gid == of,
        _ => false,
    };
    // The owner may be a named user. The owner, users and members of one group may be members of another group.
    let perhaps = match entry {
        Who::User(_) => tag == AclTag::Owner,
        Who::OwningGroup | Who::Group(_) => tag != AclTag::Other,
        Who::Owner | Who::Everyone => false,
    };
    match (same, perhaps) {
        (true, _) => Applies::Surely,
        (_, true) => Applies::Perhaps,
        _ => Applies::No,
    }
}

fn list_of(entries: &[Entry], directory: bool) -> Result<Acl, Status> {
    let mut named: Vec<AclTag> = entries
        .iter()
        .filter_map(|entry| match entry.who {
            Who::User(uid) => Some(AclTag::User(uid)),
            Who::Group(gid) => Some(AclTag::Group(gid)),
            _ => None,
        })
        .collect();
    named.sort_unstable();
    named.dedup();
    let all = [AclTag::Owner, AclTag::OwningGroup, AclTag::Other];
    let mut list = Vec::with_capacity(named.len() + 4);
    let mut mask = 0;
    for tag in all.into_iter().chain(named.iter().copied()) {
        let permissions = granted_by(allowed(entries, tag)?, directory);
        if tag.is_named() || tag == AclTag::OwningGroup {
            mask |= permissions;
        }
        list.push(AclEntry { tag, permissions });
    }
    if !named.is_empty() {
        list.push(AclEntry {
            tag: AclTag::Mask,
            permissions: mask,
        });
    }
    Acl::new(list).map_err(|_| Status::Inval)
}

/// The permissions that the entries surely grant to the users for whom a tag stands. The first entry that surely applies to them
/// decides about a permission. An entry that only perhaps applies to them can deny it and not grant it.
fn allowed(entries: &[Entry], tag: AclTag) -> Result<u32, Status> {
    let (mut allowed, mut denied) = (0, 0);
    for entry in entries {
        let open = entry.access & !(allowed | denied);
        match (entry.allows, applies(entry.who, tag)) {
            (true, Applies::Surely) => allowed |= open,
            (false, Applies::Surely | Applies::Perhaps) => denied |= open,
            _ => {}
        }
    }
    let certain = ace_mask::READ_ATTRIBUTES | ace_mask::READ_ACL;
    let certain = certain | if tag == AclTag::Owner { OWNER } else { 0 };
    match denied & certain {
        0 => Ok(allowed),
        // No list of the store can deny this.
        _ => Err(Status::AttrNotSupp),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(entries: &[(AclTag, u8)]) -> Acl {
        let entries = entries.iter().map(|(tag, permissions)| AclEntry {
            tag: *tag,
            permissions: *permissions,
        });
        Acl::new(entries.collect()).unwrap()
    }

    fn entry(allows: bool, who: Who, access: u32) -> Entry {
        let group = matches!(who, Who::Group(_));
        Entry {
            allows,
            flags: if group { ace_flag::IDENTIFIER_GROUP } else { 0 },
            access,
            who,
        }
    }

    const R: u32 = ace_mask::READ_DATA;
    const W: u32 = ace_mask::WRITE_DATA | ace_mask::APPEND_DATA;
    const X: u32 = ace_mask::EXECUTE;

    #[test]
    fn a_mode_is_the_trivial_list() {
        let entries = entries_of(&Acl::of_mode(0o644), None, false);
        let expected = [
            entry(true, Who::Owner, ANYONE | OWNER | R | W),
            entry(true, Who::OwningGroup, ANYONE | R),
            entry(true, Who::Everyone, ANYONE | R),
        ];
        assert_eq!(entries, expected);
        // Where a class has less than those after it, it is denied the rest.
        let entries = entries_of(&Acl::of_mode(0o157), None, true);
        let expected = [
            entry(false, Who::Owner, R | W | ace_mask::DELETE_CHILD),
            entry(true, Who::Owner, ANYONE | OWNER | X),
            entry(true, Who::OwningGroup, ANYONE | R | X),
            entry(false, Who::OwningGroup, W | ace_mask::DELETE_CHILD),
            entry(
                true,
                Who::Everyone,
                ANYONE | R | W | X | ace_mask::DELETE_CHILD,
            ),
        ];
        assert_eq!(entries, expected);
    }

    #[test]
    fn named_users_and_groups_have_what_the_mask_leaves() {
        let list = list(&[
            (AclTag::Owner, 6),
            (AclTag::User(7), 6),
            (AclTag::OwningGroup, 4),
            (AclTag::Group(8), 0),
            (AclTag::Mask, 4),
            (AclTag::Other, 4),
        ]);
        let expected = [
            entry(true, Who::Owner, ANYONE | OWNER | R | W),
            entry(true, Who::User(7), ANYONE | R),
            entry(true, Who::OwningGroup, ANYONE | R),
            entry(true, Who::Group(8), ANYONE),
            entry(false, Who::Group(8), R),
            entry(true, Who::Everyone, ANYONE | R),
        ];
        assert_eq!(entries_of(&list, None, false), expected);
    }

    #[test]
    fn what_is_inherited_is_the_default_list() {
        let (access, default) = (Acl::of_mode(0o750), Acl::of_mode(0o640));
        let entries = entries_of(&access, Some(&default), true);
        let only = INHERITED | ace_flag::INHERIT_ONLY;
        assert!(entries[3..].iter().all(|entry| entry.flags == only));
        let lists = lists_of(&entries, true).unwrap();
        assert_eq!(lists.access, Some(access));
        assert_eq!(lists.default, Some(Some(default)));
        assert_eq!(lists_of(&entries, false), Err(Status::AttrNotSupp));
        let without = lists_of(&entries[..3], true).unwrap();
        assert_eq!(without.default, Some(None));
        // One that is there to be inherited and for the directory itself counts twice.
        let both = Entry {
            flags: ace_flag::FILE_INHERIT,
            ..entry(true, Who::Everyone, R)
        };
        let lists = lists_of(&[both], true).unwrap();
        assert_eq!(lists.access, Some(Acl::of_mode(0o444)));
        assert_eq!(lists.default, Some(Some(Acl::of_mode(0o444))));
    }

    #[test]
    fn no_more_is_granted_than_the_entries_grant() {
        let of = |entries: &[Entry]| list_of(entries, false).unwrap();
        assert_eq!(of(&[]).mode(), 0);
        // A part of a right is no right.
        assert_eq!(
            of(&[entry(true, Who::Everyone, ace_mask::WRITE_DATA)]).mode(),
            0
        );
        // The first entry decides.
        let entries = [
            entry(true, Who::Everyone, R),
            entry(false, Who::Everyone, R),
        ];
        assert_eq!(of(&entries).mode(), 0o444);
        let entries = [
            entry(false, Who::Everyone, R),
            entry(true, Who::Everyone, R),
        ];
        assert_eq!(of(&entries).mode(), 0);
        // A member of the denied group may be the owner, a user, or a member of another group.
        let entries = [
            entry(false, Who::Group(8), R),
            entry(true, Who::User(7), R),
            entry(true, Who::Group(9), R),
            entry(true, Who::Everyone, R | X),
        ];
        let made = of(&entries);
        assert_eq!(made.granted_to(AclTag::Owner), Some(1));
        assert_eq!(made.granted_to(AclTag::User(7)), Some(1));
        assert_eq!(made.granted_to(AclTag::OwningGroup), Some(1));
        assert_eq!(made.granted_to(AclTag::Group(8)), Some(1));
        assert_eq!(made.granted_to(AclTag::Group(9)), Some(1));
        assert_eq!(made.granted_to(AclTag::Other), Some(5));
        // And the owner may be the denied user.
        let entries = [entry(false, Who::User(7), R), entry(true, Who::Everyone, R)];
        let made = of(&entries);
        assert_eq!(made.granted_to(AclTag::Owner), Some(0));
        assert_eq!(made.granted_to(AclTag::OwningGroup), Some(4));
    }

    #[test]
    fn what_cannot_be_denied_is_refused() {
        let denied = |who, access| list_of(&[entry(false, who, access)], false);
        for access in [ace_mask::READ_ACL, ace_mask::READ_ATTRIBUTES] {
            assert_eq!(denied(Who::Everyone, access), Err(Status::AttrNotSupp));
        }
        assert!(denied(Who::Owner, ace_mask::WRITE_ACL).is_err());
        assert!(denied(Who::OwningGroup, ace_mask::WRITE_OWNER).is_ok());
        let many = (0..2000).map(|uid| entry(true, Who::User(uid), R));
        assert_eq!(
            list_of(&many.collect::<Vec<_>>(), false),
            Err(Status::Inval)
        );
    }

    fn lists() -> impl Strategy<Value = Acl> {
        let named = proptest::collection::btree_map(0..4_u32, 0..8_u8, 0..4);
        (named.clone(), named, [0..8_u8, 0..8, 0..8, 0..8]).prop_map(
            |(users, groups, [owner, group, mask, other])| {
                let mut entries = vec![
                    (AclTag::Owner, owner),
                    (AclTag::OwningGroup, group),
                    (AclTag::Other, other),
                ];
                if !users.is_empty() || !groups.is_empty() {
                    entries.push((AclTag::Mask, mask));
                }
                entries.extend(users.into_iter().map(|(uid, has)| (AclTag::User(uid), has)));
                entries.extend(
                    groups
                        .into_iter()
                        .map(|(gid, has)| (AclTag::Group(gid), has)),
                );
                list(&entries)
            },
        )
    }

    proptest! {
        /// A list that is told and set again grants everyone the same.
        #[test]
        fn what_is_told_can_be_set(access in lists(), default in proptest::option::of(lists())) {
            let entries = entries_of(&access, default.as_ref(), true);
            let again = lists_of(&entries, true).unwrap();
            let effective = |list: &Acl| {
                let masked = |entry: &AclEntry| match entry.tag {
                    AclTag::Owner | AclTag::Other => (entry.tag, entry.permissions),
                    tag => (tag, entry.permissions & list.mask()),
                };
                let entries = list.entries().iter().filter(|entry| entry.tag != AclTag::Mask);
                entries.map(masked).collect::<Vec<_>>()
            };
            prop_assert_eq!(effective(&again.access.unwrap()), effective(&access));
            let default_again = again.default.unwrap();
            prop_assert_eq!(default_again.as_ref().map(effective), default.as_ref().map(effective));
        }
    }
}
