use super::pair::{EndRole, Pair};
use super::ring::{RING_BYTES, Ring};
use super::socket::{Packet, Socket};
use crate::clock::{self, Nanos};
use crate::fabric::{self, QueuePair};
use crate::memory::mapping::{Mapping, Protection};
use crate::memory::memfd;
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// How a client connects.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions {
    /// How long the server may take to accept and to answer a registration.
    pub timeout: Nanos,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            timeout: Nanos::from_secs(5),
        }
    }
}

/// Connects to the server that listens at `path`.
pub fn connect(
    path: &Path,
    private_data: &[u8],
    options: &ConnectOptions,
) -> io::Result<Box<dyn QueuePair>> {
    fabric::check_private_data(private_data)?;
    let deadline = clock::now() + options.timeout;
    let socket = reach(path, deadline)?;
    // A server that refuses may have closed its end by now. Its reason can still be read.
    match socket.send(
        &Packet::Hello {
            private_data: private_data.to_vec(),
        },
        &[],
    ) {
        Err(error) if !is_hang_up(&error) => return Err(error),
        _ => {}
    }
    let answer = match socket.receive_until(deadline) {
        Err(error) if is_hang_up(&error) => socket.receive_until(deadline),
        answer => answer,
    };
    let (private_data, memory) = match answer? {
        (Packet::Welcome { private_data }, descriptors) => {
            (private_data, descriptors.into_iter().next())
        }
        (Packet::Refused { reason }, _) => {
            let refused = format!("{}: {}: {reason}", path.display(), fabric::REFUSED);
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, refused));
        }
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the server did not answer the greeting",
            ));
        }
    };
    let memory = memory
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the server passed no memory"))?;
    if memfd::sealed_length(memory.as_fd())? < 2 * RING_BYTES as u64 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the server's rings are too short",
        ));
    }
    let memory = Arc::new(Mapping::of(
        memory.as_fd(),
        2 * RING_BYTES,
        Protection::ReadWrite,
    )?);
    let (out, into) = (
        Ring::new(Arc::clone(&memory), 0),
        Ring::new(memory, RING_BYTES),
    );
    let peer = socket.peer()?;
    let role = EndRole::Client {
        timeout: options.timeout,
        requests: 0,
        views: Vec::new(),
    };
    Ok(Box::new(Pair::new(
        socket,
        out,
        into,
        peer,
        private_data,
        role,
    )))
}

/// Whether the error says that the peer closed its end. The kernel reports that once, ahead of what the peer sent before.
fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn reach(path: &Path, deadline: Nanos) -> io::Result<Socket> {
    let socket = Socket::new()?;
    let address = Socket::address(path)?;
    loop {
        match rustix::net::connect(socket.as_fd(), &address) {
            Ok(()) => return Ok(socket),
            // The server's queue of pending connections is full.
            Err(Errno::AGAIN) if clock::now() < deadline => clock::sleep(Nanos::from_millis(1)),
            Err(error) => {
                let kind = io::Error::from(error).kind();
                let what = match error {
                    Errno::NOENT | Errno::CONNREFUSED => fabric::NOT_LISTENING,
                    Errno::ACCESS => "this user may not connect to it",
                    Errno::AGAIN => "the server accepts no connections",
                    _ => "cannot connect",
                };
                return Err(io::Error::new(
                    kind,
                    format!("{}: {what} ({error})", path.display()),
                ));
            }
        }
    }
}
