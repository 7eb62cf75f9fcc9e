//! How objects are created, and the results.

#[cfg(doc)]
use super::Store;
use super::{
    Attributes, Device, FileType, ObjectId, Result, SetAttributes, SetTime, Status, names,
};

/// How CREATE treats a name that is taken (RFC 1813, section 3.3.8).
#[derive(Clone, Debug)]
pub enum CreateHow<'a> {
    /// Take the existing file. The attributes apply to a new file only. If a size was asked for, the caller sets that of an
    /// existing file by [`Store::setattr`], where it also revokes pages.
    Unchecked(&'a SetAttributes),
    /// Refuse with EXIST.
    Guarded(&'a SetAttributes),
    /// Refuse with EXIST, unless the same call made the file before. The file's times keep the verifier. Of the attributes
    /// the mode counts, which is 0600 if there is none, and the umask.
    Exclusive([u8; 8], &'a SetAttributes),
}

impl CreateHow<'_> {
    /// The answer if the name is taken.
    pub(super) fn existing(&self, object: ObjectId, attributes: Attributes) -> Result<Created> {
        let regular = attributes.kind == FileType::Regular;
        let same = match self {
            Self::Unchecked(_) => regular,
            Self::Guarded(_) => false,
            Self::Exclusive(verifier, _) => {
                let times = (attributes.atime, attributes.mtime);
                regular && attributes.size == 0 && names::verifier_times(*verifier) == times
            }
        };
        if same {
            Ok(Created {
                object,
                attributes,
                existed: true,
            })
        } else {
            Err(Status::Exist.into())
        }
    }
}

impl SetAttributes {
    /// What an exclusive creation with this verifier sets.
    pub(super) fn exclusive(&self, verifier: [u8; 8]) -> Self {
        let (atime, mtime) = names::verifier_times(verifier);
        Self {
            mode: Some(self.mode.unwrap_or(0o600)),
            umask: self.umask,
            atime: SetTime::To(atime),
            mtime: SetTime::To(mtime),
            ..Self::default()
        }
    }
}

/// The result of [`Store::create`].
#[derive(Clone, Debug)]
pub struct Created {
    /// The file.
    pub object: ObjectId,
    /// Its attributes afterwards.
    pub attributes: Attributes,
    /// Whether the file existed before (unchecked), or this repeats an exclusive create.
    pub existed: bool,
}

/// What MKNOD makes (RFC 1813, section 3.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

impl Special {
    pub(super) fn kind(self) -> FileType {
        match self {
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::CharacterDevice { .. } => FileType::Character,
            Self::BlockDevice { .. } => FileType::Block,
        }
    }

    /// INVAL if a number has more bits than the kernel's: 12 for the major, 20 for the minor.
    pub(super) fn device(self) -> Result<Device> {
        match self {
            Self::Fifo | Self::Socket => Ok(Device::default()),
            Self::CharacterDevice { major, minor } | Self::BlockDevice { major, minor } => {
                if major >> 12 != 0 || minor >> 20 != 0 {
                    return Err(Status::Inval.into());
                }
                Ok(Device { major, minor })
            }
        }
    }
}
