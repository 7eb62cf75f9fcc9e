//! Who makes the calls, by the samples.

use std::collections::HashMap;
use std::net::IpAddr;

use odafs_fabric::Peer;
use odafs_fabric::sync::Mutex;

/// The most clients that are remembered. A further one takes the place of the one that was silent for longest.
const CLIENTS_MAX: usize = 256;

/// A client: another host, or a user of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Host(IpAddr),
    User(u32),
    Simulated(u32),
}

impl Client {
    fn of(peer: &Peer) -> Self {
        match peer {
            Peer::Address(address) => Self::Host(address.ip().to_canonical()),
            Peer::Uid { uid, .. } => Self::User(*uid),
            Peer::Simulated(node) => Self::Simulated(*node),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Host(address) => address.to_string(),
            Self::User(uid) => format!("uid {uid}"),
            Self::Simulated(node) => format!("node {node}"),
        }
    }
}

/// What a client did since it was first seen, estimated from samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSeen {
    /// Its address, or its user on this machine.
    pub client: String,
    /// Calls.
    pub calls: u64,
    /// Bytes of calls and replies.
    pub bytes: u64,
}

/// Clients that called lately.
#[derive(Default)]
pub struct Clients(Mutex<Table>);

#[derive(Default)]
struct Table {
    clients: HashMap<Client, Sums>,
    samples: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    bytes: u64,
    /// The number of its last sample.
    last: u64,
}

impl Clients {
    /// Adds a sample. It is lost if another thread holds the table.
    pub fn saw(&self, peer: &Peer, calls: u64, bytes: u64) {
        let Some(mut table) = self.0.try_lock() else {
            return;
        };
        table.samples += 1;
        let last = table.samples;
        let client = Client::of(peer);
        if table.clients.len() >= CLIENTS_MAX && !table.clients.contains_key(&client) {
            let silent = table.clients.iter().min_by_key(|(_, sums)| sums.last);
            if let Some(silent) = silent.map(|(client, _)| *client) {
                table.clients.remove(&silent);
            }
        }
        let sums = table.clients.entry(client).or_default();
        sums.calls += calls;
        sums.bytes += bytes;
        sums.last = last;
    }

    /// All clients that are remembered, those with the most calls first.
    pub fn all(&self) -> Vec<ClientSeen> {
        let table = self.0.lock();
        let mut all: Vec<ClientSeen> = table
            .clients
            .iter()
            .map(|(client, sums)| ClientSeen {
                client: client.name(),
                calls: sums.calls,
                bytes: sums.bytes,
            })
            .collect();
        drop(table);
        all.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.client.cmp(&b.client)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_make_room_for_the_new() {
        let clients = Clients::default();
        let at = |last: u32| Peer::Address(([10, 0, (last >> 8) as u8, last as u8], 700).into());
        clients.saw(&at(9999), 16, 100);
        for host in 0..CLIENTS_MAX as u32 {
            clients.saw(&at(host), 16, 100);
            clients.saw(&at(0), 16, 100);
        }
        let all = clients.all();
        assert_eq!(all.len(), CLIENTS_MAX);
        assert_eq!(all[0].client, "10.0.0.0");
        assert_eq!(all[0].calls, 16 * (CLIENTS_MAX as u64 + 1));
        assert!(!all.iter().any(|seen| seen.client == "10.0.39.15"));
    }
}
