//! Whether the result of an operation fits into the reply, which is asked before an operation changes anything: a client that is
//! told NFS4ERR_REP_TOO_BIG takes it that nothing was done (RFC 8881, section 2.10.6.4).

use odafs_common::wire::nfs4::{Claim, DelegationType, OpenArgs, Operation, ResultWriter, Status};

use super::compound::{Compound, Done};

/// Of a result: the number of the operation and the status, in bytes.
const HEADER: usize = 8;
/// A stateid, in bytes.
const STATE: usize = 16;
/// Change information, in bytes.
const CHANGE: usize = 20;
/// The attributes that were set, in bytes.
const SET: usize = 16;
/// The attributes of a channel, in bytes.
const CHANNEL: usize = 28;
/// The longest result of OPEN without a delegation, in bytes: change information, flags, attributes that were set, and why there
/// is no delegation.
const OPEN: usize = HEADER + STATE + CHANGE + 4 + SET + 12;
/// The same with one: type, stateid, whether it is recalled, limit, and an entry of an ACL for nobody.
const OPEN_DELEGATED: usize = OPEN - 12 + 4 + STATE + 4 + 12 + 16;

/// The longest result of an operation that changes something, in bytes, if it succeeds. `owner` is the length of the server's name.
/// Operations that are counted for their owners ([`Compound::has_room_for`]) are not among them.
pub(super) fn of_change(operation: &Operation<'_>, owner: usize) -> Option<usize> {
    use Operation as O;
    let result = match operation {
        O::Allocate(_)
        | O::Deallocate(_)
        | O::Clone(_)
        | O::OffloadCancel(_)
        | O::DelegationReturn(_)
        | O::SetClientIdConfirm(_)
        | O::ReleaseLockOwner(_)
        | O::DestroySession(_)
        | O::DestroyClientId(_)
        | O::BackchannelCtl(_)
        | O::ReclaimComplete(_)
        | O::FreeStateId(_) => 0,
        O::Link(_) | O::Remove(_) | O::SetXattr(_) | O::RemoveXattr(_) => CHANGE,
        O::Rename(_) => 2 * CHANGE,
        O::Create(_) => CHANGE + SET,
        O::SetAttributes(_) => SET,
        // Count, how it was written, and the verifier.
        O::Write(_) => 16,
        O::Commit(_) => 8,
        // As of WRITE, with a stateid and two flags.
        O::Copy(_) => 4 + STATE + 20 + 8,
        O::SetClientId(_) => 16,
        O::CreateSession(_) => STATE + 8 + 2 * CHANNEL,
        O::BindConnection(_) => STATE + 8,
        // The client id, its number, flags, and no protection; the name as that of the server and of its scope; no more.
        O::ExchangeId(_) => 20 + 8 + 2 * (4 + owner.next_multiple_of(4)) + 4,
        _ => return None,
    };
    Some(HEADER + result)
}

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

    /// Refuses a change whose result the reply may have no room for.
    pub(super) fn has_room_for_change(
        &self,
        operation: &Operation<'_>,
        w: &ResultWriter<'_, '_>,
    ) -> Done<()> {
        match of_change(operation, self.server.owner.len()) {
            Some(bytes) => Ok(self.fits(bytes, w)?),
            None => Ok(()),
        }
    }

    fn fits(&self, bytes: usize, w: &ResultWriter<'_, '_>) -> Result<(), Status> {
        if self.kept.is_some_and(|kept| w.bytes() + bytes > kept) {
            return Err(Status::RepTooBigToCache);
        }
        match bytes <= self.room(w) {
            true => Ok(()),
            false => Err(self.too_big()),
        }
    }

    /// The status of an operation whose result has no room in the reply, in the terms of the minor version.
    pub(super) fn too_big(&self) -> Status {
        match self.minor {
            0 => Status::Resource,
            _ => Status::RepTooBig,
        }
    }
}

/// Whether the result has to bring a delegation.
fn reclaims_delegation(open: &OpenArgs<'_>) -> bool {
    matches!(open.claim, Claim::Previous(before) if before != DelegationType::None)
}
