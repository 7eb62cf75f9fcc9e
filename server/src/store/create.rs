//! What makes objects, and what it says.

#[cfg(doc)]
use super::Store;
use super::{
    Attributes, Device, FileType, ObjectId, Result, SetAttributes, SetTime, Status, names,
};

/// How CREATE shall treat a name that is taken (RFC 1813 section 3.3.8).
#[derive(Clone, Debug)]
pub enum CreateHow<'a> {
    /// Take what is there. The attributes are applied to a new file only: of an existing one the caller
    /// sets the size (if asked for) through [`Store::setattr`], where it also revokes pages.
    Unchecked(&'a SetAttributes),
    /// Refuse with EXIST.
    Guarded(&'a SetAttributes),
    /// Refuse with EXIST, unless the file was made by the same call: the verifier is kept in its times. Of the attributes
    /// the mode counts, which is 0600 if there is none, and the umask.
    Exclusive([u8; 8], &'a SetAttributes),
}

impl CreateHow<'_> {
    /// The answer where the name is taken already.
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

/// What [`Store::create`] did.
#[derive(Clone, Debug)]
pub struct Created {
    /// The file.
    pub object: ObjectId,
    /// Its attributes afterwards.
    pub attributes: Attributes,
    /// It was there before (unchecked), or this is the repetition of an exclusive create.
    pub existed: bool,
}

/// What MKNOD makes (RFC 1813 section 3.3.11).
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

    /// INVAL beyond the 12 and 20 bits that the kernel's numbers have.
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
