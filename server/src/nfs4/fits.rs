//! Checks that the result of an operation fits into the reply, before the operation changes anything. A client that gets
//! NFS4ERR_REP_TOO_BIG assumes that nothing has changed (RFC 8881, section 2.10.6.4).

use odafs_common::wire::nfs4::{Claim, DelegationType, OpenArgs, Operation, ResultWriter, Status};

use super::compound::{Compound, Done};

// All in bytes.

/// The number of an operation, and its status.
const HEADER: usize = 8;
/// A stateid. A session id is as long.
const STATEID: usize = 16;
/// Change information.
const CHANGE: usize = 20;
/// The mask of the attributes that were set.
const SET: usize = 16;
/// The attributes of a channel.
const CHANNEL: usize = 28;
/// The longest result of OPEN without a delegation: stateid, change information, flags, mask, and why there is no delegation.
const OPEN: usize = HEADER + STATEID + CHANGE + 4 + SET + 12;
/// The longest result of OPEN with a delegation: its type, its stateid, whether it is recalled, a limit, and an empty ACL entry.
const OPEN_DELEGATED: usize = OPEN - 12 + 4 + STATEID + 4 + 12 + 16;

/// The longest result, in bytes, of an operation that changes something and succeeds. `owner` is the length of the server's
/// owner. [`Compound::has_room_for`] has the operations that minor version 0 counts for their owners.
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
        // Count, stability and verifier.
        O::Write(_) => 16,
        O::Commit(_) => 8,
        // The same with a stateid and two flags.
        O::Copy(_) => 4 + STATEID + 20 + 8,
        O::SetClientId(_) => 16,
        O::CreateSession(_) => STATEID + 8 + 2 * CHANNEL,
        O::BindConnection(_) => STATEID + 8,
        // Client id, sequence number, flags, and the kind of protection; the server's owner with a minor number, and its scope;
        // no implementation.
        O::ExchangeId(_) => 20 + 8 + 2 * (4 + owner.next_multiple_of(4)) + 4,
        _ => return None,
    };
    Some(HEADER + result)
}

impl Compound<'_> {
    /// Refuses an operation on opens or locks if the reply may have no room for its result.
    pub(super) fn has_room_for(
        &self,
        operation: &Operation<'_>,
        w: &ResultWriter<'_, '_>,
    ) -> Done<()> {
        let bytes = match operation {
            Operation::Open(open) if reclaims_delegation(open) => OPEN_DELEGATED,
            Operation::Open(_) => OPEN,
            // A lock that is denied changes nothing, however long its result.
            _ => HEADER + STATEID,
        };
        Ok(self.fits(bytes, w)?)
    }

    /// Whether the reply has room for a result of OPEN with a delegation.
    pub(super) fn has_room_for_delegation(&self, w: &ResultWriter<'_, '_>) -> bool {
        self.fits(OPEN_DELEGATED, w).is_ok()
    }

    /// Refuses a change if the reply may have no room for its result.
    pub(super) fn has_room_for_change(
        &self,
        operation: &Operation<'_>,
        w: &ResultWriter<'_, '_>,
    ) -> Done<()> {
        let bytes = of_change(operation, self.server.server_owner.len());
        Ok(bytes.map_or(Ok(()), |bytes| self.fits(bytes, w))?)
    }

    fn fits(&self, bytes: usize, w: &ResultWriter<'_, '_>) -> Result<(), Status> {
        let after = self.reply_bytes(w) + bytes;
        if self.kept_max.is_some_and(|kept| after > kept) {
            return Err(Status::RepTooBigToCache);
        }
        if bytes > self.room(w) {
            return Err(self.too_big());
        }
        Ok(())
    }

    /// The minor version's status for an operation whose result the reply has no room for.
    pub(super) fn too_big(&self) -> Status {
        match self.minor {
            0 => Status::Resource,
            _ => Status::RepTooBig,
        }
    }
}

/// Whether the result of OPEN has to bring a delegation.
pub(super) fn reclaims_delegation(open: &OpenArgs<'_>) -> bool {
    matches!(open.claim, Claim::Previous(before) if before != DelegationType::None)
}
