//! The least that two threads can do that hand a page over through a TCP
//! connection of the loopback: a request of 64 bytes, and an answer that is the
//! page. No framing, no check, no table.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use odafs_fabric::tcp::{dial, hold_pacing, settle_pacing};

use crate::cpu;
use crate::floors::local::LocalFile;
use crate::floors::{Peer, Wait};

/// As many bytes as a guarded request has, about.
const REQUEST_BYTES: usize = 64;

/// The two ends of a connection. Neither waits for more to send, nor is paced.
pub fn connected() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    hold_pacing(&listener);
    let here = dial(listener.local_addr()?, Duration::from_secs(10))?;
    let (there, _) = listener.accept()?;
    for socket in [&here, &there] {
        settle_pacing(socket);
        socket.set_nodelay(true)?;
    }
    Ok((here, there))
}

/// What the asking side has of it.
pub struct Asking {
    socket: TcpStream,
}

impl Asking {
    /// Over a connection to a peer that [answers](answer_one).
    pub fn over(socket: TcpStream) -> Self {
        Self { socket }
    }

    /// Has the peer send the bytes at `offset`.
    ///
    /// # Errors
    /// The connection was lost.
    pub fn ask(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut request = [0; REQUEST_BYTES];
        request[..8].copy_from_slice(&offset.to_le_bytes());
        request[8..16].copy_from_slice(&(into.len() as u64).to_le_bytes());
        write_all(&mut self.socket, &request)?;
        match read_exact(&mut self.socket, into)? {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Peer for Asking {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.ask(offset, into)
    }

    fn cpu_ns(&mut self) -> io::Result<u64> {
        let mut ns = [0; 8];
        self.ask(u64::MAX, &mut ns)?;
        Ok(u64::from_le_bytes(ns))
    }
}

/// Starts a peer over `set`, bound to `peer_cpus` if any are named, and runs
/// `ask` beside it. The peer ends when `ask` returns.
///
/// # Errors
/// There is no loopback.
pub fn with_peer<T>(
    set: &LocalFile,
    wait: Wait,
    peer_cpus: Option<&[usize]>,
    ask: impl FnOnce(&mut Asking) -> T,
) -> io::Result<T> {
    let (socket, peer) = connected()?;
    for socket in [&socket, &peer] {
        socket.set_nonblocking(wait == Wait::Spin)?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Not being bound costs placement, not correctness.
            let _ = peer_cpus.map(cpu::bind);
            // The other side sees it if this ends early.
            let _ = answer(peer, set);
        });
        let mut asking = Asking { socket };
        Ok(ask(&mut asking))
    })
}

fn answer(mut socket: TcpStream, set: &LocalFile) -> io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    while read_exact(&mut socket, &mut request)? {
        reply(&mut socket, &request, set)?;
    }
    Ok(())
}

/// Answers a request, if one is there. False at the end of the stream.
///
/// # Errors
/// `WouldBlock`: there is none, and the socket does not block. Others: the connection was lost.
pub fn answer_one(socket: &mut TcpStream, set: &LocalFile) -> io::Result<bool> {
    let mut request = [0; REQUEST_BYTES];
    let there = socket.read(&mut request)?;
    let whole = there > 0 && read_exact(socket, &mut request[there..])?;
    if whole {
        reply(socket, &request, set)?;
    }
    Ok(whole)
}

fn reply(socket: &mut TcpStream, request: &[u8; REQUEST_BYTES], set: &LocalFile) -> io::Result<()> {
    let word = |at: usize| request[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let (offset, length) = (word(0), word(8));
    if offset == u64::MAX {
        return write_all(socket, &cpu::thread_ns().to_le_bytes());
    }
    write_all(
        socket,
        &set.bytes()[offset as usize..(offset + length) as usize],
    )
}

/// Blocks where the socket does, else tries again and again.
fn write_all(socket: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_passing(&error) => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The same. False at the end of the stream.
fn read_exact(socket: &mut TcpStream, bytes: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < bytes.len() {
        match socket.read(&mut bytes[filled..]) {
            Ok(0) => return Ok(false),
            Ok(read) => filled += read,
            Err(error) if is_passing(&error) => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floors::local::write_random;
    use crate::scratch::Scratch;

    #[test]
    fn the_peer_hands_over_the_right_pages() {
        let directory = Scratch::for_bytes(1 << 20).unwrap();
        let path = directory.path().join("file");
        write_random(&path, 1 << 20, |_| {}).unwrap();
        let set = LocalFile::open(&path, false).unwrap();
        for wait in [Wait::Spin, Wait::Block] {
            let peer = with_peer(&set, wait, None, |peer| {
                for page in [0, 7, 255] {
                    let mut bytes = [0; 4096];
                    peer.read(page * 4096, &mut bytes).unwrap();
                    assert_eq!(bytes, set.bytes()[page as usize * 4096..][..4096]);
                }
                assert!(peer.cpu_ns().unwrap() > 0);
            });
            peer.unwrap();
        }
    }
}
