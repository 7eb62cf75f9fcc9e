//! The client against a plain NFSv3 server that misbehaves on demand.

#[path = "plain/batches.rs"]
mod batches;
#[path = "plain/deadlines.rs"]
mod deadlines;
mod fake;
#[path = "plain/resend.rs"]
mod resend;
#[cfg(feature = "tokio")]
#[path = "plain/tokio.rs"]
mod tokio;

use fake::{Fake, Trouble};
use odafs::{
    Cache, CallError, Changes, Client, CreateOptions, FileKind, Options, PathError, ReadError,
    ReadRequest, Route, RouteReason, RouteTaken,
};
use odafs_common::wire::nfs3::Procedure as P;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

fn options() -> Options {
    Options {
        cache: Cache::Off,
        deadline: Duration::from_secs(20),
        ..Options::default()
    }
}

fn connect(fake: &Fake, options: Options) -> Client {
    Client::connect_with(&fake.url(), options).unwrap()
}

/// What comes of it at last: a short deadline may be over because this machine stood still.
fn in_the_end<T, E: std::fmt::Debug>(mut act: impl FnMut() -> Result<T, E>) -> T {
    let done = (0..200).find_map(|_| act().ok());
    done.unwrap_or_else(|| act().unwrap())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn what_is_written_is_read() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let data = pattern(100_000);
    let file = client.create("a").unwrap();
    file.write_at(&data, 0).unwrap();
    file.sync().unwrap();
    assert_eq!(fake.content("a"), data);
    let file = client.open("/export/a").unwrap();
    assert_eq!(file.read_to_end().unwrap(), data);
    let mut buf = vec![0; 5000];
    assert_eq!(file.read_at(&mut buf, 99_000).unwrap(), 1000);
    assert_eq!(buf[..1000], data[99_000..]);
    assert_eq!(file.read_at(&mut buf, 200_000).unwrap(), 0);
    file.read_exact_at(&mut buf, 4095).unwrap();
    assert_eq!(buf, data[4095..9095]);
    assert!(matches!(
        file.read_exact_at(&mut buf, 99_000),
        Err(ReadError::EndOfFile {
            bytes: 1000,
            wanted: 5000,
            ..
        })
    ));
    let facts = client.server();
    assert!(!facts.odafs && facts.granted.is_none(), "{facts:?}");
    assert_eq!((facts.fabric, facts.export.as_str()), ("nfs", "/export"));
    let counted = client.statistics();
    assert_eq!(counted.cache_hits + counted.direct_hits, 0);
    assert_eq!(counted.bytes_written, 100_000);
}

#[test]
fn a_read_says_that_there_are_no_direct_reads() {
    let fake = Fake::start();
    fake.put("a", b"abc");
    for (route, why) in [
        (Route::Policy, RouteReason::NoSession),
        (Route::Rpc, RouteReason::RpcAsked),
    ] {
        let client = connect(&fake, Options { route, ..options() });
        let file = client.open("a").unwrap();
        let step = &file.read_traced(&mut [0; 3], 0).unwrap().steps[0];
        assert_eq!((step.taken, step.why), (RouteTaken::PlainRpc, why));
    }
    let told = RouteReason::NoSession.to_string();
    assert!(told.contains("the server grants none"), "{told}");
}

#[test]
fn a_batch_is_read_together() {
    let fake = Fake::start();
    fake.put("a", &pattern(50_000));
    let client = connect(&fake, options());
    let file = client.open("a").unwrap();
    let mut bufs = vec![vec![0; 3000]; 20];
    let mut requests: Vec<_> = bufs
        .iter_mut()
        .zip(0u64..)
        .map(|(buf, at)| ReadRequest::new(at * 2700, buf))
        .collect();
    file.read_batch(&mut requests).unwrap();
    let got: Vec<usize> = requests.iter().map(|request| request.bytes).collect();
    drop(requests);
    for ((buf, got), at) in bufs.iter().zip(got).zip(0usize..) {
        let expected = &pattern(50_000)[(at * 2700).min(50_000)..(at * 2700 + 3000).min(50_000)];
        assert_eq!(&buf[..got], expected, "{at}");
    }
    assert_eq!(client.statistics().rpc_reads, 20);
}

