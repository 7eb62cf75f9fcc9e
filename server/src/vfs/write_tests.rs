//! Writes: what they do to pages, references, counters and verifiers.

use odafs_common::exception::Exception;
use odafs_common::reference::{Epoch, Handle};
use odafs_fabric::memory::{FrameNumber, Own, Pinned, Region};
use odafs_fabric::sync::atomic::{AtomicBool, Ordering};
use odafs_fabric::sync::{Mutex, thread};
use odafs_nic::host_vm::HostVm;
use odafs_nic::tpt::TptEntry;

use super::*;
use crate::store::{Operation, Store as _};
use crate::vfs::export::ExportsConfig;
use crate::vfs::metrics::Reason;
use crate::vfs::read::Effort;
use crate::vfs::testing::{PAGE, World, other, owner};

const P: usize = PAGE as usize;

pub(super) fn resized(world: &World, file: &Arc<File>, size: u64) {
    let new = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    set_attributes(&world.export, &owner(), file.object(), &new, None).expect("resized");
}

#[test]
fn what_is_written_is_read() {
    write_and_read(|data, write| write(data.into()));
}

#[test]
fn what_comes_from_shared_memory_is_read() {
    write_and_read(|data, write| write(all_of(&shared(data))));
}

/// Memory that a peer might change.
fn shared(data: &[u8]) -> Arc<Region> {
    let mut own = Own::new(data.len()).expect("memory");
    own.bytes_mut().copy_from_slice(data);
    own.lend()
}

fn all_of(region: &Region) -> Gather<'_> {
    let mut all = Gather::new();
    assert!(all.push_region(region, 0, region.len()));
    all
}

fn write_and_read(lay: impl Fn(&[u8], &dyn Fn(Gather<'_>))) {
    let world = World::new(64);
    let file = world.file("a", &[]);
    let mut model: Vec<u8> = Vec::new();
    let writes = [
        (0, 10),
        (5, 5000),
        (4096, 4096),
        (20_000, 1),
        (8191, 2),
        (0, 30_000),
        (29_999, 9000),
        (50_000, 4096),
    ];
    for (number, (offset, length)) in writes.into_iter().enumerate() {
        // Both with the pages in memory and without.
        if number % 2 == 0 {
            world.read(&file, 0, model.len() as u32);
        }
        let data: Vec<u8> = (0..length).map(|at| (at % 200 + number) as u8).collect();
        lay(&data, &|data| {
            world.write(&file, offset as u64, data);
        });
        model.resize(model.len().max(offset + length), 0);
        model[offset..offset + length].copy_from_slice(&data);
        assert_eq!(file.attributes().size, model.len() as u64);
        assert_eq!(world.read(&file, 0, 100_000), model);
        let mut stored = vec![0; model.len()];
        world
            .store
            .read_at(file.object(), 0, &mut stored)
            .expect("read");
        assert_eq!(stored, model);
    }
    world.observe();
    assert_eq!(world.export.metrics().outside_changes.get(), 0);
}

#[test]
fn a_file_keeps_no_leaf_without_a_page() {
    let world = World::new(64);
    let file = world.file("a", &[1; 40 * P]);
    // Parts of pages that are not in memory; within one leaf and across three.
    for (offset, length) in [(10, P), (15 * PAGE + 1, 18 * P)] {
        world.write(&file, offset, &vec![2; length]);
        for page in 0..40 {
            let held = file.find_leaf(page).map(|leaf| leaf.resident());
            assert_ne!(held, Some(0), "page {page}");
        }
        resized(&world, &file, 0);
        resized(&world, &file, 40 * PAGE);
        assert!(file.is_empty());
    }
    world.store.fail_next(Operation::Read, Status::Io);
    assert!(
        world
            .try_read(&file, 0, 40 * P as u32, Effort::MayBlock)
            .is_err()
    );
    assert!(file.is_empty());
}

#[test]
fn a_write_makes_references_stale_before_it_is_acknowledged() {
    let world = World::new(64);
    let file = world.file("a", &[1; 3 * P]);
    world.read(&file, 0, 3 * P as u32);
    let (mut client, view) = (world.client(&owner()), world.view());
    let old: Vec<_> = (0..3)
        .map(|page| client.reference(&file, page).expect("resident"))
        .collect();
    let before = file.change();
    world.write(&file, PAGE + 10, &[2; 20]);
    assert_ne!(file.change(), before);
    assert!(!view.read(old[1].address, &mut [0; 1], old[1].epoch));
    assert_eq!(client.read(&old[1]), Err(Exception::Stale));
    // The others were not touched.
    for page in [0, 2] {
        assert!(view.read(old[page].address, &mut [0; 1], old[page].epoch));
        assert!(client.read(&old[page]).is_ok());
    }
    assert_eq!(world.export.metrics().stale_count(Reason::Write), 1);
    // The page is in memory still, elsewhere.
    let new = client.reference(&file, 1).expect("resident");
    assert_ne!(new.handle, old[1].handle);
    let mut expected = vec![1; P];
    expected[10..30].fill(2);
    assert_eq!(client.read(&new), Ok(expected));
}

#[test]
fn what_was_not_handed_out_is_written_in_place() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.read(&file, 0, 1);
    let frame = |file: &Arc<File>| file.find_leaf(0).expect("a leaf").lock(0).frame();
    let first = frame(&file);
    world.write(&file, 5, &[2; 5]);
    assert_eq!(frame(&file), first);
    world
        .client(&owner())
        .reference(&file, 0)
        .expect("resident");
    world.write(&file, 5, &[3; 5]);
    assert_ne!(frame(&file), first);
    assert_eq!(world.read(&file, 4, 7), [1, 3, 3, 3, 3, 3, 1]);
}

/// What the store takes is what is in memory, or is in memory no longer.
#[test]
fn a_peer_that_changes_its_data_meanwhile_gets_one_version() {
    // With frames for all pages of a write, and with too few.
    for frames in [64, 16] {
        let world = World::new(frames);
        let file = world.file("a", &[1; 20 * P]);
        let region = shared(&[0; 12 * P]);
        let done = Arc::new(AtomicBool::new(false));
        let peer = {
            let (region, done) = (Arc::clone(&region), Arc::clone(&done));
            thread::spawn(move || {
                for value in (0..=u8::MAX).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    assert!(region.store(0, &[value; 12 * P]));
                }
            })
        };
        for round in 0..100 {
            world.read(&file, 0, 20 * P as u32);
            world.write(&file, round * 37 % PAGE, all_of(&region));
            let mut stored = vec![0; 20 * P];
            let read = world.store.read_at(file.object(), 0, &mut stored);
            assert_eq!(read.expect("read"), stored.len());
            assert!(world.read(&file, 0, 20 * P as u32) == stored);
        }
        done.store(true, Ordering::Relaxed);
        peer.join().expect("the peer");
    }
}

