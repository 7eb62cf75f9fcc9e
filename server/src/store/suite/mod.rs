//! The tests that every store must pass.
//!
//! They run with the ids of the process. Tests that need other users are in [`others`], for stores that can act as any
//! user. A read-only store gets its files by other means and runs [`reading`].

mod acls;
mod directories;
mod files;
mod reading;
mod space;
mod users;
mod xattrs;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::store::{Extent, FileType, SetAttributes, SetTime, Status, Time, access};

use super::*;

pub use reading::{data, grow, reading};

type Test = fn(&dyn Store);

/// Runs every test below, each on a store of its own that `make` returns. The tests of listings use that many entries.
pub fn all<S: Store>(make: impl Fn() -> S, entries: usize) {
    directories::listing(&make(), entries);
    let tests: &[(&str, Test)] = &[
        ("root", files::root),
        ("bytes", files::bytes),
        ("create", files::create),
        ("names", directories::names),
        ("directories", directories::directories),
        ("links", directories::links),
        ("renames", directories::renames),
        ("symlinks", files::symlinks),
        ("specials", files::specials),
        ("attributes", files::attributes),
        ("birth times", files::birth_times),
        ("access lists", acls::lists),
        ("inherited lists", acls::inherited),
        (
            "listing while it changes",
            directories::listing_while_it_changes,
        ),
        ("listing with objects", directories::listing_with_objects),
        ("space set aside", space::setting_aside),
        ("holes made", space::holes_made),
        ("holes found", space::holes_found),
        ("copies", space::copies),
        ("clones", space::clones),
        ("extended attributes", xattrs::set_told_and_removed),
        ("types", files::types),
        ("found again", files::found_again),
        ("deep paths", directories::deep_paths),
        ("limits", files::limits),
        ("one of many wins", directories::one_of_many_wins),
        ("events", files::events),
    ];
    for (name, test) in tests {
        eprintln!("suite: {name}");
        test(&make());
    }
}

/// Runs the tests that need several users.
pub fn others<S: Store>(make: impl Fn() -> S) {
    let tests: &[(&str, Test)] = &[
        ("classes", users::classes),
        ("foreign ids", users::foreign_ids),
        ("owners", users::owners),
        ("sticky", users::sticky),
        ("giving away", users::giving_away),
        ("inherited group", users::inherited_group),
        ("access lists", acls::rights),
    ];
    for (name, test) in tests {
        eprintln!("suite: {name}");
        test(&make());
    }
}

pub(crate) fn me() -> Credential {
    Credential::of_this_process()
}

pub(crate) fn new_mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

/// A new file in the root directory.
pub(crate) fn file(store: &dyn Store, who: &Credential, name: &str, mode: u32) -> ObjectId {
    let how = new_mode(mode);
    let how = CreateHow::Guarded(&how);
    store
        .create(who, store.root(), name.as_bytes(), how)
        .unwrap()
        .object
}

fn directory(store: &dyn Store, who: &Credential, name: &str, mode: u32) -> ObjectId {
    store
        .mkdir(who, store.root(), name.as_bytes(), &new_mode(mode))
        .unwrap()
        .0
}

pub(crate) fn content(store: &dyn Store, object: ObjectId) -> Vec<u8> {
    let mut data = vec![0xee; 1 << 16];
    let count = store.read_at(object, 0, &mut data).unwrap();
    data.truncate(count);
    data
}

#[track_caller]
pub(crate) fn refused<T>(result: Result<T>, status: Status) {
    match result {
        Ok(_) => panic!("should have been refused with {status:?}"),
        Err(error) => assert_eq!(error.status, status),
    }
}

/// Calls as clients do: again, as long as the store is too busy to answer.
fn patiently<T>(ask: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..1000 {
        match ask() {
            Err(error) if error.status == Status::Jukebox => {
                std::thread::sleep(Duration::from_millis(1));
            }
            said => return said,
        }
    }
    ask()
}

/// Lists in steps of `chunk`.
pub(crate) fn list(
    store: &dyn Store,
    directory: ObjectId,
    chunk: usize,
    plus: bool,
) -> Vec<DirEntry> {
    let (mut all, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let range = ReaddirRange {
            cookie,
            verifier,
            max_entries: chunk,
            plus,
        };
        let listing = store.readdir(&me(), directory, range).unwrap();
        assert!(listing.entries.len() <= chunk);
        assert!(listing.eof || !listing.entries.is_empty());
        verifier = listing.verifier;
        all.extend(listing.entries);
        if listing.eof {
            return all;
        }
        cookie = all.last().unwrap().cookie;
        assert_ne!(cookie, 0);
    }
}

/// Waits until `wanted` has come.
pub(crate) fn expect_event(store: &dyn Store, wanted: OutsideEvent) {
    let mut all = Vec::new();
    for _ in 0..100 {
        all.extend(store.wait_events(Duration::from_millis(100)));
        if all.contains(&wanted) {
            return;
        }
    }
    panic!("{wanted:?} did not come, only {all:?}");
}
