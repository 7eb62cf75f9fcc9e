//! Attributes that are read: GETATTR, READDIR, VERIFY and NVERIFY (RFC 7530, section 5; RFC 8881, section 5; RFC 7862,
//! section 12.2; RFC 8275; RFC 8276, section 8.2; RFC 9754).

use super::acl::{Acl, Acl41};
use super::types::{FileHandle, FileType, FsId, List, Opaque, RawAttributes, Time};
use super::{Bitmap, Device, Status};
use crate::wire::xdr::{Decode as _, Encode, Reader, Writer, XdrError};

enumeration! {
    /// Every attribute, by its number in a [`Bitmap`].
    pub enum Attribute ("attribute") {
        /// Attributes that the server knows of this object. Required.
        SupportedAttributes = 0,
        /// Type. Required.
        Type = 1,
        /// When file handles expire. Required.
        FhExpireType = 2,
        /// Changes with each change. Required.
        Change = 3,
        /// Bytes. Required.
        Size = 4,
        /// Hard links are supported. Required.
        LinkSupport = 5,
        /// Symbolic links are supported. Required.
        SymlinkSupport = 6,
        /// There are named attributes. Required.
        NamedAttributes = 7,
        /// File system. Required.
        FsId = 8,
        /// No object has two file handles. Required.
        UniqueHandles = 9,
        /// Lease. Required.
        LeaseTime = 10,
        /// Why a directory entry has no attributes. Required.
        ReadAttributeError = 11,
        /// Access control list.
        Acl = 12,
        /// Supported types of entries.
        AclSupport = 13,
        /// Archived.
        Archive = 14,
        /// Times can be set.
        CanSetTime = 15,
        /// Names do not tell upper from lower case.
        CaseInsensitive = 16,
        /// Names keep their case.
        CasePreserving = 17,
        /// Only the privileged change owners.
        ChownRestricted = 18,
        /// File handle. Required.
        FileHandle = 19,
        /// Number within the file system.
        FileId = 20,
        /// Files that the caller can make.
        FilesAvailable = 21,
        /// Files that can be made.
        FilesFree = 22,
        /// Files in all.
        FilesTotal = 23,
        /// Where the file system is too.
        FsLocations = 24,
        /// Hidden.
        Hidden = 25,
        /// Attributes of the file system are the same for all objects.
        Homogeneous = 26,
        /// Longest file.
        MaxFileSize = 27,
        /// Most hard links.
        MaxLink = 28,
        /// Longest name.
        MaxName = 29,
        /// Longest READ.
        MaxRead = 30,
        /// Longest WRITE.
        MaxWrite = 31,
        /// MIME type.
        MimeType = 32,
        /// Permissions.
        Mode = 33,
        /// Longer names are refused.
        NoTrunc = 34,
        /// Hard links.
        NumLinks = 35,
        /// Owner.
        Owner = 36,
        /// Group.
        OwnerGroup = 37,
        /// Hard quota.
        QuotaAvailableHard = 38,
        /// Soft quota.
        QuotaAvailableSoft = 39,
        /// Bytes that count for the quota.
        QuotaUsed = 40,
        /// Device numbers.
        RawDevice = 41,
        /// Bytes that the caller can use.
        SpaceAvailable = 42,
        /// Bytes free.
        SpaceFree = 43,
        /// Bytes in all.
        SpaceTotal = 44,
        /// Bytes that the object takes.
        SpaceUsed = 45,
        /// System file.
        System = 46,
        /// Last access.
        TimeAccess = 47,
        /// Sets the attribute before this one.
        TimeAccessSet = 48,
        /// Last backup.
        TimeBackup = 49,
        /// Creation.
        TimeCreate = 50,
        /// Resolution of times.
        TimeDelta = 51,
        /// Last change of the attributes.
        TimeMetadata = 52,
        /// Last change of the data.
        TimeModify = 53,
        /// Sets the attribute before this one.
        TimeModifySet = 54,
        /// Number of the directory that is mounted upon.
        MountedOnFileId = 55,
        /// Delay of notifications of a directory (4.1).
        DirNotifyDelay = 56,
        /// Delay of notifications of its entries (4.1).
        DirEntryNotifyDelay = 57,
        /// Discretionary part of the list (4.1).
        Dacl = 58,
        /// System part of the list (4.1).
        Sacl = 59,
        /// Policies of the file system (4.1).
        ChangePolicy = 60,
        /// Status of the file system (4.1).
        FsStatus = 61,
        /// Layouts of the file system (4.1).
        FsLayoutTypes = 62,
        /// The layout that the client would like (4.1).
        LayoutHint = 63,
        /// Layouts of the file (4.1).
        LayoutTypes = 64,
        /// Block size for layouts (4.1).
        LayoutBlockSize = 65,
        /// Alignment for layouts (4.1).
        LayoutAlignment = 66,
        /// Where the file system is too, at length (4.1).
        FsLocationsInfo = 67,
        /// When layouts pay (4.1).
        MdsThreshold = 68,
        /// Retention (4.1).
        RetentionGet = 69,
        /// Sets the attribute before this one.
        RetentionSet = 70,
        /// Retention on an event (4.1).
        RetentionEventGet = 71,
        /// Sets the attribute before this one.
        RetentionEventSet = 72,
        /// Administrative retention (4.1).
        RetentionHold = 73,
        /// Sets a part of the mode (4.1).
        ModeSetMasked = 74,
        /// Attributes that an exclusive creation can set (4.1). Required there.
        SupportedExclusiveCreate = 75,
        /// Character sets of names (4.1).
        FsCharsetCapabilities = 76,
        /// The size of which the ranges of CLONE must be multiples (4.2).
        CloneBlockSize = 77,
        /// Bytes that a removal would free (4.2).
        SpaceFreed = 78,
        /// How `change` changes (4.2).
        ChangeAttributeType = 79,
        /// Security label (4.2).
        SecurityLabel = 80,
        /// The mode and the umask of a new object (4.2, RFC 8275).
        ModeUmask = 81,
        /// There are extended attributes (4.2, RFC 8276).
        XattrSupport = 82,
        /// The arguments that OPEN supports (4.2, RFC 9754).
        OpenArguments = 86,
    }
}