/// Pageout would take a page that is read all the time for one that nobody reads.
#[test]
fn a_page_that_moves_when_it_is_written_is_used_as_much_as_before() {
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    let was_used = |page: usize| {
        let leaf = file.find_leaf(page as u64).expect("resident");
        let frame = leaf.try_lock(page).expect("free").frame();
        let frame = frame.expect("resident");
        world.export.cache().arena().take_referenced(frame)
    };
    for page in [0, 1, 0] {
        world.read(&file, page * PAGE, P as u32);
    }
    world.write(&file, 0, all_of(&shared(&[2; 2 * P])));
    assert_eq!([was_used(0), was_used(1)], [true, false]);
    // The first read of a page is no use that counts; that it was there is not forgotten either.
    world.read(&file, PAGE, P as u32);
    assert!(was_used(1));
}

#[test]
fn a_refused_write_from_shared_memory_leaves_pages_and_references_alone() {
    let world = World::new(64);
    let file = world.file("a", &[1; 3 * P]);
    world.read(&file, 0, 3 * P as u32);
    let mut client = world.client(&owner());
    let references = client.references(&file, 0, 3 * P as u32);
    let region = shared(&[2; 2 * P]);
    // More often than there are frames.
    for _ in 0..100 {
        let data = all_of(&region);
        let refused = write(&world.export, &other(), &file, 5, data, Stable::Unstable);
        assert_eq!(refused.expect_err("not his").error.status, Status::Access);
    }
    for page in &references {
        assert_eq!(client.read(&page.reference), Ok(vec![1; P]));
    }
    world.store.fail_next(Operation::Write, Status::Io);
    let (data, who) = (all_of(&region), owner());
    let failed = write(&world.export, &who, &file, 5, data, Stable::Unstable);
    assert_eq!(failed.expect_err("injected").error.status, Status::Io);
    assert_eq!(world.read(&file, 0, 3 * P as u32), [1; 3 * P]);
}

