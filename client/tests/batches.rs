//! Batches over several files, against a served directory.

use odafs::{
    Cache, Client, FileRequest, Options, ReadError, Route,
    fs::FileSystem,
    record::{Names, Operation, Recorder, Trace},
};
use odafs_server::{
    config::{Direct, ServerConfig, Squash},
    server::Server,
};
use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// Lengths of the files in bytes: within a page, of whole pages, between, and none.
const LENGTHS: [usize; 5] = [100, 8192, 300_001, 70_000, 0];

static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let byte = |file: usize, at: usize| (at * 7 + at / 251 + file * 31) as u8;
    let lengths = LENGTHS.iter().enumerate();
    lengths
        .map(|(file, length)| (0..*length).map(|at| byte(file, at)).collect())
        .collect()
});

fn content(file: usize) -> &'static [u8] {
    &CONTENTS[file]
}

fn name(file: usize) -> String {
    format!("file{file}")
}

struct World {
    server: Option<Server>,
    files: PathBuf,
    scratch: TempDir,
}

impl World {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let files = scratch.path().join("files");
        std::fs::create_dir(&files).unwrap();
        for file in 0..LENGTHS.len() {
            std::fs::write(files.join(name(file)), content(file)).unwrap();
        }
        let server = Server::start(ServerConfig {
            nfs: Some("127.0.0.1:0".parse().unwrap()),
            rdma: Some("127.0.0.1:0".parse().unwrap()),
            shm: Some(scratch.path().join("sock")),
            state: Some(scratch.path().join("state")),
            squash: Squash::None,
            insecure: true,
            direct: Direct::OneSided,
            cache_bytes: 16 << 20,
            huge_pages: false,
            ..ServerConfig::new(&files)
        });
        Self {
            server: Some(server.unwrap()),
            files,
            scratch,
        }
    }

    fn shm(&self) -> String {
        format!(
            "odafs+shm://{}?/",
            self.scratch.path().join("sock").display()
        )
    }

    fn nfs(&self) -> SocketAddr {
        self.server.as_ref().unwrap().addresses().nfs.unwrap()
    }

    fn urls(&self) -> [String; 3] {
        let rdma = self.server.as_ref().unwrap().addresses().rdma.unwrap();
        [
            self.shm(),
            format!("odafs://{rdma}/"),
            format!("nfs://{}/", self.nfs()),
        ]
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
    }
}

fn connect(url: &str, route: Route, cache: Cache) -> Client {
    let options = Options {
        route,
        cache,
        deadline: Duration::from_secs(20),
        ..Options::default()
    };
    Client::connect_with(&url.parse().unwrap(), options).unwrap()
}

fn open_all(client: &Client) -> Vec<odafs::File> {
    let opened = (0..LENGTHS.len()).map(|file| client.open(name(file)));
    opened.collect::<Result<_, _>>().unwrap()
}

/// Ranges of all files by file, offset and length: within pages, over pages, over the end and behind it, of no bytes, and
/// the files in any order.
fn ranges() -> Vec<(usize, u64, usize)> {
    let mut ranges = vec![
        (0, 0, 100),
        (0, 90, 20),
        (1, 4000, 200),
        (1, 8192, 10),
        (2, 0, 300_001),
        (4, 0, 5000),
        (2, 299_000, 5000),
        (0, 50, 0),
        (3, 1 << 40, 7),
    ];
    ranges.extend((0..300).map(|at| (at % 5, (at as u64 * 104_729) % 310_000, at * 37 % 9000)));
    ranges
}

/// Reads them all in one batch and compares them.
fn read_and_compare(client: &Client, files: &[odafs::File]) {
    let ranges = ranges();
    let mut bufs: Vec<_> = ranges.iter().map(|range| vec![0; range.2]).collect();
    let mut requests: Vec<_> = ranges
        .iter()
        .zip(&mut bufs)
        .map(|((file, offset, _), buf)| FileRequest::new(&files[*file], *offset, buf))
        .collect();
    client.read_batch(&mut requests).unwrap();
    let got: Vec<_> = requests.iter().map(|request| request.bytes).collect();
    for (((file, offset, length), buf), got) in ranges.into_iter().zip(&bufs).zip(got) {
        let all = content(file);
        let from = all.len().min(offset as usize);
        let wanted = &all[from..all.len().min(from + length)];
        assert!(
            &buf[..got] == wanted,
            "{length} bytes of file {file} from {offset}"
        );
    }
}

