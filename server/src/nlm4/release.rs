//! How hosts lose what they have: all of it, or what they had before they restarted, or what they may not reach any more.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::hosts::{Host, HostKey, Hosts};
use crate::vfs::ObjectId;
use crate::vfs::locks::Span;

/// What becomes of [`InFile::former`](super::hosts::InFile::former).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Former {
    Goes,
    Stays,
}

impl Hosts {
    /// Frees the locks of a host that has restarted, or says so (FREE_ALL).
    pub fn free_all(&mut self, key: &HostKey) {
        if let Some(host) = self.names.get(key).copied() {
            self.free_of(&[host], |_, _, _| true, Former::Stays);
        }
    }

    /// The hosts at this address with this name have restarted and are in this state now. Frees what they had before. They
    /// keep what they have taken in this state. Returns the number of hosts that lost something.
    pub fn started_anew(&mut self, address: &str, name: &[u8], state: u32) -> usize {
        let hosts = self
            .hosts
            .iter()
            .filter(|(_, host)| host.key.address == address && is_name_of(&host.key.name, name));
        let hosts = Vec::from_iter(hosts.map(|(number, _)| *number));
        self.free_of(&hosts, |_, _, of| of != state, Former::Goes)
    }

    /// Frees what hosts have in files that they may not reach. Hosts that cannot be called have no address, and keep everything.
    /// Returns the number of hosts that lost something.
    pub fn free_unreachable(&mut self, reaches: impl Fn(IpAddr, ObjectId) -> bool) -> usize {
        let hosts = self.hosts.iter();
        let addresses = HashMap::<u32, IpAddr>::from_iter(
            hosts.filter_map(|(number, host)| Some((*number, host.address?))),
        );
        let hosts = Vec::from_iter(addresses.keys().copied());
        let goes = |host, file, _| !reaches(addresses[&host], file);
        self.free_of(&hosts, goes, Former::Stays)
    }

    /// As [`Self::free`], of several hosts. What they lose is offered to others once all have lost it.
    fn free_of(
        &mut self,
        hosts: &[u32],
        goes: impl Fn(u32, ObjectId, u32) -> bool,
        former: Former,
    ) -> usize {
        let mut changed = HashSet::new();
        let lose = hosts.iter().filter(|host| {
            self.free(
                **host,
                |file, of| goes(**host, file, of),
                former,
                &mut changed,
            )
        });
        let lose = lose.count();
        for file in changed {
            self.wake(file);
        }
        lose
    }

    /// Frees the locks, waiters and shares of a host for which `goes` says so, by the file and by the number of the host's
    /// start, and what `former` says. Adds the files to `changed`. Forgets the host if nothing is left of it. Returns whether it
    /// lost something.
    fn free(
        &mut self,
        number: u32,
        goes: impl Fn(ObjectId, u32) -> bool,
        former: Former,
        changed: &mut HashSet<ObjectId>,
    ) -> bool {
        let Some(host) = self.hosts.get(&number) else {
            return false;
        };
        let owners: HashSet<u64> = host.owners.values().copied().collect();
        let mut lost = self.unshare_all(number, &goes) > 0;
        for owner in self.drop_waiters(&owners, &goes) {
            self.count_waits(owner, 1);
            lost = true;
        }
        for owner in owners {
            let Some(known) = self.owners.get(&owner) else {
                continue;
            };
            let mut gone = Vec::new();
            for (file, held) in &known.files {
                if goes(*file, held.state) {
                    gone.push((*file, Span::ALL));
                } else if former == Former::Goes {
                    gone.extend(held.former.iter().map(|span| (*file, *span)));
                }
            }
            for (file, span) in gone {
                self.changed_itself(owner, file, span, None);
                self.give_back(owner, file, span);
                changed.insert(file);
                lost = true;
            }
            self.release_owner(owner);
        }
        let nothing = |host: &Host| host.owners.is_empty() && host.shares == 0;
        if self.hosts.get(&number).is_some_and(nothing) {
            self.remove_host(number);
        }
        lost
    }
}

/// Whether a status monitor that names `told` means the host that calls itself `known`. Either name may lack the domain.
fn is_name_of(known: &[u8], told: &[u8]) -> bool {
    let (short, long) = if known.len() < told.len() {
        (known, told)
    } else {
        (told, known)
    };
    let Some((start, rest)) = long.split_at_checked(short.len()) else {
        return false;
    };
    !short.is_empty() && start.eq_ignore_ascii_case(short) && matches!(rest, [] | [b'.', ..])
}

#[cfg(test)]
mod tests {
    use super::is_name_of;

    #[test]
    fn names_with_and_without_their_domain_are_the_same() {
        assert!(is_name_of(b"host", b"host"));
        assert!(is_name_of(b"host", b"HOST.example.com"));
        assert!(is_name_of(b"host.example.com", b"host"));
        assert!(!is_name_of(b"host", b"hostess"));
        assert!(!is_name_of(b"host.example.com", b"host.example.org"));
        assert!(!is_name_of(b"host", b""));
    }
}
