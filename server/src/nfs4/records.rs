//! The clients that may reclaim after a restart, on stable storage (RFC 8881, section 8.4.2.1). A file in the state directory
//! has a line for each client that holds state: its identity in hexadecimal digits. A space and a `d` follow if the client may
//! also reclaim delegations. Another file names the files of write delegations ([`FileRecords`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;

use super::state::{NamedFiles, Reclaiming, Record, client_identity};
use crate::vfs::ObjectId;
use crate::vfs::hex::{self, hex};

/// Brings a whole text to stable storage.
type Keep = Box<dyn FnMut(&str) -> io::Result<()> + Send>;

/// The clients that may reclaim.
pub struct Records {
    /// Those from before this start.
    reclaiming: Vec<Reclaiming>,
    /// By identity, in the digits of the file: whether they may reclaim delegations too. The whole text is made anew for each
    /// client that begins to hold something, or ceases to, so this spares it the digits of all others.
    clients: BTreeMap<String, bool>,
    keep: Option<Keep>,
    /// Stable storage lacks the last changes.
    changed: bool,
    files: FileRecords,
}

/// The most clients that are read back. The server writes no longer file.
const CLIENTS_MAX: usize = 1 << 16;
/// The most files that are read back of a client.
const FILES_MAX: usize = 1 << 14;
/// Follows the identity of a client that may reclaim delegations.
const DELEGATIONS: &str = " d";

impl Records {
    /// For a server that keeps nothing: nobody may reclaim.
    pub fn none() -> Self {
        Self {
            reclaiming: Vec::new(),
            clients: BTreeMap::new(),
            keep: None,
            changed: false,
            files: FileRecords::default(),
        }
    }

    /// Reads the text that an earlier server kept, if any. `keep` brings later texts to stable storage.
    pub fn read(text: &str, keep: impl FnMut(&str) -> io::Result<()> + Send + 'static) -> Self {
        let lines = text.lines().take(CLIENTS_MAX);
        let clients = lines.filter_map(|line| match line.strip_suffix(DELEGATIONS) {
            Some(digits) => Some((identity(digits)?, true)),
            None => Some((identity(line)?, false)),
        });
        let clients: BTreeMap<Vec<u8>, bool> = clients.collect();
        let digits = |(identity, delegations): (&Vec<u8>, &bool)| (hex(identity), *delegations);
        Self {
            clients: clients.iter().map(digits).collect(),
            reclaiming: clients
                .into_iter()
                .map(|(identity, delegations)| Reclaiming {
                    identity,
                    delegations,
                })
                .collect(),
            keep: Some(Box::new(keep)),
            ..Self::none()
        }
    }

    /// Adds the names of files that an earlier server kept, if any. `keep` brings later texts to stable storage.
    #[must_use]
    pub fn naming_files(
        mut self,
        text: &str,
        keep: impl FnMut(&str) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let lines = text.lines().take(CLIENTS_MAX);
        self.files = FileRecords {
            before: lines.filter_map(files_of_client).collect(),
            keep: Some(Box::new(keep)),
        };
        self
    }

    /// The files of write delegations. Only the first call returns them.
    pub(super) fn take_file_records(&mut self) -> FileRecords {
        std::mem::take(&mut self.files)
    }

    /// The clients from before this start. Only the first call returns them.
    pub(super) fn take_reclaiming(&mut self) -> Vec<Reclaiming> {
        std::mem::take(&mut self.reclaiming)
    }

    /// Whether there is stable storage.
    pub(super) fn are_kept(&self) -> bool {
        self.keep.is_some()
    }

    /// Brings changes to stable storage. False: that failed, which it logs, and the next call tries again.
    pub(super) fn apply(&mut self, changes: Vec<Record>) -> bool {
        for change in changes {
            self.changed |= match change {
                Record::Keep(Reclaiming {
                    identity,
                    delegations,
                }) => self.clients.insert(hex(&identity), delegations) != Some(delegations),
                Record::Forget(identity) => self.clients.remove(&hex(&identity)).is_some(),
            };
        }
        let Some(keep) = self.keep.as_mut().filter(|_| self.changed) else {
            return true;
        };
        let mut text = String::new();
        for (client, delegations) in &self.clients {
            text.push_str(client);
            if *delegations {
                text.push_str(DELEGATIONS);
            }
            text.push('\n');
        }
        match keep(&text) {
            Ok(()) => self.changed = false,
            Err(error) => tracing::warn!(
                %error,
                "cannot keep which NFSv4 clients hold state: they lose it if the server restarts, and nobody gets what clients hold whose leases are over"
            ),
        }
        !self.changed
    }
}

