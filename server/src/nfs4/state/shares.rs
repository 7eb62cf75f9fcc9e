//! The opens of a file with their access and deny (RFC 8881, section 9.7). A file may have a million of them, so nothing here
//! walks along all.

use std::collections::BTreeSet;

use odafs_common::wire::nfs4::{share_access, share_deny};

use super::opens::Key;

/// The bits of a word: two of `share_access`, and above them two of `share_deny`.
const BITS: usize = 4;

/// The opens of a file.
#[derive(Debug, Default)]
pub(super) struct Shares {
    all: BTreeSet<Key>,
    /// Those that have each bit.
    with: [BTreeSet<Key>; BITS],
}

/// Access and deny in one word.
fn word(access: u32, deny: u32) -> u32 {
    access & share_access::BOTH | (deny & share_deny::BOTH) << 2
}

impl Shares {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds an open with this access and deny, or changes those of one.
    pub fn set(&mut self, key: Key, access: u32, deny: u32) {
        self.all.insert(key);
        let word = word(access, deny);
        for (bit, with) in self.with.iter_mut().enumerate() {
            match word & 1 << bit {
                0 => with.remove(&key),
                _ => with.insert(key),
            };
        }
    }

    pub fn remove(&mut self, key: Key) {
        for opens in self.with.iter_mut().chain([&mut self.all]) {
            opens.remove(&key);
        }
    }

    /// The opens that have any bit of a word.
    fn with_any(&self, word: u32) -> impl Iterator<Item = &BTreeSet<Key>> {
        let bits = self.with.iter().enumerate();
        bits.filter_map(move |(bit, with)| (word & 1 << bit != 0).then_some(with))
    }

    /// The clients of opens that conflict with another one of this access and deny, each once for each bit.
    pub fn conflicts(&self, access: u32, deny: u32) -> impl Iterator<Item = u32> {
        self.clients_with(word(deny, access))
    }

    /// Whether the file is open with any of this access. The client `besides` does not count.
    pub fn is_open_for(&self, access: u32, besides: Option<u32>) -> bool {
        // The opens are in the order of their clients.
        self.with_any(word(access, 0)).any(|opens| {
            let ends = [opens.first(), opens.last()];
            let mut others = ends.into_iter().flatten();
            others.any(|(client, _)| Some(*client) != besides)
        })
    }

    /// The clients that deny any of this, each once for each bit.
    pub fn denying(&self, deny: u32) -> impl Iterator<Item = u32> {
        self.clients_with(word(0, deny))
    }

    fn clients_with(&self, word: u32) -> impl Iterator<Item = u32> {
        self.with_any(word).flat_map(|opens| {
            let next = |after: &u32| opens.range((after.checked_add(1)?, 0)..).next();
            let first = opens.first().map(|key| key.0);
            std::iter::successors(first, move |last| next(last).map(|key| key.0))
        })
    }

    /// Whether a client has the file open.
    pub fn has(&self, client: u32) -> bool {
        let own = self.all.range((client, 0)..=(client, u32::MAX));
        own.into_iter().next().is_some()
    }

    /// Access and deny of an open.
    #[cfg(test)]
    pub fn of(&self, key: Key) -> Option<(u32, u32)> {
        let bits = self.with.iter().enumerate();
        let bits = bits.filter(|(_, with)| with.contains(&key));
        let word = bits.fold(0, |word, (bit, _)| word | 1 << bit);
        let known = self.all.contains(&key);
        known.then_some((word & share_access::BOTH, word >> 2))
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = share_access::READ;
    const WRITE: u32 = share_access::WRITE;

    #[test]
    fn opens_are_found_by_what_they_are_for() {
        let mut shares = Shares::default();
        shares.set((7, 1), READ, 0);
        shares.set((8, 1), READ | WRITE, share_deny::WRITE);
        let conflicts = |access, deny| Vec::from_iter(shares.conflicts(access, deny));
        assert_eq!(conflicts(READ, 0), []);
        assert_eq!(conflicts(WRITE, 0), [8]);
        assert_eq!(conflicts(READ, share_deny::READ), [7, 8]);
        assert!(shares.is_open_for(READ, Some(8)) && shares.is_open_for(WRITE, Some(7)));
        assert!(!shares.is_open_for(WRITE, Some(8)));
        assert_eq!(Vec::from_iter(shares.denying(share_deny::WRITE)), [8]);
        shares.set((8, 1), READ, 0);
        assert_eq!(shares.of((8, 1)), Some((READ, 0)));
        assert_eq!(shares.denying(share_deny::BOTH).next(), None);
        shares.remove((7, 1));
        assert!(!shares.has(7) && shares.has(8));
        shares.remove((8, 1));
        assert!(shares.is_empty() && !shares.is_open_for(share_access::BOTH, None));
    }

    #[test]
    fn each_client_that_denies_something_is_told_once() {
        let mut shares = Shares::default();
        for key in [(1, 1), (1, 2), (5, 1), (u32::MAX, 1), (u32::MAX, u32::MAX)] {
            shares.set(key, READ, share_deny::READ);
        }
        let denying = Vec::from_iter(shares.denying(share_deny::READ));
        assert_eq!(denying, [1, 5, u32::MAX]);
    }
}
