//! The attributes of version 4 (RFC 7530, section 5; RFC 8881, section 5).

use odafs_common::wire::nfs4::{
    Attribute, Attributes as Wire, Bitmap, ChangeType, FileHandle, FileType, FsId, Opaque,
    OpenArguments, RawAttributes, SetAttributes as WireSet, Status, Time, known_in, share_access,
};

use super::compound::{Compound, Done};
use super::object::{Object, fileid};
use super::owners::{Kind, Text};
use super::{DATA_BYTES_MAX, acls, convert};
use crate::vfs::acls::NewAcls;
use crate::vfs::attributes::{
    birth_time, freed_bytes, has_birth_times, limits, space, tells_freed_bytes,
};
use crate::vfs::export::Exports;
use crate::vfs::{
    self, Attributes, FileSystemLimits, ObjectId, SetAttributes, Space, copies, xattrs,
};

/// The attributes of a file system's space.
const SPACE: Bitmap = Bitmap::of(&[
    Attribute::FilesAvailable,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::SpaceAvailable,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
]);
/// The attributes of a file system's limits.
const LIMITS: Bitmap = Bitmap::of(&[
    Attribute::CaseInsensitive,
    Attribute::CasePreserving,
    Attribute::ChownRestricted,
    Attribute::MaxFileSize,
    Attribute::MaxLink,
    Attribute::MaxName,
    Attribute::NoTrunc,
    Attribute::TimeDelta,
]);
/// The attributes of an object.
const OBJECT: Bitmap = Bitmap::of(&[
    Attribute::SupportedAttributes,
    Attribute::Type,
    Attribute::FhExpireType,
    Attribute::Change,
    Attribute::Size,
    Attribute::LinkSupport,
    Attribute::SymlinkSupport,
    Attribute::NamedAttributes,
    Attribute::FsId,
    Attribute::UniqueHandles,
    Attribute::LeaseTime,
    Attribute::ReadAttributeError,
    Attribute::Acl,
    Attribute::AclSupport,
    Attribute::CanSetTime,
    Attribute::FileHandle,
    Attribute::FileId,
    Attribute::Homogeneous,
    Attribute::MaxRead,
    Attribute::MaxWrite,
    Attribute::Mode,
    Attribute::NumLinks,
    Attribute::Owner,
    Attribute::OwnerGroup,
    Attribute::RawDevice,
    Attribute::SpaceUsed,
    Attribute::TimeAccess,
    Attribute::TimeCreate,
    Attribute::TimeMetadata,
    Attribute::TimeModify,
    Attribute::MountedOnFileId,
    Attribute::SupportedExclusiveCreate,
    Attribute::FsCharsetCapabilities,
    Attribute::SpaceFreed,
    Attribute::ChangeAttributeType,
    Attribute::XattrSupport,
    Attribute::CloneBlockSize,
    Attribute::OpenArguments,
]);
/// What OPEN supports (RFC 9754). Not: to say later that a delegation can be had, delegations of timestamps, and claims of
/// delegations from before a client's restart.
const OPEN_ARGUMENTS: OpenArguments = OpenArguments {
    share_access: numbers(&[1, 2, 3]),
    share_deny: numbers(&[0, 1, 2, 3]),
    wants: numbers(&[3, 4, 5, share_access::OPEN_XOR_DELEGATION.trailing_zeros()]),
    claims: numbers(&[0, 1, 2, 4, 5]),
    creations: numbers(&[0, 1, 2, 3]),
};

const fn numbers(all: &[u32]) -> Bitmap {
    let (mut set, mut at) = (Bitmap::EMPTY, 0);
    while at < all.len() {
        set = set.with(all[at]);
        at += 1;
    }
    set
}