#[test]
fn every_route_reads_the_ranges_of_all_files() {
    let world = World::new();
    for url in world.urls() {
        for route in [Route::Rpc, Route::Guarded, Route::OneSided, Route::Policy] {
            if url.starts_with("nfs") && matches!(route, Route::Guarded | Route::OneSided) {
                continue;
            }
            for cache in [Cache::Off, Cache::CloseToOpen] {
                let client = connect(&url, route, cache);
                let files = open_all(&client);
                for _ in 0..4 {
                    read_and_compare(&client, &files);
                }
                let counted = client.statistics();
                assert_eq!(counted.stale_hits, 0, "{url} {route:?} {cache:?}");
                // What is kept needs no other route.
                match (route, cache) {
                    (Route::Rpc, _) => assert_eq!(counted.direct_hits, 0),
                    (Route::Guarded, Cache::Off) => assert!(counted.guarded_hits > 0, "{url}"),
                    (Route::OneSided, Cache::Off) => assert!(counted.one_sided_hits > 0, "{url}"),
                    _ => {}
                }
                // The policy may keep nothing.
                let keeps = cache == Cache::CloseToOpen && route != Route::Policy;
                assert!(!keeps || counted.cache_hits > 0, "{url} {route:?}");
            }
        }
    }
}

#[test]
fn what_changed_is_read_anew_and_the_other_files_go_on() {
    let world = World::new();
    for route in [Route::Guarded, Route::OneSided] {
        let client = connect(&world.shm(), route, Cache::Off);
        let files = open_all(&client);
        for _ in 0..3 {
            read_and_compare(&client, &files);
        }
        let writer = connect(&world.shm(), Route::Rpc, Cache::Off);
        let other = writer.open(name(1)).unwrap();
        other.write_at(b"changed", 4096).unwrap();
        let (mut old, mut new) = ([0; 7], [0; 7]);
        let mut requests = [
            FileRequest::new(&files[3], 4096, &mut old),
            FileRequest::new(&files[1], 4096, &mut new),
        ];
        let before = client.statistics();
        client.read_batch(&mut requests).unwrap();
        let after = client.statistics();
        assert_eq!(
            (&old[..], &new[..]),
            (&content(3)[4096..][..7], &b"changed"[..])
        );
        assert_eq!(after.stale_hits - before.stale_hits, 1, "{route:?}");
        assert_eq!(after.direct_hits - before.direct_hits, 1, "{route:?}");
        other.write_at(&content(1)[4096..][..7], 4096).unwrap();
    }
}

#[test]
fn an_error_names_the_file_that_failed() {
    let world = World::new();
    for url in world.urls() {
        let client = connect(&url, Route::Rpc, Cache::Off);
        let doomed = client.create("doomed").unwrap();
        doomed.write_at(b"soon gone", 0).unwrap();
        doomed.sync().unwrap();
        let file = client.open(name(2)).unwrap();
        client.remove("doomed").unwrap();
        let (mut one, mut two) = ([0; 4], [0; 4]);
        let mut requests = [
            FileRequest::new(&file, 8, &mut one),
            FileRequest::new(&doomed, 5, &mut two),
        ];
        let error = client.read_batch(&mut requests).unwrap_err();
        let ReadError::Server { path, offset, .. } = &error else {
            panic!("{url}: {error}");
        };
        assert_eq!((path.as_str(), *offset), ("doomed", 5), "{url}");
    }
}

#[test]
fn an_empty_batch_is_no_read() {
    let world = World::new();
    let client = connect(&world.shm(), Route::Policy, Cache::Off);
    client.read_batch(&mut []).unwrap();
    assert_eq!(client.statistics().rpc_reads, 0);
}

#[test]
#[should_panic(expected = "another client")]
fn a_file_of_another_client_is_refused() {
    let world = World::new();
    let [one, other] = [(), ()].map(|()| connect(&world.shm(), Route::Rpc, Cache::Off));
    let file = other.open(name(0)).unwrap();
    assert!(other.clone().has_opened(&file) && !one.has_opened(&file));
    let mut buf = [0; 4];
    let _ = one.read_batch(&mut [FileRequest::new(&file, 0, &mut buf)]);
}

