//! The addresses of files: `odafs://`, `odafs+shm://`, `odafs+verbs://` and `nfs://`.
//!
//! This module does no IO. Percent-encoding is that of RFC 3986 section 2.1.

use std::{fmt, path::PathBuf, str::FromStr};
use thiserror::Error;

/// The address of a file on a server.
///
/// ```
/// let url: odafs::Url = "odafs+shm:///run/odafs.sock?/data/a%20b".parse()?;
/// assert_eq!(url.server, odafs::ServerAddress::Shm("/run/odafs.sock".into()));
/// assert_eq!(url.path, b"/data/a b");
/// assert_eq!(url.to_string(), "odafs+shm:///run/odafs.sock?/data/a%20b");
///
/// // The same without a question mark, which other programs take for a wildcard; and by the default socket.
/// assert_eq!("odafs+shm://%2Frun%2Fodafs.sock/data/a%20b".parse(), Ok(url));
/// let url: odafs::Url = "odafs+shm:///data/a%20b".parse()?;
/// assert_eq!(url.server, odafs::ServerAddress::DefaultShm);
/// # Ok::<(), odafs::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    /// Where the server is.
    pub server: ServerAddress,
    /// The path, which begins with the export's name; always absolute.
    pub path: Vec<u8>,
    /// TCP port of the MOUNT program, if it is not the port of the files (all but `odafs+shm://`).
    pub mount_port: Option<u16>,
    /// Whether the fabric adds checksums to the data (`odafs://` only; TCP's own checksum is weak).
    pub crc: bool,
}

/// Where a server is, and over which fabric it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// `odafs://`: iWARP over TCP, RPC and direct reads on one port.
    Iwarp(Host),
    /// `odafs+shm://`: shared memory, through this Unix socket.
    Shm(PathBuf),
    /// `odafs+shm:///PATH`: shared memory, through the socket on which a server listens by default.
    DefaultShm,
    /// `odafs+verbs://`: RDMA hardware, or the kernel's soft RDMA.
    Verbs(Host),
    /// `nfs://`: RPC over TCP only, any NFSv3 server.
    NfsTcp(Host),
}

impl ServerAddress {
    /// The server's host, where there is one.
    pub fn host(&self) -> Option<&Host> {
        match self {
            Self::Iwarp(host) | Self::Verbs(host) | Self::NfsTcp(host) => Some(host),
            Self::Shm(_) | Self::DefaultShm => None,
        }
    }
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Name or address; an IPv6 address without its brackets.
    pub name: String,
    /// TCP port.
    pub port: u16,
}

/// Why the client does not accept a URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not the URL of a file server: {why}")]
pub struct UrlError {
    /// The text given.
    pub text: String,
    /// What is wrong with it, and what would be right.
    pub why: &'static str,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        parse(text).map_err(|why| UrlError {
            text: text.to_owned(),
            why,
        })
    }
}

const SCHEMES: &str = "it must begin with odafs+shm://, odafs://, odafs+verbs:// or nfs://, as in odafs+shm:///run/odafs.sock?/PATH";

fn parse(text: &str) -> Result<Url, &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or(SCHEMES)?;
    match scheme {
        "odafs+shm" => parse_shm(rest),
        "odafs" => parse_host(rest, 20049, ServerAddress::Iwarp),
        "odafs+verbs" => parse_host(rest, 20049, ServerAddress::Verbs),
        "nfs" => parse_host(rest, 2049, ServerAddress::NfsTcp),
        _ => Err(SCHEMES),
    }
}

/// `/SOCKET?/PATH`, split at the first `?`; or `SOCKET/PATH` with a percent-encoded socket; or `/PATH`.
fn parse_shm(rest: &str) -> Result<Url, &'static str> {
    let (server, path) = match (rest.split_once('?'), rest.find('/')) {
        (Some((socket, path)), Some(0)) => (shm_at(socket)?, path),
        (Some(_), _) if rest.starts_with('%') => return Err(QUESTION_MARK),
        (None, Some(0)) => (ServerAddress::DefaultShm, rest),
        (_, slash) => {
            let (socket, path) = rest.split_at(slash.unwrap_or(rest.len()));
            (shm_at(socket)?, path)
        }
    };
    Ok(Url {
        server,
        path: absolute(decode(path)?)?,
        mount_port: None,
        crc: false,
    })
}

const QUESTION_MARK: &str =
    "no ? may follow a percent-encoded socket; write a ? in the path as %3F";

fn shm_at(socket: &str) -> Result<ServerAddress, &'static str> {
    use std::os::unix::ffi::OsStringExt as _;
    let socket = decode(socket)?;
    if socket.first() != Some(&b'/') {
        return Err(
            "the socket must be an absolute path, as in odafs+shm:///run/odafs.sock?/PATH or \
             odafs+shm://%2Frun%2Fodafs.sock/PATH; odafs+shm:///PATH uses the default socket",
        );
    }
    Ok(ServerAddress::Shm(
        std::ffi::OsString::from_vec(socket).into(),
    ))
}

