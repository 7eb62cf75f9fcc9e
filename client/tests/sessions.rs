//! Sessions for direct reads, at a server whose connections misbehave.

mod sim;

use odafs::{Cache, Client, Exception, File, Options, ReadRequest, Route, Wait};
use odafs_common::wire::odafs::Procedure as P;
use odafs_fabric::clock::{self, Nanos};
use odafs_server::{export::Direct, odafs::SessionPolicy};
use sim::House;
use std::{
    sync::{atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

fn options() -> Options {
    Options {
        route: Route::Guarded,
        cache: Cache::Off,
        wait: Wait::Block {
            spin: Duration::ZERO,
        },
        deadline: Duration::from_secs(20),
        ..Options::default()
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Reads page 1 of the file, and returns how many direct reads the client has made by now.
fn read_page(client: &Client, file: &File) -> u64 {
    let mut page = vec![0; 4096];
    file.read_exact_at(&mut page, 4096).unwrap();
    assert!(page == pattern(8192)[4096..]);
    client.statistics().direct_hits
}

#[test]
fn a_connection_that_cannot_be_made_does_not_end_the_session() {
    let house = House::open(&pattern(8192));
    let seen = &house.seen;
    let client = house.connect(options());
    let file = client.open("a").unwrap();
    assert_eq!(read_page(&client, &file), 0, "there was no reference");
    seen.no_direct.store(true, SeqCst);
    let (direct, for_calls) = (&seen.direct, &seen.for_calls);
    let before = (direct.load(SeqCst), for_calls.load(SeqCst));
    let begun = clock::now();
    for _ in 0..3 {
        assert_eq!(read_page(&client, &file), 0, "there was no connection");
    }
    // Once, and again after each second's rest, should this machine have stood still.
    let most = 1 + clock::now().since(begun).0 / 1_000_000_000;
    let tried = (direct.load(SeqCst) - before.0) as u64;
    assert!((1..=most).contains(&tried), "tried {tried} times");
    assert_eq!(for_calls.load(SeqCst), before.1, "no session is opened");
    seen.no_direct.store(false, SeqCst);
    while read_page(&client, &file) == 0 {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(for_calls.load(SeqCst), before.1, "it is the same session");
}

/// The server refuses a key after twice the requests that it should serve.
#[test]
fn a_client_that_only_hits_gets_new_keys() {
    let few = |policy| SessionPolicy {
        rekey_requests: 100,
        ..policy
    };
    let house = House::with(&pattern(8192), Direct::Guarded, few);
    let client = house.connect(options());
    let file = client.open("a").unwrap();
    (0..2000).for_each(|_| _ = read_page(&client, &file));
    assert!(client.statistics().direct_hits >= 1998);
    // The same for reads that go together.
    let mut room = [[0; 100]; 2];
    for _ in 0..1000 {
        let [one, two] = &mut room;
        let mut requests = [ReadRequest::new(0, one), ReadRequest::new(4096, two)];
        file.read_batch(&mut requests).unwrap();
    }
    assert_eq!(client.statistics().refused_with(Exception::Revoked), 0);
    assert!(house.seen.count(P::Rekey) > 20);
}

/// How long a request key is to last.
const KEY: Nanos = Nanos::from_secs(4);

#[test]
fn a_key_that_did_not_come_is_asked_for_again_in_time() {
    assert!((0..5).any(|_| is_asked_for_again()));
}

/// Loses the first new key. `false` if this machine stood still for so long that the old one was refused meanwhile.
fn is_asked_for_again() -> bool {
    let soon = |policy| SessionPolicy {
        rekey_after: KEY,
        ..policy
    };
    let house = House::with(&pattern(8192), Direct::Guarded, soon);
    let begun = clock::now();
    let client = house.connect(options());
    let file = client.open("a").unwrap();
    // When the read began, unless the key was refused.
    let read = || {
        let now = clock::now();
        read_page(&client, &file);
        if client.statistics().refused_with(Exception::Revoked) > 0 {
            let lasted = clock::now().since(begun);
            assert!(lasted >= Nanos(2 * KEY.0), "refused after {lasted:?}");
            return None;
        }
        thread::sleep(Duration::from_millis(1));
        Some(now)
    };
    house.seen.lost.lock().unwrap().push(P::Rekey);
    while house.seen.count(P::Rekey) < 1 {
        if read().is_none() {
            return false;
        }
    }
    house.seen.lost.lock().unwrap().clear();
    // Not each read looks whether it is time.
    let (due, mut reads) = (clock::now() + Nanos(KEY.0 / 4), 0);
    while house.seen.count(P::Rekey) < 2 {
        assert!(reads < 200, "{reads} reads after its time asked for no key");
        match read() {
            None => return false,
            Some(now) => reads += u32::from(now >= due),
        }
    }
    true
}

#[test]
fn an_open_file_keeps_no_connection_of_a_session_that_is_over() {
    let mut house = House::open(&pattern(8192));
    let client = house.connect(options());
    let file = client.open("a").unwrap();
    while read_page(&client, &file) == 0 {}
    let open = house.seen.open.load(SeqCst);
    house.restart();
    let before = read_page(&client, &file);
    while read_page(&client, &file) == before {}
    assert_eq!(house.seen.open.load(SeqCst), open);
}

/// Of a run, the client asks for the references of the next pages.
#[test]
fn what_a_read_can_do_without_is_waited_for_shortly() {
    let house = House::open(&pattern(64 << 12));
    let client = house.connect(options());
    let file = client.open("a").unwrap();
    house.seen.lost.lock().unwrap().push(P::GetRefs);
    let mut page = [0; 4096];
    for offset in (0..64 << 12).step_by(4096) {
        file.read_exact_at(&mut page, offset).unwrap();
    }
    let waits = house.seen.waits.lock().unwrap();
    let longest = waits.iter().map(|(_, timeout)| *timeout).max();
    assert!(longest.is_some_and(|longest| longest <= Nanos::from_secs(1)));
}

/// Reads in a thread of its own, so that a test ends even if the read does not.
fn fails_to_read(file: &File, bytes: usize) {
    let (say, heard) = mpsc::channel();
    let file = file.clone();
    thread::spawn(move || {
        let failed = file.read_at(&mut vec![0; bytes], 0).is_err();
        say.send(failed)
    });
    let failed = heard.recv_timeout(Duration::from_secs(60));
    assert_eq!(failed, Ok(true), "{bytes} bytes");
}

#[test]
fn answers_to_nobody_are_not_listened_to_without_end() {
    let house = House::open(&pattern(1 << 20));
    let client = house.connect(Options {
        route: Route::Rpc,
        deadline: Duration::from_millis(100),
        ..options()
    });
    let file = client.open("a").unwrap();
    house.seen.lost.lock().unwrap().push(P::Read);
    house.seen.babble.store(true, SeqCst);
    fails_to_read(&file, 100);
    fails_to_read(&file, 1 << 20);
}

#[test]
fn a_read_counts_once_however_often_it_looks() {
    let house = House::open(&pattern(9 << 20));
    let client = house.connect(options());
    let file = client.open("a").unwrap();
    let mut page = [0; 4096];
    let counted = || {
        let now = client.statistics();
        let reads = [now.cache_hits, now.guarded_hits, now.rpc_reads];
        (reads, [now.directory_hits, now.directory_misses])
    };
    file.read_exact_at(&mut page, 4096).unwrap();
    assert_eq!(counted(), ([0, 0, 1], [0, 1]));
    assert_eq!(file.try_read_at(&mut page, 4096), None);
    assert_eq!(file.try_read_at(&mut page, 5 << 20), None);
    assert_eq!(counted(), ([0, 0, 1], [0, 1]));
    // There is no connection yet, then there is one.
    for reads in 1..3 {
        file.read_exact_at(&mut page, 4096).unwrap();
        assert_eq!(counted(), ([0, reads, 1], [reads, 1]));
    }
    let mut requests = [
        ReadRequest::new(4096, &mut page),
        ReadRequest::new(0, &mut []),
    ];
    file.read_batch(&mut requests).unwrap();
    assert_eq!(counted(), ([0, 3, 1], [3, 1]));
    let mut long = vec![0; 9 << 20];
    file.read_exact_at(&mut long, 0).unwrap();
    assert!(long == pattern(9 << 20));
    assert_eq!(counted().0, [0, 3, 2]);
}
