//! Where a server listens by default, and what stands in the way.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

/// NFS where nothing else is said.
pub const DEFAULT_NFS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// NFS over RDMA where nothing else is said.
pub const DEFAULT_RDMA: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 20049);

/// The shared-memory socket where nothing else is said:
/// `$XDG_RUNTIME_DIR/odafs.sock`, else `/run/odafs.sock` (root) or
/// `/tmp/odafs-UID/odafs.sock`, whose directory is made, for this user alone.
pub fn default_socket() -> Result<PathBuf> {
    if let Some(runtime) =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|d| Path::new(d).is_absolute())
    {
        return Ok(Path::new(&runtime).join("odafs.sock"));
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Ok(PathBuf::from("/run/odafs.sock"));
    }
    let directory = PathBuf::from(format!("/tmp/odafs-{}", uid.as_raw()));
    match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot make {}", directory.display()));
        }
    }
    let found = std::fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != uid.as_raw() || found.mode() & 0o077 != 0 {
        bail!(
            "{} is not a directory of this user alone: remove it, or name a socket with --shm SOCKET",
            directory.display()
        );
    }
    Ok(directory.join("odafs.sock"))
}

/// Makes sure that a socket can be made at `path`: one that a dead server left
/// is removed, one that is answered is an error.
pub fn clear_socket(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => Err(anyhow!(
                "cannot make the socket {}: there is no directory {}; make it, or name another place with --shm",
                path.display(),
                parent.display()
            )),
            _ => Ok(()),
        };
    };
    if found.is_dir() {
        bail!(
            "--shm {}: it is a directory; name a socket in it",
            path.display()
        );
    }
    if !found.file_type().is_socket() {
        bail!(
            "{} is in the way and is no socket: move it, or name another place with --shm",
            path.display()
        );
    }
    if is_answered(path)? {
        bail!(
            "{} belongs to a server that runs: stop it, or name another socket with --shm",
            path.display()
        );
    }
    std::fs::remove_file(path).with_context(|| {
        format!(
            "cannot remove the stale socket {} (its owner may; or name another with --shm)",
            path.display()
        )
    })
}

/// Whether a process listens on the socket: nobody does if the connection is refused.
fn is_answered(path: &Path) -> Result<bool> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        // A listener of another socket type (EPROTOTYPE) is one all the same.
        Err(error) if error.raw_os_error() == Some(libc::EPROTOTYPE) => Ok(probe_seqpacket(path)),
        Err(error) => Err(error).with_context(|| {
            format!(
                "cannot look at {} (name another socket with --shm)",
                path.display()
            )
        }),
    }
}

/// Connecting with the right type tells a listener from a leftover.
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
