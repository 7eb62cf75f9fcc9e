//! The client against the real server, over each fabric.

use odafs::{
    Cache, Client, Exception, Granted, Options, ReadRequest, Route, RouteReason, RouteTaken,
    Transfer, Url, Wait,
};
use odafs_fabric::ReadOrder;
use odafs_server::{
    config::{Direct, ServerConfig, Squash},
    server::Server,
};
use std::{net::IpAddr, path::PathBuf, time::Duration};

/// A fabric, and in which order the server says that RDMA Reads see its cache: beyond `Fence`, stamps lie beside their pages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fabric {
    Shm(ReadOrder),
    Iwarp(ReadOrder),
    /// The device with the address `ODAFS_VERBS_ADDRESS`.
    Verbs(ReadOrder),
}

macro_rules! on_each_fabric {
    ($($test:ident)*) => {
        mod shm {
            $(#[test] fn $test() { super::$test(super::Fabric::Shm(super::ReadOrder::Fence)) })*
        }
        mod tcp {
            $(#[test] fn $test() { super::$test(super::Fabric::Iwarp(super::ReadOrder::Fence)) })*
        }
        // With the feature `verbs`.
        mod verbs {
            $(
                #[test]
                #[ignore = "needs an RDMA device: tests/vm/run"]
                fn $test() { super::$test(super::Fabric::Verbs(super::ReadOrder::Fence)) }
            )*
        }
        mod shm_beside {
            $(#[test] fn $test() { super::$test(super::Fabric::Shm(super::ReadOrder::Ordered)) })*
        }
        mod tcp_beside {
            $(#[test] fn $test() { super::$test(super::Fabric::Iwarp(super::ReadOrder::Ordered)) })*
        }
        mod verbs_beside {
            $(
                #[test]
                #[ignore = "needs an RDMA device: tests/vm/run"]
                fn $test() { super::$test(super::Fabric::Verbs(super::ReadOrder::Rising)) }
            )*
        }
    };
}

on_each_fabric! {
    every_route_reads_the_same_bytes
    a_batch_is_read_by_every_route
    a_write_makes_references_stale_and_the_read_goes_on_by_rpc
    one_sided_is_granted_where_the_server_says_so
    a_restarted_server_is_found_again_and_old_references_are_dropped
    the_cache_and_direct_reads_work_together
    a_run_of_reads_asks_for_its_references_together
    references_are_asked_for_ahead
    data_may_come_ahead_of_the_reply
    writes_and_names
    many_threads_by_every_route
    what_landed_before_is_not_taken_for_a_mark
}

/// The first comparison of two routes begins with a read by RPC. It is no sign that direct reads do not pay.
#[test]
fn a_call_of_a_comparison_is_said_to_be_one() {
    let house = House::open(Fabric::Shm(ReadOrder::Ordered), Direct::OneSided);
    std::fs::write(house.file("a"), pattern(1 << 20, 0)).unwrap();
    let client = house.connect(options(Route::Policy));
    let file = client.open("a").unwrap();
    let mut buf = vec![0; 1 << 20];
    for _ in 0..10_000 {
        file.read_traced(&mut buf, 0).unwrap();
        if client.statistics().policy_trials > 0 {
            break;
        }
    }
    let traced = file.read_traced(&mut buf, 0).unwrap();
    for step in traced.steps {
        assert_eq!(
            (step.taken, step.why),
            (RouteTaken::Rpc, RouteReason::Trial)
        );
    }
}

struct House {
    fabric: Fabric,
    dir: tempfile::TempDir,
    server: Option<Server>,
    config: ServerConfig,
}

fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251 + salt) as u8).collect()
}

impl House {
    fn open(fabric: Fabric, direct: Direct) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("files")).unwrap();
        let mut config = ServerConfig::new(dir.path().join("files"));
        let (Fabric::Shm(order) | Fabric::Iwarp(order) | Fabric::Verbs(order)) = fabric;
        config.read_order = order;
        match fabric {
            Fabric::Shm(_) => config.shm = Some(dir.path().join("sock")),
            Fabric::Iwarp(_) => {
                config.rdma = Some(([127, 0, 0, 1], 0).into());
                config.squash = Squash::None;
                config.insecure = true;
            }
            Fabric::Verbs(_) => {
                let address: IpAddr = std::env::var("ODAFS_VERBS_ADDRESS")
                    .expect("ODAFS_VERBS_ADDRESS")
                    .parse()
                    .unwrap();
                config.verbs = Some((address, 0).into());
                config.allow = vec![address.into()];
                config.squash = Squash::None;
                config.insecure = true;
            }
        }
        config.state = Some(dir.path().join("state"));
        config.cache_bytes = 16 << 20;
        config.huge_pages = false;
        config.direct = direct;
        let server = Server::start(config.clone()).unwrap();
        // A restart listens where its predecessor did.
        config.rdma = server.addresses().rdma;
        config.verbs = server.addresses().verbs;
        Self {
            fabric,
            dir,
            server: Some(server),
            config,
        }
    }

    fn url(&self) -> Url {
        let url = match self.fabric {
            Fabric::Shm(_) => format!("odafs+shm://{}?/", self.dir.path().join("sock").display()),
            Fabric::Iwarp(_) => format!("odafs://{}/", self.config.rdma.unwrap()),
            Fabric::Verbs(_) => format!("odafs+verbs://{}/", self.config.verbs.unwrap()),
        };
        url.parse().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    fn connect(&self, options: Options) -> Client {
        Client::connect_with(&self.url(), options).unwrap()
    }

    fn stop(&mut self) {
        self.server.take().unwrap().shutdown();
    }

    fn start(&mut self) {
        self.server = Some(Server::start(self.config.clone()).unwrap());
    }
}

