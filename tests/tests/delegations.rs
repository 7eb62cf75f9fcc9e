//! Files that are delegated to a client of the ODAFS program: what it keeps is what the server has, whoever changes it, and
//! nobody waits for longer than a lease.
#![cfg(not(shuttle))]

use odafs::{Cache, Client, File, FileRequest, Options, Route};
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::Writer;
use odafs_server::config::{ServerConfig, Squash};
use odafs_server::odafs::LEASE;
use odafs_server::server::Server;
use odafs_tests::raw::RawRpc;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

struct House {
    dir: tempfile::TempDir,
    config: ServerConfig,
    server: Option<Server>,
}

impl House {
    fn open() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        std::fs::create_dir(dir.path().join("files")).expect("dir");
        let mut config = ServerConfig::new(dir.path().join("files"));
        config.shm = Some(dir.path().join("sock"));
        config.nfs = Some(([127, 0, 0, 1], 0).into());
        config.rdma = Some(([127, 0, 0, 1], 0).into());
        config.state = Some(dir.path().join("state"));
        config.squash = Squash::None;
        config.insecure = true;
        config.cache_bytes = 16 << 20;
        config.huge_pages = false;
        let server = Server::start(config.clone()).expect("start");
        config.nfs = server.addresses().nfs;
        config.rdma = server.addresses().rdma;
        Self {
            dir,
            config,
            server: Some(server),
        }
    }

    fn file(&self, name: &str, content: &[u8]) {
        let path = self.dir.path().join("files").join(name);
        std::fs::write(&path, content).expect("a file");
        // Version 4 comes here as nobody.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("mode");
    }

    fn shm(&self) -> String {
        format!("odafs+shm://{}?/", self.dir.path().join("sock").display())
    }

    fn tcp(&self) -> String {
        format!("odafs://{}/", self.config.rdma.expect("an address"))
    }

    fn nfs(&self) -> String {
        let address = self.config.nfs.expect("an address");
        format!("nfs://{address}/?mountport={}", address.port())
    }

    /// Writes in place by an anonymous state of version 4.0, until nobody has the file any more.
    fn write_by_version_4(&self, name: &str, data: &[u8]) {
        const DELAY: u32 = 10008;
        let mut arguments = Vec::new();
        let mut w = Writer::new(&mut arguments);
        w.opaque(b"");
        // Minor version 0, three operations: PUTROOTFH, LOOKUP, WRITE.
        for word in [0, 3, 24, 15] {
            w.u32(word);
        }
        w.opaque(name.as_bytes());
        w.u32(38);
        w.opaque_fixed(&[0; 16]);
        w.u64(0);
        w.u32(2);
        w.opaque(data);
        let address = self.config.nfs.expect("an address");
        let mut connection = RawRpc::connect(&address.to_string());
        loop {
            let reply = connection.call((100_003, 4, 1), &arguments);
            let reply = reply.expect("a reply");
            let body = rpc::parse_reply(&reply).expect("a reply").body;
            match body.expect("accepted").u32().expect("a status") {
                0 => return,
                DELAY => thread::yield_now(),
                status => panic!("status {status}"),
            }
        }
    }
}

fn connect(url: &str, cache: Cache, route: Route) -> Client {
    let options = Options {
        cache,
        route,
        ..Options::default()
    };
    Client::connect_with(&url.parse().expect("url"), options).expect("connect")
}

/// A client that keeps what is delegated to it.
fn holder(url: &str) -> Client {
    connect(url, Cache::Delegated, Route::Guarded)
}

fn writer(url: &str) -> Client {
    connect(url, Cache::Off, Route::Rpc)
}

fn read(file: &File) -> Vec<u8> {
    let mut data = vec![0; 100];
    let bytes = file.read_at(&mut data, 0).expect("read");
    data.truncate(bytes);
    data
}

/// Reads until the file is delegated.
fn hold(client: &Client, name: &str) -> File {
    let file = client.open(name).expect("open");
    while client.statistics().delegations_held == 0 {
        read(&file);
    }
    file
}

