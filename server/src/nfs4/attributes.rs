//! Attributes as version 4 tells them (RFC 7530, section 5; RFC 8881, section 5).

use std::io::Write as _;

use odafs_common::wire::nfs4::{
    Attribute, Attributes as Wire, Bitmap, ChangeType, FileHandle, FileType, FsId, Opaque,
    SetAttributes as WireSet, Status, Time, known_in,
};

use super::compound::{Compound, Done, Stop};
use super::object::{Object, fileid};
use super::{DATA_BYTES_MAX, convert};
use crate::vfs::attributes::{limits, space};
use crate::vfs::{Attributes, Limits, ObjectId, SetAttributes, Space, copies, xattrs};

/// What a file system tells of its space.
const SPACE: Bitmap = Bitmap::of(&[
    Attribute::FilesAvailable,
    Attribute::FilesFree,
    Attribute::FilesTotal,
    Attribute::SpaceAvailable,
    Attribute::SpaceFree,
    Attribute::SpaceTotal,
]);
/// What a file system tells of its limits.
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
/// What is known of every object.
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
    Attribute::TimeMetadata,
    Attribute::TimeModify,
    Attribute::MountedOnFileId,
    Attribute::SupportedExclusiveCreate,
    Attribute::FsCharsetCapabilities,
    Attribute::ChangeAttributeType,
    Attribute::XattrSupport,
    Attribute::CloneBlockSize,
]);
/// What can be set, and how a mode comes about.
const SETTABLE: Bitmap = Bitmap::of(&[
    Attribute::TimeAccessSet,
    Attribute::TimeModifySet,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);
/// What an exclusive creation can set: not the times, which keep its verifier.
const EXCLUSIVE: Bitmap = Bitmap::of(&[
    Attribute::Size,
    Attribute::Mode,
    Attribute::Owner,
    Attribute::OwnerGroup,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);
/// Names need not be UTF-8.
const CHARSET_ANY: u32 = 1;

/// The attributes that clients of a minor version may ask for or set.
pub(super) fn supported(minor: u32) -> Bitmap {
    let all = OBJECT.or(&SPACE).or(&LIMITS).or(&SETTABLE);
    all.and(&known_in(minor))
}

/// The attributes that clients of a minor version may set in an exclusive creation.
pub(super) fn exclusive(minor: u32) -> Bitmap {
    EXCLUSIVE.and(&known_in(minor))
}

/// What is asked of a whole file system.
#[derive(Clone, Copy, Default)]
pub(super) struct FileSystem {
    space: Option<Space>,
    limits: Option<Limits>,
}

impl FileSystem {
    /// As far as it is asked for. Then the operation may have to wait.
    pub fn of(c: &Compound<'_>, object: ObjectId, asked: &Bitmap) -> Done<Self> {
        let wants = |of: &Bitmap| !asked.and(of).is_empty();
        if wants(&SPACE) || wants(&LIMITS) {
            c.may_block()?;
        }
        Ok(Self {
            space: wants(&SPACE).then(|| space(c.export, object)).transpose()?,
            limits: wants(&LIMITS)
                .then(|| limits(c.export, object))
                .transpose()?,
        })
    }
}

/// A number in decimal digits.
struct Digits {
    bytes: [u8; 10],
    len: usize,
}

impl Digits {
    fn of(number: u32) -> Self {
        let mut bytes = [0; 10];
        let mut rest = &mut bytes[..];
        // 32 bits have ten digits at most.
        let _ = write!(rest, "{number}");
        let len = 10 - rest.len();
        Self { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Gives `then` the attributes of an object.
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
            let system = FileSystem::of(c, object, asked)?;
            Ok(with_known(c, object, &known, &system, then))
        }
    }
}

/// Gives `then` the attributes of an object that are known already.
pub(super) fn with_known<R>(
    c: &Compound<'_>,
    object: ObjectId,
    known: &Attributes,
    system: &FileSystem,
    then: impl FnOnce(&Wire<'_>) -> R,
) -> R {
    let handle = c.handle(Object::Real(object));
    let (owner, group) = (Digits::of(known.uid), Digits::of(known.gid));
    let tree = &c.server.tree;
    let above = tree.mounted_on().filter(|_| tree.is_export_root(object));
    let above = above.or_else(|| c.export.store().mounted_on(object));
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
        owner: Some(Opaque(owner.bytes())),
        group: Some(Opaque(group.bytes())),
        device: Some(convert::device(known.device)),
        space_used: Some(known.used),
        time_access: Some(convert::time(known.atime)),
        time_metadata: Some(convert::time(known.ctime)),
        time_modify: Some(convert::time(known.mtime)),
        mounted_on_fileid: Some(above.unwrap_or(known.fileid)),
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

/// Directories of the pseudo file system never change.
fn with_pseudo<R>(c: &Compound<'_>, depth: u8, then: impl FnOnce(&Wire<'_>) -> R) -> R {
    let handle = c.handle(Object::Pseudo(depth));
    let number = fileid(depth.into());
    let time = Some(Time::default());
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
        device: Some(Default::default()),
        space_used: Some(4096),
        time_access: time,
        time_metadata: time,
        time_modify: time,
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

/// What is the same of all objects.
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
        supported_exclusive_create: later.then(|| exclusive(c.minor)),
        fs_charset_capabilities: later.then_some(CHARSET_ANY),
        change_type: latest.then_some(ChangeType::TimeMetadata),
        xattr_support: latest.then(|| xattrs::supported(c.export)),
        ..Wire::default()
    }
}

/// What a client sets, in the server's own types. `mode` is the one that stands, of which a client may change a part.
pub(super) fn to_set(new: &WireSet<'_>, mode: u32) -> Done<SetAttributes> {
    let whole = match (new.mode, new.mode_masked, new.mode_umask) {
        (Some(mode), ..) => Some(mode),
        (_, Some(part), _) => Some(mode & !part.mask | part.value & part.mask),
        (.., Some(made)) => Some(made.mode & !made.umask),
        _ => None,
    };
    if whole.is_some_and(|mode| mode > 0o7777) {
        return Err(Status::Inval.into());
    }
    Ok(SetAttributes {
        mode: whole,
        uid: new.owner.map(number).transpose()?,
        gid: new.group.map(number).transpose()?,
        size: new.size,
        atime: convert::set_time(new.time_access),
        mtime: convert::set_time(new.time_modify),
    })
}

/// The id that an owner stands for: its digits (RFC 7530, section 5.9). Names are nobody's here.
fn number(owner: Opaque<'_>) -> Result<u32, Stop> {
    if owner.0.is_empty() {
        return Err(Status::Inval.into());
    }
    let digits = owner.0.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(owner.0).ok().filter(|_| digits);
    let id = text.and_then(|text| text.parse().ok());
    id.ok_or(Status::BadOwner.into())
}
