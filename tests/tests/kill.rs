//! `kill -9` in mid-write, again and again: what was acknowledged as stable is there, and nobody ever reads a page of
//! the dead server once its successor has accepted a write.
#![cfg(not(shuttle))]

use odafs::{Cache, Client, Options, Route};
use odafs_tests::page::{self, PAGE};
use odafs_tests::served::Served;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const SLOTS: u32 = 64;
const KILLS: u32 = 8;

/// What is known of one slot. Each has one writer, so its versions only grow.
#[derive(Default)]
struct Slot {
    sent: AtomicU32,
    stable: AtomicU32,
}

fn client(url: &str, route: Route) -> Client {
    let options = Options {
        route,
        cache: Cache::Off,
        ..Options::default()
    };
    Client::connect_with(&url.parse().expect("url"), options).expect("connect")
}

/// A cheap generator of slots; the seed differs by thread.
fn next(state: &mut u32) -> u32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    *state >> 8
}

fn write_until(done: &AtomicBool, url: &str, mine: std::ops::Range<u32>, slots: &[Slot]) -> u32 {
    let file = client(url, Route::Rpc).open("/data").expect("open");
    let mut page = [0; PAGE];
    let (mut random, mut writes) = (mine.start + 1, 0);
    while !done.load(SeqCst) {
        let slot = mine.start + next(&mut random) % (mine.end - mine.start);
        let version = slots[slot as usize].sent.fetch_add(1, SeqCst) + 1;
        page::fill(&mut page, slot, version);
        let at = u64::from(slot) * PAGE as u64;
        if version.is_multiple_of(3) {
            file.write_at(&page, at).expect("unstable write");
            file.sync().expect("commit");
        } else {
            file.write_stable_at(&page, at).expect("stable write");
        }
        slots[slot as usize].stable.store(version, SeqCst);
        writes += 1;
    }
    writes
}

fn read_until(done: &AtomicBool, url: &str, route: Route, slots: &[Slot]) -> (u32, u64) {
    let client = client(url, route);
    let file = client.open("/data").expect("open");
    let mut page = [0; PAGE];
    let (mut random, mut reads) = (99, 0);
    while !done.load(SeqCst) {
        let slot = next(&mut random) % SLOTS;
        let before = slots[slot as usize].stable.load(SeqCst);
        file.read_exact_at(&mut page, u64::from(slot) * PAGE as u64)
            .expect("read");
        let after = slots[slot as usize].sent.load(SeqCst);
        let version = page::version(&page, slot).expect("a whole page");
        assert!(
            (before..=after).contains(&version),
            "slot {slot}: read version {version}, acknowledged {before}, sent {after}"
        );
        reads += 1;
    }
    (reads, client.statistics().direct_hits)
}

#[test]
fn what_was_stable_survives_and_old_mappings_validate_nothing() {
    let directory = tempfile::tempdir().expect("directory");
    let scratch = tempfile::tempdir().expect("scratch");
    let data = directory.path().join("data");
    fs::write(&data, vec![0; SLOTS as usize * PAGE]).expect("data");
    fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("mode");
    fs::set_permissions(
        directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .expect("mode");
    let mut server = Served::start(
        directory.path(),
        scratch.path(),
        &["--direct", "one-sided", "--rdma", "127.0.0.1:0"],
    );
    let slots: Vec<Slot> = (0..SLOTS).map(|_| Slot::default()).collect();
    let done = AtomicBool::new(false);
    let (shm, nfs, tcp) = (
        server.shm_url("/"),
        server.nfs_url("/"),
        server.rdma_url("/"),
    );
    let third = SLOTS / 3;

    std::thread::scope(|scope| {
        let by_shm = scope.spawn(|| write_until(&done, &shm, 0..third, &slots));
        let by_nfs = scope.spawn(|| write_until(&done, &nfs, third..2 * third, &slots));
        let by_tcp = scope.spawn(|| write_until(&done, &tcp, 2 * third..SLOTS, &slots));
        let (done, slots) = (&done, &slots);
        let readers = [
            (&shm, Route::OneSided),
            (&tcp, Route::OneSided),
            (&tcp, Route::Guarded),
        ]
        .map(|(url, route)| scope.spawn(move || read_until(done, url, route, slots)));
        for round in 0..KILLS {
            std::thread::sleep(Duration::from_millis(150 + u64::from(round * 37 % 100)));
            server.kill();
            let stable: Vec<u32> = slots.iter().map(|s| s.stable.load(SeqCst)).collect();
            check_on_disk(&data, &stable, slots, round);
            server.restart();
        }
        std::thread::sleep(Duration::from_millis(300));
        done.store(true, SeqCst);
        let writes = [by_shm, by_nfs, by_tcp].map(|writer| writer.join().expect("writer"));
        println!("writes by shm, nfs and tcp: {writes:?}");
        assert!(writes.iter().all(|writes| *writes > KILLS));
        for reader in readers {
            let (reads, direct) = reader.join().expect("reader");
            println!("reads: {reads}, {direct} of them direct");
            assert!(reads > KILLS && direct > 0);
        }
    });
    let stable: Vec<u32> = slots.iter().map(|s| s.stable.load(SeqCst)).collect();
    check_on_disk(&data, &stable, &slots, KILLS);
    assert_eq!(server.drain(), Some(0));
}

fn check_on_disk(data: &std::path::Path, stable: &[u32], slots: &[Slot], round: u32) {
    let file = fs::File::open(data).expect("data");
    let mut page = [0; PAGE];
    for slot in 0..SLOTS {
        file.read_exact_at(&mut page, u64::from(slot) * PAGE as u64)
            .expect("page");
        let version = page::version(&page, slot).expect("a whole page on disk");
        let (least, most) = (
            stable[slot as usize],
            slots[slot as usize].sent.load(SeqCst),
        );
        assert!(
            (least..=most).contains(&version),
            "after kill {round}, slot {slot} holds version {version}; {least} was stable, {most} sent"
        );
    }
}
