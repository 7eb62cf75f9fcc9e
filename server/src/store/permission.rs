//! Who may do what, by owner, group and mode: the rules that a store without a kernel behind it goes by.

use crate::store::{Attributes, FileType, SetAttributes, SetTime, Status, access};

use super::{Credential, Result};

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// Those bits of `mask` (RFC 1813 section 3.3.4) that mode, owner and group grant. Only for objects of
/// which [`super::Store::mode_decides`] is true. Uid 0 may do everything, but execute only what someone may.
///
/// MODIFY and EXTEND stand for writing to a file and for adding, removing and renaming in a directory; DELETE
/// (of a directory's entries) likewise, as Linux has it. READ is what open(2) would say: what READ itself
/// grants beyond it, [`may_read`] knows.
pub fn attributes_permit(attributes: &Attributes, credential: &Credential, mask: u32) -> u32 {
    let has = |wanted| class_bits(attributes, credential) & wanted != 0;
    let mut granted = 0;
    if has(READ) {
        granted |= access::READ;
    }
    let directory = attributes.kind == FileType::Directory;
    if has(WRITE) {
        granted |= access::MODIFY | access::EXTEND;
        if directory {
            granted |= access::DELETE;
        }
    }
    if has(EXECUTE) {
        granted |= if directory {
            access::LOOKUP
        } else {
            access::EXECUTE
        };
    }
    granted & mask
}

/// Whether READ is granted: by mode; to the owner always, since it may have changed the mode after opening;
/// and to whoever may execute, since that is how clients page in programs (RFC 1813 section 4.4).
pub fn may_read(attributes: &Attributes, credential: &Credential) -> bool {
    credential.uid == attributes.uid
        || class_bits(attributes, credential) & READ != 0
        || (attributes.kind == FileType::Regular
            && class_bits(attributes, credential) & EXECUTE != 0)
}

/// Whether WRITE is granted: by mode, and to the owner always (RFC 1813 section 4.4).
pub fn may_write(attributes: &Attributes, credential: &Credential) -> bool {
    credential.uid == attributes.uid || class_bits(attributes, credential) & WRITE != 0
}

/// The caller's three bits.
fn class_bits(attributes: &Attributes, credential: &Credential) -> u32 {
    let mode = attributes.mode;
    if credential.uid == 0 {
        let executable = attributes.kind == FileType::Directory || mode & 0o111 != 0;
        READ | WRITE | if executable { EXECUTE } else { 0 }
    } else if credential.uid == attributes.uid {
        (mode >> 6) & 7
    } else if credential.is_member(attributes.gid) {
        (mode >> 3) & 7
    } else {
        mode & 7
    }
}

/// Looking a name up.
pub(crate) fn check_search(directory: &Attributes, credential: &Credential) -> Result<()> {
    require(
        class_bits(directory, credential) & EXECUTE != 0,
        Status::Access,
    )
}

/// Listing.
pub(crate) fn check_list(directory: &Attributes, credential: &Credential) -> Result<()> {
    require(
        class_bits(directory, credential) & READ != 0,
        Status::Access,
    )
}

/// Writing, without the owner's privilege.
pub(crate) fn check_write(attributes: &Attributes, credential: &Credential) -> Result<()> {
    require(
        class_bits(attributes, credential) & WRITE != 0,
        Status::Access,
    )
}

/// Adding a name.
pub(crate) fn check_add(directory: &Attributes, credential: &Credential) -> Result<()> {
    let wanted = WRITE | EXECUTE;
    require(
        class_bits(directory, credential) & wanted == wanted,
        Status::Access,
    )
}

/// Giving an object one more name: its owner, and whoever may read and write it unless it runs with the rights
/// of another (Linux's `fs.protected_hardlinks`).
pub(crate) fn check_link(object: &Attributes, credential: &Credential) -> Result<()> {
    let bits = class_bits(object, credential);
    let set_id = object.mode & SET_USER_ID != 0
        || object.mode & (SET_GROUP_ID | 0o010) == SET_GROUP_ID | 0o010;
    let harmless = object.kind == FileType::Regular && !set_id;
    let owner = [0, object.uid].contains(&credential.uid);
    require(
        owner || (harmless && bits & READ != 0 && bits & WRITE != 0),
        Status::Perm,
    )
}

