//! Where a server listens by default, and what may prevent it.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

/// The default address of NFS.
pub const DEFAULT_NFS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// The default address of NFS over RDMA.
pub const DEFAULT_RDMA: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 20049);

/// The default shared-memory socket: `$RUNTIME_DIRECTORY/odafs.sock` (of a systemd unit), else `/run/odafs.sock` (root),
/// `$XDG_RUNTIME_DIR/odafs.sock` or `/tmp/odafs-UID/odafs.sock`. In the last case, this creates the directory, for this user
/// alone. Clients look there too (`client/src/default_socket.rs`).
pub fn default_socket() -> Result<PathBuf> {
    let directory = match default_directory() {
        SocketDirectory::There(directory) => directory,
        SocketDirectory::Ours(directory) => {
            make_private(&directory)?;
            directory
        }
    };
    Ok(directory.join(SOCKET))
}

const SOCKET: &str = "odafs.sock";

/// The directory of the default socket.
#[derive(Debug, PartialEq, Eq)]
enum SocketDirectory {
    /// The system creates it.
    There(PathBuf),
    /// The server creates it.
    Ours(PathBuf),
}

fn default_directory() -> SocketDirectory {
    let uid = rustix::process::geteuid().as_raw();
    directory_of(uid, |name| std::env::var_os(name))
}

fn directory_of(uid: u32, variable: impl Fn(&str) -> Option<OsString>) -> SocketDirectory {
    let absolute = |path: &PathBuf| path.is_absolute();
    // Of a unit with several, systemd names all, with colons in between.
    let of_unit = variable("RUNTIME_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    if let Some(directory) = of_unit.filter(absolute) {
        return SocketDirectory::There(directory);
    }
    // All users look there, while root's login has a $XDG_RUNTIME_DIR that is closed to others and goes at its end.
    if uid == 0 {
        return SocketDirectory::There(PathBuf::from("/run"));
    }
    let of_login = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    match of_login.filter(absolute) {
        Some(directory) => SocketDirectory::There(directory),
        None => SocketDirectory::Ours(PathBuf::from(format!("/tmp/odafs-{uid}"))),
    }
}

fn make_private(directory: &Path) -> Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot create {}", directory.display()))
        }
        _ => check_private(directory, &std::fs::symlink_metadata(directory)?),
    }
}

fn check_private(directory: &Path, found: &std::fs::Metadata) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != me || found.mode() & 0o077 != 0 {
        bail!(
            "{} is not a directory that belongs to this user alone (mode 0700): remove it, or name a socket with --shm SOCKET",
            directory.display()
        );
    }
    Ok(())
}

/// The default socket, and the directory in which a server would create an entry for it. This creates nothing.
pub fn default_place() -> Result<(PathBuf, PathBuf)> {
    match default_directory() {
        SocketDirectory::There(directory) => Ok((directory.join(SOCKET), directory)),
        SocketDirectory::Ours(directory) => place_below(directory),
    }
}

fn place_below(directory: PathBuf) -> Result<(PathBuf, PathBuf)> {
    let socket = directory.join(SOCKET);
    match std::fs::symlink_metadata(&directory) {
        Ok(found) => {
            check_private(&directory, &found)?;
            Ok((socket, directory))
        }
        Err(_) => {
            let parent = directory.parent().unwrap_or(Path::new("/"));
            Ok((socket, parent.to_owned()))
        }
    }
}

/// Makes sure that a socket can be created at `path`. It removes the socket of a dead server. The socket of a live one is
/// an error.
pub fn clear_socket(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => check_parent(path, parent),
            _ => Ok(()),
        };
    };
    if found.is_dir() {
        bail!(
            "--shm {}: this is a directory; name a socket in it",
            path.display()
        );
    }
    if !found.file_type().is_socket() {
        bail!(
            "{} exists and is no socket: move it, or name another place with --shm",
            path.display()
        );
    }
    if is_answered(path)? {
        bail!(
            "{} belongs to a server that runs: stop that server, or name another socket with --shm",
            path.display()
        );
    }
    std::fs::remove_file(path).with_context(|| {
        format!(
            "cannot remove the stale socket {} (only its owner may; name another socket with --shm)",
            path.display()
        )
    })
}

/// Fails unless there is a directory for the socket. A directory that this user may not search is not called missing.
fn check_parent(path: &Path, parent: &Path) -> Result<()> {
    let (path, shown) = (path.display(), parent.display());
    match std::fs::metadata(parent) {
        Ok(found) if found.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(anyhow!(
            "cannot create the socket {path}: {shown} is closed to this user; name another place with --shm"
        )),
        _ => Err(anyhow!(
            "cannot create the socket {path}: there is no directory {shown}; create it, or name another place with --shm"
        )),
    }
}

/// Whether a process listens on the socket. If the connection is refused, none does.
fn is_answered(path: &Path) -> Result<bool> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        // A listener of another socket type (EPROTOTYPE) is one all the same.
        Err(error) if error.raw_os_error() == Some(libc::EPROTOTYPE) => Ok(probe_seqpacket(path)),
        Err(error) => Err(error).with_context(|| {
            format!(
                "cannot find out whether a server listens on {} (name another socket with --shm)",
                path.display()
            )
        }),
    }
}

/// Tells a listener from a leftover by connecting with the right type.
fn probe_seqpacket(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let tried = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
        .and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    tried != Err(rustix::io::Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn roots_socket_is_where_all_users_look() {
        let directory = |uid, unit: &str, login: &str| {
            directory_of(uid, |name| match name {
                "RUNTIME_DIRECTORY" => Some(unit.into()),
                "XDG_RUNTIME_DIR" => Some(login.into()),
                _ => None,
            })
        };
        let there = |path: &str| SocketDirectory::There(path.into());
        assert_eq!(directory(0, "", "/run/user/0"), there("/run"));
        assert_eq!(directory(7, "", "/run/user/7"), there("/run/user/7"));
        let ours = SocketDirectory::Ours("/tmp/odafs-7".into());
        assert_eq!(directory(7, "", ""), ours);
        assert_eq!(directory(7, "relative", "relative"), ours);
        for uid in [0, 7] {
            assert_eq!(directory(uid, "/run/a:/run/b", "/run/c"), there("/run/a"));
        }
    }

    #[test]
    fn to_ask_for_the_place_makes_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("odafs-1");
        let socket = directory.join(SOCKET);
        let place = |writable: &Path| (socket.clone(), writable.to_owned());
        assert_eq!(
            place_below(directory.clone()).unwrap(),
            place(parent.path())
        );
        assert!(!directory.exists());
        make_private(&directory).unwrap();
        assert_eq!(place_below(directory.clone()).unwrap(), place(&directory));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&directory, open).unwrap();
        assert!(place_below(directory.clone()).is_err() && make_private(&directory).is_err());
    }

    #[test]
    fn a_live_socket_is_left_alone_and_a_stale_one_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        clear_socket(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        assert!(
            clear_socket(&path)
                .unwrap_err()
                .to_string()
                .contains("runs")
        );
        drop(listener);
        clear_socket(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, b"").unwrap();
        assert!(
            clear_socket(&path)
                .unwrap_err()
                .to_string()
                .contains("no socket")
        );
        let missing = directory.path().join("no/s");
        assert!(
            clear_socket(&missing)
                .unwrap_err()
                .to_string()
                .contains("no directory")
        );
    }
}
