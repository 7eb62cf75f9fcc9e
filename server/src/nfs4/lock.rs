//! LOCK, LOCKT and LOCKU (RFC 7530, sections 16.10 to 16.12; RFC 8881, sections 18.10 to 18.12). Locks are advisory. No call
//! waits for a lock: a client that is denied one asks again.

use odafs_common::wire::nfs4::{
    LockArgs, LockDenied, LockFailed, LockResult, LockTestArgs, LockTestResult, Locker, OpCode,
    Opaque, ResultWriter, StateId, StateOwner, Status, UnlockArgs,
};

use super::compound::{Compound, Done};
use super::object::Object;
use super::state::{LockRange, LockRefused, State};
use crate::vfs::{FileType, ObjectId};

/// LOCK
pub(super) fn lock(
    c: &mut Compound<'_>,
    arguments: &LockArgs<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let file = file(c)?;
    let range = LockRange {
        kind: arguments.kind,
        offset: arguments.offset,
        length: arguments.length,
    };
    let mut locker = arguments.locker;
    match &mut locker {
        Locker::New(new) => new.open = c.stateid(new.open)?,
        Locker::Existing(existing) => existing.lock = c.stateid(existing.lock)?,
    }
    let locked = c
        .server
        .messenger
        .keeping(|state| state.lock(c.now, c.sender, file, range, &locker, arguments.reclaim));
    match locked {
        Ok(stateid) => {
            c.set_stateid(stateid);
            w.push(OpCode::Lock, &LockResult::Ok(stateid));
            Ok(Status::Ok)
        }
        Err(refused) => refuse::<StateId>(&refused, OpCode::Lock, w),
    }
}

/// LOCKT
pub(super) fn test(
    c: &Compound<'_>,
    arguments: &LockTestArgs<'_>,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let file = file(c)?;
    let range = LockRange {
        kind: arguments.kind,
        offset: arguments.offset,
        length: arguments.length,
    };
    let test = |state: &mut State| state.lock_test(c.now, c.sender, file, range, &arguments.owner);
    let free = c.server.messenger.keeping(test);
    match free {
        Ok(()) => {
            w.push(OpCode::LockTest, &LockTestResult::Ok(()));
            Ok(Status::Ok)
        }
        Err(refused) => refuse::<()>(&refused, OpCode::LockTest, w),
    }
}

/// LOCKU
pub(super) fn unlock(c: &mut Compound<'_>, arguments: &UnlockArgs) -> Done<StateId> {
    c.may_block()?;
    // Only files have such stateids, so the store need not be asked. It might say DELAY, which LOCKU must not return (RFC 7530,
    // section 13.2).
    let file = c.held()?;
    let given = c.stateid(arguments.lock)?;
    let range = LockRange {
        kind: arguments.kind,
        offset: arguments.offset,
        length: arguments.length,
    };
    let mut state = c.server.state.lock();
    let stateid = state.unlock(c.now, c.sender, &given, file, range)?;
    drop(state);
    Ok(c.set_stateid(stateid))
}

/// The current object, which must be a regular file.
fn file(c: &Compound<'_>) -> Done<ObjectId> {
    c.may_block()?;
    let Object::Real(object) = c.object()? else {
        return Err(Status::IsDir.into());
    };
    match c.attributes(object)?.kind {
        FileType::Regular => Ok(object),
        kind => Err(c.not_a_file(kind).into()),
    }
}

/// Writes DENIED with the lock in the way, or returns any other status.
fn refuse<T: odafs_common::wire::xdr::Encode>(
    refused: &LockRefused,
    code: OpCode,
    w: &mut ResultWriter<'_, '_>,
) -> Done<Status> {
    let conflict = match refused {
        LockRefused::Denied(conflict) => conflict,
        LockRefused::Other(status) => return Err((*status).into()),
    };
    let denied = LockDenied {
        offset: conflict.range.offset,
        length: conflict.range.length,
        kind: conflict.range.kind,
        owner: StateOwner {
            client_id: conflict.client,
            owner: Opaque(&conflict.owner),
        },
    };
    w.push(code, &Err::<T, _>(LockFailed::Denied(denied)));
    Ok(Status::Denied)
}
