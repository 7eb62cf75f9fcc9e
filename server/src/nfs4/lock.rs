//! LOCK, LOCKT and LOCKU (RFC 7530, sections 16.10 to 16.12; RFC 8881, sections 18.10 to 18.12). Locks are advisory. The
//! server lets no call wait for one: a client that is denied asks again.

use odafs_common::wire::nfs4::{
    LockArgs, LockDenied, LockFailed, LockResult, LockTestArgs, LockTestResult, Locker, OpCode,
    Opaque, ResultWriter, StateId, StateOwner, Status, UnlockArgs,
};

use super::compound::{Compound, Done};
use super::object::Object;
use super::state::{LockRange, LockRefused};
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
        Locker::New(new) => new.open = c.state(new.open)?,
        Locker::Existing(existing) => existing.lock = c.state(existing.lock)?,
    }
    let mut machine = c.server.state.lock();
    let locked = machine.lock(c.now, c.sender, file, range, &locker, arguments.reclaim);
    drop(machine);
    match locked {
        Ok(state) => {
            c.set_state(state);
            w.push(OpCode::Lock, &LockResult::Ok(state));
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
    let mut machine = c.server.state.lock();
    let free = machine.lock_test(c.now, c.sender, file, range, &arguments.owner);
    drop(machine);
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
    // The stateid says that it is a file. What the store might answer, DELAY above all, is none of LOCKU (RFC 7530, section 13.2).
    let file = c.held()?;
    let given = c.state(arguments.lock)?;
    let range = LockRange {
        kind: arguments.kind,
        offset: arguments.offset,
        length: arguments.length,
    };
    let mut machine = c.server.state.lock();
    let state = machine.unlock(c.now, c.sender, &given, file, range)?;
    drop(machine);
    Ok(c.set_state(state))
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
