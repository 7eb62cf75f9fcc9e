//! Clients of minor version 0 (RFC 7530, sections 16.30, 16.33, 16.34 and 16.37).

use odafs_common::wire::nfs4::{
    Locker, Operation, ResultWriter, SetClientIdFailed, SetClientIdResult, Status,
};

use super::compound::{Compound, Done};
use super::state::{Principal, client_named_by};

pub(super) fn run(
    c: &mut Compound<'_>,
    operation: &Operation<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    use Operation as O;
    let code = operation.code();
    let who = Principal(c.acting.uid());
    let mut state = c.server.state.lock();
    match operation {
        O::SetClientId(arguments) => {
            let result: SetClientIdResult<'_> =
                state
                    .set_client_id(c.now, who, arguments)
                    .map_err(|status| match status {
                        // The address that is asked for is the client's own business.
                        Status::ClidInUse => SetClientIdFailed::InUse(arguments.callback.address),
                        status => SetClientIdFailed::Other(status),
                    });
            w.push(code, &result);
            return Ok(match result {
                Ok(_) => Status::Ok,
                Err(SetClientIdFailed::InUse(_)) => Status::ClidInUse,
                Err(SetClientIdFailed::Other(status)) => status,
            });
        }
        O::SetClientIdConfirm(confirm) => state.confirm_client_id(c.now, who, confirm)?,
        O::Renew(client) => state.renew(c.now, *client)?,
        O::ReleaseLockOwner(owner) => state.release_lock_owner(c.now, owner)?,
        _ => return Err(Status::ServerFault.into()),
    }
    w.push(code, &Ok::<_, Status>(()));
    Ok(Status::Ok)
}

/// The client whose lease an operation of minor version 0 renews if it succeeds: that of the stateid, of the owner or of the
/// client id in it (RFC 7530, section 9.6).
pub(super) fn renewed(operation: &Operation<'_>) -> Option<u64> {
    use Operation as O;
    let state = match operation {
        O::Open(arguments) => return Some(arguments.owner.client_id),
        O::LockTest(arguments) => return Some(arguments.owner.client_id),
        O::Renew(client) => return Some(*client),
        O::Lock(arguments) => match &arguments.locker {
            Locker::New(new) => new.open,
            Locker::Existing(existing) => existing.lock,
        },
        O::Read(arguments) => arguments.state,
        O::Write(arguments) => arguments.state,
        O::SetAttributes(arguments) => arguments.state,
        O::OpenConfirm(arguments) => arguments.state,
        O::OpenDowngrade(arguments) => arguments.state,
        O::Close(arguments) => arguments.state,
        O::Unlock(arguments) => arguments.lock,
        _ => return None,
    };
    Some(client_named_by(&state))
}
