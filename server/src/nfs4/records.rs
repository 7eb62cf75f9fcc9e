//! Who may reclaim after a restart, on stable storage (RFC 8881, section 8.4.2.1): a file in the state directory with one
//! line for each client that holds state, its identity in hexadecimal digits. A client whose delegations can be reclaimed too has
//! ` d` behind that, and then the file of each write delegation, as ` INODE:GENERATION` in hexadecimal digits.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use super::state::{Reclaiming, Record};
use crate::vfs::ObjectId;

/// What brings the whole text to stable storage.
type Keep = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// The clients that may reclaim.
pub struct Records {
    reclaiming: Vec<Reclaiming>,
    /// By identity.
    clients: BTreeMap<Vec<u8>, Reclaiming>,
    keep: Option<Keep>,
    /// Stable storage does not say so yet.
    changed: bool,
}

/// The most clients that are read back. A longer file is none of ours.
const CLIENTS_MAX: usize = 1 << 16;
/// The most files that are read back of a client.
const FILES_MAX: usize = 1 << 14;
/// What stands behind a client that may reclaim delegations.
const DELEGATIONS: &str = "d";

impl Records {
    /// Of a server that forgets all with its end: nobody may reclaim.
    pub fn none() -> Self {
        Self {
            reclaiming: Vec::new(),
            clients: BTreeMap::new(),
            keep: None,
            changed: false,
        }
    }

    /// From the text that an earlier server kept, if any. `keep` brings a later one to stable storage.
    pub fn read(text: &str, keep: impl FnMut(&str) -> io::Result<()> + Send + 'static) -> Self {
        let lines = text.lines().take(CLIENTS_MAX);
        let clients = lines.filter_map(client);
        let clients = clients.map(|client| (client.identity.clone(), client));
        let clients = BTreeMap::from_iter(clients);
        Self {
            reclaiming: clients.values().cloned().collect(),
            clients,
            keep: Some(Box::new(keep)),
            changed: false,
        }
    }

    /// Who may reclaim; told once.
    pub(super) fn take_reclaiming(&mut self) -> Vec<Reclaiming> {
        std::mem::take(&mut self.reclaiming)
    }

    /// Keeps changes. A failure is logged, and what could not be kept is tried again with the next call.
    pub(super) fn apply(&mut self, changes: Vec<Record>) {
        for change in changes {
            self.changed |= match change {
                Record::Keep(client) => {
                    let known = self.clients.get(&client.identity);
                    let differs = known.is_none_or(|known| *known != client);
                    self.clients.insert(client.identity.clone(), client);
                    differs
                }
                Record::Forget(identity) => self.clients.remove(&identity).is_some(),
            };
        }
        let Some(keep) = self.keep.as_mut().filter(|_| self.changed) else {
            return;
        };
        let mut text = String::new();
        for client in self.clients.values() {
            push_line(&mut text, client);
        }
        match keep(&text) {
            Ok(()) => self.changed = false,
            Err(error) => tracing::warn!(
                %error,
                "cannot keep which NFSv4 clients hold state: they lose it if the server restarts"
            ),
        }
    }
}

fn push_line(text: &mut String, client: &Reclaiming) {
    // To write into a string never fails.
    for byte in &client.identity {
        let _ = write!(text, "{byte:02x}");
    }
    if client.delegations {
        let _ = write!(text, " {DELEGATIONS}");
        for ObjectId { ino, generation } in &client.alone {
            let _ = write!(text, " {ino:x}:{generation:x}");
        }
    }
    text.push('\n');
}

/// The client that a line names.
fn client(line: &str) -> Option<Reclaiming> {
    let mut words = line.split(' ');
    let identity = bytes(words.next()?)?;
    let mark = words.next();
    if mark.is_some_and(|mark| mark != DELEGATIONS) {
        return None;
    }
    Some(Reclaiming {
        identity,
        delegations: mark.is_some(),
        alone: words.take(FILES_MAX).map(file).collect::<Option<_>>()?,
    })
}

fn file(word: &str) -> Option<ObjectId> {
    let (ino, generation) = word.split_once(':')?;
    Some(ObjectId {
        ino: number(ino)?,
        generation: number(generation)?,
    })
}

fn number(digits: &str) -> Option<u64> {
    let clean = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| clean)
}

/// The bytes that hexadecimal digits stand for.
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

    fn reclaiming(identity: &[u8], delegations: bool) -> Reclaiming {
        Reclaiming {
            identity: identity.to_vec(),
            delegations,
            alone: Vec::new(),
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
        let file = |ino, generation| ObjectId { ino, generation };
        let alone = Reclaiming {
            alone: vec![file(7, 0), file(u64::MAX, 1 << 40)],
            ..reclaiming(&[9], true)
        };
        records.apply(vec![
            Record::Keep(reclaiming(b"one\n", false)),
            Record::Keep(reclaiming(&[0, 255], false)),
            Record::Keep(reclaiming(&[8], false)),
            Record::Keep(reclaiming(&[8], true)),
            Record::Keep(alone.clone()),
            Record::Forget(b"none".to_vec()),
        ]);
        records.apply(vec![
            Record::Forget(vec![0, 255]),
            Record::Keep(reclaiming(&[7], false)),
        ]);
        let text = kept.lock().unwrap().clone();
        let mut again = Records::read(&text, |_| Ok(()));
        let all = [
            reclaiming(&[7], false),
            reclaiming(&[8], true),
            alone,
            reclaiming(b"one\n", false),
        ];
        assert_eq!(again.take_reclaiming(), all);
        assert!(again.take_reclaiming().is_empty());
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let text = "zz\n\n0\n+1\n0a\n d\n0b e\n0c d d\n0d d 1:\n0e d +1:0\n0f d 1:2 \n";
        let mut records = Records::read(text, |_| Ok(()));
        assert_eq!(records.take_reclaiming(), [reclaiming(&[10], false)]);
    }

    #[test]
    fn what_could_not_be_kept_is_tried_again() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&kept);
        let mut records = Records::read("", move |text| {
            let mut kept = to.lock().unwrap();
            kept.push(text.to_owned());
            match kept.len() {
                1 => Err(io::Error::other("full")),
                _ => Ok(()),
            }
        });
        records.apply(vec![Record::Keep(reclaiming(&[10], false))]);
        for _ in 0..2 {
            records.apply(Vec::new());
        }
        assert_eq!(*kept.lock().unwrap(), ["0a\n", "0a\n"]);
    }
}