/// Not even where there is no frame to spare.
#[test]
fn a_refused_write_from_shared_memory_takes_no_frames_from_others() {
    let world = World::new(8);
    let (theirs, file) = (world.file("a", &[1; 6 * P]), world.file("b", &[1; 6 * P]));
    world.read(&theirs, 0, 6 * P as u32);
    let mut client = world.client(&owner());
    let references = client.references(&theirs, 0, 6 * P as u32);
    let region = shared(&[2; 6 * P]);
    let data = all_of(&region);
    let refused = write(&world.export, &other(), &file, 0, data, Stable::Unstable);
    assert_eq!(refused.expect_err("not his").error.status, Status::Access);
    assert_eq!(references.len(), 6);
    for page in &references {
        assert_eq!(client.read(&page.reference), Ok(vec![1; P]));
    }
}

#[test]
fn growth_revokes_the_old_end() {
    let world = World::new(64);
    let file = world.file("a", &[1; P + 100]);
    world.read(&file, 0, 2 * P as u32);
    let mut client = world.client(&owner());
    let (whole, end) = (
        client.reference(&file, 0).expect("resident"),
        client.reference(&file, 1).expect("resident"),
    );
    assert_eq!(end.length, 100);
    // Leaves a hole of several pages.
    world.write(&file, 5 * PAGE + 7, &[2; 3]);
    assert!(client.read(&end).is_err());
    assert!(client.read(&whole).is_ok());
    let data = world.read(&file, PAGE, 10 * P as u32);
    assert_eq!(data.len(), 4 * P + 10);
    assert_eq!(data[..100], [1; 100]);
    assert!(data[100..4 * P + 7].iter().all(|byte| *byte == 0));
    assert_eq!(data[4 * P + 7..], [2; 3]);
    assert_eq!(client.reference(&file, 1).expect("resident").length, 4096);
}

#[test]
fn a_failed_write_leaves_nothing_to_guess() {
    let world = World::new(64);
    let file = world.file("a", &[1; 2 * P]);
    world.read(&file, 0, 2 * P as u32);
    let mut client = world.client(&owner());
    let old = client.reference(&file, 0).expect("resident");
    world.store.fail_next(Operation::Write, Status::Io);
    let refused = write(&world.export, &owner(), &file, 0, &[2; P], Stable::Unstable);
    assert_eq!(refused.expect_err("injected").error.status, Status::Io);
    assert!(client.read(&old).is_err());
    assert_eq!(world.read(&file, 0, 2 * P as u32), [1; 2 * P]);
}

#[test]
fn a_full_disk_cuts_a_write_short() {
    let world = World::new(64);
    let file = world.file("a", &[1; P]);
    world.read(&file, 0, P as u32);
    world.store.set_capacity(3 * PAGE);
    let written = write(
        &world.export,
        &owner(),
        &file,
        0,
        &[2; 5 * P],
        Stable::Unstable,
    );
    match written {
        Ok(written) => {
            assert!(written.count > 0 && (written.count as usize) < 5 * P);
            let size = file.attributes().size;
            assert_eq!(size, u64::from(written.count).max(PAGE));
        }
        Err(refused) => assert_eq!(refused.error.status, Status::NoSpc),
    }
    let mut stored = vec![0; 5 * P];
    let length = world
        .store
        .read_at(file.object(), 0, &mut stored)
        .expect("read");
    assert_eq!(world.read(&file, 0, 5 * P as u32), stored[..length]);
}

#[test]
fn the_verifier_changes_when_data_may_be_lost() {
    let world = World::new(64);
    let file = world.file("a", &[]);
    let written = world.write(&file, 0, &[7; 100]);
    let (verifier, _) = commit(&world.export, &file).expect("committed");
    assert_eq!(written.verifier, verifier);
    let again = world.write(&file, 0, &[8; 100]);
    assert_eq!(again.verifier, verifier);
    world.store.fail_next(Operation::Sync, Status::Io);
    let refused = commit(&world.export, &file).expect_err("injected");
    assert_eq!(refused.error.status, Status::Io);
    let (new, _) = commit(&world.export, &file).expect("committed");
    assert_ne!(new, verifier);
    // What the store lost is not read from memory.
    let mut stored = vec![0; 100];
    world
        .store
        .read_at(file.object(), 0, &mut stored)
        .expect("read");
    assert_eq!(world.read(&file, 0, 100), stored);
    world.store.fail_next(Operation::Sync, Status::Io);
    let refused = write(
        &world.export,
        &owner(),
        &file,
        0,
        b"stable",
        Stable::FileSync,
    );
    assert!(refused.is_err());
    assert_ne!(world.export.verifier(), new);
}