#[test]
fn names_and_attributes() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    client.mkdir("d").unwrap();
    for name in ["d/x", "d/y", "d/z", "d/w"] {
        client.create(name).unwrap();
    }
    let mut names: Vec<_> = client
        .read_dir("d")
        .unwrap()
        .map(|entry| entry.unwrap().name)
        .collect();
    names.sort();
    assert_eq!(names, ["w", "x", "y", "z"]);
    client.symlink("x", "d/link").unwrap();
    client.symlink("/export/d", "to_d").unwrap();
    client.symlink("loop", "loop").unwrap();
    assert_eq!(client.readlink("d/link").unwrap().to_str(), Some("x"));
    assert_eq!(
        client.stat("to_d/link").unwrap().file_id,
        client.stat("d/x").unwrap().file_id
    );
    assert_eq!(
        client.stat_link("to_d/link").unwrap().kind,
        FileKind::Symlink
    );
    assert_eq!(client.stat("d/../d/./x").unwrap().kind, FileKind::Regular);
    assert_eq!(client.stat("../../d").unwrap().kind, FileKind::Directory);
    assert!(matches!(client.stat("loop"), Err(PathError::Loop { .. })));
    let lookups = || fake.count(P::Lookup);
    let before = lookups();
    client.rename("d/x", "d/x2").unwrap();
    let renamed = lookups();
    assert_eq!(renamed - before, 1, "the directory of both");
    client.hard_link("d/x2", "d/x3").unwrap();
    assert_eq!(
        lookups() - renamed,
        2,
        "the directory of both, and the file"
    );
    let missing = client.hard_link("d/x4", "d/x5").unwrap_err();
    assert!(
        missing.to_string().contains("link d/x4: no such file"),
        "{missing}"
    );
    client.hard_link("d/x2", "x6").unwrap();
    client.remove("x6").unwrap();
    assert_eq!(
        client.stat("d/x2").unwrap().file_id,
        client.stat("d/x3").unwrap().file_id
    );
    client.remove("d/x2").unwrap();
    let gone = client.open("d/x2").unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert!(
        gone.to_string().contains("open d/x2: no such file"),
        "{gone}"
    );
    let changed = client.set_attributes(
        "d/y",
        &Changes {
            mode: Some(0o600),
            size: Some(10),
            ..Changes::default()
        },
    );
    assert_eq!(changed.unwrap().mode, 0o600);
    assert_eq!(client.stat("d/y").unwrap().size, 10);
    let new = CreateOptions {
        mode: 0o640,
        exclusive: true,
        truncate: true,
    };
    client.create_with("new", &new).unwrap();
    let made = client.stat("new").unwrap();
    assert_eq!(made.mode, 0o640);
    // The server kept the call's verifier there.
    assert_eq!((made.accessed, made.modified), (made.changed, made.changed));
    assert_eq!(
        client.create_new("new").unwrap_err().kind(),
        std::io::ErrorKind::AlreadyExists
    );
    assert_eq!(
        client.open("d").unwrap_err().kind(),
        std::io::ErrorKind::IsADirectory
    );
    assert!(matches!(
        client.stat("/elsewhere"),
        Err(PathError::OutsideExport { .. })
    ));
    assert!(matches!(client.stat(""), Err(PathError::BadPath { .. })));
    assert_eq!(client.space().unwrap().available_bytes, 400);
    client.ping().unwrap();
}

#[test]
fn a_call_that_is_not_answered_times_out() {
    let fake = Fake::start();
    fake.put("a", b"abc");
    let impatient = Options {
        deadline: Duration::from_millis(300),
        ..options()
    };
    let client = in_the_end(|| Client::connect_with(&fake.url(), impatient.clone()));
    let file = in_the_end(|| client.open("a"));
    fake.plan(&[(P::Read, Trouble::Stall)]);
    let mut buf = [7; 3];
    let error = file.read_at(&mut buf, 0).unwrap_err();
    assert!(
        matches!(
            error,
            ReadError::Call {
                source: CallError::TimedOut { .. },
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(in_the_end(|| file.read_at(&mut buf, 0)), 3);
    assert_eq!(&buf, b"abc");
    let reconnects = client.statistics().reconnects;
    assert_eq!(reconnects, 0, "the connection is good for the next call");
    fake.plan(&[(P::GetAttributes, Trouble::Stall)]);
    assert_eq!(
        file.metadata().unwrap_err().kind(),
        std::io::ErrorKind::TimedOut
    );
}

#[test]
fn lost_connections_are_made_again_and_calls_repeated() {
    let fake = Fake::start();
    fake.put("a", &pattern(60_000));
    let client = connect(&fake, options());
    let file = client.open("a").unwrap();
    fake.plan(&[
        (P::Read, Trouble::CutBefore),
        (P::Read, Trouble::CutAfter),
        (P::Read, Trouble::Short(100)),
    ]);
    assert_eq!(file.read_to_end().unwrap(), pattern(60_000));
    fake.plan(&[
        (P::Write, Trouble::CutAfter),
        (P::Write, Trouble::Short(1)),
        (P::Write, Trouble::Jukebox),
    ]);
    file.write_at(&pattern(30_000), 1).unwrap();
    assert_eq!(fake.content("a")[1..30_001], pattern(30_000));
    fake.plan(&[(P::GetAttributes, Trouble::CutBefore)]);
    assert_eq!(file.metadata().unwrap().size, 60_000);
    fake.plan(&[(P::Remove, Trouble::CutBefore)]);
    client.remove("a").unwrap();
    assert_eq!(client.statistics().reconnects, 5);
}

#[test]
fn a_server_that_is_gone_is_an_error_that_says_so() {
    let client = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("nfs://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        drop(listener);
        Client::connect_with(&url, options())
    };
    let error = client.unwrap_err();
    assert!(error.to_string().contains("is it running"), "{error}");
}

#[test]
fn a_mountport_where_nobody_listens_is_refused_at_once() {
    let fake = Fake::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("{}?mountport={port}", fake.url()).parse().unwrap();
    let began = Instant::now();
    let error = Client::connect_with(&url, options()).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(10), "{error}");
    let told = error.to_string();
    for part in [&format!(":{port}, the URL's mountport"), "is it running"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_peer_that_closes_each_connection_is_not_asked_in_a_busy_loop() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nfs://{}/", listener.local_addr().unwrap());
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = taken.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Relaxed);
            drop(stream);
        }
    });
    let options = Options {
        deadline: Duration::from_millis(500),
        ..options()
    };
    let error = Client::connect_with(&url.parse().unwrap(), options).unwrap_err();
    let told = error.to_string();
    for part in ["without an answer", "as many connections", "odafs://"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(taken.load(Relaxed) <= 11, "{taken:?} connections");
}

