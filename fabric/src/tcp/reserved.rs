//! Ports that systems give to root alone.

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Those below have servers of their own.
const PORTS: RangeInclusive<u16> = 665..=1023;
/// Ports tried. Whoever makes connections by the hundred has them taken soon.
const TRIES: u64 = 16;

/// Connects to a server, from a reserved port where this process may have one and one is free: servers that believe what
/// callers say of themselves ask for it (exports(5), `secure`).
///
/// # Errors
/// What `connect` says, or `TimedOut`.
pub fn dial(to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + timeout;
    let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
    let start = crate::entropy::word() % ports;
    // A stride that has no divisor in common with their number: each port once.
    for number in 0..TRIES {
        let port = PORTS.start() + ((start + number * 101) % ports) as u16;
        // From the port that it goes to, a connection would be with itself.
        if port == to.port() {
            continue;
        }
        let socket = match bound(to, port) {
            Ok(socket) => socket,
            Err(error) if is_taken(&error) => continue,
            // None of them is for us.
            Err(_) => break,
        };
        let left = until.saturating_duration_since(Instant::now());
        match socket.connect_timeout(&to.into(), left.max(Duration::from_millis(1))) {
            // An earlier connection between these two places is not forgotten yet.
            Err(error) if is_taken(&error) => {}
            connected => return connected.map(|()| socket.into()),
        }
    }
    let left = until.saturating_duration_since(Instant::now());
    TcpStream::connect_timeout(&to, left.max(Duration::from_millis(1)))
}

/// A socket with that port.
fn bound(to: SocketAddr, port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    // Connections to several servers may share it, and it need not wait for one that is over.
    socket.set_reuse_address(true)?;
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], port)),
        SocketAddr::V6(_) => SocketAddr::from(([0; 16], port)),
    };
    socket.bind(&any.into())?;
    Ok(socket)
}

fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_may_have_a_reserved_port_gets_one_and_the_others_any() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let to = listener.local_addr().expect("its address");
        let allowed = bound(to, *PORTS.end()).is_ok();
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(dial(to, Duration::from_secs(5)).expect("connected"));
            let (_, from) = listener.accept().expect("accepted");
            assert_eq!(PORTS.contains(&from.port()), allowed, "{from}");
        }
    }

    #[test]
    fn nobody_there_is_said_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let to = listener.local_addr().expect("its address");
        drop(listener);
        let refused = dial(to, Duration::from_secs(5)).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