fn options(route: Route) -> Options {
    let wait = Wait::Block {
        spin: Duration::from_micros(20),
    };
    Options {
        route,
        wait,
        cache: Cache::Off,
        deadline: Duration::from_secs(20),
        ..Options::default()
    }
}

fn every_route_reads_the_same_bytes(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    let data = pattern(300_000, 0);
    std::fs::write(house.file("a"), &data).unwrap();
    for (route, taken) in [
        (Route::Rpc, RouteTaken::Rpc),
        (Route::Guarded, RouteTaken::Guarded),
        (Route::OneSided, RouteTaken::OneSided),
        (Route::Policy, RouteTaken::OneSided),
    ] {
        let client = house.connect(options(route));
        let file = client.open("/a").unwrap();
        assert_eq!(file.read_to_end().unwrap(), data, "{route:?}");
        assert_eq!(file.read_to_end().unwrap(), data, "{route:?}");
        let mut buf = vec![0; 4096];
        for (offset, length) in [
            (0, 64),
            (4000, 96),
            (8192, 4096),
            (12_345, 4096),
            (299_999, 1),
        ] {
            let buf = &mut buf[..length];
            let traced = file.read_traced(buf, offset).unwrap();
            assert_eq!(traced.bytes, length);
            assert_eq!(
                buf,
                &data[offset as usize..][..length],
                "{route:?} {offset}"
            );
            assert!(
                // Over a network the policy may find that calls are as quick.
                traced.steps.iter().all(|step| step.taken == taken)
                    || !matches!(fabric, Fabric::Shm(_)) && route == Route::Policy,
                "{route:?}: {:?}",
                traced.steps
            );
            file.read_exact_at(buf, offset).unwrap();
            assert_eq!(
                buf,
                &data[offset as usize..][..length],
                "{route:?} {offset}"
            );
        }
        assert_eq!(file.read_at(&mut buf, 299_000).unwrap(), 1000, "{route:?}");
        assert_eq!(file.read_at(&mut buf, 300_000).unwrap(), 0);
        let counted = client.statistics();
        assert_eq!(counted.stale_hits, 0, "{route:?} {counted:?}");
        assert_eq!(counted.direct_hits > 0, route != Route::Rpc);
    }
}

fn a_batch_is_read_by_every_route(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    let data = pattern(1 << 20, 3);
    std::fs::write(house.file("a"), &data).unwrap();
    for route in [Route::Rpc, Route::Guarded, Route::OneSided] {
        let client = house.connect(options(route));
        let file = client.open("a").unwrap();
        file.read_to_end().unwrap();
        let before = client.statistics();
        let mut bufs = vec![vec![0; 5000]; 100];
        let offset = |at: usize| (at * 104_729) % ((1 << 20) - 5000);
        let mut requests: Vec<_> = bufs
            .iter_mut()
            .enumerate()
            .map(|(at, buf)| ReadRequest::new(offset(at) as u64, buf))
            .collect();
        file.read_batch(&mut requests).unwrap();
        let bytes: Vec<_> = requests.iter().map(|request| request.bytes).collect();
        drop(requests);
        for (at, buf) in bufs.iter().enumerate() {
            let expected = &data[offset(at)..(offset(at) + 5000).min(1 << 20)];
            assert_eq!(&buf[..bytes[at]], expected, "{route:?} {at}");
        }
        let after = client.statistics();
        let reads = |s: &odafs::Statistics| (s.rpc_reads, s.guarded_hits, s.one_sided_hits);
        let gained = match route {
            Route::Rpc => reads(&after).0 - reads(&before).0,
            Route::Guarded => reads(&after).1 - reads(&before).1,
            _ => reads(&after).2 - reads(&before).2,
        };
        assert_eq!(gained, 100, "{route:?}");
    }
}

