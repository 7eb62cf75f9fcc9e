//! TCP sockets: what NFS over TCP and [iWARP](crate::iwarp) share.

mod reserved;

pub use reserved::dial;

use rustix::net::{SocketAddrAny, getpeername, getsockname, sockopt};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Between two ends of one host nothing is to be shared with others: there no algorithm shall hold segments back by a timer
/// (as BBR does), which costs each end more than to send them.
pub fn unpace(socket: impl AsFd) {
    let address = |any: Option<SocketAddrAny>| SocketAddr::try_from(any?).ok();
    let here = address(getsockname(&socket).ok());
    let there = address(getpeername(&socket).ok().flatten());
    if let (Some(here), Some(there)) = (here, there)
        && here.ip() == there.ip()
    {
        // Every kernel has this one. Without it the connection works as well, if slower.
        let _ = sockopt::set_tcp_congestion(&socket, "reno");
    }
}
