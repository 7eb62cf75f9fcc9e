//! The socket of `odafs+shm:///PATH`: the one on which `odafs serve` listens by default.

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketType},
    process::geteuid,
};
use std::{
    env,
    ffi::OsString,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

const SOCKET: &str = "odafs.sock";

/// The first socket that exists and answers: of a server in this systemd unit, of this user's own, or else of root's. If there
/// is none, the one that this user's server would create outside of a unit, so that the error names it.
///
/// # Errors
/// The only socket is in a directory where another user may have put it.
pub fn find() -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    choose(candidates(uid, |name| env::var_os(name)), uid, is_stale)
}

fn choose(
    mut candidates: Vec<PathBuf>,
    uid: u32,
    is_stale: impl Fn(&Path) -> bool,
) -> io::Result<PathBuf> {
    let places: Vec<_> = candidates.iter().map(|path| place(path, uid)).collect();
    let held = |at: &usize| places[*at] == SocketState::Held;
    let there = || (0..candidates.len()).filter(held);
    // A server that was killed leaves its socket, which must not hide another one. If it is the only one, use it.
    let found = there()
        .find(|at| !is_stale(&candidates[*at]))
        .or_else(|| there().next());
    if found.is_none()
        && let Some(at) = places
            .iter()
            .position(|place| *place == SocketState::Untrusted)
    {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} may belong to another user: its directory must belong to this user or to root, and nobody else may \
                 write to it; remove it, or name the socket in the URL (odafs+shm:///SOCKET?/PATH)",
                candidates[at].display()
            ),
        ));
    }
    Ok(candidates.swap_remove(found.unwrap_or(0)))
}

/// `odafs serve` uses the first one (`default_socket` in cli/src/listeners.rs).
fn candidates(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let in_directory =
        |directory: PathBuf| Some(directory.join(SOCKET)).filter(|_| directory.is_absolute());
    let of_unit = variable("RUNTIME_DIRECTORY").and_then(|all| env::split_paths(&all).next());
    // Many units have such a directory, and few of them a server. Without one, there is nothing to say about it.
    let of_unit = of_unit.and_then(in_directory).filter(|path| path.exists());
    let own = || {
        let of_login = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
        let made = PathBuf::from(format!("/tmp/odafs-{uid}"));
        of_login
            .and_then(in_directory)
            .into_iter()
            .chain(in_directory(made))
    };
    let own = (uid != 0).then(own).into_iter().flatten();
    of_unit
        .into_iter()
        .chain(own)
        .chain(in_directory(PathBuf::from("/run")))
        .collect()
}

/// The state of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketState {
    /// There is no socket, and no directory that others made.
    Empty,
    /// There is a socket, in a directory where only this user and root may put one.
    Held,
    /// Its directory belongs to another user, or others may write to it. Anyone may create one below /tmp.
    Untrusted,
}

fn place(socket: &Path, uid: u32) -> SocketState {
    let directory = socket
        .parent()
        .and_then(|parent| parent.symlink_metadata().ok());
    let Some(found) = directory else {
        return SocketState::Empty;
    };
    if !found.is_dir() || ![0, uid].contains(&found.uid()) || found.mode() & 0o022 != 0 {
        return SocketState::Untrusted;
    }
    match socket.exists() {
        true => SocketState::Held,
        false => SocketState::Empty,
    }
}

/// Whether nobody listens on the socket.
fn is_stale(socket: &Path) -> bool {
    let tried = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
        .and_then(|ours| net::connect(&ours, &SocketAddrUnix::new(socket)?));
    tried == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn the_own_server_goes_before_roots() {
        let named = |uid, unit: &str, login: &str| {
            candidates(uid, |name| match name {
                "RUNTIME_DIRECTORY" => Some(unit.into()),
                "XDG_RUNTIME_DIR" => Some(login.into()),
                _ => None,
            })
        };
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let roots = "/run/odafs.sock";
        // Root's login has a directory too, but its server does not use it.
        for login in ["", "relative", "/run/user/0"] {
            assert_eq!(named(0, "", login), paths(&[roots]));
        }
        let made = "/tmp/odafs-7/odafs.sock";
        assert_eq!(named(7, "", "relative"), paths(&[made, roots]));
        let own = "/run/user/7/odafs.sock";
        assert_eq!(named(7, "", "/run/user/7"), paths(&[own, made, roots]));
        // Of a unit, where it has a server.
        let (_directory, of_unit) = held(0o755);
        let unit = of_unit.parent().unwrap();
        let unit = format!("{}:/run/other", unit.display());
        let of_unit = of_unit.to_str().unwrap();
        assert_eq!(named(0, &unit, "/run/user/0"), paths(&[of_unit, roots]));
        assert_eq!(named(7, &unit, ""), paths(&[of_unit, made, roots]));
        assert_eq!(named(7, "/run/none", ""), paths(&[made, roots]));
    }

    /// A directory of this mode, with a file where the socket would be, and that file.
    fn held(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join(SOCKET);
        fs::write(&socket, "").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        (directory, socket)
    }

    fn chosen(candidates: &[&PathBuf]) -> io::Result<PathBuf> {
        let candidates = candidates.iter().map(PathBuf::from).collect();
        choose(candidates, geteuid().as_raw(), |_| false)
    }

    #[test]
    fn what_others_may_have_put_there_is_not_taken() {
        let (_own, own) = held(0o700);
        let (_readable, readable) = held(0o755);
        let (_open, open) = held(0o777);
        let missing = own.with_file_name("none").join(SOCKET);
        assert_eq!(chosen(&[&missing]).unwrap(), missing, "for the message");
        assert_eq!(chosen(&[&missing, &readable]).unwrap(), readable);
        assert_eq!(chosen(&[&open, &own]).unwrap(), own);
        for candidates in [&[&open][..], &[&missing, &open], &[&open, &missing]] {
            let refused = chosen(candidates).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains(open.to_str().unwrap()));
        }
        // Another user's, whatever its mode; so is one of whom nothing is known but a link.
        let stranger = geteuid().as_raw() + 1;
        let foreign = choose(vec![own.clone()], stranger, |_| false);
        assert_eq!(foreign.is_err(), !geteuid().is_root());
        let link = readable.with_file_name("link");
        std::os::unix::fs::symlink(own.parent().unwrap(), &link).unwrap();
        assert!(chosen(&[&link.join(SOCKET)]).is_err());
    }

    #[test]
    fn a_socket_that_a_dead_server_left_hides_no_other() {
        let (_first, first) = held(0o700);
        let (_second, second) = held(0o700);
        let uid = geteuid().as_raw();
        let both = vec![first.clone(), second.clone()];
        let chosen = choose(both.clone(), uid, |path| path == first).unwrap();
        assert_eq!(chosen, second);
        assert_eq!(choose(both, uid, |_| true).unwrap(), first);
        fs::remove_file(&first).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&first).unwrap();
        assert!(!is_stale(&first));
        drop(listener);
        assert!(is_stale(&first));
    }
}