#[test]
fn files_by_handle_are_read_in_a_batch() {
    let world = World::new();
    let fs = FileSystem::new(&connect(&world.shm(), Route::Policy, Cache::Off));
    let open = |file: usize| {
        let found = fs.lookup(&fs.root(), name(file)).unwrap();
        fs.open(&found.handle).unwrap()
    };
    let (one, two) = (open(0), open(2));
    let (mut a, mut b) = ([0; 100], [0; 5000]);
    let mut requests = [
        FileRequest::new(&one, 0, &mut a),
        FileRequest::new(&two, 100, &mut b),
    ];
    fs.read_batch(&mut requests).unwrap();
    assert_eq!(a[..], *content(0));
    assert_eq!(b[..], content(2)[100..5100]);
}

/// A connection to a server that holds calls back, from when it is told to until there are as many as it is told.
struct Gate {
    address: SocketAddr,
    /// How many calls to hold. 0: none.
    holds: Arc<AtomicUsize>,
}

impl Gate {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, holds) = (
            listener.local_addr().unwrap(),
            Arc::new(AtomicUsize::new(0)),
        );
        let told = holds.clone();
        thread::spawn(move || {
            for from in listener.incoming() {
                let (from, to) = (from.unwrap(), TcpStream::connect(server).unwrap());
                let (mut answers, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
                thread::spawn(move || io::copy(&mut answers, &mut back));
                let told = told.clone();
                // It ends when either side closes.
                thread::spawn(move || pass(from, to, &told));
            }
        });
        Self { address, holds }
    }
}