#[test]
fn what_is_delegated_is_read_without_calls() {
    let house = House::open();
    house.file("a", b"old");
    for url in [house.shm(), house.tcp()] {
        let client = holder(&url);
        let file = hold(&client, "a");
        assert_eq!(read(&file), b"old");
        let before = client.statistics();
        for _ in 0..1000 {
            assert_eq!(read(&file), b"old");
        }
        let after = client.statistics();
        assert_eq!(after.cache_hits - before.cache_hits, 1000);
        // It asks again each time that a lease is over, and for nothing else.
        let asked = after.delegations_granted - before.delegations_granted;
        assert_eq!(after.calls - before.calls, asked);
        assert!(file.revalidate().expect("revalidated"));
    }
}

#[test]
fn whoever_changes_a_file_waits_and_then_all_see_it() {
    let house = House::open();
    let changes: [(&str, &dyn Fn()); 6] = [
        ("nfs-3", &|| write(&house.nfs(), "nfs-3")),
        ("shm", &|| write(&house.shm(), "shm")),
        ("tcp", &|| write(&house.tcp(), "tcp")),
        ("nfs-4", &|| house.write_by_version_4("nfs-4", b"new")),
        ("renamed", &|| {
            let client = writer(&house.nfs());
            let other = client.create("other").expect("create");
            other.write_stable_at(b"new", 0).expect("write");
            client.rename("other", "renamed").expect("rename");
        }),
        ("cut", &|| {
            let client = writer(&house.nfs());
            client.create("cut").expect("create");
            write(&house.nfs(), "cut");
        }),
    ];
    for url in [house.shm(), house.tcp()] {
        for (name, change) in changes {
            let _ = std::fs::remove_file(house.dir.path().join("files").join(name));
            house.file(name, b"old");
            let client = holder(&url);
            let file = hold(&client, name);
            assert_eq!(read(&file), b"old");
            change();
            let file = match name {
                "renamed" => client.open(name).expect("open"),
                _ => file,
            };
            assert_eq!(read(&file), b"new", "{name} over {url}");
            let counted = client.statistics();
            if name != "renamed" {
                assert_eq!(counted.delegations_recalled, 1, "{name} over {url}");
                assert_eq!(counted.delegations_held, 0);
            }
        }
    }
}

fn write(url: &str, name: &str) {
    let file = writer(url).open(name).expect("open");
    file.write_stable_at(b"new", 0).expect("write");
}

#[test]
fn no_read_shows_what_an_answered_write_has_replaced() {
    let house = House::open();
    let names = ["a", "b", "c"];
    for name in names {
        house.file(name, b"old");
    }
    let answered = names.map(|_| AtomicBool::new(false));
    for url in [house.shm(), house.tcp()] {
        let client = holder(&url);
        let files = names.map(|name| hold(&client, name));
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while answered.iter().any(|answered| !answered.load(SeqCst)) {
                    for (file, answered) in files.iter().zip(&answered) {
                        let before = answered.load(SeqCst);
                        let found = read(file);
                        assert!(found == b"new" || !before && found == b"old");
                    }
                }
            });
            for (name, answered) in names.iter().zip(&answered) {
                write(&house.nfs(), name);
                answered.store(true, SeqCst);
            }
            reader.join().expect("the reader");
        });
        assert!(client.statistics().cache_hits > 0);
        for (name, answered) in names.iter().zip(&answered) {
            // Another file, which nobody has recalled lately.
            std::fs::remove_file(house.dir.path().join("files").join(name)).expect("removed");
            house.file(name, b"old");
            answered.store(false, SeqCst);
        }
    }
}

#[test]
fn its_own_changes_recall_nothing() {
    let house = House::open();
    house.file("a", b"old");
    for url in [house.shm(), house.tcp()] {
        let client = holder(&url);
        let file = hold(&client, "a");
        let changes: [&dyn Fn(); 4] = [
            &|| file.write_stable_at(b"new", 0).expect("write"),
            &|| {
                let changes = odafs::Changes {
                    mode: Some(0o640),
                    ..odafs::Changes::default()
                };
                client.set_attributes("a", &changes).expect("set").is_file();
            },
            &|| client.hard_link("a", "b").expect("link"),
            &|| client.remove("b").expect("remove"),
        ];
        for change in changes {
            change();
            // Were it recalled, it would cool down.
            hold(&client, "a");
            assert_eq!(read(&file), b"new");
        }
        assert_eq!(client.statistics().delegations_recalled, 0);
    }
}

