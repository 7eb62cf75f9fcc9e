//! Reads, references and pageout.

use odafs_common::exception::Exception;
use odafs_nic::calls::ChunkSource;
use odafs_nic::nic::NicConfig;

use super::*;
use crate::store::{Operation, Status, Store as _};
use crate::vfs::export::{Direct, ExportsConfig};
use crate::vfs::metrics::Reason;
use crate::vfs::references::piggyback;
use crate::vfs::testing::{PAGE, World, other, owner};

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
}

#[test]
fn reads_are_what_the_store_holds() {
    let world = World::new(64);
    let content = pattern(10 * PAGE as usize + 100);
    let file = world.file("a", &content);
    for (offset, count) in [
        (0, 10),
        (4090, 20),
        (0, 41_060),
        (40_000, 5000),
        (8192, 4096),
    ] {
        let expected: Vec<u8> = content.iter().skip(offset).take(count).copied().collect();
        assert_eq!(world.read(&file, offset as u64, count as u32), expected);
        // And once more, now from memory.
        let (again, done) = world
            .try_read(&file, offset as u64, count as u32, Effort::ResidentOnly)
            .expect("resident");
        assert_eq!(again, expected);
        assert_eq!(done.eof, offset + count >= content.len());
        assert_eq!(done.attributes.size, content.len() as u64);
    }
    for behind in [content.len() as u64, 1 << 40, u64::MAX] {
        let (data, done) = world
            .try_read(&file, behind, 100, Effort::ResidentOnly)
            .expect("nothing to wait for");
        assert!(data.is_empty() && done.eof);
    }
}

#[test]
fn a_polling_thread_is_told_to_go_elsewhere() {
    let world = World::new(64);
    let file = world.file("a", &pattern(30 * PAGE as usize));
    let polled = |offset, count| world.try_read(&file, offset, count, Effort::ResidentOnly);
    assert_eq!(polled(0, 1).err(), Some(ReadFailed::NotResident));
    world.read(&file, 0, 30 * PAGE as u32);
    assert!(polled(0, 16 * PAGE as u32).is_ok());
    // More than a thread should copy while others wait.
    assert_eq!(
        polled(0, 17 * PAGE as u32).err(),
        Some(ReadFailed::NotResident)
    );
    {
        let _closed = file.close();
        assert_eq!(polled(0, 1).err(), Some(ReadFailed::NotResident));
    }
    let leaf = file.find_leaf(3).expect("a leaf");
    let _locked = leaf.lock(Leaf::slot(3));
    assert_eq!(polled(3 * PAGE, 1).err(), Some(ReadFailed::NotResident));
    assert!(polled(2 * PAGE, 1).is_ok());
}

#[test]
fn a_polling_thread_fills_what_the_store_has_at_hand() {
    let world = World::new(64);
    let content = pattern(30 * PAGE as usize);
    let file = world.file("a", &content);
    let polled = |page, pages| {
        let (at, length) = (page * PAGE, pages * PAGE);
        let read = world.try_read(&file, at, length as u32, Effort::ResidentOnly);
        read.map(|(data, _)| assert_eq!(data, content[at as usize..(at + length) as usize]))
    };
    let fills = || world.export.metrics().fills.get();
    // The store of this test has every other read at hand.
    assert_eq!(polled(5, 1), Err(ReadFailed::NotResident));
    assert_eq!((polled(5, 1), fills()), (Ok(()), 1));
    assert_eq!((polled(5, 1), fills()), (Ok(()), 1));
    // What was refused is no part of a scan, what was filled is one.
    assert_eq!(polled(6, 1), Err(ReadFailed::NotResident));
    assert_eq!((polled(6, 1), fills()), (Ok(()), 2));
    assert_eq!((polled(7, 1), fills()), (Ok(()), 2));
    // One fill for a call: page 22 is missing, and so are those behind page 23.
    world.read(&file, 23 * PAGE, PAGE as u32);
    assert_eq!(polled(22, 3), Err(ReadFailed::NotResident));
    assert_eq!(polled(22, 3), Err(ReadFailed::NotResident));
    assert_eq!(polled(22, 1), Ok(()));
}

