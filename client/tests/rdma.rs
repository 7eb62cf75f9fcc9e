//! Calls as RPC-over-RDMA: every design, strategy and number of credits against the real server. Over TCP, or with
//! `ODAFS_VERBS_ADDRESS` (and the feature `verbs`) by the RDMA device that has that address.

use odafs::{
    Buffer, Cache, Client, File, IntoRequest, Options, Rdma, RdmaCredits, RdmaDesign, ReadRequest,
    Registration, Route, Url,
};
use odafs_server::{
    config::{Credits, Direct, ServerConfig, Squash},
    server::Server,
};
use std::{net::IpAddr, path::PathBuf, time::Duration};

fn device() -> Option<IpAddr> {
    let address = std::env::var("ODAFS_VERBS_ADDRESS").ok()?;
    Some(address.parse().expect("ODAFS_VERBS_ADDRESS is an address"))
}

struct House {
    dir: tempfile::TempDir,
    server: Server,
}

impl House {
    fn open(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("files")).unwrap();
        let mut config = ServerConfig::new(dir.path().join("files"));
        match device() {
            Some(address) => {
                config.verbs = Some((address, 0).into());
                config.allow = vec![address.into()];
            }
            None => config.rdma = Some(([127, 0, 0, 1], 0).into()),
        }
        config.squash = Squash::None;
        config.insecure = true;
        config.state = Some(dir.path().join("state"));
        config.cache_bytes = 16 << 20;
        config.huge_pages = false;
        change(&mut config);
        let server = Server::start(config).unwrap();
        Self { dir, server }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    fn url(&self, query: &str) -> Url {
        let addresses = self.server.addresses();
        let url = match (addresses.verbs, addresses.rdma) {
            (Some(address), _) => format!("odafs+verbs://{address}/{query}"),
            (_, address) => format!("odafs://{}/{query}", address.unwrap()),
        };
        url.parse().unwrap()
    }

    fn connect(&self, rdma: Rdma) -> Client {
        Client::connect_with(&self.url(""), options(rdma)).unwrap()
    }
}

fn options(rdma: Rdma) -> Options {
    Options {
        rdma,
        route: Route::Rpc,
        cache: Cache::Off,
        deadline: Duration::from_secs(20),
        ..Options::default()
    }
}

fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 251 + salt) as u8).collect()
}

/// Short and long calls and replies, one at a time and many.
fn walk(house: &House, client: &Client) {
    let data = pattern(700_001, 1);
    let file = client.create("/f").unwrap();
    file.write_at(&data, 0).unwrap();
    file.write_stable_at(b"x", 0).unwrap();
    file.write_stable_at(&data[..1], 0).unwrap();
    file.sync().unwrap();
    assert!(std::fs::read(house.file("f")).unwrap() == data);
    for (offset, length) in [(0, 1), (5, 3000), (4095, 4096), (77, 8192), (1, 700_000)] {
        let mut buf = vec![0; length];
        file.read_exact_at(&mut buf, offset as u64).unwrap();
        assert!(buf == data[offset..offset + length], "{offset} {length}");
    }
    let mut bufs = vec![vec![0; 5000]; 60];
    let at = |n: usize| n * 11_003;
    let mut requests: Vec<_> = (bufs.iter_mut().enumerate())
        .map(|(n, buf)| ReadRequest::new(at(n) as u64, buf))
        .collect();
    file.read_batch(&mut requests).unwrap();
    for (n, buf) in bufs.iter().enumerate() {
        assert!(*buf == data[at(n)..at(n) + 5000], "{n}");
    }
    into_a_buffer(&file, &data);
    let target = "t/".repeat(1500);
    client.symlink(&target, "/l").unwrap();
    assert_eq!(client.readlink("/l").unwrap(), PathBuf::from(&target));
    for n in 0..120 {
        std::fs::write(house.file(&format!("{}-{n}", "name".repeat(20))), b"").unwrap();
    }
    assert_eq!(client.read_dir("/").unwrap().count(), 122);
    assert_eq!(client.statistics().reconnects, 0);
}

/// Reads into registered memory, alone and many together, up to the end of the file and beyond.
fn into_a_buffer(file: &File, data: &[u8]) {
    let mut buffer = Buffer::new(900_000).unwrap();
    let place = buffer.as_ptr();
    for (at, offset, length) in [
        (0, 0, 700_001),
        (3, 1, 65_536),
        (5, 99, 200),
        (199_999, 699_000, 700_001),
        (4096, 1 << 40, 100_000),
    ] {
        buffer.fill(0xee);
        let rest = data.get(offset..).unwrap_or_default();
        let expected = &rest[..rest.len().min(length)];
        let bytes = file.read_into(&mut buffer, at..at + length, offset as u64);
        assert_eq!(bytes.unwrap(), expected.len());
        let (before, rest) = buffer.split_at(at);
        let (got, behind) = rest.split_at(expected.len());
        assert!(got == expected, "{at} {offset} {length}");
        assert!(before.iter().chain(behind).all(|byte| *byte == 0xee));
    }
    let request = |n: usize| IntoRequest::new(n * 80_000..n * 80_000 + 70_000, n as u64 * 75_000);
    let mut requests: Vec<_> = (0..11).map(request).collect();
    file.read_batch_into(&mut buffer, &mut requests).unwrap();
    for request in requests {
        let expected = &data[(request.offset as usize).min(data.len())..];
        let expected = &expected[..expected.len().min(70_000)];
        assert_eq!(request.bytes, expected.len());
        assert!(buffer[request.range][..request.bytes] == *expected);
    }
    // Nobody holds on to it: it was never replaced.
    assert_eq!(buffer.as_ptr(), place);
}