/// Taking a name away: in a sticky directory only its owner or the object's may.
pub(crate) fn check_take(
    directory: &Attributes,
    victim: &Attributes,
    credential: &Credential,
) -> Result<()> {
    check_add(directory, credential)?;
    let owner = [0, directory.uid, victim.uid].contains(&credential.uid);
    require(directory.mode & STICKY == 0 || owner, Status::Perm)
}

/// Changing attributes (chmod, chown, truncate and utimes of POSIX).
pub(crate) fn check_set(
    attributes: &Attributes,
    credential: &Credential,
    new: &SetAttributes,
) -> Result<()> {
    if credential.uid == 0 {
        return Ok(());
    }
    let owner = credential.uid == attributes.uid;
    let writer = owner || may_write(attributes, credential);
    require(new.mode.is_none() || owner, Status::Perm)?;
    require(
        new.uid.is_none_or(|uid| owner && uid == attributes.uid),
        Status::Perm,
    )?;
    let group_allowed = |gid| owner && (gid == attributes.gid || credential.is_member(gid));
    require(new.gid.is_none_or(group_allowed), Status::Perm)?;
    require(new.size.is_none() || writer, Status::Access)?;
    for time in [new.atime, new.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::ServerTime => require(writer, Status::Access)?,
            SetTime::To(_) => require(owner, Status::Perm)?,
        }
    }
    Ok(())
}

/// What of `new` its maker may set of a new object: root names any owner and group, others their own.
pub(crate) fn settable_at_first(credential: &Credential, new: &SetAttributes) -> SetAttributes {
    let root = credential.uid == 0;
    SetAttributes {
        uid: new.uid.filter(|uid| root || *uid == credential.uid),
        gid: new.gid.filter(|gid| root || credential.is_member(*gid)),
        ..*new
    }
}

/// The mode of a new object in that directory: mkdir(2) takes no set-id bits, and set-group-id for a group that
/// comes from the directory is for its members.
pub(crate) fn made_mode(
    mode: u32,
    kind: FileType,
    directory: &Attributes,
    credential: &Credential,
) -> u32 {
    let executable_by_group = SET_GROUP_ID | 0o010;
    let member = credential.uid == 0 || credential.is_member(directory.gid);
    if kind == FileType::Directory {
        mode & 0o1777
    } else if mode & executable_by_group == executable_by_group
        && directory.mode & SET_GROUP_ID != 0
        && !member
    {
        mode & 0o7777 & !SET_GROUP_ID
    } else {
        mode & 0o7777
    }
}

/// The mode that a chmod by this caller leads to: set-group-id only by members of the group.
pub(crate) fn settable_mode(mode: u32, gid: u32, credential: &Credential) -> u32 {
    let keeps = credential.uid == 0 || credential.is_member(gid);
    mode & 0o7777 & if keeps { !0 } else { !SET_GROUP_ID }
}

/// The mode of a file after someone wrote to it or changed its size: set-id bits do not outlive it, but for root.
pub(crate) fn mode_after_change(attributes: &Attributes, credential: &Credential) -> u32 {
    let exempt = credential.uid == 0 || attributes.kind != FileType::Regular;
    if exempt {
        attributes.mode
    } else {
        mode_after_giving(attributes, credential)
    }
}

/// The mode after a change of owner or group, whoever did it. Set-group-id without the group's right to execute
/// is no set-group-id (it once stood for mandatory locks), and stays for members of the group.
pub(crate) fn mode_after_giving(attributes: &Attributes, credential: &Credential) -> u32 {
    let mode = attributes.mode;
    if attributes.kind == FileType::Directory {
        return mode;
    }
    let keeps = credential.uid == 0 || credential.is_member(attributes.gid);
    let stays = keeps && mode & 0o010 == 0;
    mode & !SET_USER_ID & if stays { !0 } else { !SET_GROUP_ID }
}

fn require(granted: bool, otherwise: Status) -> Result<()> {
    if granted {
        Ok(())
    } else {
        Err(otherwise.into())
    }
}