fn a_write_makes_references_stale_and_the_read_goes_on_by_rpc(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    std::fs::write(house.file("a"), pattern(40_000, 0)).unwrap();
    let writer = house.connect(options(Route::Rpc));
    for route in [Route::Guarded, Route::OneSided] {
        let reader = house.connect(options(route));
        let file = reader.open("a").unwrap();
        file.read_to_end().unwrap();
        writer
            .open("a")
            .unwrap()
            .write_at(format!("{route:?}").as_bytes(), 4096)
            .unwrap();
        let mut buf = [0; 5];
        let traced = file.read_traced(&mut buf, 4096).unwrap();
        assert_eq!(&buf[..], &format!("{route:?}").as_bytes()[..5]);
        assert_eq!(
            (traced.steps[0].taken, traced.steps[0].why),
            (RouteTaken::Rpc, RouteReason::Refused(Exception::Stale))
        );
        let traced = file.read_traced(&mut buf, 4096).unwrap();
        assert_ne!(
            traced.steps[0].taken,
            RouteTaken::Rpc,
            "the reply brought a new reference"
        );
        let counted = reader.statistics();
        assert_eq!(counted.stale_hits, 1);
        assert_eq!(counted.refused_with(Exception::Stale), 1);
    }
}

fn one_sided_is_granted_where_the_server_says_so(fabric: Fabric) {
    let house = House::open(fabric, Direct::Guarded);
    let refused = Client::connect_with(&house.url(), options(Route::OneSided)).unwrap_err();
    assert!(
        refused.to_string().contains("--direct one-sided"),
        "{refused}"
    );
    let client = house.connect(options(Route::Policy));
    assert_eq!(
        client.server().granted,
        Some(Granted::Guarded { mac: "blake3" })
    );
    let hmac = Options {
        mac: odafs::MacPreference::HmacSha256,
        ..options(Route::Guarded)
    };
    assert_eq!(
        house.connect(hmac).server().granted,
        Some(Granted::Guarded { mac: "hmac-sha256" })
    );
    let off = House::open(fabric, Direct::Off);
    let client = off.connect(options(Route::Policy));
    assert_eq!(client.server().granted, None);
    std::fs::write(off.file("a"), b"abc").unwrap();
    let traced = client.open("a").unwrap().read_traced(&mut [0; 3], 0);
    assert_eq!(traced.unwrap().steps[0].why, RouteReason::NoSession);
}

fn a_restarted_server_is_found_again_and_old_references_are_dropped(fabric: Fabric) {
    for route in [Route::Rpc, Route::Guarded, Route::OneSided] {
        let mut house = House::open(fabric, Direct::OneSided);
        let data = pattern(100_000, 9);
        std::fs::write(house.file("a"), &data).unwrap();
        let client = house.connect(options(route));
        let file = client.open("a").unwrap();
        assert_eq!(file.read_to_end().unwrap(), data);
        assert_eq!(file.read_to_end().unwrap(), data);
        house.stop();
        let new = pattern(100_000, 77);
        std::fs::write(house.file("a"), &new).unwrap();
        let waiting = {
            let file = file.clone();
            std::thread::spawn(move || file.read_to_end().unwrap())
        };
        std::thread::sleep(Duration::from_millis(100));
        house.start();
        assert_eq!(waiting.join().unwrap(), new, "{route:?}");
        for _ in 0..3 {
            assert_eq!(file.read_to_end().unwrap(), new, "{route:?}");
        }
        let mut buf = [0; 64];
        std::thread::sleep(Duration::from_millis(50));
        file.read_exact_at(&mut buf, 0).unwrap();
        let taken = file.read_traced(&mut buf, 0).unwrap().steps[0].taken;
        let expected = match route {
            Route::Guarded => RouteTaken::Guarded,
            Route::OneSided => RouteTaken::OneSided,
            _ => RouteTaken::Rpc,
        };
        assert_eq!(taken, expected);
        assert!(client.statistics().reconnects > 0);
    }
}

