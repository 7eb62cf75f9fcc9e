//! Operations on clients of minor version 0 (RFC 7530, sections 16.30, 16.33, 16.34 and 16.37).

use odafs_common::wire::nfs4::{
    Locker, Operation, ResultWriter, SetClientIdFailed, SetClientIdResult, Status,
};

use super::compound::{Compound, Stop, Written, plain};
use super::state::{Principal, client_named_by};

pub(super) fn run(
    c: &mut Compound<'_>,
    operation: &Operation<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Written {
    use Operation as O;
    let code = operation.code();
    let who = Principal(c.acting.uid());
    let mut state = c.server.state.lock();
    match operation {
        O::SetClientId(arguments) => {
            drop(state);
            match c.keeping(|state| state.set_client_id(c.now, who, arguments)) {
                Err(Stop::Status(Status::ClidInUse)) => {
                    let state = c.server.state.lock();
                    let holder = state.callback_address(arguments.client.id.0);
                    let result: SetClientIdResult<'_> = Err(SetClientIdFailed::InUse(holder));
                    w.push(code, &result);
                    Ok(Status::ClidInUse)
                }
                made => plain(w, code, made?),
            }
        }
        O::SetClientIdConfirm(confirm) => {
            plain(w, code, state.confirm_client_id(c.now, who, confirm)?)
        }
        O::Renew(client) => plain(w, code, state.renew(c.now, *client)?),
        O::ReleaseLockOwner(owner) => plain(w, code, state.release_lock_owner(c.now, owner)?),
        _ => Err(Status::ServerFault.into()),
    }
}

/// The client whose lease an operation of minor version 0 renews if it succeeds: the client of its stateid, owner or client id
/// (RFC 7530, section 9.6).
pub(super) fn renewed(operation: &Operation<'_>) -> Option<u64> {
    use Operation as O;
    let stateid = match operation {
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
    Some(client_named_by(&stateid))
}
