//! Attributes that are set: SETATTR, CREATE and OPEN (RFC 7530, section 16.32; RFC 8881, section 18.30).

use super::acl::{Acl, Acl41};
use super::types::{Opaque, RawAttributes, SetTime, Time};
use super::{Attribute, Bitmap, Status};
use crate::wire::xdr::{Decode as _, Encode, Reader, Writer, XdrError};

record! {
    /// `mode_masked4` (RFC 8881, section 6.2.4): a part of the mode.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ModeMasked {
        /// The values of the bits.
        pub value: u32,
        /// The bits to change.
        pub mask: u32,
    }
}

record! {
    /// `mode_umask4` (RFC 8275, section 3.1): the mode and the umask of a new object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ModeUmask {
        /// The mode asked for.
        pub mode: u32,
        /// Bits to take from the mode, unless the object inherits an access control list.
        pub umask: u32,
    }
}

attributes! {
    /// The attributes to set. `None`: stays as it is.
    pub struct SetAttributes,
    /// The attributes that [`SetAttributes`] holds. No others can be set.
    SETTABLE {
        /// Bytes in the file.
        size: u64 = Size,
        /// Access control list.
        acl: Acl<'a> = Acl,
        /// Permissions, set-id and sticky bits: the lower twelve.
        mode: u32 = Mode,
        /// Owner: `user@domain`, or a number in digits.
        owner: Opaque<'a> = Owner,
        /// Group: `group@domain`, or a number in digits.
        group: Opaque<'a> = OwnerGroup,
        /// Last access.
        time_access: SetTime = TimeAccessSet,
        /// Creation.
        time_create: Time = TimeCreate,
        /// Last change of the data.
        time_modify: SetTime = TimeModifySet,
        /// Discretionary part of the list (4.1).
        dacl: Acl41<'a> = Dacl,
        /// A part of the mode (4.1).
        mode_masked: ModeMasked = ModeSetMasked,
        /// The mode and the umask of a new object (4.2). SETATTR refuses it with [`Status::Inval`].
        mode_umask: ModeUmask = ModeUmask,
    }
}

impl<'a> SetAttributes<'a> {
    /// Reads the attributes that a client wants to set. `supported` is the object's attribute `supported_attrs`; for an exclusive
    /// creation it is `suppattr_exclcreat`.
    ///
    /// # Errors
    /// - [`Status::AttrNotSupp`]: an attribute is not supported.
    /// - [`Status::Inval`]: an attribute can only be read, a time has 1,000,000,000 nanoseconds or more, or two
    ///   attributes set the mode.
    /// - [`Status::BadXdr`]: the values are not those of the attributes.
    pub fn parse(raw: &RawAttributes<'a>, supported: &Bitmap) -> Result<Self, Status> {
        if !raw.mask.without(supported).is_empty() {
            return Err(Status::AttrNotSupp);
        }
        if !raw.mask.without(&SETTABLE).is_empty() {
            return Err(Status::Inval);
        }
        let attributes = Self::decode_values(raw).map_err(|_| Status::BadXdr)?;
        attributes.check()?;
        Ok(attributes)
    }

    fn check(&self) -> Result<(), Status> {
        let set = [self.time_access, self.time_modify].map(|time| match time {
            Some(SetTime::To(time)) => Some(time),
            _ => None,
        });
        let times = set.iter().chain([&self.time_create]).flatten();
        let invalid_time = times
            .map(|time| time.nanoseconds)
            .any(|nanoseconds| nanoseconds >= 1_000_000_000);
        let modes = [
            self.mode.is_some(),
            self.mode_masked.is_some(),
            self.mode_umask.is_some(),
        ];
        let many_modes = modes.iter().filter(|mode| **mode).count() > 1;
        if invalid_time || many_modes {
            Err(Status::Inval)
        } else {
            Ok(())
        }
    }
}