/// The files of which clients have write delegations, on stable storage: a line for each client with its identity and each file
/// as ` INODE:GENERATION`, all in hexadecimal digits.
#[derive(Default)]
pub(super) struct FileRecords {
    before: NamedFiles,
    keep: Option<Keep>,
}

impl FileRecords {
    /// Those that an earlier server kept. Only the first call returns them.
    pub fn take_before(&mut self) -> NamedFiles {
        std::mem::take(&mut self.before)
    }

    /// Brings these to stable storage. False: that failed, which it logs.
    pub fn keep(&mut self, files: &NamedFiles) -> bool {
        let Some(keep) = &mut self.keep else {
            return true;
        };
        let mut text = String::new();
        for (client, files) in files {
            text.push_str(&hex(client));
            for ObjectId { ino, generation } in files {
                // Writing into a string never fails.
                let _ = write!(text, " {ino:x}:{generation:x}");
            }
            text.push('\n');
        }
        let kept = keep(&text);
        if let Err(error) = &kept {
            tracing::warn!(
                %error,
                "cannot keep which files NFSv4 clients have write delegations of: they get no new ones"
            );
        }
        kept.is_ok()
    }
}

/// The client and the files that a line names.
fn files_of_client(line: &str) -> Option<(Vec<u8>, BTreeSet<ObjectId>)> {
    let mut words = line.split(' ');
    let client = identity(words.next()?)?;
    let files = words.take(FILES_MAX).map(|word| {
        let (ino, generation) = word.split_once(':')?;
        Some(ObjectId {
            ino: number(ino)?,
            generation: number(generation)?,
        })
    });
    Some((client, files.collect::<Option<_>>()?))
}

fn number(digits: &str) -> Option<u64> {
    let clean = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| clean)
}

/// Earlier servers kept long names whole. Of these a digest is kept now.
fn identity(digits: &str) -> Option<Vec<u8>> {
    let identity = hex::bytes(digits)?;
    let (kind, name) = identity.split_first()?;
    Some(match kind {
        0 | 1 => client_identity(*kind, name),
        _ => identity,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn reclaiming(identity: &[u8], delegations: bool) -> Reclaiming {
        Reclaiming {
            identity: identity.to_vec(),
            delegations,
        }
    }

    #[test]
    fn a_long_name_that_was_kept_whole_is_its_digest() {
        let whole = |kind: u8| [&[kind][..], &[b'n'; 100]].concat();
        let text = format!("{} d\n{}\n", hex(&whole(1)), hex(&whole(0)));
        let records = Records::read(&text, |_| Ok(()));
        let known: Vec<_> = records
            .reclaiming
            .into_iter()
            .map(|it| it.identity)
            .collect();
        let digests = [1, 0].map(|kind| client_identity(kind, &[b'n'; 100]));
        assert!(digests.iter().all(|digest| known.contains(digest)));
        let (client, _) = files_of_client(&format!("{} 1:2", hex(&whole(1)))).unwrap();
        assert_eq!(client, digests[0]);
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let kept = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&kept);
        let mut records = Records::read("", move |text| {
            *to.lock().unwrap() = text.to_owned();
            Ok(())
        });
        records.apply(vec![
            Record::Keep(reclaiming(b"one\n", false)),
            Record::Keep(reclaiming(&[0, 255], false)),
            Record::Keep(reclaiming(&[8], false)),
            Record::Keep(reclaiming(&[8], true)),
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
            reclaiming(b"one\n", false),
        ];
        assert_eq!(again.take_reclaiming(), all);
        assert!(again.take_reclaiming().is_empty());
    }

    #[test]
    fn names_of_files_are_read_back() {
        let kept = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&kept);
        let none = || Records::read("", |_| Ok(()));
        let mut named = none().naming_files("zz 1:1\n01 1:\n02 +1:0\n03 1:2 \n", move |text| {
            *to.lock().unwrap() = text.to_owned();
            Ok(())
        });
        let mut named = named.take_file_records();
        assert!(named.take_before().is_empty());
        let file = |ino, generation| ObjectId { ino, generation };
        let files = NamedFiles::from([
            (vec![0, 255], BTreeSet::from([file(7, 0)])),
            (
                b"one\n".to_vec(),
                BTreeSet::from([file(1, 2), file(u64::MAX, 1 << 40)]),
            ),
        ]);
        assert!(named.keep(&files));
        let text = kept.lock().unwrap().clone();
        let mut again = none().naming_files(&text, |_| Err(io::Error::other("full")));
        let mut named = again.take_file_records();
        assert_eq!(named.take_before(), files);
        assert!(named.take_before().is_empty() && !named.keep(&files));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let text = "zz\n\n0\n+1\n0a\n d\n0b e\n0c d d\n";
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
