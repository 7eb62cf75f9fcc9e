use crate::{Subject, suite};
use odafs_fabric::tcp::{self, ConnectOptions, Crc, Limits};
use odafs_fabric::{Listener, QueuePair};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

struct Tcp {
    address: Mutex<SocketAddr>,
    options: ConnectOptions,
    limits: Limits,
}

impl Tcp {
    fn new(crc: bool, listener_crc: Crc) -> Tcp {
        Tcp {
            // Nobody listens there.
            address: Mutex::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))),
            options: ConnectOptions {
                crc,
                ..ConnectOptions::default()
            },
            limits: Limits {
                crc: listener_crc,
                ..Limits::default()
            },
        }
    }
}

impl Subject for Tcp {
    fn listen(&self) -> Box<dyn Listener> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = tcp::Listener::bind(any, self.limits).unwrap();
        *self.address.lock().unwrap() = listener.local_addr();
        Box::new(listener)
    }

    fn connect(&self, private_data: &[u8]) -> io::Result<Box<dyn QueuePair>> {
        let address = *self.address.lock().unwrap();
        tcp::connect(address, private_data, &self.options)
    }

    fn has_loads(&self) -> bool {
        false
    }
}

mod plain {
    use super::*;
    suite!(windows: Tcp::new(false, Crc::WhenAsked));
}

mod checked {
    use super::*;
    suite!(windows: Tcp::new(true, Crc::WhenAsked));
}

mod checked_by_the_listener {
    use super::*;
    suite!(windows: Tcp::new(false, Crc::Always));
}
