//! Changes by others to files that are open on the mount.

use super::World;
use odafs::{Changes, Client, When};
use odafs_mount::Cache;
use std::{
    fs,
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

/// Asks until it is so. Nothing hastens it, so this waits for as long as a slow machine may take.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_mapping_sees_what_another_client_writes() {
    for cache in [Cache::CloseToOpen, Cache::Off] {
        let Some(world) = World::new(cache) else {
            return;
        };
        fs::write(world.files.join("file"), vec![b'0'; 3 * 4096]).unwrap();
        let file = fs::File::open(world.here.join("file")).unwrap();
        // SAFETY: it is looked at by volatile loads alone, and never made shorter.
        let mapped = unsafe { memmap2::Mmap::map(&file).unwrap() };
        drop(file);
        // SAFETY: within the mapping.
        let at = |place: usize| unsafe { mapped.as_ptr().add(place).read_volatile() };
        let other = world.other().open("file").unwrap();
        for (new, place) in [(b'1', 5000), (b'2', 0), (b'3', 12287), (b'4', 5000)] {
            assert_ne!(at(place), new);
            other.write_at(&[new], place as u64).unwrap();
            until("the mapping is as it was", || at(place) == new);
        }
    }
}

#[test]
fn a_file_that_stays_open_is_read_anew_when_another_client_wrote_to_it() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    fs::write(world.files.join("file"), "one").unwrap();
    let file = fs::File::open(world.here.join("file")).unwrap();
    let read = || {
        let mut text = [0; 3];
        file.read_exact_at(&mut text, 0).unwrap();
        text
    };
    assert_eq!(&read(), b"one");
    // Neither length nor time of modification tells the kernel of it.
    let (client, before) = (world.other(), file.metadata().unwrap().modified().unwrap());
    client.open("file").unwrap().write_at(b"two", 0).unwrap();
    let times = Changes {
        modified: Some(When::At(before)),
        ..Changes::default()
    };
    client.set_attributes("file", &times).unwrap();
    until("it is read as it was", || &read() == b"two");
}

#[test]
fn what_this_mount_writes_stays_beside_what_others_write() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    fs::write(world.files.join("file"), vec![0; 8192]).unwrap();
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(world.here.join("file"))
        .unwrap();
    // SAFETY: it is used by volatile accesses alone, and never made shorter.
    let mut mapped = unsafe { memmap2::MmapMut::map_mut(&file).unwrap() };
    let other = world.other().open("file").unwrap();
    for round in 1..=3 {
        // Written through the mapping, and on no server yet when the other page changes.
        // SAFETY: within the mapping.
        unsafe { mapped.as_mut_ptr().add(10).write_volatile(round) };
        other.write_at(&[round], 5000).unwrap();
        // SAFETY: within the mapping.
        let at = |place: usize| unsafe { mapped.as_ptr().add(place).read_volatile() };
        until("the other page is as it was", || at(5000) == round);
        assert_eq!(at(10), round);
    }
    mapped.flush().unwrap();
    let written = fs::read(world.files.join("file")).unwrap();
    assert_eq!((written[10], written[5000]), (3, 3));
}

#[test]
fn pages_that_nobody_else_changes_stay() {
    let Some(world) = World::new(Cache::CloseToOpen) else {
        return;
    };
    fs::write(world.files.join("still"), vec![b'0'; 40_000]).unwrap();
    // Of one page, so that the kernel reads nothing ahead of what the mapping shows.
    fs::write(world.files.join("watched"), vec![b'0'; 4096]).unwrap();
    let open = |name: &str| fs::File::open(world.here.join(name)).unwrap();
    let read = |file: &fs::File| {
        let mut bytes = vec![0; 40_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let [still, watched] = ["still", "watched"].map(open);
    read(&still);
    // SAFETY: it is looked at by volatile loads alone, and never made shorter.
    let mapped = unsafe { memmap2::Mmap::map(&watched).unwrap() };
    // SAFETY: within the mapping.
    let first = || unsafe { mapped.as_ptr().read_volatile() };
    assert_eq!(first(), b'0');
    // Between two changes that the mapping shows, the thread has looked at all open files.
    let other = world.other().open("watched").unwrap();
    for new in *b"123" {
        other.write_at(&[new], 0).unwrap();
        until("the mapping is as it was", || first() == new);
    }
    let reads = |client: &Client| {
        let counted = client.statistics();
        counted.rpc_reads + counted.direct_hits
    };
    let before = reads(&world.client);
    assert_eq!(read(&still), vec![b'0'; 40_000]);
    assert_eq!(
        reads(&world.client),
        before,
        "the pages came from the server again"
    );
}
