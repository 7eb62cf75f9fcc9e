//! Who may reclaim after a restart, on stable storage (RFC 8881, section 8.4.2.1): a file in the state directory with one
//! line for each client that holds state, its identity in hexadecimal digits.

use std::collections::BTreeSet;
use std::io;

use super::state::Record;

/// What brings the whole text to stable storage.
type Keep = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// The clients that may reclaim.
pub struct Records {
    reclaiming: Vec<Vec<u8>>,
    clients: BTreeSet<Vec<u8>>,
    keep: Option<Keep>,
}

/// The most clients that are read back. A longer file is none of ours.
const CLIENTS_MAX: usize = 1 << 16;

impl Records {
    /// Of a server that forgets all with its end: nobody may reclaim.
    pub fn none() -> Self {
        Self {
            reclaiming: Vec::new(),
            clients: BTreeSet::new(),
            keep: None,
        }
    }

    /// From the text that an earlier server kept, if any. `keep` brings a later one to stable storage.
    pub fn read(text: &str, keep: impl FnMut(&str) -> io::Result<()> + Send + 'static) -> Self {
        let identities = text.lines().take(CLIENTS_MAX).filter_map(bytes);
        let clients: BTreeSet<Vec<u8>> = identities.collect();
        Self {
            reclaiming: clients.iter().cloned().collect(),
            clients,
            keep: Some(Box::new(keep)),
        }
    }

    /// Who may reclaim; told once.
    pub(super) fn take_reclaiming(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.reclaiming)
    }

    /// Keeps changes. A failure is logged: the clients concerned lose their state with the next restart.
    pub(super) fn apply(&mut self, changes: Vec<Record>) {
        let mut changed = false;
        for change in changes {
            changed |= match change {
                Record::Keep(identity) => self.clients.insert(identity),
                Record::Forget(identity) => self.clients.remove(&identity),
            };
        }
        let Some(keep) = self.keep.as_mut().filter(|_| changed) else {
            return;
        };
        let mut text = String::new();
        for client in &self.clients {
            for byte in client {
                text.push_str(&format!("{byte:02x}"));
            }
            text.push('\n');
        }
        if let Err(error) = keep(&text) {
            tracing::warn!(
                %error,
                "cannot keep which NFSv4 clients hold state: they lose it if the server restarts"
            );
        }
    }
}

/// The bytes that a line of hexadecimal digits stands for.
fn bytes(line: &str) -> Option<Vec<u8>> {
    let digits = line.as_bytes();
    let clean = digits.iter().all(u8::is_ascii_hexdigit);
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !clean {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn what_is_kept_is_read_back() {
        let kept = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&kept);
        let mut records = Records::read("", move |text| {
            *to.lock().unwrap() = text.to_owned();
            Ok(())
        });
        records.apply(vec![
            Record::Keep(b"one\n".to_vec()),
            Record::Keep(vec![0, 255]),
            Record::Forget(b"none".to_vec()),
        ]);
        records.apply(vec![Record::Forget(vec![0, 255]), Record::Keep(vec![7])]);
        let text = kept.lock().unwrap().clone();
        let mut again = Records::read(&text, |_| Ok(()));
        assert_eq!(again.take_reclaiming(), [vec![7], b"one\n".to_vec()]);
        assert!(again.take_reclaiming().is_empty());
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let mut records = Records::read("zz\n\n0\n+1\n0a\n", |_| Ok(()));
        assert_eq!(records.take_reclaiming(), [vec![10]]);
    }
}
