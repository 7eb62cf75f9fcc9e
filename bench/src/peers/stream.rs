//! A byte stream to a peer, read by sleeping or by polling.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes to take from the kernel at a time.
const CHUNK: usize = 128 << 10;

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection, with a buffer of received bytes.
pub struct Stream {
    socket: Socket,
    spin: bool,
    buffer: Vec<u8>,
    /// Start of the bytes in the buffer that nobody has taken yet.
    taken: usize,
    /// End of the bytes that were received. The buffer is longer, so that no byte of it is written twice for a receive.
    filled: usize,
}

impl Stream {
    /// Connects over TCP.
    pub fn tcp(address: (&str, u16), spin: bool) -> Result<Self> {
        let socket = TcpStream::connect(address)
            .with_context(|| format!("cannot reach {}:{}", address.0, address.1))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(spin)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket: Socket::Tcp(socket),
            spin,
            buffer: Vec::new(),
            taken: 0,
            filled: 0,
        })
    }

    /// Connects over a Unix socket.
    pub fn unix(path: &Path, spin: bool) -> Result<Self> {
        let socket = UnixStream::connect(path)
            .with_context(|| format!("cannot reach {}", path.display()))?;
        socket.set_nonblocking(spin)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket: Socket::Unix(socket),
            spin,
            buffer: Vec::new(),
            taken: 0,
            filled: 0,
        })
    }

    /// Sends all bytes.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = match &mut self.socket {
                Socket::Tcp(socket) => socket.write(bytes),
                Socket::Unix(socket) => socket.write(bytes),
            };
            match sent {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.spin => {
                    std::hint::spin_loop()
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The received bytes that nobody has taken yet.
    pub fn ahead(&self) -> &[u8] {
        &self.buffer[self.taken..self.filled]
    }

    /// Waits for the next `length` bytes and takes them.
    pub fn take(&mut self, length: usize) -> io::Result<&[u8]> {
        while self.ahead().len() < length {
            self.receive()?;
        }
        let start = self.taken;
        self.taken += length;
        Ok(&self.buffer[start..start + length])
    }

    /// Waits for a line, takes it with its end (`\r\n`), and returns it without.
    pub fn line(&mut self) -> io::Result<&[u8]> {
        let mut searched = 0;
        loop {
            let ahead = &self.ahead()[searched..];
            if let Some(end) = ahead.windows(2).position(|w| w == b"\r\n") {
                let end = searched + end;
                return Ok(&self.take(end + 2)?[..end]);
            }
            // The last byte may be the first of the two.
            searched = self.ahead().len().saturating_sub(1);
            self.receive()?;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= std::mem::take(&mut self.taken);
        if self.buffer.len() < self.filled + CHUNK {
            self.buffer.resize(self.filled + CHUNK, 0);
        }
        let into = &mut self.buffer[self.filled..self.filled + CHUNK];
        let received = loop {
            let received = match &mut self.socket {
                Socket::Tcp(socket) => socket.read(into),
                Socket::Unix(socket) => socket.read(into),
            };
            match received {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.spin => {
                    std::hint::spin_loop()
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match received? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.filled += bytes;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A stream, and the peer's end of it.
    fn pair() -> (Stream, UnixStream) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let stream = Stream::unix(&path, true).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn lines_and_bytes_come_whole_however_they_arrive() {
        let (mut stream, mut peer) = pair();
        peer.write_all(b"one\r\ntwo\r").unwrap();
        assert_eq!(stream.line().unwrap(), b"one");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                peer.write_all(b"\nthree").unwrap();
            });
            assert_eq!(stream.line().unwrap(), b"two");
            assert_eq!(stream.take(5).unwrap(), b"three");
        });
        assert!(stream.ahead().is_empty());
        drop(peer);
        let error = stream.take(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_buffer_is_neither_emptied_nor_made_longer_by_each_receive() {
        let (mut stream, mut peer) = pair();
        let mut lengths = Vec::new();
        for _ in 0..3 {
            peer.write_all(&[7; 1000]).unwrap();
            assert_eq!(stream.take(1000).unwrap(), [7; 1000]);
            lengths.push(stream.buffer.len());
        }
        assert_eq!(lengths, [CHUNK; 3]);
    }
}