impl Attribute {
    /// The first minor version that has it.
    pub const fn minor_version(self) -> u32 {
        match self.code() {
            0..=55 => 0,
            56..=76 => 1,
            _ => 2,
        }
    }
}

/// Attributes that can be set but not read. Asking for one fails with [`Status::Inval`].
pub const WRITE_ONLY: Bitmap = Bitmap::of(&[
    Attribute::TimeAccessSet,
    Attribute::TimeModifySet,
    Attribute::LayoutHint,
    Attribute::RetentionSet,
    Attribute::RetentionEventSet,
    Attribute::ModeSetMasked,
    Attribute::ModeUmask,
]);

/// The attributes of a minor version. A server supports those of them that are in [`READABLE`] or [`super::SETTABLE`] and that
/// its store has.
pub fn known_in(minor_version: u32) -> Bitmap {
    let known = Attribute::ALL.iter().copied();
    known
        .filter(|attribute| attribute.minor_version() <= minor_version)
        .fold(Bitmap::EMPTY, |set, attribute| set.with(attribute.code()))
}

/// Checks the attributes that GETATTR or READDIR asks for. Both ignore attributes that are not supported.
///
/// # Errors
/// [`Status::Inval`] if one can only be set.
pub fn check_asked(asked: &Bitmap) -> Result<(), Status> {
    if asked.and(&WRITE_ONLY).is_empty() {
        Ok(())
    } else {
        Err(Status::Inval)
    }
}

enumeration! {
    /// `change_attr_type4` (RFC 7862, section 12.2.3): how `change` changes.
    pub enum ChangeType ("change_attr_type4") {
        /// It grows.
        MonotonicIncrease = 0,
        /// It grows by one with each change.
        VersionCounter = 1,
        /// The same, but for changes through layouts.
        VersionCounterNoPnfs = 2,
        /// It is the time of the last change of the attributes.
        TimeMetadata = 3,
        /// It changes, and nothing more is known.
        Undefined = 4,
    }
}

record! {
    /// `open_arguments4` (RFC 9754): which values the arguments of OPEN may have, by their numbers. Flags go by the numbers of
    /// their bits, and wishes for delegations by their values shifted to the right by eight.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenArguments {
        /// Bits of [`super::share_access`] that are access.
        pub share_access: Bitmap,
        /// Values of [`super::share_deny`].
        pub share_deny: Bitmap,
        /// What clients can want besides, of [`super::share_access`].
        pub wants: Bitmap,
        /// Kinds of [`super::Claim`].
        pub claims: Bitmap,
        /// Kinds of [`super::CreateHow`].
        pub creations: Bitmap,
    }
}