/// All frames are in use, and the hand of pageout has to go round once before it finds one.
#[test]
fn a_polling_thread_does_not_look_far_for_a_frame() {
    let world = World::new(1024);
    let all = world.export.cache().capacity() * PAGE as u32;
    let in_use = world.file("a", &pattern(all as usize));
    for _ in 0..3 {
        world.read(&in_use, 0, all);
    }
    let file = world.file("b", &[7; PAGE as usize]);
    let evictions = || world.export.metrics().evictions.get();
    let before = evictions();
    // The store of this test has every other read at hand.
    let polled = || world.try_read(&file, 0, 1, Effort::ResidentOnly);
    let (data, _) = polled().or_else(|_| polled()).expect("at hand");
    assert_eq!((data[0], evictions()), (7, before));
    // Others look until they find one.
    world.read(&file, 0, 1);
    assert!(evictions() > before);
    assert!(polled().is_ok());
}

#[test]
fn a_scan_fills_ahead() {
    let world = World::new(512);
    let file = world.file("a", &pattern(256 * PAGE as usize));
    for page in 0..256 {
        world.read(&file, page * PAGE, PAGE as u32);
    }
    let fills = world.export.metrics().fills.get();
    assert!(
        (8..=14).contains(&fills),
        "{fills} reads of the store for 256 pages"
    );
    assert_eq!(world.export.metrics().filled_bytes.get(), 256 * PAGE);
}

#[test]
fn the_store_refuses_and_recovers() {
    let world = World::new(64);
    let file = world.file("a", &pattern(100));
    world.store.fail_next(Operation::Read, Status::Io);
    let failed = world.try_read(&file, 0, 10, Effort::MayBlock).err();
    assert_eq!(failed, Some(ReadFailed::Status(Status::Io)));
    assert_eq!(world.read(&file, 0, 100), pattern(100));
}

#[test]
fn rights_are_checked_on_every_read() {
    let world = World::new(64);
    let file = world.file("a", &pattern(100));
    world.read(&file, 0, 100);
    let new = crate::store::SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    crate::vfs::write::set_attributes(&world.export, &owner(), file.object(), &new, None)
        .expect("chmod");
    let range = ReadRange {
        offset: 0,
        count: 10,
    };
    for effort in [Effort::ResidentOnly, Effort::MayBlock] {
        let mut data = [0; 10];
        let refused = read(&world.export, &other(), &file, range, effort, &mut data);
        assert_eq!(refused.err(), Some(ReadFailed::Status(Status::Access)));
        assert!(read(&world.export, &owner(), &file, range, effort, &mut data).is_ok());
    }
}

#[test]
fn references_lead_to_the_bytes() {
    let world = World::new(64);
    let content = pattern(3 * PAGE as usize + 10);
    let file = world.file("a", &content);
    world.read(&file, 0, 4 * PAGE as u32);
    let (mut client, view) = (world.client(&owner()), world.view());
    let references = client.references(&file, 0, 4 * PAGE as u32);
    assert_eq!(references.len(), 4);
    for (found, piece) in references.iter().zip(content.chunks(PAGE as usize)) {
        assert_eq!(found.reference.length as usize, piece.len());
        let mut direct = vec![0; piece.len()];
        assert!(view.read(found.reference.address, &mut direct, found.reference.epoch));
        assert_eq!(direct, piece);
        assert_eq!(client.read(&found.reference).as_deref(), Ok(piece));
    }
    // The same again: one key for the life of what a handle covers.
    assert_eq!(client.references(&file, 0, 4 * PAGE as u32), references);
    let counter = client.counter(&file).expect("a counter");
    assert_eq!(
        view.read_word(counter.address, counter.epoch),
        Some(file.change())
    );
    let guarded = client.read(&counter).expect("readable");
    assert_eq!(guarded, file.change().to_le_bytes());
}

