//! One-sided reads over devices whose RDMA Reads see memory in one order or another: when the stamp is asked for.

use odafs::{Cache, Client, Dial, Options, Route, RouteTaken, RpcOver, Wait};
use odafs_common::connect::{PrivateData, Role};
use odafs_common::page::PageSize;
use odafs_fabric::clock::Nanos;
use odafs_fabric::iwarp::{ConnectOptions, connect};
use odafs_fabric::memory::{Arena, ArenaView, LifeWord, Region};
use odafs_fabric::wake::WakeSet;
use odafs_fabric::{
    Access, Completion, Exposed, Local, Peer, PostError, Posted, QueuePair, ReadOrder, Remote,
    RemoteInvalidation, Sink, Source,
};
use odafs_server::config::{Direct, ServerConfig, Squash};
use odafs_server::server::Server;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, mem};

/// What was seen of all connections for direct reads.
#[derive(Default)]
struct Seen {
    order: Mutex<Option<ReadOrder>>,
    /// Stamps that were asked for before their data had come, and after.
    early: AtomicU64,
    late: AtomicU64,
    /// Stamps that came with their page.
    together: AtomicU64,
    /// Reads under way at a time, at most.
    most: AtomicU64,
}

struct Device {
    address: SocketAddr,
    order: ReadOrder,
    seen: Arc<Seen>,
}

impl Dial for Device {
    fn dial(&self, private_data: &[u8], _: Nanos) -> io::Result<Box<dyn QueuePair>> {
        let pair = connect(self.address, private_data, &ConnectOptions::default())?;
        let said = PrivateData::decode(private_data);
        if !said.is_some_and(|said| said.role == Role::Direct) {
            return Ok(pair);
        }
        *self.seen.order.lock().unwrap() = Some(self.order);
        Ok(Box::new(Watched {
            pair,
            order: self.order,
            seen: Arc::clone(&self.seen),
            reading: HashMap::new(),
        }))
    }

    fn fabric(&self) -> &'static str {
        "tcp"
    }

    fn address(&self) -> String {
        self.address.to_string()
    }

    fn rpc_over(&self) -> RpcOver {
        RpcOver::Rdma
    }
}

/// A connection that says of itself what it is told to, and counts.
struct Watched {
    pair: Box<dyn QueuePair>,
    order: ReadOrder,
    seen: Arc<Seen>,
    /// Reads under way of each id.
    reading: HashMap<u64, u32>,
}

impl QueuePair for Watched {
    fn post_read(&mut self, id: u64, into: Sink<'_>, from: Remote) -> Result<Posted, PostError> {
        let posted = self.pair.post_read(id, into, from)?;
        let Sink::Region(Local { length, .. }) = into else {
            panic!("a read into an arena");
        };
        let is_stamp = length == 8;
        if length % 4096 == 8 && !is_stamp {
            self.seen.together.fetch_add(1, Relaxed);
        }
        let under_way = self.reading.entry(id).or_default();
        if is_stamp {
            let counter = match *under_way {
                0 => &self.seen.late,
                _ => &self.seen.early,
            };
            counter.fetch_add(1, Relaxed);
        }
        if posted == Posted::Pending {
            *under_way += 1;
        }
        let all: u32 = self.reading.values().sum();
        self.seen.most.fetch_max(all.into(), Relaxed);
        Ok(posted)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.pair.poll();
        if let Some(Completion::Read { id, .. }) = completion {
            *self.reading.entry(id).or_default() -= 1;
        }
        completion
    }

    fn poll_send_queue(&mut self) -> Option<Completion> {
        self.pair.poll_send_queue()
    }

    fn is_settled(&mut self) -> bool {
        self.pair.is_settled()
    }

    fn read_order(&self) -> ReadOrder {
        self.order
    }

    fn post_receives(&mut self, count: u32) {
        self.pair.post_receives(count);
    }

    fn post_send(&mut self, id: u64, parts: &[&[u8]]) -> Result<Posted, PostError> {
        self.pair.post_send(id, parts)
    }

    fn post_write(&mut self, id: u64, from: Source<'_>, to: Remote) -> Result<Posted, PostError> {
        self.pair.post_write(id, from, to)
    }

    fn reads_max(&self) -> u32 {
        self.pair.reads_max()
    }

    fn flush(&mut self) {
        self.pair.flush();
    }

    fn message(&self) -> &[u8] {
        self.pair.message()
    }

    fn arm(&mut self) -> bool {
        self.pair.arm()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pair.wake_fd()
    }

    fn watch(&mut self, set: &Arc<WakeSet>) -> io::Result<()> {
        self.pair.watch(set)
    }

    fn wait(&mut self, timeout: Option<Nanos>) -> Result<(), PostError> {
        self.pair.wait(timeout)
    }

    fn register(&mut self, length: usize, access: Access) -> io::Result<Arc<Region>> {
        self.pair.register(length, access)
    }

    fn remote_invalidation(&self) -> RemoteInvalidation {
        self.pair.remote_invalidation()
    }