/// A server that is gone has no access either: the memory is the caller's when the read has failed.
#[test]
fn a_buffer_outlives_its_server() {
    let house = House::open(|_| {});
    let data = pattern(300_000, 3);
    std::fs::write(house.file("f"), &data).unwrap();
    let options = Options {
        // An emulated machine needs longer to connect.
        deadline: Duration::from_millis(device().map_or(300, |_| 5000)),
        ..options(Rdma::default())
    };
    let client = Client::connect_with(&house.url(""), options).unwrap();
    let file = client.open("/f").unwrap();
    let mut buffer = Buffer::new(data.len()).unwrap();
    let place = buffer.as_ptr();
    assert_eq!(file.read_into(&mut buffer, 0..300_000, 0).unwrap(), 300_000);
    drop(house);
    assert!(file.read_into(&mut buffer, 0..300_000, 0).is_err());
    assert!(*buffer == *data && buffer.as_ptr() == place);
}

#[test]
fn every_strategy_and_number_of_credits() {
    for registration in [
        Registration::PerOperation,
        Registration::Pooled,
        Registration::Cached,
    ] {
        for credits in [
            RdmaCredits::Fixed(1),
            RdmaCredits::Fixed(7),
            RdmaCredits::Adaptive,
        ] {
            let house = House::open(|_| {});
            let client = house.connect(Rdma {
                registration,
                credits,
                ..Rdma::default()
            });
            walk(&house, &client);
        }
    }
}

#[test]
fn a_server_with_few_credits() {
    let house = House::open(|config| config.rpc_rdma.credits = Credits::Fixed(2));
    walk(&house, &house.connect(Rdma::default()));
}

#[test]
fn replies_are_fetched_in_the_read_read_design() {
    for registration in [Registration::Pooled, Registration::PerOperation] {
        let house = House::open(|config| config.rpc_rdma.read_read = true);
        let read_read = Rdma {
            design: RdmaDesign::ReadRead,
            registration,
            ..Rdma::default()
        };
        walk(&house, &house.connect(read_read));
        // Beside it others have their data written.
        let data = std::fs::read(house.file("f")).unwrap();
        let stock = house.connect(Rdma::default()).open("/f").unwrap();
        assert!(stock.read_to_end().unwrap() == data);
    }
    // Where the server does not offer it, it is the other design.
    let house = House::open(|_| {});
    let design = RdmaDesign::ReadRead;
    walk(
        &house,
        &house.connect(Rdma {
            design,
            ..Rdma::default()
        }),
    );
}

#[test]
fn checksums_may_be_asked_for() {
    if device().is_some() {
        // A device has its own.
        return;
    }
    let house = House::open(|config| config.direct = Direct::OneSided);
    std::fs::write(house.file("a"), pattern(50_000, 3)).unwrap();
    for route in [Route::Rpc, Route::Guarded, Route::OneSided] {
        let options = Options {
            route,
            ..options(Rdma::default())
        };
        let client = Client::connect_with(&house.url("?crc=1"), options).unwrap();
        let file = client.open("/a").unwrap();
        for _ in 0..2 {
            assert!(file.read_to_end().unwrap() == pattern(50_000, 3));
        }
    }
}

#[test]
fn a_refusal_costs_no_connection() {
    let house = House::open(|config| config.direct = Direct::OneSided);
    let writer = house.connect(Rdma::default());
    std::fs::write(house.file("a"), pattern(400_000, 0)).unwrap();
    for route in [Route::Guarded, Route::OneSided] {
        let options = Options {
            route,
            ..options(Rdma::default())
        };
        let client = Client::connect_with(&house.url(""), options).unwrap();
        let file = client.open("/a").unwrap();
        for round in 1..6 {
            file.read_to_end().unwrap();
            let new = pattern(400_000, round);
            writer.open("/a").unwrap().write_at(&new, 0).unwrap();
            assert!(file.read_to_end().unwrap() == new, "{route:?} {round}");
        }
        let counted = client.statistics();
        assert!(counted.stale_hits > 0, "{counted:?}");
        assert_eq!(counted.reconnects, 0);
    }
}

#[test]
fn mount_may_be_elsewhere() {
    let address = device().unwrap_or([127, 0, 0, 1].into());
    let house = House::open(|config| config.nfs = Some((address, 0).into()));
    std::fs::write(house.file("a"), b"abc").unwrap();
    let port = house.server.addresses().nfs.unwrap().port();
    let url = house.url(&format!("a?mountport={port}"));
    let client = Client::connect_with(&url, options(Rdma::default())).unwrap();
    assert_eq!(client.open("/a").unwrap().read_to_end().unwrap(), b"abc");
}
