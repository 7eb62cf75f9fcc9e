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
        &self.buffer[self.taken..]
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

    /// Waits for a line and takes it with its end (`\r\n`).
    pub fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.ahead().windows(2).position(|w| w == b"\r\n") {
                let line = self.take(end + 2)?;
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.buffer.drain(..std::mem::take(&mut self.taken));
        let held = self.buffer.len();
        self.buffer.resize(held + CHUNK, 0);
        let into = &mut self.buffer[held..];
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
        let n = *received.as_ref().unwrap_or(&0);
        self.buffer.truncate(held + n);
        match received {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            other => other.map(|_| ()),
        }
    }
}
