//! Ports that only root may use.

use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Lower ports have servers of their own.
const PORTS: RangeInclusive<u16> = 665..=1023;
/// Number of ports to try. A client that makes hundreds of connections soon has them in use.
const TRIES: u64 = 16;

/// Connects to a server, from a reserved port if this process may use one and one is free. Servers that trust the ids
/// of callers ask for that (exports(5), `secure`). Call [`settle_pacing`](super::settle_pacing) for the connection.
///
/// # Errors
/// The error of `connect`, or `TimedOut`.
pub fn dial(to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + timeout;
    let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
    let start = crate::entropy::word() % ports;
    // A stride that is coprime to the number of ports, so that each port comes once.
    for number in 0..TRIES {
        let port = PORTS.start() + ((start + number * 101) % ports) as u16;
        // A connection from the destination's own port would be one to itself.
        if port == to.port() {
            continue;
        }
        let socket = match bound(to, port) {
            Ok(socket) => socket,
            Err(error) if is_taken(&error) => continue,
            // This process may use none of them.
            Err(_) => break,
        };
        let left = until.saturating_duration_since(Instant::now());
        match socket.connect_timeout(&to.into(), left.max(Duration::from_millis(1))) {
            // The kernel still remembers an earlier connection between these two addresses.
            Err(error) if is_taken(&error) => {}
            connected => return connected.map(|()| socket.into()),
        }
    }
    let socket = fresh(to)?;
    let left = until.saturating_duration_since(Instant::now());
    socket.connect_timeout(&to.into(), left.max(Duration::from_millis(1)))?;
    Ok(socket.into())
}

fn fresh(to: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    super::hold_pacing(&socket);
    Ok(socket)
}

/// A socket with that port.
fn bound(to: SocketAddr, port: u16) -> io::Result<Socket> {
    let socket = fresh(to)?;
    // Connections to several servers may share the port, and need not wait for one that has ended.
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
