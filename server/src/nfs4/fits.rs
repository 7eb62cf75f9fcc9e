//! Whether the result of an operation fits into the reply, which is asked before the operation does anything: a client that is
//! told NFS4ERR_REP_TOO_BIG takes it that nothing was done (RFC 8881, section 2.10.6.4).

use odafs_common::wire::nfs4::{Claim, DelegationType, OpenArgs, Operation, ResultWriter, Status};

use super::compound::{Compound, Done};
use super::run::REPLY_OVERHEAD_BYTES;

/// Of a result: the number of the operation and the status, in bytes.
const HEADER: usize = 8;
/// A stateid, in bytes.
const STATE: usize = 16;
/// The longest result of OPEN without a delegation, in bytes: change information, flags, attributes that were set, and why there
/// is no delegation.
const OPEN: usize = HEADER + STATE + 20 + 4 + 16 + 12;
/// The same with one: type, stateid, whether it is recalled, limit, and an entry of an ACL for nobody.
const OPEN_DELEGATED: usize = OPEN - 12 + 4 + STATE + 4 + 12 + 16;

impl Compound<'_> {
    /// Refuses an operation on opens or locks whose result the reply may have no room for.
    pub(super) fn has_room_for(
        &self,
        operation: &Operation<'_>,
        w: &ResultWriter<'_, '_>,
    ) -> Done<()> {
        let bytes = match operation {
            Operation::Open(open) if reclaims_delegation(open) => OPEN_DELEGATED,
            Operation::Open(_) => OPEN,
            // What a lock is denied by is told, and changes nothing.
            _ => HEADER + STATE,
        };
        Ok(self.fits(bytes, w)?)
    }

    /// Whether the result of OPEN may bring a delegation.
    pub(super) fn has_room_for_delegation(&self, w: &ResultWriter<'_, '_>) -> bool {
        self.fits(OPEN_DELEGATED, w).is_ok()
    }

    fn fits(&self, bytes: usize, w: &ResultWriter<'_, '_>) -> Result<(), Status> {
        let origin = self.origin.as_ref();
        let kept = origin.and_then(|origin| self.server.state.lock().kept_bytes(origin));
        let kept = kept.map(|kept| (kept as usize).saturating_sub(REPLY_OVERHEAD_BYTES));
        if kept.is_some_and(|kept| w.bytes() + bytes > kept) {
            return Err(Status::RepTooBigToCache);
        }
        match (bytes <= self.room(w), self.minor) {
            (true, _) => Ok(()),
            (false, 0) => Err(Status::Resource),
            (false, _) => Err(Status::RepTooBig),
        }
    }
}

/// Whether the result has to bring a delegation.
fn reclaims_delegation(open: &OpenArgs<'_>) -> bool {
    matches!(open.claim, Claim::Previous(before) if before != DelegationType::None)
}
