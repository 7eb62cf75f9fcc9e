use super::check;
use crate::wire::{nlm4, nsm};

/// The first byte is the procedure; the second says whether the rest are its arguments or its result.
pub fn nlm4(bytes: &[u8]) {
    use nlm4::*;
    let [code, result, rest @ ..] = bytes else {
        return;
    };
    let Some(procedure) = Procedure::from_code(u32::from(*code) % 24) else {
        return;
    };
    match (procedure, result % 2 == 1) {
        (Procedure::Null, _) => check!((), rest),
        (Procedure::Test | Procedure::Granted, false) => check!(TestArgs<'_>, rest),
        (Procedure::Test, true) => check!(TestResult<'_>, rest),
        (Procedure::Lock | Procedure::UnmonitoredLock, false) => check!(LockArgs<'_>, rest),
        (Procedure::Cancel, false) => check!(CancelArgs<'_>, rest),
        (Procedure::Unlock, false) => check!(UnlockArgs<'_>, rest),
        (Procedure::Share | Procedure::Unshare, false) => check!(ShareArgs<'_>, rest),
        (Procedure::Share | Procedure::Unshare, true) => check!(ShareResult<'_>, rest),
        (Procedure::FreeAll, false) => check!(FreeAllArgs<'_>, rest),
        (_, true) => check!(LockResult<'_>, rest),
    }
}

/// The first byte is the procedure; the second says whether the rest are its arguments or its result.
pub fn nsm(bytes: &[u8]) {
    use nsm::*;
    let [code, result, rest @ ..] = bytes else {
        return;
    };
    let Some(procedure) = Procedure::from_code(u32::from(*code) % 7) else {
        return;
    };
    match (procedure, result % 2 == 1) {
        (Procedure::Stat, false) => check!(HostName<'_>, rest),
        (Procedure::Monitor, false) => check!(Monitor<'_>, rest),
        (Procedure::Stat | Procedure::Monitor, true) => check!(Monitored, rest),
        (Procedure::Unmonitor, false) => check!(MonitorId<'_>, rest),
        (Procedure::UnmonitorAll, false) => check!(Caller<'_>, rest),
        (Procedure::Notify, false) => check!(Notification<'_>, rest),
        (Procedure::Unmonitor | Procedure::UnmonitorAll, true) => check!(u32, rest),
        _ => check!((), rest),
    }
}
