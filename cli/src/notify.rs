//! Tells a service manager the state of the server, as sd_notify(3) does.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The state of the server.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// All listeners are open.
    Ready,
    /// The server drains.
    Stopping,
}

/// Tells the manager that waits at `$NOTIFY_SOCKET`, if that is set. A failure is printed and does not stop the server.
pub fn tell(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        eprintln!(
            "odafs: cannot tell the service manager at {} of {state:?}: {error}",
            socket.display()
        );
    }
}

fn send(socket: &OsStr, state: State) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let text: &[u8] = match state {
        State::Ready => b"READY=1\n",
        State::Stopping => b"STOPPING=1\n",
    };
    UnixDatagram::unbound()?
        .send_to_addr(text, &address)
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came at a manager's socket.
    fn received(manager: &UnixDatagram) -> Vec<u8> {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        text[..length].to_vec()
    }

    #[test]
    fn a_manager_is_told_by_a_path_or_by_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), State::Ready).unwrap();
        assert_eq!(received(&manager), b"READY=1\n");

        let name = format!("odafs-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&abstract_name).unwrap();
        send(OsStr::new(&format!("@{name}")), State::Stopping).unwrap();
        assert_eq!(received(&manager), b"STOPPING=1\n");
    }

    #[test]
    fn a_manager_that_is_gone_is_an_error_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let nobody = directory.path().join("nobody");
        assert!(send(nobody.as_os_str(), State::Ready).is_err());
    }
}