attributes! {
    /// The attributes of an object. `None`: not supported.
    pub struct Attributes,
    /// The attributes that [`Attributes`] holds. No others can be read.
    READABLE {
        /// The attributes of this object that can be read or set.
        supported: Bitmap = SupportedAttributes,
        /// Type.
        kind: FileType = Type,
        /// When file handles expire. 0: never.
        fh_expire_type: u32 = FhExpireType,
        /// Changes with each change of the data or the attributes.
        change: u64 = Change,
        /// Bytes in the file.
        size: u64 = Size,
        /// Hard links are supported.
        link_support: bool = LinkSupport,
        /// Symbolic links are supported.
        symlink_support: bool = SymlinkSupport,
        /// The object has named attributes.
        named_attributes: bool = NamedAttributes,
        /// File system.
        fsid: FsId = FsId,
        /// No object has two file handles.
        unique_handles: bool = UniqueHandles,
        /// The length of a lease in seconds.
        lease_time: u32 = LeaseTime,
        /// Why an entry of READDIR has no other attributes. [`Status::Ok`]: it has them.
        read_error: Status = ReadAttributeError,
        /// Access control list.
        acl: Acl<'a> = Acl,
        /// Bits of [`super::acl_support`].
        acl_support: u32 = AclSupport,
        /// SETATTR can set times.
        can_set_time: bool = CanSetTime,
        /// Names do not tell upper from lower case.
        case_insensitive: bool = CaseInsensitive,
        /// Names keep the case in which they were made.
        case_preserving: bool = CasePreserving,
        /// Only a privileged user changes owners.
        chown_restricted: bool = ChownRestricted,
        /// File handle.
        file: FileHandle<'a> = FileHandle,
        /// Number within the file system.
        fileid: u64 = FileId,
        /// Files that the caller can still make.
        files_available: u64 = FilesAvailable,
        /// Files that can still be made.
        files_free: u64 = FilesFree,
        /// Files in all.
        files_total: u64 = FilesTotal,
        /// Attributes of the file system are the same for all of its objects.
        homogeneous: bool = Homogeneous,
        /// The largest file, in bytes.
        max_file_size: u64 = MaxFileSize,
        /// The most hard links.
        max_link: u32 = MaxLink,
        /// The longest name, in bytes.
        max_name: u32 = MaxName,
        /// The most bytes that a READ returns.
        max_read: u64 = MaxRead,
        /// The most bytes that a WRITE takes.
        max_write: u64 = MaxWrite,
        /// Permissions, set-id and sticky bits: the lower twelve.
        mode: u32 = Mode,
        /// Longer names are refused, not cut.
        no_trunc: bool = NoTrunc,
        /// Hard links.
        links: u32 = NumLinks,
        /// Owner: `user@domain`, or a number in digits.
        owner: Opaque<'a> = Owner,
        /// Group: `group@domain`, or a number in digits.
        group: Opaque<'a> = OwnerGroup,
        /// Bytes that the owner can use before writes fail.
        quota_available_hard: u64 = QuotaAvailableHard,
        /// Bytes that the owner can use before a warning.
        quota_available_soft: u64 = QuotaAvailableSoft,
        /// Bytes that count for the owner's quota.
        quota_used: u64 = QuotaUsed,
        /// The numbers of a device.
        device: Device = RawDevice,
        /// Bytes of the file system that the caller can use.
        space_available: u64 = SpaceAvailable,
        /// Bytes of the file system that are free.
        space_free: u64 = SpaceFree,
        /// Bytes of the file system in all.
        space_total: u64 = SpaceTotal,
        /// Bytes of storage that the object takes.
        space_used: u64 = SpaceUsed,
        /// Last access.
        time_access: Time = TimeAccess,
        /// Creation.
        time_create: Time = TimeCreate,
        /// Resolution of times.
        time_delta: Time = TimeDelta,
        /// Last change of the attributes.
        time_metadata: Time = TimeMetadata,
        /// Last change of the data.
        time_modify: Time = TimeModify,
        /// The file number of the directory on which this one is mounted. For all other objects `fileid`.
        mounted_on_fileid: u64 = MountedOnFileId,
        /// Discretionary part of the list (4.1).
        dacl: Acl41<'a> = Dacl,
        /// Layout types (4.1). Empty without pNFS.
        fs_layout_types: List<u32, 16> = FsLayoutTypes,
        /// Attributes that an exclusive creation can set (4.1).
        supported_exclusive_create: Bitmap = SupportedExclusiveCreate,
        /// 1: names need not be UTF-8, 2: the server refuses others (4.1).
        fs_charset_capabilities: u32 = FsCharsetCapabilities,
        /// The size in bytes of which the ranges of CLONE must be multiples (4.2).
        clone_block_size: u32 = CloneBlockSize,
        /// Bytes that a removal would free (4.2).
        space_freed: u64 = SpaceFreed,
        /// How `change` changes (4.2).
        change_type: ChangeType = ChangeAttributeType,
        /// The object can have extended attributes (4.2).
        xattr_support: bool = XattrSupport,
        /// The arguments that OPEN supports (4.2).
        open_arguments: OpenArguments = OpenArguments,
    }
}

impl<'a> Attributes<'a> {
    /// Reads a `fattr4`.
    ///
    /// # Errors
    /// [`Status::AttrNotSupp`] if an attribute is not in [`READABLE`], [`Status::BadXdr`] if the values cannot be decoded.
    pub fn parse(raw: &RawAttributes<'a>) -> Result<Self, Status> {
        if !raw.mask.without(&READABLE).is_empty() {
            return Err(Status::AttrNotSupp);
        }
        Self::decode_values(raw).map_err(|_| Status::BadXdr)
    }

    /// Whether the object has these attributes, for VERIFY and NVERIFY. Compares the encoded bytes.
    ///
    /// # Errors
    /// [`Status::Inval`] if one cannot be read or is `rdattr_error`, [`Status::AttrNotSupp`] if one has no value here.
    pub fn matches(&self, theirs: &RawAttributes<'_>) -> Result<bool, Status> {
        check_asked(&theirs.mask)?;
        if theirs.mask.contains(Attribute::ReadAttributeError) {
            return Err(Status::Inval);
        }
        if !theirs.mask.without(&self.mask()).is_empty() {
            return Err(Status::AttrNotSupp);
        }
        let mut ours = Vec::new();
        self.encode_values(&theirs.mask, &mut Writer::new(&mut ours));
        Ok(ours == theirs.values.0)
    }
}
