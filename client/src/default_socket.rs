//! The socket of `odafs+shm:///PATH`: that on which `odafs serve` listens where it is told no other.

use rustix::process::geteuid;
use std::{
    env,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

const SOCKET: &str = "odafs.sock";

/// The first that is there, of this user's own server and of root's; if none is, the one that this user's would make.
pub fn find() -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut candidates = candidates(runtime, geteuid().as_raw());
    let there = candidates.iter().position(|socket| trusted(socket));
    candidates.swap_remove(there.unwrap_or(0))
}

/// `serve` chooses the first for itself: `default_socket` of cli/src/listeners.rs.
fn candidates(runtime: Option<PathBuf>, uid: u32) -> Vec<PathBuf> {
    let runtime = runtime.filter(|directory| directory.is_absolute());
    let own = (uid != 0).then(|| PathBuf::from(format!("/tmp/odafs-{uid}")));
    let directories = runtime
        .into_iter()
        .chain(own)
        .chain([PathBuf::from("/run")]);
    directories
        .map(|directory| directory.join(SOCKET))
        .collect()
}

/// Whether it is there, in a directory that nobody but this user and root may write: anyone may make one below /tmp.
fn trusted(socket: &Path) -> bool {
    let directory = socket
        .parent()
        .and_then(|parent| parent.symlink_metadata().ok());
    let owners = [0, geteuid().as_raw()];
    directory.is_some_and(|found| owners.contains(&found.uid()) && found.mode() & 0o022 == 0)
        && socket.exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn the_own_server_goes_before_roots() {
        let named = |runtime: Option<&str>, uid| candidates(runtime.map(PathBuf::from), uid);
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(named(None, 0), paths(&["/run/odafs.sock"]));
        assert_eq!(named(Some("relative"), 0), paths(&["/run/odafs.sock"]));
        assert_eq!(
            named(Some("/run/user/7"), 7),
            paths(&[
                "/run/user/7/odafs.sock",
                "/tmp/odafs-7/odafs.sock",
                "/run/odafs.sock"
            ])
        );
    }

    #[test]
    fn a_directory_that_others_may_write_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join(SOCKET);
        assert!(!trusted(&socket), "nothing is there");
        fs::write(&socket, "").unwrap();
        for (mode, is_trusted) in [(0o700, true), (0o755, true), (0o777, false)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(trusted(&socket), is_trusted, "{mode:o}");
        }
    }
}
