//! Acting for another user: switching the file system ids of the calling thread, and back.
//!
//! A server with the rights of root lets the kernel judge its callers. For the length of a call, its thread has their user,
//! group and supplementary groups as file system ids. (setfsuid(2) and its kin concern one thread, not the process.)
//! ACCESS and LOOKUP do without where the mode decides (`LocalStore::is_told_by_mode`).
//! Switching away from user 0 also drops the capabilities that override permissions (CAP_DAC_OVERRIDE, CAP_FOWNER,
//! CAP_CHOWN and others, see capabilities(7)). Switching back restores them.
//!
//! Any other server cannot switch ids. It judges ids that are not its own by mode bits, and lets them only read and write
//! what exists: see [`Judge::Ourselves`].

use std::cell::Cell;
use std::marker::PhantomData;

use odafs_fabric::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::Mode;
use rustix::process::Gid;
use rustix::thread::CapabilitySet;

use super::sys;
use crate::store::{Credential, Result, Status, ids};

/// The ids of this process, and whether it can switch them.
pub(super) struct Identity {
    own: Credential,
    own_groups: Vec<Gid>,
    switches: bool,
    /// The process has the capability to do what modes forbid.
    overrides: bool,
    /// The ids of the last switch, which can therefore be switched to: the user in the upper half, the group in the lower.
    possible: AtomicU64,
}

/// What decides the rights of a caller.
pub(super) enum Judge<'a> {
    /// The kernel, while this lives. The thread has the caller's ids, or the caller acts as the serving user.
    Kernel(Option<Acting<'a>>),
    /// Mode bits, because the server cannot switch ids. Such a caller can read, write, remove and rename what exists. It
    /// cannot make anything, because the new object could not be given to it.
    Ourselves,
}

/// The thread has other ids than the process until this is dropped. It is bound to its thread.
pub(super) struct Acting<'a> {
    identity: &'a Identity,
    other_groups: bool,
    _not_send: PhantomData<*const ()>,
}

/// What the kernel shows for an id that is not mapped, unless it was told otherwise.
pub(super) const OVERFLOW: u32 = 65_534;

/// Whether nothing but modes and access control lists can refuse what this process may do and a caller may not. (Smack judges
/// by labels, and lets a process with the capabilities of root do what it likes.)
fn modes_are_all() -> bool {
    let is_usual = |name: &str| {
        let told = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        told.is_ok_and(|told| told.trim().parse() == Ok(OVERFLOW))
    };
    let smack = std::path::Path::new("/sys/fs/smackfs");
    is_usual("overflowuid") && is_usual("overflowgid") && !smack.exists()
}

impl Identity {
    pub fn of_this_process() -> Self {
        let own = Credential::of_this_process();
        let own_groups = own.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let mut identity = Self {
            own,
            own_groups,
            switches: false,
            overrides: false,
            possible: AtomicU64::new(u64::MAX),
        };
        let has = |set| effective().contains(set);
        if identity.own.uid == 0 && has(CapabilitySet::SETUID | CapabilitySet::SETGID) {
            // Switching must drop the overriding capabilities; SECBIT_NO_SETUID_FIXUP prevents that.
            let drops = || {
                let nobody = Credential::of(65_534, 65_534, &[]);
                let acting = identity.act(&nobody);
                acting.is_ok_and(|_acting| !has(CapabilitySet::DAC_OVERRIDE))
            };
            // On a thread of its own, so that this thread and those that it starts keep their credentials (see `ids`).
            let drops = std::thread::scope(|scope| scope.spawn(drops).join());
            identity.switches = drops.unwrap_or(false);
            identity.overrides =
                identity.switches && has(CapabilitySet::DAC_OVERRIDE) && modes_are_all();
        }
        identity
    }

    pub fn own(&self) -> &Credential {
        &self.own
    }

    /// Whether the kernel judges all callers, whoever they are.
    #[cfg(test)]
    pub fn switches(&self) -> bool {
        self.switches
    }

