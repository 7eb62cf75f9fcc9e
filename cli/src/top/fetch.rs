//! GET over HTTP/1.1, for short pages.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// The longest answer, in bytes.
const ANSWER_MAX: usize = 4 << 20;
/// How long to wait for a connection, or for the next bytes.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a whole answer may take.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(5);

/// The address at which a server serves its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Host and port: `127.0.0.1:9049`, `[::1]:9049`, `host:9049`.
    authority: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

impl Source {
    /// Parses `HOST:PORT`, or a URL of it: `http://HOST:PORT`, `http://HOST:PORT/metrics`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("https:") {
            return Err(
                "servers serve metrics without TLS; give http://HOST:PORT or HOST:PORT".to_owned(),
            );
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let authority = match rest.strip_suffix("/metrics") {
            Some(authority) => authority,
            None => rest.trim_end_matches('/'),
        };
        let port = authority.rsplit_once(':').map(|(host, port)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_[]:%".contains(c);
            let whole = !host.is_empty() && host.chars().all(plain);
            whole && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        match port {
            Some(true) => Ok(Self {
                authority: authority.to_owned(),
            }),
            _ => Err(
                "give the address of the server's metrics, as in 127.0.0.1:9049 or http://127.0.0.1:9049/metrics".to_owned(),
            ),
        }
    }

    /// The page at a path, or `None` if the server has none there.
    ///
    /// # Errors
    /// The text says what went wrong, and what to do.
    pub fn get(&self, path: &str) -> Result<Option<String>, String> {
        let mut stream = self.connect()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.authority
        );
        stream.write_all(request.as_bytes()).map_err(|e| told(&e))?;
        let answer = read(&mut stream)?;
        page(&answer)
    }

    fn connect(&self) -> Result<TcpStream, String> {
        let addresses = self.authority.to_socket_addrs();
        let mut why = "the host name has no address".to_owned();
        for address in addresses.map_err(|error| format!("cannot look up the host: {error}"))? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    let timed = stream.set_read_timeout(Some(PATIENCE));
                    timed
                        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
                        .map_err(|error| told(&error))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    why = format!(
                        "nobody listens there; start the server with --metrics {}",
                        self.authority
                    );
                }
                Err(error) => why = told(&error),
            }
        }
        Err(why)
    }
}

fn told(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            "the server does not answer in time".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Reads until the server closes the connection.
fn read(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let until = Instant::now() + PATIENCE_IN_ALL;
    let mut answer = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset && answer.is_empty() => {
                return Err(NOT_HTTP.to_owned());
            }
            Err(error) => return Err(told(&error)),
        }
        if answer.len() > ANSWER_MAX {
            return Err(format!(
                "the server's answer has more than {ANSWER_MAX} bytes"
            ));
        }
        if Instant::now() > until {
            return Err("the server does not answer in time".to_owned());
        }
    }
}

const NOT_HTTP: &str =
    "what listens there does not speak HTTP; give the address in the server's option --metrics";

/// The body of an answer, or `None` for status 404.
fn page(answer: &[u8]) -> Result<Option<String>, String> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = match end {
        Some(end) => (&answer[..end], &answer[end + 4..]),
        None => return Err(NOT_HTTP.to_owned()),
    };
    let head = std::str::from_utf8(head).map_err(|_| NOT_HTTP)?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| {
        let (version, rest) = line.split_once(' ')?;
        let status = rest.split(' ').next()?.parse::<u16>().ok()?;
        version.starts_with("HTTP/1.").then_some(status)
    });
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().parse::<usize>().ok()?;
        name.eq_ignore_ascii_case("content-length").then_some(value)
    });
    if length.is_some_and(|length| length > body.len()) {
        return Err("the server's answer is cut short".to_owned());
    }
    let body = &body[..length.unwrap_or(body.len())];
    match status.ok_or(NOT_HTTP)? {
        200 => match std::str::from_utf8(body) {
            Ok(body) => Ok(Some(body.to_owned())),
            Err(_) => Err("the server's answer is not text".to_owned()),
        },
        404 => Ok(None),
        status => Err(format!("the server answers with HTTP status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_url() {
        let parsed = |text| Source::parse(text).map(|source| source.to_string());
        for text in [
            "127.0.0.1:9049",
            "http://127.0.0.1:9049",
            "http://127.0.0.1:9049/",
            "http://127.0.0.1:9049/metrics",
        ] {
            assert_eq!(parsed(text), Ok("127.0.0.1:9049".to_owned()), "{text}");
        }
        assert_eq!(parsed("[::1]:9049"), Ok("[::1]:9049".to_owned()));
        for text in [
            "",
            "9049",
            "host",
            "host:",
            ":9049",
            "host:0",
            "host:99999",
            "https://host:9049",
            "http://host:9049/x",
            "ho st:9049",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let of = |text: &str| page(text.as_bytes());
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n";
        assert_eq!(of(&format!("{head}abc")), Ok(Some("abc".to_owned())));
        assert!(of(&format!("{head}ab")).unwrap_err().contains("cut short"));
        assert_eq!(of("HTTP/1.1 404 Not Found\r\n\r\n"), Ok(None));
        assert!(of("HTTP/1.1 500 Oh\r\n\r\n").unwrap_err().contains("500"));
        for text in [
            "",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 x\r\n\r\n",
            "SIP/2.0 200 OK\r\n\r\n",
        ] {
            assert!(of(text).unwrap_err().contains("--metrics"), "{text}");
        }
    }
}