/// Passes calls on. Each is one fragment behind its length.
fn pass(mut from: TcpStream, mut to: TcpStream, holds: &AtomicUsize) -> io::Result<()> {
    let (mut held, mut calls) = (Vec::new(), 0);
    loop {
        let mut mark = [0; 4];
        from.read_exact(&mut mark)?;
        let length = (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize;
        assert!(length <= 1 << 20, "{length}");
        let mut call = vec![0; length];
        from.read_exact(&mut call)?;
        held.extend_from_slice(&mark);
        held.extend_from_slice(&call);
        calls += 1;
        if calls >= holds.load(SeqCst) {
            to.write_all(&held)?;
            (held, calls) = (Vec::new(), 0);
        }
    }
}

#[test]
fn the_calls_for_all_files_are_under_way_together_on_one_connection() {
    let world = World::new();
    let gate = Gate::before(world.nfs());
    let port = gate.address.port();
    let url = format!("nfs://127.0.0.1:{port}/?mountport={port}");
    let client = connect(&url, Route::Rpc, Cache::Off);
    let files: Vec<_> = (0..4)
        .map(|file| client.open(name(file)).unwrap())
        .collect();
    // The server gets none of the four calls before all of them are there.
    gate.holds.store(files.len(), SeqCst);
    let mut bufs = [[0; 16]; 4];
    let mut requests: Vec<_> = files
        .iter()
        .zip(&mut bufs)
        .map(|(file, buf)| FileRequest::new(file, 8, buf))
        .collect();
    client.read_batch(&mut requests).unwrap();
    for (file, buf) in bufs.iter().enumerate() {
        assert_eq!(buf[..], content(file)[8..24], "file {file}");
    }
}

#[test]
fn files_that_are_read_in_order_beside_each_other_have_their_references_asked_for_together() {
    const PAGES: u64 = 600;
    let world = World::new();
    for name in ["left", "right"] {
        std::fs::write(world.files.join(name), vec![7; PAGES as usize * 4096]).unwrap();
    }
    // The pages are in the server's memory then.
    let warm = connect(&world.shm(), Route::Rpc, Cache::Off);
    for name in ["left", "right"] {
        warm.open(name).unwrap().read_to_end().unwrap();
    }
    let calls_of = |batches: bool| {
        let client = connect(&world.shm(), Route::OneSided, Cache::Off);
        let files = ["left", "right"].map(|name| client.open(name).unwrap());
        let before = client.statistics().calls;
        for page in 0..PAGES {
            let (mut one, mut two) = ([0; 64], [0; 64]);
            let mut requests = [
                FileRequest::new(&files[0], page * 4096, &mut one),
                FileRequest::new(&files[1], page * 4096, &mut two),
            ];
            match batches {
                true => client.read_batch(&mut requests).unwrap(),
                false => requests.iter_mut().for_each(|request| {
                    request
                        .file
                        .read_exact_at(request.buf, request.offset)
                        .unwrap();
                }),
            }
            assert_eq!((one, two), ([7; 64], [7; 64]));
        }
        client.statistics().calls - before
    };
    let (together, apart) = (calls_of(true), calls_of(false));
    assert!(
        together < apart,
        "{together} calls in batches, {apart} apart"
    );
}

/// Whether pages are worth keeping depends on what it costs to keep them, by each way in which a long read gets them.
#[test]
fn what_long_reads_keep_is_timed() {
    let world = World::new();
    let [_, rdma, _] = world.urls();
    for route in [Route::Rpc, Route::Guarded] {
        let options = Options {
            route,
            memory_bytes: 192 << 10,
            ..Options::default()
        };
        let client = Client::connect_with(&rdma.parse().unwrap(), options).unwrap();
        let file = client.open(name(2)).unwrap();
        // By references that come first, no page comes by RPC.
        let all = 0..256 << 10;
        file.will_need(std::slice::from_ref(&all)).unwrap();
        let mut buf = vec![0; 64 << 10];
        assert_eq!(client.statistics().terms.put_ns, 0);
        // More than the cache has room for, so most pages take the places of others.
        for _ in 0..8 {
            for offset in [0, 64 << 10, 128 << 10, 192 << 10] {
                file.read_at(&mut buf, offset).unwrap();
            }
        }
        let statistics = client.statistics();
        assert_eq!(statistics.rpc_reads == 0, route == Route::Guarded);
        assert!(statistics.terms.put_ns > 0, "{route:?}: {statistics:?}");
    }
}

#[test]
fn a_trace_has_the_reads_of_each_file() {
    let world = World::new();
    let at = world.scratch.path().join("trace");
    let recorder = Recorder::create(&at, Names::Kept).unwrap();
    let options = Options {
        record: Some(recorder.clone()),
        ..Options::default()
    };
    let client = Client::connect_with(&world.shm().parse().unwrap(), options).unwrap();
    let files = open_all(&client);
    let mut bufs = [[0; 16]; 4];
    let mut requests: Vec<_> = [0, 0, 2, 0]
        .iter()
        .zip(&mut bufs)
        .map(|(file, buf)| FileRequest::new(&files[*file], 90, buf))
        .collect();
    client.read_batch(&mut requests).unwrap();
    recorder.finish().unwrap();
    let trace = Trace::parse(&std::fs::read(&at).unwrap()).unwrap();
    let reads: Vec<_> = trace
        .entries
        .iter()
        .filter_map(|entry| match entry.operation {
            Operation::Read {
                file,
                got,
                together,
                ..
            } => {
                let path = trace.names[file as usize].path.clone();
                Some((String::from_utf8(path).unwrap(), got, together))
            }
            _ => None,
        })
        .collect();
    let wanted = [
        (0, 10, false),
        (0, 10, true),
        (2, 16, false),
        (0, 10, false),
    ];
    let wanted = wanted.map(|(file, got, together)| (name(file), got, together));
    assert_eq!(reads, wanted);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn async_programs_read_batches_too() {
    let world = World::new();
    for url in world.urls() {
        let client = odafs::tokio::Client::connect(&url).await.unwrap();
        let mut files = Vec::new();
        for file in 0..LENGTHS.len() {
            files.push(client.open(name(file)).await.unwrap());
        }
        for _ in 0..3 {
            let reads: Vec<_> = ranges()
                .into_iter()
                .map(|(file, offset, length)| (&files[file], offset..offset + length as u64))
                .collect();
            let all = client.read_batch(&reads).await.unwrap();
            assert_eq!(all.len(), reads.len());
            for ((file, offset, length), got) in ranges().into_iter().zip(all) {
                let all = content(file);
                let from = all.len().min(offset as usize);
                assert!(got == all[from..all.len().min(from + length)], "{url}");
            }
        }
        let handles = odafs::tokio::FileSystem::new(&client);
        let two = handles
            .read_batch(&[(&files[0], 0..100), (&files[1], 0..9)])
            .await;
        assert_eq!(two.unwrap(), [content(0), &content(1)[..9]]);
    }
}
