//! Acting for someone else: the file system ids of the calling thread, switched and always switched back.
//!
//! A server with the rights of root has the kernel judge its callers: for the length of a call its thread has
//! their user, group and supplementary groups as file system ids (setfsuid(2) and its kin concern one thread,
//! not the process). Switching away from uid 0 also drops the capabilities that override permissions
//! (CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_CHOWN and others, see capabilities(7)), and switching back restores them.
//!
//! Any other server cannot. It judges ids that are not its own by mode bits, and only lets them read and write
//! what is there: see [`Judge::Ourselves`].

use std::cell::Cell;
use std::marker::PhantomData;

use odafs_common::wire::nfs3::Status;
use rustix::fs::Mode;
use rustix::process::Gid;
use rustix::thread::CapabilitySet;

use super::sys;
use crate::store::{Credential, Result};

/// What this process is, and may become.
pub(super) struct Identity {
    own: Credential,
    own_groups: Vec<Gid>,
    switches: bool,
}

/// Who says what a caller may do.
pub(super) enum Judge<'a> {
    /// The kernel, while this lives: the thread has the caller's ids, or the caller acts as we do.
    Kernel(Option<Acting<'a>>),
    /// Mode bits, since ids cannot be switched. Such a caller can read and write what exists and remove and
    /// rename it, but makes nothing, as it could not be given what it made.
    Ourselves,
}

/// The thread has other ids than the process. Bound to its thread; ends with the scope.
pub(super) struct Acting<'a> {
    identity: &'a Identity,
    _not_send: PhantomData<*const ()>,
}

impl Identity {
    pub fn of_this_process() -> Self {
        let own = Credential::of_this_process();
        let own_groups = own.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let mut identity = Self {
            own,
            own_groups,
            switches: false,
        };
        let has = |set| effective().contains(set);
        if identity.own.uid == 0 && has(CapabilitySet::SETUID | CapabilitySet::SETGID) {
            // Switching must drop the overriding capabilities; SECBIT_NO_SETUID_FIXUP prevents that.
            let nobody = Credential::of(65_534, 65_534, &[]);
            let drops = identity
                .act(&nobody)
                .map(|_acting| !has(CapabilitySet::DAC_OVERRIDE));
            identity.switches = drops.unwrap_or(false);
        }
        identity
    }

    pub fn own(&self) -> &Credential {
        &self.own
    }

    /// Whether callers are judged by the kernel whoever they are.
    pub fn switches(&self) -> bool {
        self.switches
    }

    /// Keep the result as long as the caller shall be judged.
    pub fn judge(&self, caller: &Credential) -> Result<Judge<'_>> {
        if caller.own {
            Ok(Judge::Kernel(None))
        } else if self.switches {
            Ok(Judge::Kernel(Some(self.act(caller)?)))
        } else if caller.uid == self.own.uid || caller.uid == 0 {
            // Root on a client is nobody special here, but may do what we may.
            Ok(Judge::Kernel(None))
        } else {
            Ok(Judge::Ourselves)
        }
    }

    fn act(&self, caller: &Credential) -> Result<Acting<'_>> {
        let acting = Acting {
            identity: self,
            _not_send: PhantomData,
        };
        let groups: Vec<Gid> = caller
            .groups
            .iter()
            .map(|gid| Gid::from_raw(*gid))
            .collect();
        rustix::thread::set_thread_groups(&groups)?;
        if sys::set_file_gid(caller.gid) && sys::set_file_uid(caller.uid) {
            Ok(acting)
        } else {
            // Ids that this user namespace does not have, -1 among them.
            Err(Status::Access.into())
        }
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let own = &self.identity.own;
        let restored = sys::set_file_uid(own.uid)
            && sys::set_file_gid(own.gid)
            && rustix::thread::set_thread_groups(&self.identity.own_groups).is_ok();
        if !restored {
            // A thread with the ids of a caller must never serve another one.
            eprintln!("odafs: a thread could not take its own ids back");
            std::process::abort();
        }
    }
}

/// Takes the umask from the calling thread, for good: clients have applied theirs. Nothing else of the process is
/// concerned, but the thread then has a working directory of its own too.
pub(super) fn without_umask() -> Result<()> {
    thread_local!(static GONE: Cell<bool> = const { Cell::new(false) });
    if !GONE.get() {
        sys::unshare_umask()?;
        rustix::process::umask(Mode::empty());
        GONE.set(true);
    }
    Ok(())
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
    fn ids_are_switched_for_one_thread_and_switched_back() {
        let identity = Identity::of_this_process();
        if !identity.switches() {
            return;
        }
        let before = ids_of_this_thread();
        let caller = Credential::of(4001, 4002, &[4003, 4004]);
        let judge = identity.judge(&caller).unwrap();
        assert!(matches!(judge, Judge::Kernel(Some(_))));
        let during = ids_of_this_thread();
        assert!(
            during.contains("\t4001") && during.contains("\t4002") && during.contains("4003 4004")
        );
        let elsewhere = std::thread::spawn(ids_of_this_thread).join().unwrap();
        // A thread starts with its parent's ids: the server's threads are started by none that acts.
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