#[test]
fn only_what_changes_a_name_of_a_file_gives_back() {
    let house = House::open();
    house.file("a", b"old");
    let client = holder(&house.shm());
    let gives_back = |change: &dyn Fn(&str)| {
        // A lease may end by itself meanwhile, but not each time.
        (0..20).all(|number| {
            hold(&client, "a");
            change(&format!("name-{number}"));
            client.statistics().delegations_held == 0
        })
    };
    assert!(!gives_back(&|name| {
        client.mkdir(name).expect("made");
        client.rmdir(name).expect("removed");
        client.symlink("a", name).expect("linked");
    }));
    assert!(gives_back(&|name| {
        let name = format!("link-{name}");
        client.hard_link("a", name).expect("linked");
    }));
}

#[test]
fn a_file_that_its_client_has_changed_is_not_asked_for_at_once() {
    let house = House::open();
    house.file("a", b"old");
    let client = holder(&house.shm());
    // A second may pass by itself in between, but not each time.
    assert!((0..3).any(|_| {
        let file = hold(&client, "a");
        file.write_stable_at(b"new", 0).expect("write");
        let before = client.statistics().delegations_granted;
        assert_eq!(read(&file), b"new");
        client.statistics().delegations_granted == before
    }));
}

#[test]
fn a_batch_of_many_files_asks_for_a_few() {
    let house = House::open();
    let names: Vec<_> = (0..40).map(|number| format!("file-{number}")).collect();
    for name in &names {
        house.file(name, b"old");
    }
    let client = holder(&house.shm());
    let files: Vec<_> = names
        .iter()
        .map(|name| client.open(name).expect("open"))
        .collect();
    let mut granted = 0;
    while granted < 40 {
        let mut data = vec![[0; 3]; files.len()];
        let requests = files.iter().zip(&mut data);
        let mut requests: Vec<_> = requests
            .map(|(file, data)| FileRequest::new(file, 0, data))
            .collect();
        client.read_batch(&mut requests).expect("read");
        drop(requests);
        assert!(data.iter().all(|data| data == b"old"));
        let after = client.statistics().delegations_granted;
        assert!(after - granted <= 16, "{}", after - granted);
        granted = after;
    }
}

