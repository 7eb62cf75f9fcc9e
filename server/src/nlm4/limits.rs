//! What the lock manager holds for clients at the most.

/// Bounds, of what hosts at one address may have, or of what all may have together.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostLimits {
    /// Names of hosts.
    pub hosts: usize,
    /// Owners of locks.
    pub owners: usize,
    /// Ranges that are locked.
    pub ranges: usize,
    /// Locks that somebody waits for, or is being told of.
    pub waiters: usize,
    /// Shares.
    pub shares: usize,
}

/// For each address.
pub(super) const OF_ADDRESS: HostLimits = HostLimits {
    hosts: 256,
    owners: 1 << 12,
    ranges: 1 << 14,
    waiters: 256,
    shares: 1 << 10,
};
/// In all.
pub(super) const OF_ALL: HostLimits = HostLimits {
    hosts: 1 << 12,
    owners: 1 << 16,
    ranges: 1 << 19,
    waiters: 1 << 14,
    shares: 1 << 16,
};
/// For each file, because each call walks along all locks of its file. This is more than one address may have.
pub(super) const OF_FILE: FileLimits = FileLimits {
    ranges: 1 << 15,
    waiters: 1 << 9,
};

/// Bounds, of what all clients of NFS version 3 may have in one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLimits {
    /// Ranges that are locked.
    pub ranges: usize,
    /// Locks that somebody waits for.
    pub waiters: usize,
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub hosts: usize,
    pub owners: usize,
    pub ranges: usize,
    pub waiters: usize,
    pub shares: usize,
}

impl HostLimits {
    /// As counts.
    pub fn counts(self) -> Counts {
        Counts {
            hosts: self.hosts,
            owners: self.owners,
            ranges: self.ranges,
            waiters: self.waiters,
            shares: self.shares,
        }
    }
}
