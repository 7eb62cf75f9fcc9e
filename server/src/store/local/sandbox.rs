//! What a sandbox may keep from the store.

use std::io;

use rustix::fs::{CWD, Mode, OFlags, openat2};
use rustix::io::Errno;

use super::objects::BENEATH;

/// Whether this process may look up names with openat2(2). The error says what may block the call, and the remedy.
pub fn check_openat2() -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, ".", flags, Mode::empty(), BENEATH) {
        // A systemd unit's filter says ENOSYS, that of an old container runtime EPERM. The call itself knows no EPERM here.
        Err(errno @ (Errno::NOSYS | Errno::PERM)) => Err(io::Error::other(format!(
            "{}: the server looks up each name with openat2(2), which is blocked here; remove RestrictSUIDSGID= and \
             DynamicUser=, which implies it, from the systemd unit, or take a container runtime whose seccomp profile allows the call (without a sandbox, Linux \
             5.6 has it)",
            io::Error::from(errno)
        ))),
        // What else may be wrong with this process's directory is not the call's fault.
        _ => Ok(()),
    }
}