/// `HOST[:PORT][/PATH][?mountport=N][&crc=1]`.
fn parse_host(
    rest: &str,
    port: u16,
    address: fn(Host) -> ServerAddress,
) -> Result<Url, &'static str> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let server = address(parse_authority(authority, port)?);
    let (mount_port, crc) = parse_query(query)?;
    if crc && !matches!(server, ServerAddress::Iwarp(_)) {
        return Err("only odafs:// URLs take crc=");
    }
    Ok(Url {
        server,
        path: absolute(decode(path)?)?,
        mount_port,
        crc,
    })
}

fn parse_authority(authority: &str, default_port: u16) -> Result<Host, &'static str> {
    const PORT: &str = "the port must be a number from 1 to 65535";
    const BRACKET: &str = "an IPv6 address must be in brackets, as in [::1]:2049";
    if authority.contains('@') {
        return Err("it may not contain a user name; the caller's ids are those of the process");
    }
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']').ok_or(BRACKET)?;
            name.parse::<std::net::Ipv6Addr>().map_err(|_| BRACKET)?;
            let port = match after {
                "" => None,
                _ => Some(after.strip_prefix(':').ok_or(BRACKET)?),
            };
            (name.to_owned(), port)
        }
        None => {
            if authority.parse::<std::net::Ipv6Addr>().is_ok() {
                return Err(BRACKET);
            }
            let (name, port) = match authority.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (authority, None),
            };
            let name =
                String::from_utf8(decode(name)?).map_err(|_| "the host's name is not UTF-8")?;
            if name.contains(['[', ']', ':', '/', '?', '#']) || name.contains(char::is_control) {
                return Err(BRACKET);
            }
            (name, port)
        }
    };
    if name.is_empty() {
        return Err("the host is missing; write it as in odafs://HOST/PATH");
    }
    let port = match port {
        None => default_port,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().map_err(|_| PORT)?
        }
        Some(_) => return Err(PORT),
    };
    if port == 0 {
        return Err(PORT);
    }
    Ok(Host { name, port })
}

/// `mountport=N`, `crc=0` or `crc=1`, joined by `&`, or nothing.
fn parse_query(query: &str) -> Result<(Option<u16>, bool), &'static str> {
    const WANT: &str =
        "only mountport=N, crc=0 and crc=1 may follow the ?; write a ? in the path as %3F";
    let (mut mount_port, mut crc) = (None, false);
    for item in query.split('&').filter(|_| !query.is_empty()) {
        match item.split_once('=') {
            Some(("mountport", digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                let port = digits.parse::<u16>().ok().filter(|port| *port > 0);
                mount_port = Some(port.ok_or(WANT)?);
            }
            Some(("crc", "0")) => crc = false,
            Some(("crc", "1")) => crc = true,
            _ => return Err(WANT),
        }
    }
    Ok((mount_port, crc))
}

/// Longest name in a path, in bytes.
pub const NAME_MAX: usize = 255;

fn absolute(path: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    if path
        .split(|byte| *byte == b'/')
        .any(|name| name.len() > NAME_MAX)
    {
        return Err("a name in the path is longer than 255 bytes");
    }
    match path.first() {
        None => Ok(b"/".to_vec()),
        Some(b'/') => Ok(path),
        Some(_) => Err("the path must be absolute, that is, begin with / after the ?"),
    }
}

/// Decodes percent-encoding strictly: a `%` without two hexadecimal digits is an error, and so is a NUL.
fn decode(text: &str) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let byte = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let digit = |d: u8| (d as char).to_digit(16);
                let (high, low) = digit(*high).zip(digit(*low)).ok_or(PERCENT)?;
                (high * 16 + low) as u8
            }
            (b'%', _) => return Err(PERCENT),
            (byte, _) => byte,
        };
        if byte == 0 {
            return Err("a path may not contain a NUL (%00)");
        }
        bytes.push(byte);
    }
    Ok(bytes)
}

const PERCENT: &str = "two hexadecimal digits must follow a %; write a % itself as %25";

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.server)?;
        if let ServerAddress::Shm(_) = self.server {
            f.write_str("?")?;
        }
        encode(f, &self.path)?;
        match (self.mount_port, self.crc) {
            (Some(port), false) => write!(f, "?mountport={port}"),
            (Some(port), true) => write!(f, "?mountport={port}&crc=1"),
            (None, true) => f.write_str("?crc=1"),
            (None, false) => Ok(()),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::os::unix::ffi::OsStrExt as _;
        match self {
            Self::Iwarp(host) => write!(f, "odafs://{host}"),
            Self::Verbs(host) => write!(f, "odafs+verbs://{host}"),
            Self::NfsTcp(host) => write!(f, "nfs://{host}"),
            Self::Shm(socket) => {
                f.write_str("odafs+shm://")?;
                encode(f, socket.as_os_str().as_bytes())
            }
            Self::DefaultShm => f.write_str("odafs+shm://"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            encode(f, self.name.as_bytes())?;
            write!(f, ":{}", self.port)
        }
    }
}

impl Url {
    /// Encodes a path or a name for a URL: percent-encodes all but `/` and the unreserved characters of RFC 3986
    /// section 2.3.
    pub fn encode(path: &[u8]) -> String {
        struct Encoded<'a>(&'a [u8]);
        impl fmt::Display for Encoded<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                encode(f, self.0)
            }
        }
        Encoded(path).to_string()
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986 section 2.3 and `/`.
fn encode(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                write!(f, "{}", byte as char)?
            }
            _ => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
