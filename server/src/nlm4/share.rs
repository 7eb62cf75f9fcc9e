//! SHARE and UNSHARE (XNFS, sections 14.3.14 and 14.3.15): open files as DOS shares them, among clients of NFS version 3.

use odafs_common::wire::nlm4::{ShareAccess, ShareArgs, ShareMode, ShareResult, Status};
use odafs_fabric::clock::Nanos;

use super::hosts::{Hosts, Who};
use super::{Lockd, who};
use crate::rpc::Call;
use crate::vfs::ObjectId;

/// An open file.
#[derive(Debug)]
pub(super) struct Share {
    host: u32,
    owner: Vec<u8>,
    mode: ShareMode,
    access: ShareAccess,
    /// The number of the host's start, as it had last said by then.
    state: u32,
}

impl Share {
    fn excludes(&self, mode: ShareMode, access: ShareAccess) -> bool {
        self.mode.code() & access.code() | self.access.code() & mode.code() != 0
    }
}

impl Hosts {
    /// SHARE; a later one of an owner replaces the earlier.
    pub fn share(
        &mut self,
        now: Nanos,
        who: &Who,
        file: ObjectId,
        owner: &[u8],
        (mode, access): (ShareMode, ShareAccess),
        reclaim: bool,
    ) -> Status {
        if let Err(status) = self.may_take(now, &who.key, reclaim) {
            return status;
        }
        let host = match self.host(now, who) {
            Ok(host) => host,
            Err(status) => return status,
        };
        let shares = self.shares.get(&file).map_or(&[][..], Vec::as_slice);
        let is_own = |share: &Share| share.host == host && share.owner == owner;
        if shares
            .iter()
            .any(|share| !is_own(share) && share.excludes(mode, access))
        {
            return Status::Denied;
        }
        self.unshare_of(host, file, owner);
        if !self.has_room(host, |counts| &mut counts.shares, 1) {
            return Status::DeniedNoLocks;
        }
        self.count(host, |counts| &mut counts.shares, 1, 0);
        let known = self.hosts.get_mut(&host).map(|host| {
            host.shares += 1;
            host.state
        });
        let share = Share {
            host,
            owner: owner.to_vec(),
            mode,
            access,
            state: known.unwrap_or(0),
        };
        self.shares.entry(file).or_default().push(share);
        self.record(host);
        Status::Granted
    }

    /// UNSHARE
    pub fn unshare(&mut self, who: &Who, file: ObjectId, owner: &[u8]) -> Status {
        if let Some(host) = self.names.get(&who.key).copied() {
            self.unshare_of(host, file, owner);
        }
        Status::Granted
    }

    fn unshare_of(&mut self, host: u32, file: ObjectId, owner: &[u8]) {
        let Some(shares) = self.shares.get_mut(&file) else {
            return;
        };
        let before = shares.len();
        shares.retain(|share| share.host != host || share.owner != owner);
        let gone = before - shares.len();
        if shares.is_empty() {
            self.shares.remove(&file);
        }
        self.forget_shares(host, gone);
    }

    /// Removes the shares of a host for which `goes` says so, by the file and by the number of the host's start. Returns how
    /// many those were.
    pub fn unshare_all(&mut self, host: u32, goes: impl Fn(ObjectId, u32) -> bool) -> usize {
        let mut gone = 0;
        self.shares.retain(|file, shares| {
            let before = shares.len();
            shares.retain(|share| share.host != host || !goes(*file, share.state));
            gone += before - shares.len();
            !shares.is_empty()
        });
        self.forget_shares(host, gone);
        gone
    }

    fn forget_shares(&mut self, number: u32, gone: usize) {
        if let Some(host) = self.hosts.get_mut(&number) {
            host.shares -= gone;
        }
        self.count(number, |counts| &mut counts.shares, 0, gone);
    }
}

/// SHARE, or UNSHARE. Shares outlive their file.
pub(super) fn share<'a>(
    lockd: &Lockd,
    call: &Call<'_>,
    arguments: &ShareArgs<'a>,
    begins: bool,
) -> ShareResult<'a> {
    let share = &arguments.share;
    let who = who(call.caller, share.caller);
    let shared = || {
        let owner = share.owner.0;
        if !begins {
            let file = lockd.named(share.file)?;
            return Ok(lockd.with_unrecorded(|hosts, _| hosts.unshare(&who, file, owner)));
        }
        let file = lockd.file(call, share.file)?;
        lockd.may_lock(call, file)?;
        let how = (share.mode, share.access);
        lockd.with(|hosts, now| {
            let status = hosts.share(now, &who, file, owner, how, arguments.reclaim);
            lockd.still_reaches(hosts, call, file).and(Ok(status))
        })
    };
    let status = shared().unwrap_or_else(|status: Status| status);
    ShareResult {
        cookie: arguments.cookie,
        status,
        sequence: 0,
    }
}
