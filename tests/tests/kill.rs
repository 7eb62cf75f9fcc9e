//! `kill -9` in mid-write, again and again: what was acknowledged as stable is there, and nobody ever reads a page of
//! the dead server once its successor has accepted a write.
#![cfg(not(shuttle))]

use odafs::{Cache, Client, Options, Route};
use odafs_tests::page::{self, PAGE};
use odafs_tests::served::{self, Served};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

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

/// What a client has done so far; nothing before it is connected.
type Done = AtomicU32;

fn write_until(
    done: &AtomicBool,
    (url, mine): (&str, std::ops::Range<u32>),
    slots: &[Slot],
    writes: &Done,
) {
    let file = client(url, Route::Rpc).open("/data").expect("open");
    let mut page = [0; PAGE];
    let mut random = mine.start + 1;
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
        writes.fetch_add(1, SeqCst);
    }
}

fn read_until(done: &AtomicBool, (url, route): (&str, Route), slots: &[Slot], reads: &Done) -> u64 {
    let client = client(url, route);
    let file = client.open("/data").expect("open");
    let mut page = [0; PAGE];
    let mut random = 99;
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
        reads.fetch_add(1, SeqCst);
    }
    client.statistics().direct_hits
}

#[test]
fn what_was_stable_survives_and_old_mappings_validate_nothing() {
    survives(&["--rdma", "127.0.0.1:0"], |server| {
        let (shm, tcp) = (server.shm_url("/"), server.rdma_url("/"));
        let readers = vec![
            (shm.clone(), Route::OneSided),
            (tcp.clone(), Route::OneSided),
            (tcp.clone(), Route::Guarded),
        ];
        ([shm, server.nfs_url("/"), tcp], readers)
    });
}

#[test]
#[ignore = "needs an RDMA device: tests/vm/run"]
fn what_was_stable_survives_over_verbs() {
    let options = served::verbs_options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    survives(&options, |server| {
        let verbs = server.verbs_url("/");
        let readers = [Route::OneSided, Route::Guarded, Route::Rpc];
        let readers = readers.map(|route| (verbs.clone(), route)).into();
        ([verbs.clone(), server.nfs_url("/"), verbs], readers)
    });
}

/// Three writers at these URLs, readers at those and by those routes, and a server with these options that is killed again
/// and again.
fn survives(options: &[&str], urls: impl Fn(&Served) -> ([String; 3], Vec<(String, Route)>)) {
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
        &[&["--direct", "one-sided"], options].concat(),
    );
    let slots: Vec<Slot> = (0..SLOTS).map(|_| Slot::default()).collect();
    let done = AtomicBool::new(false);
    let (writers, readers) = urls(&server);
    let third = SLOTS / 3;
    let shares = [0..third, third..2 * third, 2 * third..SLOTS];

    let did: Vec<Done> = (0..3 + readers.len()).map(|_| Done::default()).collect();
    let did = &did[..];
    std::thread::scope(|scope| {
        let (done, slots) = (&done, &slots);
        let ends = Ends(done);
        for ((url, share), writes) in writers.iter().zip(shares).zip(did) {
            scope.spawn(move || write_until(done, (url, share), slots, writes));
        }
        let readers: Vec<_> = (readers.iter().zip(&did[3..]))
            .map(|((url, route), reads)| {
                let reader = scope.spawn(move || read_until(done, (url, *route), slots, reads));
                (*route, reader)
            })
            .collect();
        for round in 0..KILLS {
            all_go_on(did, 3);
            std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 100)));
            server.kill();
            let stable: Vec<u32> = slots.iter().map(|s| s.stable.load(SeqCst)).collect();
            check_on_disk(&data, &stable, slots, round);
            server.restart();
        }
        // Enough for references to be there and be used.
        all_go_on(did, 100);
        drop(ends);
        for (route, reader) in readers {
            let direct = reader.join().expect("reader");
            println!("{route:?}: {direct} direct");
            assert!(direct > 0 || route == Route::Rpc);
        }
    });
    println!("writes and reads: {did:?}");
    let stable: Vec<u32> = slots.iter().map(|s| s.stable.load(SeqCst)).collect();
    check_on_disk(&data, &stable, &slots, KILLS);
    assert_eq!(server.drain(), Some(0));
}

/// Ends the clients, whatever becomes of the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Waits until every client has done so much more.
fn all_go_on(did: &[Done], more: u32) {
    let before: Vec<u32> = did.iter().map(|d| d.load(SeqCst)).collect();
    let patience = Instant::now() + Duration::from_secs(60);
    while did
        .iter()
        .zip(&before)
        .any(|(d, b)| d.load(SeqCst) < b + more)
    {
        assert!(Instant::now() < patience, "{before:?}, and now {did:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
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