fn the_cache_and_direct_reads_work_together(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    let data = pattern(200_000, 1);
    std::fs::write(house.file("a"), &data).unwrap();
    for route in [Route::Guarded, Route::OneSided, Route::Policy] {
        let client = house.connect(Options {
            cache: Cache::CloseToOpen,
            memory_bytes: 200_000,
            ..options(route)
        });
        let file = client.open("a").unwrap();
        for round in 0..4usize {
            for i in 0..200usize {
                let at = (i * 7919 + round * 13) % 199_000;
                let mut buf = [0; 500];
                file.read_exact_at(&mut buf, at as u64).unwrap();
                assert_eq!(buf, data[at..at + 500], "{route:?} {at}");
            }
        }
        let counted = client.statistics();
        // By policy, pages are kept only where a hit saves something.
        let kept = counted.cache_hits > 0 || route == Route::Policy;
        assert!(
            kept && counted.direct_hits > 0 && counted.rpc_reads > 0,
            "{route:?} {counted:?}"
        );
        assert_eq!(
            counted.cache_hits + counted.direct_hits + counted.rpc_reads,
            800
        );
        // Another client's write is seen on the next open.
        let writer = house.connect(options(Route::Rpc)).open("a").unwrap();
        let mut first = [0; 1];
        file.read_exact_at(&mut first, 0).unwrap();
        writer.write_at(&[first[0] ^ 0xff], 0).unwrap();
        let file = client.open("a").unwrap();
        let mut now = [0; 1];
        file.read_exact_at(&mut now, 0).unwrap();
        assert_eq!(now[0], first[0] ^ 0xff, "{route:?}");
        // By the counter, whoever reads it: no call is made.
        let calls = client.statistics().calls;
        assert!(file.revalidate().unwrap());
        writer.write_at(&first, 0).unwrap();
        assert!(!file.revalidate().unwrap());
        let by_calls = client.statistics().calls - calls;
        assert!(by_calls == 0 || route == Route::Policy, "{route:?}");
    }
}

fn references_are_asked_for_ahead(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    let data = pattern(50_000, 5);
    std::fs::write(house.file("a"), &data).unwrap();
    house
        .connect(options(Route::Rpc))
        .open("a")
        .unwrap()
        .read_to_end()
        .unwrap();
    let client = house.connect(options(Route::OneSided));
    let told = client.refs(&["/a"]).unwrap();
    assert_eq!(told[0].size, 50_000);
    assert_eq!(told[0].pages.len(), 13, "{told:?}");
    assert_eq!(told[0].pages[12].length, 50_000 - 12 * 4096);
    let file = client.open("a").unwrap();
    assert_eq!(file.read_to_end().unwrap().len(), 50_000);
    let counted = client.statistics();
    assert_eq!(counted.references_learned, 13);
    // The end of the file is found by RPC.
    assert!(counted.rpc_reads <= 1, "{counted:?}");
}

/// A program that reads on and on, and one that says what it will read.
fn a_run_of_reads_asks_for_its_references_together(fabric: Fabric) {
    const PAGES: u64 = 1500;
    let house = House::open(fabric, Direct::OneSided);
    let data = pattern(PAGES as usize * 4096, 6);
    std::fs::write(house.file("a"), &data).unwrap();
    let by_calls = house.connect(options(Route::Rpc)).open("a").unwrap();
    assert_eq!(by_calls.read_to_end().unwrap(), data);
    assert_eq!(by_calls.will_need(&[0..4096, 8192..9000]).unwrap(), 0);
    let mut buf = [0; 4096];
    let client = house.connect(options(Route::Guarded));
    let file = client.open("a").unwrap();
    for page in 0..PAGES {
        file.read_exact_at(&mut buf, page * 4096).unwrap();
        assert_eq!(buf[..], data[page as usize * 4096..][..4096], "{page}");
    }
    let counted = client.statistics();
    assert!(counted.rpc_reads < 20, "{counted:?}");
    assert!(counted.references_learned >= PAGES - 20, "{counted:?}");
    let client = house.connect(options(Route::Guarded));
    let file = client.open("a").unwrap();
    let (first, second) = (0..5000, 4_000_000..4_000_001);
    assert_eq!(file.will_need(&[first, second, 7..7]).unwrap(), 3);
    for offset in [4096, 0, 4_000_000 / 4096 * 4096] {
        file.read_exact_at(&mut buf, offset).unwrap();
    }
    let counted = client.statistics();
    assert_eq!((counted.rpc_reads, counted.direct_hits), (0, 3));
    let all = file.will_need(&[0..4096, 4096..u64::MAX]).unwrap();
    assert_eq!(all, PAGES);
}