    /// Whether the caller has other ids than this process, which may do what modes forbid.
    pub fn is_above(&self, caller: &Credential) -> bool {
        self.overrides && !caller.own
    }

    /// Whether the thread keeps its ids while it acts for this caller.
    pub fn stays_for(&self, caller: &Credential) -> bool {
        caller.own || !self.switches || self.is_own(caller)
    }

    /// Judges a caller for as long as the result is kept.
    pub fn judge(&self, caller: &Credential) -> Result<Judge<'_>> {
        if caller.own || (self.switches && self.is_own(caller)) {
            Ok(Judge::Kernel(None))
        } else if self.switches {
            if ids::must_be_kept() {
                return Err(Status::ServerFault.into());
            }
            Ok(Judge::Kernel(Some(self.act(caller)?)))
        } else if caller.uid == self.own.uid || caller.uid == 0 {
            // A client's root has no special rights here, but may do what this process may.
            Ok(Judge::Kernel(None))
        } else {
            Ok(Judge::Ourselves)
        }
    }

    /// Whether a caller has the very ids of this process, so that there is nothing to switch.
    fn is_own(&self, caller: &Credential) -> bool {
        (caller.uid, caller.gid) == (self.own.uid, self.own.gid) && caller.groups == self.own.groups
    }

    fn act(&self, caller: &Credential) -> Result<Acting<'_>> {
        obey_quotas()?;
        let other_groups = *caller.groups != *self.own.groups;
        if other_groups {
            let groups: Vec<Gid> = caller
                .groups
                .iter()
                .map(|gid| Gid::from_raw(*gid))
                .collect();
            rustix::thread::set_thread_groups(&groups)?;
        }
        let acting = Acting {
            identity: self,
            other_groups,
            _not_send: PhantomData,
        };
        let before = (sys::set_file_gid(caller.gid), sys::set_file_uid(caller.uid));
        // Neither call reports whether it did anything; the next one shows that. (Apart from ids that do not exist, they
        // fail only if the system has no page of memory left.)
        if before != (self.own.gid, self.own.uid) {
            eprintln!("odafs: a thread has not taken its own ids back");
            std::process::abort();
        }
        let ids = (caller.uid, caller.gid);
        let uid_taken = sys::set_file_uid(NOBODY_AT_ALL) == ids.0;
        let known = self.possible.load(Ordering::Relaxed) == pack(ids);
        let taken = uid_taken && (known || sys::set_file_gid(NOBODY_AT_ALL) == ids.1);
        let exist = ids.0 != NOBODY_AT_ALL && ids.1 != NOBODY_AT_ALL;
        if !(taken && exist) {
            return Err(Status::Access.into());
        }
        self.possible.store(pack(ids), Ordering::Relaxed);
        Ok(acting)
    }
}

/// The calling thread gives up the capability to exceed quotas and to use blocks that are reserved for root
/// (CAP_SYS_RESOURCE), for good: switching ids leaves it as it is.
fn obey_quotas() -> Result<()> {
    thread_local!(static DOES: Cell<bool> = const { Cell::new(false) });
    if !DOES.get() {
        let mut sets = rustix::thread::capabilities(None)?;
        sets.effective.remove(CapabilitySet::SYS_RESOURCE);
        rustix::thread::set_capabilities(None, sets)?;
        DOES.set(true);
    }
    Ok(())
}

/// No id. The calls that set ids then change nothing.
const NOBODY_AT_ALL: u32 = u32::MAX;

fn pack((uid, gid): (u32, u32)) -> u64 {
    u64::from(uid) << 32 | u64::from(gid)
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let identity = self.identity;
        sys::set_file_uid(identity.own.uid);
        sys::set_file_gid(identity.own.gid);
        if self.other_groups && rustix::thread::set_thread_groups(&identity.own_groups).is_err() {
            // A thread with the groups of a caller must never serve another one.
            eprintln!("odafs: a thread could not take its own groups back");
            std::process::abort();
        }
    }
}

