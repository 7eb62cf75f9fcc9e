//! The ids with which a call is made.

use odafs_fabric::sync::Arc;

/// The ids on whose behalf a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Whether the caller acts as the serving user, with all of its rights. The server then switches no ids, and the kernel
    /// judges the server's process. `uid` and `gid` are those of the serving user.
    pub own: bool,
}

impl Credential {
    /// The serving user, with its groups.
    pub fn of_this_process() -> Self {
        let groups: Vec<u32> = rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into(),
            own: true,
        }
    }

    /// Another user, by ids.
    pub fn of(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: groups.into(),
            own: false,
        }
    }

    /// Whether `gid` is the primary group or one of the others.
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
