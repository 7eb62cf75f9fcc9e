//! The names that a client may send (RFC 1813, section 3.2, "General comments on filenames").

use crate::store::{Status, Time};

use super::Result;

/// The longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;

/// One component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// `.`
    Here,
    /// `..`
    Up,
    /// Any other valid name.
    Proper(&'a [u8]),
}

impl<'a> Name<'a> {
    pub fn parse(name: &'a [u8]) -> Result<Self> {
        if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Status::Access.into());
        }
        if name.len() > NAME_MAX {
            return Err(Status::NameTooLong.into());
        }
        Ok(match name {
            b"." => Self::Here,
            b".." => Self::Up,
            _ => Self::Proper(name),
        })
    }

    /// A name to make, remove or move. `.` and `..` are refused with the given statuses.
    pub fn proper(name: &'a [u8], here: Status, up: Status) -> Result<&'a [u8]> {
        match Self::parse(name)? {
            Self::Here => Err(here.into()),
            Self::Up => Err(up.into()),
            Self::Proper(name) => Ok(name),
        }
    }
}

/// The target of a symbolic link, as symlink(2) accepts it.
pub(crate) fn check_target(target: &[u8]) -> Result<()> {
    match target {
        [] => Err(Status::NoEnt.into()),
        _ if target.contains(&0) => Err(Status::Inval.into()),
        _ if target.len() > 4095 => Err(Status::NameTooLong.into()),
        _ => Ok(()),
    }
}

/// The times in which an exclusive create keeps its verifier: in the seconds of the access and the modification time. The
/// top bit of each is dropped, because not every file system stores it.
pub(crate) fn verifier_times(verifier: [u8; 8]) -> (Time, Time) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |bytes| Time {
        seconds: (u32::from_be_bytes(bytes) & 0x7fff_ffff).into(),
        nanoseconds: 0,
    };
    (time([a, b, c, d]), time([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        fn status(name: &[u8]) -> std::result::Result<Name<'_>, Status> {
            Name::parse(name).map_err(|refused| refused.status)
        }
        assert_eq!(status(b"."), Ok(Name::Here));
        assert_eq!(status(b".."), Ok(Name::Up));
        assert_eq!(status(b"..."), Ok(Name::Proper(b"...")));
        assert_eq!(status(&[0xff; 255]), Ok(Name::Proper(&[0xff; 255])));
        assert_eq!(status(&[b'a'; 256]), Err(Status::NameTooLong));
        for refused in [b"".as_slice(), b"/", b"a/b", b"../x", b"a\0"] {
            assert_eq!(status(refused), Err(Status::Access));
        }
    }
}