/// The calling thread makes objects with this umask: that of a client that leaves it to the server. The kernel knows where
/// a default list takes its place. Otherwise the thread has none, for good, since clients have applied theirs. Nothing else
/// of the process is concerned, but the thread then has a working directory of its own too.
pub(super) struct WithUmask {
    is_set: bool,
    _not_send: PhantomData<*const ()>,
}

impl WithUmask {
    pub fn of(umask: u32) -> Result<Self> {
        thread_local!(static OWN: Cell<bool> = const { Cell::new(false) });
        if !OWN.get() {
            sys::unshare_umask()?;
            rustix::process::umask(Mode::empty());
            OWN.set(true);
        }
        let umask = Mode::from_raw_mode(umask & 0o777);
        let is_set = !umask.is_empty();
        if is_set {
            rustix::process::umask(umask);
        }
        Ok(Self {
            is_set,
            _not_send: PhantomData,
        })
    }
}

impl Drop for WithUmask {
    fn drop(&mut self) {
        if self.is_set {
            rustix::process::umask(Mode::empty());
        }
    }
}

fn effective() -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids_of_this_thread() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status
            .lines()
            .filter(|line| {
                ["Uid:", "Gid:", "Groups:", "CapEff:"]
                    .iter()
                    .any(|key| line.starts_with(key))
            })
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_thread_that_keeps_its_ids_acts_for_nobody_and_says_so() {
        let identity = Identity::of_this_process();
        if !identity.switches() {
            return;
        }
        let caller = Credential::of(4001, 4002, &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ids::keep();
                let before = ids_of_this_thread();
                assert!(!ids::were_missed());
                assert!(identity.judge(identity.own()).is_ok() && !ids::were_missed());
                let own = identity.own();
                let same = Credential::of(own.uid, own.gid, &own.groups);
                assert!(identity.judge(&same).is_ok() && !ids::were_missed());
                assert!(identity.judge(&caller).is_err());
                assert_eq!(ids_of_this_thread(), before);
                assert!(ids::were_missed() && !ids::were_missed());
                assert!(identity.judge(&caller).is_err(), "and again");
            });
        });
        assert!(identity.judge(&caller).is_ok(), "others do");
    }

    #[test]
    fn ids_are_switched_for_one_thread_and_switched_back() {
        let identity = Identity::of_this_process();
        if !identity.switches() {
            return;
        }
        let caller = Credential::of(4001, 4002, &[4003, 4004]);
        // Once it has acted for anybody, it keeps to quotas.
        drop(identity.judge(&caller).unwrap());
        assert!(!effective().contains(CapabilitySet::SYS_RESOURCE));
        let before = ids_of_this_thread();
        let judge = identity.judge(&caller).unwrap();
        assert!(matches!(judge, Judge::Kernel(Some(_))));
        assert!(!effective().contains(CapabilitySet::SYS_RESOURCE));
        let during = ids_of_this_thread();
        assert!(
            during.contains("\t4001") && during.contains("\t4002") && during.contains("4003 4004")
        );
        let elsewhere = std::thread::spawn(ids_of_this_thread).join().unwrap();
        // A thread starts with its parent's ids. No thread that acts for another user starts threads of the server.
        assert_eq!(elsewhere, during);
        drop(judge);
        assert_eq!(ids_of_this_thread(), before);
        // Also when the work between panics.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _judge = identity.judge(&caller).unwrap();
            panic!("in between");
        }));
        assert!(panicked.is_err());
        assert_eq!(ids_of_this_thread(), before);
        assert!(identity.judge(&Credential::of(u32::MAX, 0, &[])).is_err());
        assert_eq!(ids_of_this_thread(), before);
        assert!(matches!(
            identity.judge(identity.own()),
            Ok(Judge::Kernel(None))
        ));
    }
}
