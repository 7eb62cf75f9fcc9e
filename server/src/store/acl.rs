//! Access control lists in the terms of POSIX 1003.1e draft 17, section 23, as Linux has them (acl(5)).

pub use odafs_common::acl::{AclEntry, AclTag};

use super::{Attributes, Credential, FileType, Result, Status};

/// The most entries of a list: what NFSACL has room for.
pub const ACL_ENTRIES_MAX: usize = 1024;

/// Which of the two lists of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclKind {
    /// Who may do what with the object.
    Access,
    /// What is made in a directory begins with this list.
    Default,
}

/// A valid list: one entry each for the owner, the owning group and all others, at most one for each user and group, and a
/// mask if there is one of those. The entries are in the order of their tags.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// A list of these entries, in any order.
    ///
    /// # Errors
    /// INVAL where they make no valid list, or are more than [`ACL_ENTRIES_MAX`].
    pub fn new(mut entries: Vec<AclEntry>) -> Result<Self> {
        entries.sort_unstable();
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let whole = [AclTag::Owner, AclTag::OwningGroup, AclTag::Other]
            .into_iter()
            .all(|tag| count(tag) == 1);
        let named = entries.iter().any(|entry| entry.tag.is_named());
        let unique = entries.windows(2).all(|pair| pair[0].tag != pair[1].tag);
        let masked = !named || count(AclTag::Mask) == 1;
        let bits = entries.iter().all(|entry| entry.permissions <= 7);
        if whole && unique && masked && bits && entries.len() <= ACL_ENTRIES_MAX {
            Ok(Self { entries })
        } else {
            Err(Status::Inval.into())
        }
    }

    /// The list that says what the permission bits of a mode say.
    pub fn of_mode(mode: u32) -> Self {
        let entry = |tag, shift: u32| AclEntry {
            tag,
            permissions: (mode >> shift & 7) as u8,
        };
        Self {
            entries: vec![
                entry(AclTag::Owner, 6),
                entry(AclTag::OwningGroup, 3),
                entry(AclTag::Other, 0),
            ],
        }
    }

    /// The entries, in the order of their tags.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Whether a mode says the same: there are no more than the three entries that each list has.
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// What is granted to `tag`, without regard to the mask. `None` if there is no such entry.
    pub fn granted_to(&self, tag: AclTag) -> Option<u8> {
        let found = self.entries.iter().find(|entry| entry.tag == tag);
        found.map(|entry| entry.permissions)
    }

    /// The most that named users and groups have.
    pub fn mask(&self) -> u8 {
        self.granted_to(AclTag::Mask).unwrap_or(7)
    }

    /// The permission bits that a mode shows: for the group's those of the mask, if there is one.
    pub fn mode(&self) -> u32 {
        let of = |tag| u32::from(self.granted_to(tag).unwrap_or(0));
        let group = match self.granted_to(AclTag::Mask) {
            Some(mask) => mask.into(),
            None => of(AclTag::OwningGroup),
        };
        of(AclTag::Owner) << 6 | group << 3 | of(AclTag::Other)
    }

    /// The list after a change of the mode.
    #[must_use]
    pub fn with_mode(&self, mode: u32) -> Self {
        self.map_classes(|_, shift| (mode >> shift & 7) as u8)
    }

    /// The list that an object has which is made with `mode` where this is the default one.
    #[must_use]
    pub fn inherited(&self, mode: u32) -> Self {
        self.map_classes(|granted, shift| granted & (mode >> shift & 7) as u8)
    }

    /// Changes the entries that the three classes of a mode stand for.
    fn map_classes(&self, change: impl Fn(u8, u32) -> u8) -> Self {
        let masked = self.granted_to(AclTag::Mask).is_some();
        let mut entries = self.entries.clone();
        for entry in &mut entries {
            let shift = match entry.tag {
                AclTag::Owner => 6,
                AclTag::OwningGroup if !masked => 3,
                AclTag::Mask => 3,
                AclTag::Other => 0,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, shift);
        }
        Self { entries }
    }

    /// The caller's three bits, of an object with these attributes. (Uid 0 is nobody special here.)
    pub fn bits(&self, attributes: &Attributes, who: &Credential) -> u32 {
        let of = |tag| self.granted_to(tag);
        if who.uid == attributes.uid {
            return of(AclTag::Owner).unwrap_or(0).into();
        }
        if let Some(granted) = of(AclTag::User(who.uid)) {
            return (granted & self.mask()).into();
        }
        let mut member = false;
        let (mut granted, mut adds) = (0, false);
        for entry in &self.entries {
            let concerns = match entry.tag {
                AclTag::OwningGroup => who.is_member(attributes.gid),
                AclTag::Group(gid) => who.is_member(gid),
                _ => false,
            };
            if concerns {
                member = true;
                granted |= entry.permissions & self.mask();
                adds |= entry.permissions & self.mask() & 3 == 3;
            }
        }
        // Who is in several groups has what one of them has. Changing a directory takes two bits, and one entry has to have
        // both.
        if attributes.kind == FileType::Directory && !adds && granted & 3 == 3 {
            granted &= !2;
        }
        if member {
            return granted.into();
        }
        of(AclTag::Other).unwrap_or(0).into()
    }

    /// The attributes by whose mode this caller has what the list grants: the rules for modes then serve for lists.
    pub fn judged(&self, attributes: &Attributes, who: &Credential) -> Attributes {
        if who.uid == 0 {
            return *attributes;
        }
        let bits = self.bits(attributes, who);
        Attributes {
            mode: attributes.mode & !0o777 | bits << 6 | bits << 3 | bits,
            ..*attributes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Device, Time, access, attributes_permit};

    fn entry(tag: AclTag, permissions: u8) -> AclEntry {
        AclEntry { tag, permissions }
    }

    /// u::rwx u:7:r-x g::rw- g:8:r-- g:9:-wx m::rw- o::--x
    fn list() -> Vec<AclEntry> {
        vec![
            entry(AclTag::Other, 1),
            entry(AclTag::Group(9), 3),
            entry(AclTag::Mask, 6),
            entry(AclTag::Owner, 7),
            entry(AclTag::OwningGroup, 6),
            entry(AclTag::User(7), 5),
            entry(AclTag::Group(8), 4),
        ]
    }

    fn attributes() -> Attributes {
        Attributes {
            kind: FileType::Regular,
            mode: 0o2761,
            links: 1,
            uid: 5,
            gid: 6,
            size: 0,
            used: 0,
            device: Device::default(),
            fsid: 0,
            fileid: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert!(Acl::new(list()).is_ok());
        let without = |tag| list().into_iter().filter(|e| e.tag != tag).collect();
        for tag in [
            AclTag::Owner,
            AclTag::OwningGroup,
            AclTag::Other,
            AclTag::Mask,
        ] {
            assert!(Acl::new(without(tag)).is_err(), "{tag:?}");
        }
        for extra in [
            entry(AclTag::Owner, 7),
            entry(AclTag::Mask, 6),
            entry(AclTag::Group(8), 0),
            entry(AclTag::User(9), 8),
        ] {
            assert!(
                Acl::new([list(), vec![extra]].concat()).is_err(),
                "{extra:?}"
            );
        }
        let users = |count| (100..100 + count).map(|uid| entry(AclTag::User(uid), 1));
        let long = |count: usize| {
            let named = users((count - list().len()) as u32);
            Acl::new(list().into_iter().chain(named).collect())
        };
        assert!(long(ACL_ENTRIES_MAX).is_ok());
        assert!(long(ACL_ENTRIES_MAX + 1).is_err());
        assert!(Acl::new(Vec::new()).is_err());
    }

    #[test]
    fn modes_and_lists_say_the_same() {
        let minimal = Acl::of_mode(0o100_754);
        assert!(minimal.is_minimal());
        assert_eq!(minimal.mode(), 0o754);
        assert_eq!(minimal.with_mode(0o4026), Acl::of_mode(0o026));
        let list = Acl::new(list()).unwrap();
        assert!(!list.is_minimal());
        // The mask where the group's bits belong.
        assert_eq!(list.mode(), 0o761);
        let changed = list.with_mode(0o640);
        assert_eq!(changed.mode(), 0o640);
        assert_eq!(changed.granted_to(AclTag::OwningGroup), Some(6));
        let made = list.inherited(0o654);
        assert_eq!(made.mode(), 0o640);
        assert_eq!(made.granted_to(AclTag::User(7)), Some(5));
        assert_eq!(Acl::of_mode(0o775).inherited(0o666), Acl::of_mode(0o664));
    }

    #[test]
    fn callers_have_what_their_entry_grants() {
        let list = Acl::new(list()).unwrap();
        let bits = |uid, gid, groups: &[u32]| {
            let who = Credential::of(uid, gid, groups);
            let bits = list.bits(&attributes(), &who);
            let judged = list.judged(&attributes(), &who);
            assert_eq!(judged.mode & 0o7000, 0o2000);
            let mask = access::READ | access::MODIFY | access::EXECUTE;
            let permitted = attributes_permit(&judged, &who, mask);
            let expected = [(4, access::READ), (2, access::MODIFY), (1, access::EXECUTE)]
                .map(|(bit, right)| if bits & bit != 0 { right } else { 0 });
            assert_eq!(permitted, expected.into_iter().sum::<u32>());
            bits
        };
        assert_eq!(bits(5, 9, &[]), 7, "the owner, whom no mask binds");
        assert_eq!(bits(7, 6, &[9]), 4, "a named user, whatever his groups");
        assert_eq!(bits(1, 6, &[]), 6, "the owning group");
        assert_eq!(bits(1, 8, &[]), 4, "a named group");
        assert_eq!(bits(1, 2, &[9]), 2, "within the mask");
        assert_eq!(bits(1, 9, &[8]), 6, "two named groups");
        assert_eq!(bits(1, 2, &[3]), 1, "none of these");
        let split = Acl::new(vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::OwningGroup, 2),
            entry(AclTag::Group(8), 5),
            entry(AclTag::Mask, 7),
            entry(AclTag::Other, 0),
        ]);
        let split = split.unwrap();
        let who = Credential::of(1, 6, &[8]);
        assert_eq!(split.bits(&attributes(), &who), 7);
        let directory = Attributes {
            kind: FileType::Directory,
            ..attributes()
        };
        assert_eq!(split.bits(&directory, &who), 5, "no entry has both");
        let root = Credential::of(0, 0, &[]);
        assert_eq!(split.judged(&directory, &root), directory);
    }
}
