//! The hosts to tell when the server starts anew, on stable storage. A file in the state directory has a line for each: its
//! address, and its name in hexadecimal digits.

use std::collections::{BTreeSet, HashSet};
use std::io;

use super::hosts::{HostKey, Record};
use crate::vfs::hex::{self, hex};

/// Brings the whole text to stable storage.
type Keep = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// The most hosts that the server reads back. It has not written a longer file.
const HOSTS_MAX: usize = 1 << 12;

/// The hosts to tell.
pub struct Records {
    hosts: BTreeSet<HostKey>,
    keep: Option<Keep>,
}

impl Records {
    /// The records of a server that keeps nothing.
    pub fn none() -> Self {
        Self {
            hosts: BTreeSet::new(),
            keep: None,
        }
    }

    /// Reads the text that an earlier server kept, if any. `keep` brings a later text to stable storage.
    pub fn read(text: &str, keep: impl FnMut(&str) -> io::Result<()> + Send + 'static) -> Self {
        let hosts = text.lines().take(HOSTS_MAX).filter_map(host);
        Self {
            hosts: hosts.collect(),
            keep: Some(Box::new(keep)),
        }
    }

    /// The hosts that the earlier server kept, until the first change is applied.
    pub(super) fn hosts(&self) -> HashSet<HostKey> {
        self.hosts.iter().cloned().collect()
    }

    /// Keeps changes. A failure is logged: the hosts concerned lose their locks with the next restart, and do not hear of it.
    pub(super) fn apply(&mut self, changes: Vec<Record>) {
        let mut changed = false;
        for change in changes {
            changed |= match change {
                Record::Keep(host) => self.hosts.insert(host),
                Record::Forget(host) => self.hosts.remove(&host),
            };
        }
        let Some(keep) = self.keep.as_mut().filter(|_| changed) else {
            return;
        };
        let mut text = String::new();
        for host in &self.hosts {
            let (address, name) = (hex(host.address.as_bytes()), hex(&host.name));
            text.extend([&address, " ", &name, "\n"]);
        }
        if let Err(error) = keep(&text) {
            tracing::warn!(
                %error,
                "cannot keep which NFSv3 clients hold locks: they are not told if the server restarts"
            );
        }
    }
}

fn host(line: &str) -> Option<HostKey> {
    let (address, name) = line.split_once(' ')?;
    Some(HostKey {
        address: String::from_utf8(hex::bytes(address)?).ok()?,
        name: hex::bytes(name)?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn key(address: &str, name: &[u8]) -> HostKey {
        HostKey {
            address: address.to_owned(),
            name: name.to_vec(),
        }
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let kept = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&kept);
        let mut records = Records::read("", move |text| {
            *to.lock().unwrap() = text.to_owned();
            Ok(())
        });
        let (one, two) = (key("10.0.0.1", b"one\n"), key("fe80::1", &[0, 255]));
        records.apply(vec![
            Record::Keep(one.clone()),
            Record::Keep(two.clone()),
            Record::Keep(key("10.0.0.1", b"")),
        ]);
        records.apply(vec![Record::Forget(key("10.0.0.1", b""))]);
        let text = kept.lock().unwrap().clone();
        let again = Records::read(&text, |_| Ok(()));
        assert_eq!(again.hosts(), HashSet::from([one, two]));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let records = Records::read("zz 00\n\n00\n0 0\nff 00\n3a 0a\n", |_| Ok(()));
        assert_eq!(records.hosts(), HashSet::from([key(":", b"\n")]));
    }
}
