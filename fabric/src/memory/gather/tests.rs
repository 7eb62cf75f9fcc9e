use super::super::{ArenaConfig, Own};
use super::*;
use crate::sync::Arc;
use odafs_common::page::{Layout, PageSize};
use std::os::fd::AsFd;

const PAGE: usize = PageSize::DEFAULT.bytes();

fn arena() -> Arena {
    Arena::create(&ArenaConfig {
        frames: 4,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    })
    .unwrap()
}

fn region(bytes: &[u8]) -> Arc<Region> {
    let mut own = Own::new(bytes.len()).unwrap();
    own.bytes_mut().copy_from_slice(bytes);
    own.lend()
}

fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + at / 256 + salt) as u8)
        .collect()
}

/// What follows is done with bytes of every kind, and with what they are as a slice.
fn each(act: impl FnOnce(&Gather<'_>, &[u8])) {
    let arena = arena();
    let content = pattern(2 * PAGE, 1);
    arena.copy_in(FrameNumber(1), 0, &content[..PAGE]);
    arena.copy_in(FrameNumber(2), 0, &content[PAGE..]);
    let (remote, private) = (region(&pattern(1000, 2)), pattern(5000, 3));
    let mut gather = Gather::new();
    assert!(gather.push_region(&remote, 10, 900));
    assert!(!gather.push_region(&remote, 101, 900));
    gather.push_part(&private.as_slice().into(), 1, 4000);
    gather.push_part(&private.as_slice().into(), 0, 0);
    gather.push_frame(&arena, FrameNumber(1), 5, PAGE as u32 - 5);
    gather.push_frame(&arena, FrameNumber(2), 0, PAGE as u32);
    gather.push_frame(&arena, FrameNumber(1), 0, 7);
    let whole = [
        &pattern(1000, 2)[10..910],
        &private[1..4001],
        &content[5..],
        &content[..7],
    ]
    .concat();
    assert_eq!(
        gather.stretches.len(),
        4,
        "frames that are neighbours are one"
    );
    assert_eq!(gather.len(), whole.len());
    assert!(!gather.is_fixed());
    act(&gather, &whole);
}

#[test]
fn any_range_is_copied() {
    each(|gather, whole| {
        assert_eq!(gather.to_vec(), whole);
        let mut seen = Vec::new();
        gather.look(|bytes| seen.extend_from_slice(bytes));
        assert_eq!(seen, whole);
        let arena = arena();
        let edges = [0, 1, 899, 900, 901, 4899, 4900, 8990, 8991, whole.len()];
        for from in edges {
            for to in edges.into_iter().filter(|to| *to >= from) {
                let mut copy = vec![0; to - from];
                gather.load(from, &mut copy);
                assert_eq!(copy, whole[from..to], "{from}..{to}");
                let mut part = Gather::new();
                part.push_part(gather, from, to - from);
                assert_eq!(part.to_vec(), copy, "{from}..{to}");
                let bytes = (to - from).min(PAGE - 3);
                arena.gather_in(FrameNumber(3), 3, gather, from, bytes);
                let mut copied = vec![0; bytes];
                arena.copy_out(FrameNumber(3), 3, &mut copied);
                assert_eq!(copied, whole[from..from + bytes], "{from}..{to}");
            }
        }
        for length in edges {
            let mut front = gather.clone();
            front.truncate(length);
            assert_eq!(front.to_vec(), whole[..length]);
        }
    });
}

#[test]
#[cfg_attr(miri, ignore)]
fn a_file_gets_what_lies_behind_the_skipped() {
    each(|gather, whole| {
        for skip in [0, 1, 900, 7000] {
            let file = tempfile::tempfile().unwrap();
            let written = gather.write_to(file.as_fd(), skip, 3).unwrap();
            assert_eq!(written, whole.len() - skip);
            let mut found = vec![0; written];
            assert_eq!(rustix::io::pread(&file, &mut found, 3).unwrap(), written);
            assert_eq!(found, whole[skip..]);
        }
        let read_only = std::fs::File::open("/dev/null").unwrap();
        assert!(gather.write_to(read_only.as_fd(), 0, 0).is_err());
    });
}

#[test]
#[should_panic(expected = "out of bounds")]
fn nothing_lies_beyond() {
    Gather::from(b"four").load(1, &mut [0; 4]);
}

#[test]
fn private_bytes_are_fixed() {
    assert!(Gather::from(b"four").is_fixed() && Gather::new().is_fixed());
    assert!(Gather::new().is_empty());
}