#[test]
fn a_read_brings_neighbours() {
    let world = World::new(64);
    let file = world.file("a", &pattern(40 * PAGE as usize));
    world.read(&file, 0, 40 * PAGE as u32);
    let client = world.client(&owner());
    let range = ReadRange {
        offset: 20 * PAGE,
        count: 1,
    };
    let session = (&*client.session, client.session.who());
    let (found, _) = piggyback(&world.export, &file, session, range, 64);
    let pages: Vec<u64> = found.iter().map(|found| found.page).collect();
    assert_eq!(pages[0], 20);
    assert_eq!(pages.len(), 9);
    assert!(pages[1..].iter().all(|page| page.abs_diff(20) <= 8));
    let (few, _) = piggyback(&world.export, &file, session, range, 1);
    assert_eq!(few.len(), 1);
}

#[test]
fn no_references_without_a_right_or_without_direct_access() {
    let world = World::new(64);
    let file = world.file("a", &pattern(100));
    world.read(&file, 0, 100);
    let new = crate::store::SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    crate::vfs::write::set_attributes(&world.export, &owner(), file.object(), &new, None)
        .expect("chmod");
    let mut stranger = world.client(&other());
    assert!(stranger.references(&file, 0, 100).is_empty());
    assert!(stranger.counter(&file).is_none());
    // Nor is a stolen one worth anything.
    let reference = world
        .client(&owner())
        .reference(&file, 0)
        .expect("a reference");
    assert_eq!(stranger.read(&reference), Err(Exception::Denied));

    let off = ExportsConfig {
        direct: Direct::Off,
        ..ExportsConfig::default()
    };
    let world = World::with(64, off);
    let file = world.file("a", &pattern(100));
    world.read(&file, 0, 100);
    assert!(world.export.nic().is_none() && !world.export.hands_out(&file));
}

#[test]
fn what_nobody_watches_has_no_counter_for_clients() {
    let world = World::new(64);
    world.store.set_watchable(false);
    let file = world.file("a", &pattern(100));
    world.read(&file, 0, 100);
    let client = world.client(&owner());
    assert!(client.reference(&file, 0).is_some());
    assert!(client.counter(&file).is_none());
}

#[test]
fn pageout_takes_what_is_not_used_and_says_so() {
    let world = World::new(33);
    let file = world.file("a", &pattern(200 * PAGE as usize));
    let (mut client, view) = (world.client(&owner()), world.view());
    world.read(&file, 0, 1);
    let kept = client.reference(&file, 0).expect("resident");
    world.read(&file, 100 * PAGE, 1);
    let lost = client.reference(&file, 100).expect("resident");
    for page in 1..200 {
        if page != 100 {
            world.read(&file, page * PAGE, 1);
        }
        // Read directly, it is used as much as by calls.
        client.read(&kept).expect("in use all the time");
    }
    assert_eq!(client.read(&lost), Err(Exception::NotResident));
    assert!(!view.read(lost.address, &mut [0; 8], lost.epoch));
    let metrics = world.export.metrics();
    assert!(metrics.evictions.get() > 150);
    assert!(metrics.stale_count(Reason::Pageout) >= 1);
    assert_eq!(
        world.read(&file, 100 * PAGE, 100),
        pattern(200 * PAGE as usize)[409_600..409_700]
    );
}

