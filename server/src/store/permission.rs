//! Rights by owner, group and mode. Stores without a kernel behind them apply these rules.

use crate::store::{Attributes, FileType, SetAttributes, SetTime, Status, access};

use super::{Credential, Result};

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// The bits of `mask` (RFC 1813, section 3.3.4) that mode, owner and group grant. Only for objects of which
/// [`super::Store::mode_decides`] is true. User 0 may do everything, but execute only what someone may execute.
///
/// MODIFY and EXTEND stand for writing to a file, and for adding, removing and renaming in a directory. DELETE (of a
/// directory's entries) follows the same right, as on Linux. READ is what open(2) would grant; [`may_read`] also knows what
/// the READ procedure grants beyond that.
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

/// Whether READ is granted. Besides those to whom the mode grants it, the owner may always read, because it may have
/// changed the mode after opening the file. Those who may execute the file may read it too, because that is how clients
/// page in programs (RFC 1813, section 4.4).
pub fn may_read(attributes: &Attributes, credential: &Credential) -> bool {
    credential.uid == attributes.uid
        || class_bits(attributes, credential) & READ != 0
        || (attributes.kind == FileType::Regular
            && class_bits(attributes, credential) & EXECUTE != 0)
}

/// Whether WRITE is granted: by the mode, and to the owner always (RFC 1813, section 4.4).
pub fn may_write(attributes: &Attributes, credential: &Credential) -> bool {
    credential.uid == attributes.uid || class_bits(attributes, credential) & WRITE != 0
}

/// The three permission bits that apply to the caller.
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

/// Checks the right to look a name up.
pub(crate) fn check_search(directory: &Attributes, credential: &Credential) -> Result<()> {
    require(
        class_bits(directory, credential) & EXECUTE != 0,
        Status::Access,
    )
}

/// Checks the right to list a directory.
pub(crate) fn check_list(directory: &Attributes, credential: &Credential) -> Result<()> {
    require(
        class_bits(directory, credential) & READ != 0,
        Status::Access,
    )
}

/// Checks the right to write, without the owner's privilege.
pub(crate) fn check_write(attributes: &Attributes, credential: &Credential) -> Result<()> {
    require(
        class_bits(attributes, credential) & WRITE != 0,
        Status::Access,
    )
}

/// Checks the right to add a name.
pub(crate) fn check_add(directory: &Attributes, credential: &Credential) -> Result<()> {
    let wanted = WRITE | EXECUTE;
    require(
        class_bits(directory, credential) & wanted == wanted,
        Status::Access,
    )
}

/// Checks the right to give an object another name. Its owner has it. So has anyone who may read and write the object,
/// unless it runs with the rights of another user (Linux's `fs.protected_hardlinks`).
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

/// Checks the right to remove a name. In a sticky directory only its owner and the object's owner have it.
pub(crate) fn check_take(
    directory: &Attributes,
    victim: &Attributes,
    credential: &Credential,
) -> Result<()> {
    check_add(directory, credential)?;
    check_sticky(directory, victim, credential)
}

/// Checks that the directory is not sticky, or that the caller owns it or the object, or is root.
pub(crate) fn check_sticky(
    directory: &Attributes,
    victim: &Attributes,
    credential: &Credential,
) -> Result<()> {
    let owner = [0, directory.uid, victim.uid].contains(&credential.uid);
    require(directory.mode & STICKY == 0 || owner, Status::Perm)
}

/// Checks the right to change attributes (as POSIX for chmod, chown, truncate and utimes).
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

/// The part of `new` that the maker of an object may set. Root may name any owner and group, others only their own.
pub(crate) fn settable_at_first(credential: &Credential, new: &SetAttributes) -> SetAttributes {
    let root = credential.uid == 0;
    SetAttributes {
        uid: new.uid.filter(|uid| root || *uid == credential.uid),
        gid: new.gid.filter(|gid| root || credential.is_member(*gid)),
        ..*new
    }
}

/// The mode of a new object in that directory. mkdir(2) takes no set-id bits. Only members of a group that comes from the
/// directory may set set-group-id for it.
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

/// The mode after a chmod by this caller. Only members of the group may set set-group-id.
pub(crate) fn settable_mode(mode: u32, gid: u32, credential: &Credential) -> u32 {
    let keeps = credential.uid == 0 || credential.is_member(gid);
    mode & 0o7777 & if keeps { !0 } else { !SET_GROUP_ID }
}

/// The mode of a file after a write or a change of size, which clear the set-id bits unless root made it.
pub(crate) fn mode_after_change(attributes: &Attributes, credential: &Credential) -> u32 {
    let exempt = credential.uid == 0 || attributes.kind != FileType::Regular;
    if exempt {
        attributes.mode
    } else {
        mode_after_giving(attributes, credential)
    }
}

/// The mode after a change of owner or group by anyone. Set-group-id without the group's right to execute does not change
/// the group (it once stood for mandatory locks), and stays if a member of the group made the change.
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