#[test]
fn a_peer_that_takes_no_connection_for_rdma_may_have_enough_of_them() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("odafs://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // What is not taken would reset the connection.
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
        }
    });
    let error = Client::connect_with(&url.parse().unwrap(), options()).unwrap_err();
    let told = error.to_string();
    for part in ["without a reply", "as many connections", "nfs://"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn answers_that_make_no_sense_are_errors() {
    let fake = Fake::start();
    fake.put("a", b"abcd");
    let client = connect(&fake, options());
    let file = client.open("a").unwrap();
    for procedure in [P::Read, P::GetAttributes] {
        fake.plan(&[(procedure, Trouble::Garbled)]);
        let error = match procedure {
            P::Read => file.read_at(&mut [0; 4], 0).unwrap_err().to_string(),
            _ => file.metadata().unwrap_err().to_string(),
        };
        assert!(error.contains("misbehaved"), "{error}");
    }
}

#[test]
fn what_a_restart_lost_is_written_again() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    file.write_at(&pattern(20_000), 0).unwrap();
    fake.plan(&[(P::Commit, Trouble::Restart)]);
    file.write_at(b"again", 5).unwrap();
    file.sync().unwrap();
    let mut expected = pattern(20_000);
    expected[5..10].copy_from_slice(b"again");
    assert_eq!(fake.content("a"), expected);
    assert_eq!(fake.count(P::Commit), 2);
    file.sync().unwrap();
    assert_eq!(fake.count(P::Commit), 2, "there is nothing left to commit");
    file.write_stable_at(b"stable", 0).unwrap();
    file.sync().unwrap();
    assert_eq!(fake.count(P::Commit), 2);
}

#[test]
fn a_write_is_repeated_under_its_xid() {
    let fake = Fake::start();
    let client = connect(&fake, options());
    let file = client.create("a").unwrap();
    let before = fake.world.lock().unwrap().xids.len();
    // The answer is lost with the connection; then the repetition is taken for one of a call under way.
    fake.plan(&[(P::Write, Trouble::CutAfter), (P::Write, Trouble::Stall)]);
    file.write_at(b"once", 0).unwrap();
    let xids = fake.world.lock().unwrap().xids[before..].to_vec();
    assert_eq!(fake.count(P::Write), 3);
    assert_eq!(xids, [xids[0]; 3]);
}

#[test]
fn a_call_still_under_way_at_the_server_is_asked_about_again() {
    let fake = Fake::start();
    fake.put("a", b"abc");
    let client = connect(&fake, options());
    // The connection is lost before the answer; then the server, still at it, passes over the repetition.
    type Make = fn(&Client);
    let calls: [(P, Make); 3] = [
        (P::SetAttributes, |client| {
            let changes = Changes {
                size: Some(2),
                ..Changes::default()
            };
            client.set_attributes("a", &changes).unwrap();
        }),
        (P::Rename, |client| client.rename("a", "b").unwrap()),
        (P::Remove, |client| client.remove("b").unwrap()),
    ];
    for (procedure, call) in calls {
        let before = fake.world.lock().unwrap().xids.len();
        fake.plan(&[
            (procedure, Trouble::CutBefore),
            (procedure, Trouble::Stall),
            (procedure, Trouble::Stall),
        ]);
        call(&client);
        let world = fake.world.lock().unwrap();
        let xids: Vec<u32> = (before..world.xids.len())
            .filter(|at| world.calls[*at] == procedure)
            .map(|at| world.xids[at])
            .collect();
        assert_eq!(xids, [xids[0]; 4], "{procedure:?}");
    }
}