#[test]
fn without_a_frame_reads_go_through() {
    // Three frames for pages, all pinned.
    let world = World::new(4);
    let content = pattern(20 * PAGE as usize);
    let file = world.file("a", &content);
    let mut pins = Vec::new();
    for page in [0, 5, 9] {
        world.read(&file, page * PAGE, 1);
        let range = ReadRange {
            offset: page * PAGE,
            count: PAGE as u32,
        };
        let (_, pieces) = read_pinned(&world.export, &owner(), &file, range, Effort::ResidentOnly)
            .expect("resident");
        assert!(matches!(pieces[..], [ChunkSource::Frame { .. }]));
        pins.extend(pieces);
    }
    assert_eq!(world.read(&file, 0, 20 * PAGE as u32), content);
    assert!(world.export.metrics().frames_short.get() > 0);
    // What is pinned stays as it was, even when the page is written.
    world.write(&file, 0, &[0xAB; PAGE as usize]);
    let ChunkSource::Frame { frame, .. } = &pins[0] else {
        panic!("a frame")
    };
    let mut sent = vec![0; PAGE as usize];
    world.export.arena().copy_out(frame.frame(), 0, &mut sent);
    assert_eq!(sent, content[..PAGE as usize]);
    assert_eq!(world.read(&file, 0, PAGE as u32), [0xAB; PAGE as usize]);
    drop(pins);
    for page in 0..20 {
        world.read(&file, page * PAGE, 1);
    }
    world
        .try_read(&file, 19 * PAGE, 1, Effort::ResidentOnly)
        .expect("frames are used again");
}

#[test]
fn the_nic_asks_for_what_it_forgot() {
    let config = ExportsConfig {
        nic: NicConfig {
            tpt_entries: 4,
            tpt_ways: 2,
            ..NicConfig::default()
        },
        ..ExportsConfig::default()
    };
    let world = World::with(64, config);
    let content = pattern(32 * PAGE as usize);
    let file = world.file("a", &content);
    world.read(&file, 0, 32 * PAGE as u32);
    let mut client = world.client(&owner());
    let references = client.references(&file, 0, 32 * PAGE as u32);
    assert_eq!(references.len(), 32);
    for (found, piece) in references.iter().zip(content.chunks(PAGE as usize)) {
        assert_eq!(client.read(&found.reference).as_deref(), Ok(piece));
    }
    let nic = world.export.nic().expect("direct access");
    assert!(nic.counters().snapshot().faults > 20);
    // While someone is at the page the NIC does not wait.
    let leaf = file.find_leaf(0).expect("a leaf");
    let locked = leaf.lock(0);
    assert_eq!(client.read(&references[0].reference), Err(Exception::Busy));
    drop(locked);
    assert!(client.read(&references[0].reference).is_ok());
}

#[test]
fn files_without_pages_are_let_go() {
    let world = World::new(64);
    let limit = 1100;
    for number in 0..limit {
        let file = world.file(&format!("f{number}"), b"x");
        assert_eq!(file.attributes().size, 1);
    }
    assert!(world.export.live_count() < limit);
    // And are found again.
    let root = world.store.root();
    let (object, _) = world.store.lookup(&owner(), root, b"f3").expect("there");
    let file = world.export.file(object).expect("live");
    assert_eq!(world.read(&file, 0, 1), b"x");
}

#[test]
fn handles_are_remembered() {
    let world = World::new(64);
    let file = world.file("a", b"x");
    let handle = *file.handle();
    let polled = |handle: &[u8]| world.export.file_of_handle(handle, Effort::ResidentOnly);
    assert_eq!(polled(&handle).err(), Some(ReadFailed::NotResident));
    let found = world.export.file_of_handle(&handle, Effort::MayBlock);
    assert!(Arc::ptr_eq(&found.expect("live"), &file));
    assert!(Arc::ptr_eq(&polled(&handle).expect("remembered"), &file));
    let mut forged = handle.to_vec();
    forged[9] ^= 1;
    let refused = world.export.file_of_handle(&forged, Effort::MayBlock).err();
    assert_eq!(refused, Some(ReadFailed::Status(Status::BadHandle)));
    let root = world.export.handle(world.store.root());
    let refused = world.export.file_of_handle(&root, Effort::MayBlock).err();
    assert_eq!(refused, Some(ReadFailed::Status(Status::IsDir)));
    world
        .export
        .resolve(&root, Effort::ResidentOnly)
        .expect("remembered");
}
