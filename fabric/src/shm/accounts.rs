//! How much of a listener's limits each user holds.

use super::Limits;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Copy, Default)]
struct Account {
    connections: u32,
    memory: u64,
}

/// The accounts of all users.
pub struct Accounts {
    limits: Limits,
    users: Mutex<HashMap<u32, Account>>,
}

/// A connection or memory of a user, until it is dropped.
pub struct Charge {
    accounts: Arc<Accounts>,
    uid: u32,
    account: Account,
}

impl Accounts {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            users: Mutex::default(),
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts a connection. The error names the limit.
    pub fn connection(self: &Arc<Self>, uid: u32) -> io::Result<Charge> {
        let mut users = self.users();
        let all = users
            .values()
            .map(|account| account.connections)
            .sum::<u32>();
        if all >= self.limits.connections {
            return Err(capped(format!(
                "all {} connections over shared memory are in use (twice what `odafs serve --shm-connections` says)",
                self.limits.connections
            )));
        }
        let limit = self.limits.connections_per_uid;
        let held = users.entry(uid).or_default();
        if held.connections >= limit {
            return Err(capped(format!(
                "uid {uid} has all its {limit} connections over shared memory (`odafs serve --shm-connections` allows more)"
            )));
        }
        held.connections += 1;
        Ok(Charge {
            accounts: Arc::clone(self),
            uid,
            account: Account {
                connections: 1,
                memory: 0,
            },
        })
    }

    /// Counts memory in bytes. The error names the limit.
    pub fn memory(self: &Arc<Self>, uid: u32, bytes: u64) -> io::Result<Charge> {
        let mut users = self.users();
        let limit = self.limits.memory_per_uid;
        let held = users.entry(uid).or_default();
        if bytes > limit.saturating_sub(held.memory) {
            let held = held.memory;
            return Err(capped(format!(
                "uid {uid} holds {held} of its {limit} bytes of shared memory and asks for {bytes} more (`odafs serve --shm-connections` allows more)"
            )));
        }
        held.memory += bytes;
        Ok(Charge {
            accounts: Arc::clone(self),
            uid,
            account: Account {
                connections: 0,
                memory: bytes,
            },
        })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u32, Account>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut users = self.accounts.users();
        if let Some(held) = users.get_mut(&self.uid) {
            held.connections -= self.account.connections;
            held.memory -= self.account.memory;
            if held.connections == 0 && held.memory == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

fn capped(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, what)
}

#[cfg(test)]
mod tests {
    use super::super::ring::RING_BYTES;
    use super::*;

    /// A client with guarded reads on one thread has four connections, and a region for its reads.
    #[test]
    fn one_user_has_a_thousand_clients_by_default() {
        let accounts = Accounts::new(Limits::default());
        let rings = 2 * RING_BYTES as u64;
        let connection = || {
            (
                accounts.connection(1).unwrap(),
                accounts.memory(1, rings).unwrap(),
            )
        };
        let client = |_| {
            (
                [0; 4].map(|_| connection()),
                accounts.memory(1, 256 << 10).unwrap(),
            )
        };
        let clients: Vec<_> = (0..1000).map(client).collect();
        assert!(
            accounts.connection(2).is_ok(),
            "another user is not shut out"
        );
        drop(clients);
    }

    #[test]
    fn charges_come_back() {
        let limits = Limits {
            connections_per_uid: 2,
            connections: 3,
            memory_per_uid: 100,
            ..Limits::default()
        };
        let accounts = Accounts::new(limits);
        let first = accounts.connection(1).unwrap();
        let _second = accounts.connection(1).unwrap();
        assert!(
            accounts
                .connection(1)
                .err()
                .unwrap()
                .to_string()
                .contains("--shm-connections")
        );
        let _other = accounts.connection(2).unwrap();
        assert!(
            accounts
                .connection(3)
                .err()
                .unwrap()
                .to_string()
                .contains("all 3 connections over")
        );
        drop(first);
        let _again = accounts.connection(1).unwrap();

        let memory = accounts.memory(9, 60).unwrap();
        assert!(
            accounts
                .memory(9, 41)
                .err()
                .unwrap()
                .to_string()
                .contains("60 of its 100 bytes")
        );
        assert!(accounts.memory(9, u64::MAX).is_err());
        drop(memory);
        drop(accounts.memory(9, 100).unwrap());
        assert!(!accounts.users().contains_key(&9));
    }
}
