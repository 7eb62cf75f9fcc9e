//! READDIR (RFC 1094, section 2.2.17).

use odafs_common::wire::nfs2::{Entry, MAX_NAME, ReadDirArgs, ReadDirOk, Status};
use odafs_common::wire::xdr::{Encode, Writer};

use super::{Context, Done, convert, cookies};
use crate::vfs::{DirEntry, Listing, ReaddirRange, namespace};

/// How often to ask the store for more if a reply lacks some, because the rest of a group may have filled what it returned.
const ROUNDS: usize = 4;

/// A part of a directory.
#[derive(Debug)]
pub(super) struct Part {
    entries: Vec<DirEntry>,
    eof: bool,
}

impl Encode for Part {
    fn encode(&self, w: &mut Writer<'_>) {
        ReadDirOk {
            entries: self.entries.iter().map(told).collect(),
            eof: self.eof,
        }
        .encode(w);
    }
}

fn told(entry: &DirEntry) -> Entry<'_> {
    Entry {
        fileid: convert::fileid(entry.fileid),
        name: &entry.name,
        cookie: cookies::short(entry.cookie),
    }
}

pub(super) fn readdir(context: &Context<'_>, arguments: ReadDirArgs<'_>) -> Done<Part> {
    context.may_block()?;
    let directory = context.object(arguments.directory)?;
    let room = arguments.count.min(context.room) as usize;
    let reaches = |tag| context.rights.check(tag);
    part(arguments.cookie, room, |cookie, max_entries| {
        let range = ReaddirRange {
            cookie,
            // The protocol has none: this is the one that our stores give.
            verifier: [0; 8],
            max_entries,
            plus: false,
        };
        Ok(namespace::readdir(
            context.export,
            &context.who,
            directory,
            range,
            &reaches,
        )?)
    })
}

/// What follows a client's cookie and takes no more than `room` bytes. `list` gives what follows a store's cookie, as many
/// entries at most.
fn part(cookie: u32, room: usize, mut list: impl FnMut(u64, usize) -> Done<Listing>) -> Done<Part> {
    let mut from = cookies::start(cookie).ok_or(Status::Io)?;
    let is_news = |entry: &DirEntry| {
        let passed = cookies::is_group(cookie) && cookies::short(entry.cookie) <= cookie;
        // Clients can neither list nor look up a longer name.
        !passed && entry.name.len() <= MAX_NAME as usize
    };
    // One more than fits, because only the next entry shows whether a group ends with the last.
    let most = room / Entry::bytes(1) + 1;
    let mut found = Part {
        entries: Vec::new(),
        eof: false,
    };
    for _ in 0..ROUNDS {
        let listing = list(from, most)?;
        found.eof = listing.eof;
        from = listing.entries.last().map_or(from, |last| last.cookie);
        found
            .entries
            .extend(listing.entries.into_iter().filter(is_news));
        if found.eof || fitting(&found.entries, room) < found.entries.len() {
            break;
        }
    }
    found.cut(room)
}

/// How many entries fit.
fn fitting(entries: &[DirEntry], room: usize) -> usize {
    let mut bytes = ReadDirOk::EMPTY_BYTES;
    let fits = |entry: &&DirEntry| {
        bytes += Entry::bytes(entry.name.len());
        bytes <= room
    };
    entries.iter().take_while(fits).count()
}

