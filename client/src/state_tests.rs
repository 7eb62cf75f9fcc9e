use super::*;
use crate::route::{Choice, Config, Orders, Policy, RouteOrder};
use crate::types::FileKind;
use odafs_common::reference::{AccessKey, Epoch};
use std::time::{Duration, SystemTime};

fn file() -> FileState {
    let handle = FileHandle::from_bytes(&[1]).unwrap();
    let orders = Orders::new(RouteOrder::standing(Choice::Rpc, false));
    let record = Policy::new(Config::default(), 1, None).record();
    FileState::new(1, handle, record, orders, Arc::default())
}

/// Of a version that these seconds tell.
fn attributes(seconds: u32) -> Attributes {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
    Attributes {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 8192,
        used: 8192,
        rdev: (0, 0),
        fsid: 1,
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
        change: u64::from(seconds) << 32,
    }
}

/// Whether pages that were cached before still are, after what `act` does.
fn keeps(file: &FileState, act: impl FnOnce(&FileState)) -> bool {
    let moment = file.moment();
    act(file);
    file.still(moment)
}

#[test]
fn a_counter_says_nothing_of_pages_of_no_known_version() {
    let file = file();
    let wcc = Changed {
        before: None,
        after: Some(attributes(1)),
    };
    assert_eq!(file.wrote(&wcc), None, "somebody else may have written");
    // A page is read directly and cached; then another client writes it, and a read of another page tells the counter.
    assert!(!keeps(&file, |file| file.observe(Some(2), Some(&attributes(2)))));
    assert!(keeps(&file, |file| assert!(file.revalidate_change(2))));
}

#[test]
fn attributes_tie_a_counter_to_the_pages_of_their_version() {
    let file = file();
    file.revalidate(&attributes(1));
    assert!(keeps(&file, |file| file.observe(Some(7), Some(&attributes(1)))));
    assert!(keeps(&file, |file| assert!(file.revalidate_change(7))));
    assert!(!keeps(&file, |file| file.observe(Some(8), Some(&attributes(2)))));
    assert!(!keeps(&file, |file| assert!(!file.revalidate_change(9))));
}

#[test]
fn a_counter_that_is_not_as_told_ties_nothing_either() {
    let file = file();
    file.observe(Some(1), Some(&attributes(1)));
    // The file's watch has ended, and its counter's place is another file's.
    assert!(!keeps(&file, |file| assert!(!file.revalidate_change(8))));
    // A page is read directly and cached; the other file does not change, this one may have.
    assert_eq!(file.change(), None);
    assert!(!file.revalidate_change(8));
    assert!(!keeps(&file, |file| file.observe(Some(2), Some(&attributes(2)))));
}

#[test]
fn a_counter_that_a_reply_confirms_ties_what_was_read_since() {
    let file = file();
    file.observe(Some(1), Some(&attributes(1)));
    assert!(!keeps(&file, |file| assert!(!file.revalidate_change(2))));
    assert!(keeps(&file, |file| file.observe(Some(2), Some(&attributes(2)))));
    assert!(keeps(&file, |file| assert!(file.revalidate_change(2))));
}

#[test]
fn a_counter_that_is_told_no_more_is_not_read() {
    let file = file();
    let reference = Reference {
        address: 0,
        length: 8,
        handle: odafs_common::reference::Handle(0),
        key: AccessKey(1),
        epoch: Epoch(1),
    };
    file.set_counter(3, Some(reference));
    assert_eq!((file.counter(3), file.counter(4)), (Some(reference), None));
    file.set_counter(3, None);
    assert_eq!(file.counter(3), None);
}
