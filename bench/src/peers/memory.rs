//! Redis and memcached with the pages of a file, one key for each page.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Asks;
use super::stream::Stream;

/// Size of a value in bytes.
pub const PAGE: usize = 4096;

/// The protocol of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreProtocol {
    /// RESP, <https://redis.io/docs/latest/develop/reference/protocol-spec/>.
    Redis,
    /// The text protocol of memcached's protocol.txt.
    Memcached,
}

/// A connection to a store.
pub struct Pages {
    store: StoreProtocol,
    stream: Stream,
    asked: u64,
    answered: u64,
    request: Vec<u8>,
}

impl Pages {
    /// Connects over a Unix socket.
    pub fn connect(store: StoreProtocol, socket: &Path, spin: bool) -> Result<Self> {
        let stream = Stream::unix(socket, spin)?;
        Ok(Self {
            store,
            stream,
            asked: 0,
            answered: 0,
            request: Vec::new(),
        })
    }

    /// Stores all pages of a file.
    pub fn load(&mut self, file: &[u8]) -> Result<()> {
        for (number, page) in file.chunks_exact(PAGE).enumerate() {
            let key = format!("page:{number}");
            let head = match self.store {
                StoreProtocol::Redis => {
                    format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${PAGE}\r\n", key.len())
                }
                StoreProtocol::Memcached => format!("set {key} 0 0 {PAGE}\r\n"),
            };
            self.stream
                .send(&[head.as_bytes(), page, b"\r\n"].concat())?;
            let line = self.stream.line()?;
            ensure!(
                line == b"+OK" || line == b"STORED",
                "a page was not taken: {}",
                String::from_utf8_lossy(line)
            );
        }
        Ok(())
    }
}

impl Asks for Pages {
    fn ask(&mut self, offset: u64, _length: usize) -> Result<u64> {
        let page = offset / PAGE as u64;
        self.request.clear();
        match self.store {
            StoreProtocol::Redis => {
                let length = "page:".len() + 1 + page.checked_ilog10().unwrap_or(0) as usize;
                write!(
                    self.request,
                    "*2\r\n$3\r\nGET\r\n${length}\r\npage:{page}\r\n"
                )?;
            }
            StoreProtocol::Memcached => write!(self.request, "get page:{page}\r\n")?,
        }
        self.stream.send(&self.request)?;
        self.asked += 1;
        Ok(self.asked)
    }

    fn answer(&mut self) -> Result<(u64, &[u8])> {
        let line = self.stream.line()?;
        let (known, tail) = match self.store {
            StoreProtocol::Redis => (line == b"$4096", "\r\n"),
            StoreProtocol::Memcached => (
                line.starts_with(b"VALUE ") && line.ends_with(b" 4096"),
                "\r\nEND\r\n",
            ),
        };
        ensure!(known, "not a page: {}", String::from_utf8_lossy(line));
        self.answered += 1;
        let bytes = self.stream.take(PAGE + tail.len())?;
        Ok((self.answered, &bytes[..PAGE]))
    }
}
