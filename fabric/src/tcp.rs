//! TCP sockets: what NFS over TCP and [iWARP](crate::iwarp) share.

mod reserved;

pub use reserved::dial;

use rustix::net::{
    AddressFamily, SocketAddrAny, SocketType, getpeername, getsockname, socket, sockopt,
};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// A congestion control that every kernel has, and that sends at once what the window allows.
const UNPACED: &str = "reno";

/// Call this for a socket that is to connect or to listen; [`settle_pacing`] follows once there is a connection.
///
/// BBR holds segments back by a timer, and what begins with it stays paced under every other congestion control. The
/// rate comes from the round trip, which an idle connection overestimates (40 ms: its peer had nothing to send with the last
/// acknowledgement). So the first dozen replies of 64 KiB took two to ten times as long. Where BBR is the system's choice, a
/// connection therefore begins without it.
pub fn hold_pacing(socket: impl AsFd) {
    if system_choice().is_some_and(|choice| choice.starts_with("bbr")) {
        set_congestion(socket, UNPACED);
    }
}

/// Call this for a connection. Between two ends of one host nothing is to be shared with others, so nothing is paced there.
/// Elsewhere the system's choice stands.
pub fn settle_pacing(socket: impl AsFd) {
    let address = |any: Option<SocketAddrAny>| SocketAddr::try_from(any?).ok();
    let here = address(getsockname(&socket).ok());
    let there = address(getpeername(&socket).ok().flatten());
    let is_local = here.zip(there).is_some_and(|(a, b)| a.ip() == b.ip());
    if is_local {
        set_congestion(socket, UNPACED);
    } else if sockopt::tcp_congestion(&socket).is_ok_and(|now| now == UNPACED)
        && let Some(choice) = system_choice()
    {
        // Whatever the choice is by now, and nothing over what else the route to the other host asks for.
        set_congestion(socket, &choice);
    }
}

/// The connection works as well with another one, if slower.
fn set_congestion(socket: impl AsFd, name: &str) {
    let _ = sockopt::set_tcp_congestion(socket, name);
}

/// The congestion control that new sockets get.
fn system_choice() -> Option<String> {
    let new = |family| socket(family, SocketType::STREAM, None).ok();
    let socket = new(AddressFamily::INET).or_else(|| new(AddressFamily::INET6))?;
    sockopt::tcp_congestion(&socket).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use std::net::TcpListener;
    use std::time::Duration;

    /// A connection that began with BBR is paced for good, so neither end may begin with it.
    #[test]
    fn within_a_host_no_end_begins_with_pacing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        hold_pacing(&listener);
        let to = listener.local_addr().expect("its address");
        let client = dial(to, Duration::from_secs(5)).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        for end in [&client, &server] {
            let begun = sockopt::tcp_congestion(end).expect("its congestion control");
            assert!(!begun.starts_with("bbr"), "{begun}");
            settle_pacing(end);
            let settled = sockopt::tcp_congestion(end).expect("its congestion control");
            assert_eq!(settled, UNPACED);
        }
    }

    /// The addresses of a connection between two hosts differ.
    #[test]
    fn between_hosts_the_systems_choice_stands() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        set_congestion(&listener, UNPACED);
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::from(([127, 0, 0, 2], 0));
        client.bind(&from.into()).expect("bound");
        let to = listener.local_addr().expect("its address");
        client.connect(&to.into()).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        assert_eq!(sockopt::tcp_congestion(&server).expect("it"), UNPACED);
        settle_pacing(&server);
        let settled = sockopt::tcp_congestion(&server).ok();
        assert_eq!(settled, system_choice());
    }
}