fn data_may_come_ahead_of_the_reply(fabric: Fabric) {
    let house = House::open(fabric, Direct::Guarded);
    let data = pattern(1 << 20, 8);
    std::fs::write(house.file("a"), &data).unwrap();
    let client = house.connect(Options {
        transfer: Transfer::Direct,
        ..options(Route::Rpc)
    });
    let file = client.open("a").unwrap();
    assert_eq!(file.read_to_end().unwrap(), data);
    let mut buf = [0; 100];
    file.read_exact_at(&mut buf, 4090).unwrap();
    assert_eq!(buf, data[4090..4190]);
}

fn writes_and_names(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    let client = house.connect(options(Route::Policy));
    let now = std::time::SystemTime::now();
    let about_now = now - Duration::from_secs(60)..now + Duration::from_secs(60);
    client.create_new("/new").unwrap();
    let new = std::fs::metadata(house.file("new")).unwrap();
    for time in [new.modified(), new.accessed()] {
        assert!(
            about_now.contains(&time.unwrap()),
            "no verifier of its making"
        );
    }
    client.mkdir("/d").unwrap();
    let file = client.create("/d/f").unwrap();
    let data = pattern(500_000, 2);
    file.write_at(&data, 0).unwrap();
    file.sync().unwrap();
    assert_eq!(std::fs::read(house.file("d/f")).unwrap(), data);
    assert_eq!(file.read_to_end().unwrap(), data);
    file.write_at(b"patch", 4094).unwrap();
    let mut buf = [0; 5];
    file.read_exact_at(&mut buf, 4094).unwrap();
    assert_eq!(&buf, b"patch");
    client.rename("/d/f", "/d/g").unwrap();
    assert_eq!(
        client
            .read_dir("/d")
            .unwrap()
            .map(|e| e.unwrap().name)
            .collect::<Vec<_>>(),
        ["g"]
    );
    assert_eq!(
        client.open("/d/f").unwrap_err().kind(),
        std::io::ErrorKind::NotFound
    );
    client.remove("/d/g").unwrap();
    client.rmdir("/d").unwrap();
}

fn many_threads_by_every_route(fabric: Fabric) {
    let house = House::open(fabric, Direct::OneSided);
    let data = pattern(1 << 20, 4);
    std::fs::write(house.file("a"), &data).unwrap();
    for route in [Route::Rpc, Route::Guarded, Route::OneSided, Route::Policy] {
        let client = house.connect(options(route));
        let file = client.open("a").unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let (file, data) = (file.clone(), &data);
                scope.spawn(move || {
                    let mut buf = [0; 4096];
                    for i in 0..200 {
                        let at = (thread * 7919 + i * 104_729) % ((1 << 20) - 4096);
                        file.read_exact_at(&mut buf, at as u64).unwrap();
                        assert_eq!(buf, data[at..at + 4096]);
                    }
                });
            }
        });
        let counted = client.statistics();
        assert_eq!(
            counted.direct_hits + counted.rpc_reads,
            800,
            "{route:?} {counted:?}"
        );
    }
}

/// Of a guarded read that is alone, the server marks how far it has come, with the read's number: a multiple of 16, and the
/// second next one uses the same memory. A page that was read before may be full of any number.
fn what_landed_before_is_not_taken_for_a_mark(fabric: Fabric) {
    // Three reads a round: of three numbers that leave different remainders, one is met.
    const NUMBERS: [u64; 3] = [300, 601, 902];
    let house = House::open(fabric, Direct::OneSided);
    let mut forged = Vec::new();
    for number in NUMBERS {
        forged.extend(std::iter::repeat_n((16 * number).to_le_bytes(), 512).flatten());
    }
    std::fs::write(house.file("forged"), &forged).unwrap();
    let data = pattern(4096, 3);
    std::fs::write(house.file("a"), &data).unwrap();
    let client = house.connect(options(Route::Guarded));
    let [forger, file] = ["/forged", "/a"].map(|name| client.open(name).unwrap());
    // Brings the references.
    assert!(forger.read_to_end().unwrap() == forged && file.read_to_end().unwrap() == data);
    let before = client.statistics().guarded_hits;
    for at in 0..NUMBERS.len() as u64 {
        for round in 0..100 {
            let mut page = [0; 4096];
            forger.read_at(&mut page, at * 4096).unwrap();
            for length in [3072, 2048] {
                let mut part = vec![0; length];
                file.read_exact_at(&mut part, 512).unwrap();
                assert!(part == data[512..512 + length], "{round}, {length} bytes");
            }
        }
    }
    assert_eq!(client.statistics().guarded_hits - before, 900);
}