/// Carries connections to a server, until it is told to swallow what comes.
fn relay(to: SocketAddr, swallows: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let swallows = swallows.clone();
    let carry = |mut from: TcpStream, mut to: TcpStream, swallows: Arc<AtomicBool>| {
        thread::spawn(move || {
            let mut data = [0; 4096];
            while let Ok(bytes @ 1..) = from.read(&mut data) {
                if !swallows.load(SeqCst) && to.write_all(&data[..bytes]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(to).expect("connect");
            let copies = (client.try_clone(), server.try_clone());
            let (client_too, server_too) = (copies.0.expect("cloned"), copies.1.expect("cloned"));
            carry(client, server_too, swallows.clone());
            carry(server, client_too, swallows.clone());
        }
    });
    address
}

#[test]
fn a_server_that_does_not_answer_is_not_asked_for_each_file() {
    let house = House::open();
    let names: Vec<_> = (0..10).map(|number| format!("file-{number}")).collect();
    for name in &names {
        house.file(name, b"old");
    }
    let swallows = Arc::new(AtomicBool::new(false));
    let address = relay(house.config.rdma.expect("an address"), &swallows);
    let options = Options {
        cache: Cache::Delegated,
        route: Route::Guarded,
        deadline: Duration::from_secs(2),
        ..Options::default()
    };
    let url = format!("odafs://{address}/").parse().expect("url");
    let client = Client::connect_with(&url, options).expect("connect");
    let open = |name: &String| client.open(name).expect("open");
    let files: Vec<_> = names.iter().map(open).collect();
    let read_all = || {
        let mut data = vec![[0; 3]; files.len()];
        let requests = files.iter().zip(&mut data);
        let mut requests: Vec<_> = requests
            .map(|(file, data)| FileRequest::new(file, 0, data))
            .collect();
        client.read_batch(&mut requests)
    };
    while client.statistics().delegations_granted < 10 {
        read_all().expect("read");
    }
    swallows.store(true, SeqCst);
    while client.statistics().delegations_held > 0 {
        thread::yield_now();
    }
    let before = client.statistics().calls;
    read_all().expect_err("no answer");
    let calls = client.statistics().calls - before;
    // A READ of each file is under way.
    assert!(calls < 2 * files.len() as u64, "{calls} calls");
}

/// A process of its own, which another test kills.
#[test]
#[ignore = "is started by another test"]
fn a_process_that_holds_a_file() {
    let url = std::env::var("ODAFS_HELD").expect("the server");
    let client = holder(&url);
    let file = hold(&client, "a");
    println!("holds");
    loop {
        read(&file);
    }
}

#[test]
fn a_killed_client_delays_nobody_for_long() {
    let house = House::open();
    for url in [house.shm(), house.tcp()] {
        let _ = std::fs::remove_file(house.dir.path().join("files/a"));
        house.file("a", b"old");
        let test = std::env::current_exe().expect("this program");
        let mut child = Command::new(test)
            .args(["--exact", "a_process_that_holds_a_file"])
            .args(["--ignored", "--nocapture"])
            .env("ODAFS_HELD", url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let told = BufReader::new(child.stdout.take().expect("what it says"));
        let mut lines = told.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("holds")));
        child.kill().expect("killed");
        child.wait().expect("gone");
        // It was told of nothing, and gave nothing back.
        write(&house.nfs(), "a");
        let client = holder(&house.tcp());
        assert_eq!(read(&client.open("a").expect("open")), b"new");
    }
}

#[test]
fn a_server_that_starts_anew_waits_for_what_it_does_not_know() {
    let mut house = House::open();
    house.file("a", b"old");
    let client = holder(&house.tcp());
    let file = hold(&client, "a");
    let kept = house.dir.path().join("state/delegations");
    assert!(kept.exists());
    house.server.take().expect("a server").shutdown();
    let started = Instant::now();
    house.server = Some(Server::start(house.config.clone()).expect("start"));
    write(&house.nfs(), "a");
    assert!(started.elapsed() >= LEASE.duration());
    assert_eq!(read(&file), b"new");
}

/// Nanoseconds of a read of a page, the best of many rounds and the median, for each way to read. For docs/FIGURES.md:
/// `cargo test --release -p odafs-tests --test delegations -- --ignored --nocapture what_an_exact_read_costs`.
#[test]
#[ignore = "a measurement"]
fn what_an_exact_read_costs() {
    const PAGES: u64 = 256;
    const READS: u64 = 500;
    const ROUNDS: usize = 20;
    let house = House::open();
    house.file("a", &vec![7; PAGES as usize * 4096]);
    let ways = [
        ("off", Cache::Off, false),
        ("close-to-open, revalidated", Cache::CloseToOpen, true),
        ("delegated", Cache::Delegated, false),
        ("close-to-open, not exact", Cache::CloseToOpen, false),
    ];
    let shm = [Route::OneSided, Route::Guarded].map(|route| (house.shm(), route));
    let tcp = [Route::Guarded, Route::Rpc].map(|route| (house.tcp(), route));
    for (url, route) in shm.into_iter().chain(tcp) {
        let clients = ways.map(|(_, cache, _)| connect(&url, cache, route));
        let files = clients
            .each_ref()
            .map(|client| client.open("a").expect("open"));
        let mut took = ways.map(|_| Vec::new());
        let mut page = vec![0; 4096];
        let mut random = 1_u64;
        for round in 0..=ROUNDS {
            for ((way, file), took) in ways.iter().zip(&files).zip(&mut took) {
                let began = Instant::now();
                for at in 0..READS {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    // The first round fills what is kept, and learns references.
                    let page_number = if round == 0 { at } else { random >> 33 } % PAGES;
                    if way.2 {
                        file.revalidate().expect("revalidated");
                    }
                    file.read_exact_at(&mut page, page_number * 4096)
                        .expect("read");
                }
                if round > 0 {
                    took.push(began.elapsed().as_nanos() as u64 / READS);
                }
            }
        }
        for ((way, took), client) in ways.iter().zip(&mut took).zip(&clients) {
            took.sort_unstable();
            let (least, middle, most) = (took[0], took[ROUNDS / 2], took[ROUNDS - 1]);
            let counted = client.statistics();
            println!(
                "{url} {route:?} {}: {least} {middle} {most} ns; {} calls, {} delegations",
                way.0, counted.calls, counted.delegations_granted
            );
        }
    }
}
