//! Exceptions: how the server refuses a direct read. Values, never errors: the connection goes on.

use std::fmt;

/// Why a direct read returned no data (paper 004, section IV-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Exception {
    /// The page was paged out.
    NotResident = 1,
    /// Content, access key or epoch changed since the reference was issued.
    Stale = 2,
    /// The session was closed, has expired, or its key was rotated.
    Revoked = 3,
    /// The frame could not be pinned in a bounded number of tries, or a cap was reached.
    Busy = 4,
    /// Bad MAC, unknown session, or no right to the page.
    Denied = 5,
    /// The sequence number was seen before, or is too old to tell.
    Replayed = 6,
    /// Offset or length exceed what the reference covers.
    OutOfBounds = 7,
}

impl Exception {
    /// All of them, in the order of their codes.
    pub const ALL: [Exception; 7] = [
        Exception::NotResident,
        Exception::Stale,
        Exception::Revoked,
        Exception::Busy,
        Exception::Denied,
        Exception::Replayed,
        Exception::OutOfBounds,
    ];

    /// The code on the wire, 1 to 7. There, 0 stands for "completed".
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The exception with this code, or `None` if there is none.
    pub fn from_code(code: u16) -> Option<Exception> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The name that logs and metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            Exception::NotResident => "not-resident",
            Exception::Stale => "stale",
            Exception::Revoked => "revoked",
            Exception::Busy => "busy",
            Exception::Denied => "denied",
            Exception::Replayed => "replayed",
            Exception::OutOfBounds => "out-of-bounds",
        }
    }

    /// Whether the reference is worthless after this exception. After the others the client may use it again.
    pub const fn forgets_reference(self) -> bool {
        matches!(
            self,
            Exception::NotResident | Exception::Stale | Exception::Revoked
        )
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for exception in Exception::ALL {
            assert_eq!(Exception::from_code(exception.code()), Some(exception));
        }
        assert_eq!(Exception::from_code(0), None);
        assert_eq!(Exception::from_code(8), None);
        assert_eq!(Exception::from_code(u16::MAX), None);
    }

    #[test]
    fn busy_denied_replayed_and_bounds_keep_the_reference() {
        let kept: Vec<_> = Exception::ALL
            .into_iter()
            .filter(|e| !e.forgets_reference())
            .collect();
        use Exception::*;
        assert_eq!(kept, [Busy, Denied, Replayed, OutOfBounds]);
    }
}