#[test]
fn what_was_lost_unasked_is_told_to_the_next_who_syncs() {
    let world = World::new(64);
    let file = world.file("a", b"");
    let written = world.write(&file, 0, b"not yet on any disk");
    assert!(world.store.write_back_badly(file.object()));
    let commit = || commit(&world.export, &file);
    let refused = commit().expect_err("it is lost");
    assert_eq!(refused.error.status, Status::Io);
    assert_ne!(world.export.verifier(), written.verifier);
    let (verifier, _) = commit().expect("told once");
    assert_eq!(verifier, world.export.verifier());
    // Where nothing had been written, nothing is lost.
    assert!(!world.store.write_back_badly(file.object()));
    commit().expect("nothing is lost");
}

#[test]
fn absurd_offsets_are_refused() {
    let world = World::new(64);
    let file = world.file("a", &[]);
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64] {
        let refused = write(
            &world.export,
            &owner(),
            &file,
            offset,
            b"abcd",
            Stable::Unstable,
        );
        assert_eq!(refused.expect_err("too far").error.status, Status::FBig);
    }
    let nothing = write(&world.export, &owner(), &file, 77, b"", Stable::Unstable);
    assert_eq!(nothing.expect("nothing to do").count, 0);
    assert_eq!(file.attributes().size, 0);
}

#[test]
fn only_who_may_writes() {
    let world = World::new(64);
    let file = world.file("a", b"x");
    for data in [&b"y"[..], b""] {
        let refused = write(&world.export, &other(), &file, 0, data, Stable::Unstable);
        assert_eq!(refused.expect_err("not his").error.status, Status::Access);
    }
    assert_eq!(world.read(&file, 0, 1), b"x");
}

/// Something happens between the host's answer to a fault and what the NIC makes of it.
struct Interrupted {
    host: Arc<dyn HostVm>,
    by: Arc<Mutex<Option<Interruption>>>,
}

type Interruption = Box<dyn FnOnce() + Send>;

impl HostVm for Interrupted {
    fn fault(&self, handle: Handle) -> Result<TptEntry, Exception> {
        let answer = self.host.fault(handle);
        if let Some(interrupt) = self.by.lock().take() {
            interrupt();
        }
        answer
    }

    fn may_keep(&self, handle: Handle) -> bool {
        self.host.may_keep(handle)
    }

    fn lock(&self, entry: &TptEntry, request: Epoch) -> Result<Pinned, Exception> {
        self.host.lock(entry, request)
    }

    fn unlock(&self, pin: Pinned) {
        self.host.unlock(pin);
    }

    fn reference(&self, frame: FrameNumber) {
        self.host.reference(frame);
    }

    fn dirty(&self, frame: FrameNumber) {
        self.host.dirty(frame);
    }
}

#[test]
fn a_fault_that_meets_a_revocation_brings_no_reference_back() {
    for counter in [false, true] {
        let by = Arc::new(Mutex::new(None));
        let wrapped = Arc::clone(&by);
        let wrap = |host| Arc::new(Interrupted { host, by: wrapped }) as Arc<dyn HostVm>;
        let world = World::with_vm(64, ExportsConfig::default(), wrap);
        let file = world.file("a", &[1; P]);
        world.read(&file, 0, 1);
        let mut reader = world.client(&other());
        let reference = match counter {
            true => reader.counter(&file),
            false => reader.reference(&file, 0),
        };
        let reference = reference.expect("readable");
        // What the NIC knew of it has been driven out.
        let nic = world.export.nic().expect("direct access");
        nic.tpt_remove(reference.handle);
        assert!(reader.read(&reference).is_ok());
        nic.tpt_remove(reference.handle);
        let (export, object) = (Arc::clone(&world.export), file.object());
        let interruption: Interruption = Box::new(move || {
            let private = SetAttributes {
                mode: Some(0o600),
                ..SetAttributes::default()
            };
            set_attributes(&export, &owner(), object, &private, None).expect("set");
        });
        *by.lock() = Some(interruption);
        // This one began before the revocation: either is right.
        let _ = reader.read(&reference);
        assert!(by.lock().is_none(), "the host was asked");
        assert_eq!(reader.read(&reference), Err(Exception::Stale));
    }
}