#[test]
fn pages_are_cached_from_open_to_open() {
    let fake = Fake::start();
    fake.put("a", b"one");
    let client = connect(
        &fake,
        Options {
            cache: Cache::CloseToOpen,
            ..options()
        },
    );
    let read = |expected: &[u8]| {
        let mut buf = [0; 10];
        let file = client.open("a").unwrap();
        let bytes = file.read_at(&mut buf, 0).unwrap();
        assert_eq!(&buf[..bytes], expected);
        let traced = file.read_traced(&mut buf, 0).unwrap();
        assert_eq!(
            (traced.steps[0].taken, traced.steps[0].why),
            (RouteTaken::Cache, RouteReason::Cached)
        );
        file
    };
    read(b"one");
    let reads = fake.count(P::Read);
    let file = read(b"one");
    assert_eq!(fake.count(P::Read), reads, "the file has not changed");
    fake.put("a", b"two!");
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 3, "close-to-open");
    read(b"two!");
    file.write_at(b"2", 0).unwrap();
    read(b"2wo!");
    file.write_at(b"longer", 4).unwrap();
    read(b"2wo!longer");
    client
        .set_attributes(
            "a",
            &Changes {
                size: Some(2),
                ..Changes::default()
            },
        )
        .unwrap();
    read(b"2w");
    client.create("a").unwrap().write_at(b"new", 0).unwrap();
    read(b"new");
    assert!(client.statistics().cache_hits >= 7);
}

#[test]
fn own_writes_keep_the_other_pages() {
    let fake = Fake::start();
    fake.put("a", &pattern(40_960));
    let client = connect(
        &fake,
        Options {
            cache: Cache::CloseToOpen,
            ..options()
        },
    );
    let file = client.open("a").unwrap();
    file.read_to_end().unwrap();
    file.write_at(b"xyz", 4096 * 3 + 7).unwrap();
    let before = fake.count(P::Read);
    let mut expected = pattern(40_960);
    expected[4096 * 3 + 7..][..3].copy_from_slice(b"xyz");
    let file = client.open("a").unwrap();
    assert_eq!(file.read_to_end().unwrap(), expected);
    assert!(
        fake.count(P::Read) - before <= 2,
        "one page, and the end of the file"
    );
}

#[test]
fn many_threads_read_side_by_side() {
    let fake = Fake::start();
    fake.put("a", &pattern(200_000));
    let client = connect(
        &fake,
        Options {
            cache: Cache::CloseToOpen,
            memory_bytes: 100_000,
            lanes: 3,
            ..options()
        },
    );
    let file = client.open("a").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6usize {
            let file = file.clone();
            scope.spawn(move || {
                let mut buf = [0; 777];
                for i in 0..300 {
                    let at = (thread * 7919 + i * 104_729) % 199_000;
                    file.read_exact_at(&mut buf, at as u64).unwrap();
                    assert_eq!(buf, pattern(200_000)[at..at + 777]);
                }
            });
        }
    });
    let counted = client.statistics();
    assert_eq!(counted.cache_hits + counted.rpc_reads, 1800);
    assert_eq!(counted.bytes_read, 1800 * 777);
    assert!(counted.cache_bytes <= 100_000);
}

#[test]
fn a_write_beyond_the_last_offset_is_refused() {
    let fake = Fake::start();
    let file = connect(&fake, options()).create("a").unwrap();
    for (offset, bytes) in [(u64::MAX, 1), (u64::MAX - 4095, 5000)] {
        let refused = file.write_at(&vec![1; bytes], offset).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::FileTooLarge);
    }
    assert_eq!(fake.content("a"), b"");
}

#[test]
fn a_read_up_to_the_last_offset_is_not_one_with_the_next() {
    let fake = Fake::start();
    fake.put("a", &pattern(8192));
    let client = connect(&fake, options());
    let file = client.open("a").unwrap();
    let (mut last, mut first) = ([0; 4096], [0; 4096]);
    let mut requests = [
        ReadRequest::new(u64::MAX - 4095, &mut last),
        ReadRequest::new(0, &mut first),
    ];
    file.read_batch(&mut requests).unwrap();
    assert_eq!(requests.map(|request| request.bytes), [0, 4096]);
    assert!(first == pattern(8192)[..4096]);
}
