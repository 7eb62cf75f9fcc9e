//! TEST, LOCK, CANCEL and UNLOCK (XNFS, sections 14.3.1 to 14.3.4).

use odafs_common::wire::nlm4::{
    CancelArgs, Holder, Lock, LockArgs, LockResult, Object, Status, TestArgs, TestResult,
    UnlockArgs,
};

use super::hosts::{Asked, Conflict, Hosts, OwnerKey};
use super::{Lockd, who};
use crate::rpc::Call;
use crate::vfs::ObjectId;
use crate::vfs::locks::Span;

/// The bytes for which a client asks. Length 0 means all bytes from the first on.
fn span(lock: &Lock<'_>) -> Result<Span, Status> {
    let first = lock.offset;
    let last = match lock.length {
        0 => u64::MAX,
        length => first.checked_add(length - 1).ok_or(Status::TooBig)?,
    };
    Ok(Span { first, last })
}

fn owner(lock: &Lock<'_>) -> OwnerKey {
    OwnerKey {
        process: lock.process,
        name: lock.owner.0.to_vec(),
    }
}

fn asked<'a>(lock: &Lock<'a>, file: ObjectId, write: bool) -> Result<Asked<'a>, Status> {
    Ok(Asked {
        owner: owner(lock),
        file,
        handle: lock.file.0,
        offset: lock.offset,
        length: lock.length,
        span: span(lock)?,
        write,
        block: false,
        reclaim: false,
        state: None,
    })
}

/// TEST: the result, for as long as the lock in the way is told.
pub(super) fn test<'a>(
    lockd: &Lockd,
    call: &Call<'_>,
    arguments: &TestArgs<'a>,
    tell: impl FnOnce(&TestResult<'_>),
) {
    let lock = &arguments.lock;
    let tried = || {
        let file = lockd.file(call, lock.file)?;
        lockd.may_lock(call, file)?;
        let _changing = lockd.ask(file, false)?;
        let asked = asked(lock, file, arguments.exclusive)?;
        lockd.make_way(&asked);
        let who = who(call.caller, lock.caller);
        Ok(lockd.with_unrecorded(|hosts, now| hosts.test(now, &who, &asked)))
    };
    let outcome = tried().unwrap_or_else(Ok);
    let outcome = outcome.as_ref().map(|status| *status).map_err(holder);
    tell(&TestResult {
        cookie: arguments.cookie,
        outcome,
    });
}

fn holder(conflict: &Conflict) -> Holder<'_> {
    let span = conflict.held.span;
    let (process, owner) = match &conflict.owner {
        Some((process, owner)) => (*process, owner.as_slice()),
        None => (0, &[][..]),
    };
    Holder {
        exclusive: conflict.held.write,
        process,
        owner: Object(owner),
        offset: span.first,
        length: match span.last {
            u64::MAX => 0,
            last => last - span.first + 1,
        },
    }
}

/// LOCK and NM_LOCK.
pub(super) fn lock<'a>(
    lockd: &Lockd,
    call: &Call<'_>,
    arguments: &LockArgs<'a>,
    monitored: bool,
) -> LockResult<'a> {
    let lock = &arguments.lock;
    let locked = || {
        let file = lockd.file(call, lock.file)?;
        lockd.may_lock(call, file)?;
        let _changing = lockd.ask(file, arguments.reclaim)?;
        let asked = Asked {
            block: arguments.block,
            reclaim: arguments.reclaim,
            state: monitored.then_some(arguments.state),
            ..asked(lock, file, arguments.exclusive)?
        };
        lockd.make_way(&asked);
        let who = who(call.caller, lock.caller);
        let lock = |hosts: &mut Hosts, now| {
            let status = hosts.lock(now, &who, &asked);
            lockd.still_reaches(hosts, call, file).and(Ok(status))
        };
        match monitored {
            true => lockd.with(lock),
            false => lockd.with_unrecorded(lock),
        }
    };
    LockResult {
        cookie: arguments.cookie,
        status: locked().unwrap_or_else(|status| status),
    }
}

/// CANCEL
pub(super) fn cancel<'a>(
    lockd: &Lockd,
    call: &Call<'_>,
    arguments: &CancelArgs<'a>,
) -> LockResult<'a> {
    let lock = &arguments.lock;
    let cancelled = || {
        let file = lockd.named(lock.file)?;
        let which = (file, span(lock)?, arguments.exclusive);
        let who = who(call.caller, lock.caller);
        Ok(lockd.with_unrecorded(|hosts, _| hosts.cancel(&who, &owner(lock), which)))
    };
    LockResult {
        cookie: arguments.cookie,
        status: cancelled().unwrap_or_else(|status: Status| status),
    }
}

/// UNLOCK. Locks outlive their file.
pub(super) fn unlock<'a>(
    lockd: &Lockd,
    call: &Call<'_>,
    arguments: &UnlockArgs<'a>,
) -> LockResult<'a> {
    let lock = &arguments.lock;
    let unlocked = || {
        let file = lockd.named(lock.file)?;
        let span = span(lock)?;
        let who = who(call.caller, lock.caller);
        Ok(lockd.with_unrecorded(|hosts, _| hosts.unlock(&who, &owner(lock), file, span)))
    };
    LockResult {
        cookie: arguments.cookie,
        status: unlocked().unwrap_or_else(|status: Status| status),
    }
}