    fn expose(&mut self, arena: &Arc<Arena>, life: &LifeWord) -> io::Result<Exposed> {
        self.pair.expose(arena, life)
    }

    fn map_exposed(&mut self, exposed: &Exposed) -> io::Result<Option<ArenaView>> {
        self.pair.map_exposed(exposed)
    }

    fn max_message(&self) -> usize {
        self.pair.max_message()
    }

    fn private_data(&self) -> &[u8] {
        self.pair.private_data()
    }

    fn peer(&self) -> &Peer {
        self.pair.peer()
    }

    fn is_closed(&self) -> bool {
        self.pair.is_closed()
    }
}

#[test]
fn the_stamp_is_asked_for_in_time_whatever_the_device() {
    reads(ReadOrder::Fence, PageSize::DEFAULT);
}

#[test]
fn a_stamp_beside_its_page_comes_with_it() {
    reads(ReadOrder::Ordered, PageSize::DEFAULT);
    reads(ReadOrder::Ordered, PageSize::new(32 << 10).unwrap());
}

/// Reads by each kind of device; the stamps lie beside the pages if the server says that its own is `ordered`.
fn reads(server_order: ReadOrder, page: PageSize) {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let mut config = ServerConfig::new(&files);
    config.rdma = Some(([127, 0, 0, 1], 0).into());
    config.squash = Squash::None;
    config.insecure = true;
    config.state = Some(dir.path().join("state"));
    config.cache_bytes = 16 << 20;
    config.huge_pages = false;
    config.direct = Direct::OneSided;
    config.page = page;
    config.read_order = server_order;
    let server = Server::start(config).unwrap();
    let data: Vec<u8> = (0..400_000).map(|i| (i * 7 + i / 251) as u8).collect();
    std::fs::write(files.join("a"), &data).unwrap();
    for order in [ReadOrder::Ordered, ReadOrder::Rising, ReadOrder::Fence] {
        let seen = Arc::new(Seen::default());
        let device = Device {
            address: server.addresses().rdma.unwrap(),
            order,
            seen: Arc::clone(&seen),
        };
        let options = Options {
            route: Route::OneSided,
            cache: Cache::Off,
            wait: Wait::Block {
                spin: Duration::from_micros(20),
            },
            deadline: Duration::from_secs(20),
            ..Options::default()
        };
        let url = "odafs://server/".parse().unwrap();
        let client = Client::over(Arc::new(device), &url, options).unwrap();
        let file = client.open("/a").unwrap();
        for _ in 0..3 {
            // Alone, and many in flight.
            assert!(file.read_to_end().unwrap() == data, "{order:?}");
            let mut page = [0; 4096];
            let traced = file.read_traced(&mut page, 8192).unwrap();
            assert_eq!(traced.steps[0].taken, RouteTaken::OneSided, "{order:?}");
            assert_eq!(page, data[8192..8192 + 4096]);
            for at in [8192 + 100, 8192 + 4032, 2 * 4096 - 80, 399_990] {
                let mut few = [0; 64];
                let bytes = file.read_at(&mut few, at as u64).unwrap();
                assert_eq!(few[..bytes], data[at..(at + 64).min(400_000)]);
            }
        }
        let [early, late, together] =
            [&seen.early, &seen.late, &seen.together].map(|count| count.load(Relaxed));
        let what = format!("{order:?}: {early} early, {late} late, {together} together");
        let (beside, small) = (server_order > ReadOrder::Fence, page == PageSize::DEFAULT);
        match order {
            ReadOrder::Ordered if beside => assert!(early > 0 && together > 20, "{what}"),
            // What is small lies within 16 KiB of the end of a page of 4 KiB always.
            ReadOrder::Rising if beside && small => {
                assert!(early == 0 && late == 0 && together > 100, "{what}")
            }
            ReadOrder::Rising if beside => {
                assert!(early == 0 && late > 0 && together > 20, "{what}")
            }
            ReadOrder::Ordered => assert!(early > 100 && together == 0, "{what}"),
            _ => assert!(early == 0 && late > 20 && together == 0, "{what}"),
        }
        if small {
            assert!(seen.most.load(Relaxed) > 8, "{order:?}: not one at a time");
        }
        assert_eq!(mem::take(&mut *seen.order.lock().unwrap()), Some(order));
        // A write is seen, and costs no connection.
        let before = client.statistics();
        let mut changed = data.clone();
        changed[5000] ^= 0xff;
        let writer = Client::connect_with(
            &format!("odafs://{}/", server.addresses().rdma.unwrap())
                .parse()
                .unwrap(),
            Options {
                route: Route::Rpc,
                ..Options::default()
            },
        );
        let writer = writer.unwrap().open("/a").unwrap();
        writer.write_at(&changed[5000..5001], 5000).unwrap();
        assert!(file.read_to_end().unwrap() == changed, "{order:?}");
        let after = client.statistics();
        assert!(after.stale_hits > before.stale_hits);
        assert_eq!(after.reconnects, 0);
        writer.write_at(&data[5000..5001], 5000).unwrap();
    }
}