impl Part {
    /// The entries that fit, up to the end of a group. Fails with IO if not even one does.
    fn cut(mut self, room: usize) -> Done<Self> {
        let fits = fitting(&self.entries, room);
        if fits == self.entries.len() && self.eof && room >= ReadDirOk::EMPTY_BYTES {
            return Ok(self);
        }
        let ends = |count: &usize| {
            let last = cookies::short(self.entries[count - 1].cookie);
            let next = self.entries.get(*count);
            !cookies::is_group(last) || next.is_some_and(|next| cookies::short(next.cookie) != last)
        };
        let count = (1..=fits).rev().find(ends).ok_or(Status::Io)?;
        self.entries.truncate(count);
        self.eof = false;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs2::Failed;

    /// A directory as ext4 has it: an entry's cookie is where the next one lies.
    struct Hashed(Vec<(u64, String)>);

    impl Hashed {
        fn new(positions: impl IntoIterator<Item = u64>) -> Self {
            let named = |at| (at, format!("name-{at:x}"));
            let mut entries: Vec<_> = positions.into_iter().map(named).collect();
            entries.sort();
            Self(entries)
        }

        fn list(&self, from: u64, most: usize) -> Done<Listing> {
            let first = self.0.partition_point(|(at, _)| *at < from);
            let end = self.0.len().min(first + most);
            let cookie = |next: usize| self.0.get(next).map_or(i64::MAX as u64, |next| next.0);
            let entry = |index: usize| DirEntry {
                fileid: index as u64 + 1,
                name: self.0[index].1.clone().into_bytes(),
                cookie: cookie(index + 1),
                object: None,
            };
            Ok(Listing {
                entries: (first..end).map(entry).collect(),
                eof: end == self.0.len(),
                verifier: [0; 8],
            })
        }

        /// All names, in replies of so much room.
        fn names(&self, room: usize) -> Vec<String> {
            let (mut all, mut cookie) = (Vec::new(), 0);
            loop {
                let part = part(cookie, room, |from, most| self.list(from, most));
                let part = part.expect("a part");
                assert!(part.to_bytes().len() <= room);
                let name = |entry: &DirEntry| String::from_utf8(entry.name.clone()).unwrap();
                all.extend(part.entries.iter().map(name));
                if part.eof {
                    return all;
                }
                cookie = cookies::short(part.entries.last().expect("progress").cookie);
            }
        }

        fn all(&self) -> Vec<String> {
            self.0.iter().map(|(_, name)| name.clone()).collect()
        }
    }

    #[test]
    fn names_whose_hashes_begin_alike_are_listed_once() {
        // Groups of one to six, all over the range; the positions of some are those of a group's beginning.
        let groups = (1..120_u64).flat_map(|group| {
            let start = (group * ((1 << 30) / 121)) << 33;
            (0..group % 7).map(move |within| start + within * within * 1000)
        });
        let directory = Hashed::new(groups);
        for room in [256, 300, 512, 4096, 8192] {
            assert_eq!(directory.names(room), directory.all(), "{room}");
        }
    }

    #[test]
    fn cookies_that_count_are_resumed_where_they_are() {
        let directory = Hashed::new(3..400);
        for room in [64, 200, 8192] {
            assert_eq!(directory.names(room), directory.all(), "{room}");
        }
    }

    #[test]
    fn a_group_that_no_reply_can_take_is_refused() {
        let directory = Hashed::new((0..500).map(|within| (1 << 40) + within));
        let failed = part(0, 8192, |from, most| directory.list(from, most));
        assert_eq!(failed.unwrap_err(), Failed::Status(Status::Io));
        // Nor does a cookie in its middle, which nobody was given, cost more than a few looks.
        let mut looks = 0;
        let _ = part(cookies::short(1 << 40), 8192, |from, most| {
            looks += 1;
            directory.list(from, most)
        });
        assert!(looks <= ROUNDS);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let directory = Hashed::new(3..5);
        let list = |room| part(0, room, |from, most| directory.list(from, most));
        for room in [0, 7, 8, 31] {
            let failed = list(room).unwrap_err();
            assert_eq!(failed, Failed::Status(Status::Io), "{room}");
        }
        let one = list(32).expect("one");
        assert_eq!((one.entries.len(), one.eof), (1, false));
        let none_of_ours = part(1 << 31, 8192, |from, most| directory.list(from, most));
        assert_eq!(none_of_ours.unwrap_err(), Failed::Status(Status::Io));
    }

    #[test]
    fn names_that_cannot_be_told_are_left_out() {
        let listing = |_, _| {
            let entry = |cookie, length| DirEntry {
                fileid: 1,
                name: vec![b'n'; length],
                cookie,
                object: None,
            };
            Ok(Listing {
                entries: vec![entry(3, 255), entry(4, 256), entry(5, 1)],
                eof: true,
                verifier: [0; 8],
            })
        };
        let part = part(0, 8192, listing).expect("a part");
        let lengths = part.entries.iter().map(|entry| entry.name.len());
        assert_eq!(Vec::from_iter(lengths), [255, 1]);
    }
}