/// The attributes that can be set and not asked for.
const SETTABLE: Bitmap = Bitmap::of(&[
    Attribute::TimeAccessSet,
    Attribute::TimeModifySet,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);
/// The attribute that can be set by the protocol and not in any store. Clients that know it send it along whenever they make a
/// file (those of macOS do), so refusing it would refuse their files. The reply does not name it among those that were set.
pub(super) const NEVER_SET: Bitmap = Bitmap::of(&[Attribute::TimeCreate]);
/// The attributes that an exclusive creation can set. The times are not among them: the server keeps the verifier in them.
const EXCLUSIVE: Bitmap = Bitmap::of(&[
    Attribute::Size,
    Attribute::Acl,
    Attribute::Mode,
    Attribute::Owner,
    Attribute::OwnerGroup,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);
/// The server takes names that are not UTF-8 (FSCHARSET_CAP4_CONTAINS_NON_UTF8).
const CHARSET_ANY: u32 = 1;

/// The attributes that clients of a minor version can ask for or set.
pub(super) fn supported(export: &Exports, minor: u32) -> Bitmap {
    let mut all = OBJECT.or(&SPACE).or(&LIMITS).or(&SETTABLE);
    if copies::clone_block(export, export.root()).is_none() {
        all = all.without(&Bitmap::of(&[Attribute::CloneBlockSize]));
    }
    if !vfs::acls::supported(export) {
        all = all.without(&ACLS);
    }
    if !has_birth_times(export) {
        all = all.without(&Bitmap::of(&[Attribute::TimeCreate]));
    }
    if !tells_freed_bytes(export) {
        all = all.without(&Bitmap::of(&[Attribute::SpaceFreed]));
    }
    all.and(&known_in(minor))
}

/// The attributes of access control lists, which not every store has.
pub(super) const ACLS: Bitmap = Bitmap::of(&[Attribute::Acl, Attribute::AclSupport]);

/// The attributes that set a mode.
const MODES: Bitmap = Bitmap::of(&[
    Attribute::Mode,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);

/// The attributes that the client can set in an exclusive creation.
pub(super) fn exclusive(c: &Compound<'_>) -> Bitmap {
    EXCLUSIVE.and(c.supported())
}

/// Space and limits of a file system, as far as they were asked for.
#[derive(Clone, Copy, Default)]
pub(super) struct FileSystem {
    space: Option<Space>,
    limits: Option<FileSystemLimits>,
}

impl FileSystem {
    /// Of the file system in which the object lies.
    pub fn of(c: &Compound<'_>, object: ObjectId, asked: &Bitmap) -> Done<Self> {
        let wants = |of: &Bitmap| !asked.and(of).is_empty();
        let space = wants(&SPACE).then(|| space(c.export, object, c.effort));
        let limits = wants(&LIMITS).then(|| limits(c.export, object, c.effort));
        Ok(Self {
            space: space.transpose()?,
            limits: limits.transpose()?,
        })
    }
}

/// Owners, access control list and time of birth of an object, as far as they were asked for.
pub(super) struct Details {
    owner: Option<Text>,
    group: Option<Text>,
    acl: Option<acls::NamedEntries>,
    birth: Option<vfs::Time>,
}

impl Details {
    /// Of an object with these attributes. May block if any is asked for.
    pub fn of(
        c: &Compound<'_>,
        object: ObjectId,
        known: &Attributes,
        asked: &Bitmap,
    ) -> Done<Self> {
        let text = |attribute, kind, id| {
            let wanted = asked.contains(attribute);
            let text = wanted.then(|| c.server.owners.text(kind, id, c.effort));
            text.transpose()
        };
        let asked = asked.and(c.supported());
        let acl = match asked.contains(Attribute::Acl) {
            true => {
                c.may_block()?;
                Some(acls::NamedEntries::of(c, object, known)?)
            }
            false => None,
        };
        let birth = match asked.contains(Attribute::TimeCreate) {
            true => birth_time(c.export, object, c.effort)?,
            false => None,
        };
        Ok(Self {
            owner: text(Attribute::Owner, Kind::User, known.uid)?,
            group: text(Attribute::OwnerGroup, Kind::Group, known.gid)?,
            acl,
            birth,
        })
    }
}

/// Calls `then` with the attributes of an object.
pub(super) fn with<R>(
    c: &Compound<'_>,
    object: Object,
    asked: &Bitmap,
    then: impl FnOnce(&Wire<'_>) -> R,
) -> Done<R> {
    match object {
        Object::Pseudo(depth) => Ok(with_pseudo(c, depth, then)),
        Object::Real(object) => {
            let known = c.attributes(object)?;
            with_known(c, object, &known, asked, then)
        }
    }
}

/// As [`with`], if the object's attributes are known.
pub(super) fn with_known<R>(
    c: &Compound<'_>,
    object: ObjectId,
    known: &Attributes,
    asked: &Bitmap,
    then: impl FnOnce(&Wire<'_>) -> R,
) -> Done<R> {
    let system = FileSystem::of(c, object, asked)?;
    let details = Details::of(c, object, known, asked)?;
    Ok(with_all(c, object, known, (&system, &details), then))
}

/// As [`with`], if all that it takes is known.
pub(super) fn with_all<R>(
    c: &Compound<'_>,
    object: ObjectId,
    known: &Attributes,
    (system, details): (&FileSystem, &Details),
    then: impl FnOnce(&Wire<'_>) -> R,
) -> R {
    let handle = c.file_handle(Object::Real(object));
    let tree = &c.server.tree;
    let above = tree.mounted_on().filter(|_| tree.is_export_root(object));
    let above = above.or_else(|| c.export.store().mounted_on(object));
    let has = |attribute| c.supported().contains(attribute);
    let mut all = Wire {
        kind: Some(convert::kind(known.kind)),
        change: Some(known.change()),
        size: Some(known.size),
        fsid: Some(FsId {
            major: known.fsid,
            minor: 0,
        }),
        file: Some(FileHandle(&handle)),
        fileid: Some(known.fileid),
        mode: Some(known.mode),
        links: Some(known.links),
        owner: details.owner.as_ref().map(|text| Opaque(text.bytes())),
        group: details.group.as_ref().map(|text| Opaque(text.bytes())),
        acl: details.acl.as_ref().map(acls::NamedEntries::wire),
        device: Some(convert::device(known.device)),
        space_used: Some(known.used),
        time_access: Some(convert::time(known.atime)),
        time_create: details.birth.map(convert::time),
        time_metadata: Some(convert::time(known.ctime)),
        time_modify: Some(convert::time(known.mtime)),
        mounted_on_fileid: Some(above.unwrap_or(known.fileid)),
        space_freed: has(Attribute::SpaceFreed).then(|| freed_bytes(known)),
        clone_block_size: copies::clone_block(c.export, object).filter(|_| c.minor > 1),
        ..common(c)
    };
    if let Some(space) = &system.space {
        all.files_available = Some(space.available_files);
        all.files_free = Some(space.free_files);
        all.files_total = Some(space.total_files);
        all.space_available = Some(space.available_bytes);
        all.space_free = Some(space.free_bytes);
        all.space_total = Some(space.total_bytes);
    }
    if let Some(limits) = &system.limits {
        all.case_insensitive = Some(limits.case_insensitive);
        all.case_preserving = Some(limits.case_preserving);
        all.chown_restricted = Some(limits.chown_restricted);
        all.max_file_size = Some(limits.size_max);
        all.max_link = Some(limits.link_max);
        all.max_name = Some(limits.name_max);
        all.no_trunc = Some(limits.no_trunc);
        all.time_delta = Some(Time {
            seconds: i64::from(limits.time_delta_ns / 1_000_000_000),
            nanoseconds: limits.time_delta_ns % 1_000_000_000,
        });
    }
    then(&all)
}

/// Calls `then` with the attributes of a directory of the pseudo file system, which never change.
fn with_pseudo<R>(c: &Compound<'_>, depth: u8, then: impl FnOnce(&Wire<'_>) -> R) -> R {
    let handle = c.file_handle(Object::Pseudo(depth));
    let number = fileid(depth.into());
    let time = Some(Time::default());
    let acl = acls::NamedEntries::of_pseudo();
    then(&Wire {
        kind: Some(FileType::Directory),
        change: Some(1),
        size: Some(4096),
        fsid: Some(FsId::default()),
        file: Some(FileHandle(&handle)),
        fileid: Some(number),
        mode: Some(0o555),
        links: Some(3),
        owner: Some(Opaque(b"0")),
        group: Some(Opaque(b"0")),
        acl: c.supported().contains(Attribute::Acl).then(|| acl.wire()),
        device: Some(Default::default()),
        space_used: Some(4096),
        time_access: time,
        time_create: time,
        time_metadata: time,
        time_modify: time,
        space_freed: (c.supported().contains(Attribute::SpaceFreed)).then_some(0),
        mounted_on_fileid: Some(number),
        case_insensitive: Some(false),
        case_preserving: Some(true),
        chown_restricted: Some(true),
        max_file_size: Some(0),
        max_link: Some(1),
        max_name: Some(255),
        no_trunc: Some(true),
        time_delta: Some(Time {
            seconds: 0,
            nanoseconds: 1,
        }),
        files_available: Some(0),
        files_free: Some(0),
        files_total: Some(1),
        space_available: Some(0),
        space_free: Some(0),
        space_total: Some(4096),
        ..common(c)
    })
}

/// The attributes that are the same for all objects.
fn common<'a>(c: &Compound<'_>) -> Wire<'a> {
    let lease = c.server.lease.0 / 1_000_000_000;
    let later = c.minor > 0;
    let latest = c.minor > 1;
    Wire {
        supported: Some(*c.supported()),
        fh_expire_type: Some(0),
        link_support: Some(true),
        symlink_support: Some(true),
        named_attributes: Some(false),
        unique_handles: Some(true),
        lease_time: Some(u32::try_from(lease).unwrap_or(u32::MAX)),
        read_error: Some(Status::Ok),
        can_set_time: Some(true),
        homogeneous: Some(true),
        max_read: Some(DATA_BYTES_MAX.into()),
        max_write: Some(DATA_BYTES_MAX.into()),
        acl_support: (c.supported().contains(Attribute::AclSupport)).then_some(acls::SUPPORT),
        supported_exclusive_create: later.then(|| exclusive(c)),
        fs_charset_capabilities: later.then_some(CHARSET_ANY),
        change_type: latest.then_some(ChangeType::TimeMetadata),
        xattr_support: latest.then(|| xattrs::supported(c.export)),
        open_arguments: latest.then_some(OPEN_ARGUMENTS),
        ..Wire::default()
    }
}

/// The attributes that a client sets, but for access control lists, in the server's own types. `mode` is the present mode: a
/// client may change a part of it. May block.
pub(super) fn to_set(c: &Compound<'_>, new: &WireSet<'_>, mode: u32) -> Done<SetAttributes> {
    let whole = match (new.mode, new.mode_masked, new.mode_umask) {
        (Some(mode), ..) => Some(mode),
        (_, Some(part), _) => Some(mode & !part.mask | part.value & part.mask),
        (.., Some(made)) => Some(made.mode),
        _ => None,
    };
    let id = |kind, owner: Option<Opaque<'_>>| {
        let id = owner.map(|owner| c.server.owners.id(kind, owner.0));
        id.transpose()
    };
    if whole.is_some_and(|mode| mode > 0o7777) {
        return Err(Status::Inval.into());
    }
    Ok(SetAttributes {
        mode: whole,
        uid: id(Kind::User, new.owner)?,
        gid: id(Kind::Group, new.group)?,
        size: new.size,
        atime: convert::set_time(new.time_access),
        mtime: convert::set_time(new.time_modify),
        umask: new.mode_umask.map_or(0, |made| made.umask),
    })
}

/// The attributes of an object that a client makes.
pub(super) struct NewObject {
    /// Those with which it is made. If it gets access control lists, nobody but the owner has any right before these are set.
    pub attributes: SetAttributes,
    /// The lists, which are set once it is there.
    pub acls: Option<NewAcls>,
    /// All attributes that the client gives.
    pub set: Bitmap,
}

impl NewObject {
    /// Those that a client gives. `usual` is the mode of which it may change a part. May block.
    pub fn parse(
        c: &Compound<'_>,
        raw: &RawAttributes<'_>,
        supported: &Bitmap,
        (usual, directory): (u32, bool),
    ) -> Done<Self> {
        let theirs = WireSet::parse(raw, supported)?;
        let mut attributes = to_set(c, &theirs, usual)?;
        let acls = acls::from_wire(c, theirs.acl.as_ref(), directory)?;
        if acls.is_some() {
            let private = if directory { 0o7700 } else { 0o7600 };
            attributes.mode = Some(attributes.mode.unwrap_or(0o700) & private);
        }
        Ok(Self {
            attributes,
            acls,
            set: theirs.mask().without(&NEVER_SET),
        })
    }

    /// Sets the lists of the object that was made. Returns the attributes that were set: without the lists and the mode if the
    /// lists could not be set.
    pub fn finish(&self, c: &Compound<'_>, object: ObjectId) -> Bitmap {
        let Some(lists) = &self.acls else {
            return self.set;
        };
        match vfs::acls::set(c.export, &c.who, object, lists) {
            Ok(_) => self.set,
            Err(_) => self.set.without(&ACLS).without(&MODES),
        }
    }
}
