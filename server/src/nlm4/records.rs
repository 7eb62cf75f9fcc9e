//! The hosts to tell when the server restarts, on stable storage. A file in the state directory has a line for each: its
//! address, its name, and the server's address, as the host used it, in hexadecimal digits. Earlier servers wrote no third
//! field.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;

use super::hosts::{HostKey, Record};
use crate::vfs::hex::{self, hex};

/// Brings the whole text to stable storage.
type Keep = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// The most hosts that the server reads back. It has not written a longer file.
const HOSTS_MAX: usize = 1 << 12;

/// The hosts to tell.
pub struct Records {
    hosts: BTreeMap<HostKey, Option<IpAddr>>,
    keep: Option<Keep>,
}

impl Records {
    /// The records of a server that keeps nothing.
    pub fn none() -> Self {
        Self {
            hosts: BTreeMap::new(),
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

    /// The hosts that the earlier server kept, until the first change is applied, and the server's address, as each used it.
    pub(super) fn hosts(&self) -> HashMap<HostKey, Option<IpAddr>> {
        let hosts = self.hosts.iter();
        hosts.map(|(host, ours)| (host.clone(), *ours)).collect()
    }

    /// Keeps changes. A failure is logged: the hosts concerned lose their locks with the next restart, and do not hear of it.
    pub(super) fn apply(&mut self, changes: Vec<Record>) {
        let mut changed = false;
        for change in changes {
            changed |= match change {
                Record::Keep(host, ours) => self.hosts.insert(host, ours) != Some(ours),
                Record::Forget(host) => self.hosts.remove(&host).is_some(),
            };
        }
        let Some(keep) = self.keep.as_mut().filter(|_| changed) else {
            return;
        };
        let mut text = String::new();
        for (host, ours) in &self.hosts {
            let (address, name) = (hex(host.address.as_bytes()), hex(&host.name));
            text.extend([&address, " ", &name]);
            if let Some(ours) = ours {
                text.extend([" ", &hex(ours.to_string().as_bytes())]);
            }
            text.push('\n');
        }
        if let Err(error) = keep(&text) {
            tracing::warn!(
                %error,
                "cannot keep which NFSv3 clients hold locks: they are not told if the server restarts"
            );
        }
    }
}

fn host(line: &str) -> Option<(HostKey, Option<IpAddr>)> {
    let text = |digits: &str| String::from_utf8(hex::bytes(digits)?).ok();
    let (address, rest) = line.split_once(' ')?;
    let (name, ours) = match rest.split_once(' ') {
        // Without the address it is told all the same.
        Some((name, ours)) => (name, text(ours).and_then(|ours| ours.parse().ok())),
        None => (rest, None),
    };
    let host = HostKey {
        address: text(address)?,
        name: hex::bytes(name)?,
    };
    Some((host, ours))
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
        let ours = Some("10.0.0.9".parse().unwrap());
        records.apply(vec![
            Record::Keep(one.clone(), None),
            Record::Keep(two.clone(), None),
            Record::Keep(key("10.0.0.1", b""), ours),
        ]);
        records.apply(vec![Record::Keep(one.clone(), ours)]);
        records.apply(vec![Record::Forget(key("10.0.0.1", b""))]);
        let text = kept.lock().unwrap().clone();
        let again = Records::read(&text, |_| Ok(()));
        assert_eq!(again.hosts(), HashMap::from([(one, ours), (two, None)]));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let text = "zz 00\n\n00\n0 0\nff 00\n3a 0a\n3a 0b zz\n3a 0c 3a3a31 00\n";
        let records = Records::read(text, |_| Ok(()));
        // A host whose line has no address of ours that can be read is told all the same.
        let hosts = [b"\n", b"\x0b", b"\x0c"].map(|name| (key(":", name), None));
        assert_eq!(records.hosts(), HashMap::from(hosts));
    }
}
