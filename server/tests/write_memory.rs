//! The data of a WRITE go from where RDMA Reads put them to the page cache and the file: nothing as long as they are is
//! allocated on their way.

#![cfg(not(shuttle))]
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::nfs3::Stable;
use odafs_fabric::{Access, iwarp, shm};
use odafs_server::config::{ServerConfig, Strategy};
use odafs_server::server::Server;

use common::Client;

#[path = "common/allocator.rs"]
mod allocator;
mod common;

/// The most bytes for which a thread of the server's asked at once.
static LONGEST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// A thread of the client's.
    static CLIENT: Cell<bool> = const { Cell::new(false) };
}

#[global_allocator]
static ALLOCATOR: allocator::Told = allocator::Told(|bytes| {
    if !CLIENT.get() {
        LONGEST.fetch_max(bytes, Ordering::Relaxed);
    }
});

const BYTES: usize = 1 << 20;
/// Writes over both fabrics, to pages in memory and not, whole and in part.
fn write_all(directory: &Path, strategy: Strategy) {
    let tree = directory.join("tree");
    std::fs::create_dir_all(&tree).expect("a directory");
    let path = tree.join("f");
    let mut config = ServerConfig::new(tree);
    config.state = Some(directory.join("state"));
    config.shm = Some(directory.join("socket"));
    config.rdma = Some("127.0.0.1:0".parse().expect("an address"));
    config.cache_bytes = 16 << 20;
    config.huge_pages = false;
    config.rpc_rdma.registration.strategy = strategy;
    let server = Server::start(config).expect("a server");
    // The region's tag is for all writes.
    let ours = PrivateData {
        remote_invalidate: false,
        ..PrivateData::default()
    };
    let ours = ours.encode();
    for fabric in ["shm", "iwarp"] {
        std::fs::write(&path, b"").expect("a file");
        // Where root serves, callers are nobody.
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("rights");
        let qp = match fabric {
            "shm" => shm::connect(&directory.join("socket"), &ours, &Default::default()),
            _ => {
                let address = server.addresses().rdma.expect("a listener");
                iwarp::connect(address, &ours, &Default::default())
            }
        };
        let mut client = Client::new(qp.expect("a connection"));
        let file = client.find(b"f");
        let region = client.qp.register(BYTES, Access::READ).expect("memory");
        let mut expected = Vec::new();
        let offsets = [
            (0, Stable::Unstable),
            (0, Stable::FileSync),
            (4097, Stable::FileSync),
        ];
        for (number, (offset, stable)) in offsets.into_iter().enumerate() {
            let data: Vec<u8> = (0..BYTES)
                .map(|at| (at ^ (at >> 9) ^ number) as u8)
                .collect();
            assert!(region.store(0, &data));
            expected.resize(offset + BYTES, 0);
            expected[offset..].copy_from_slice(&data);
            LONGEST.store(0, Ordering::Relaxed);
            client.write(file, offset as u64, &region, stable);
            let longest = LONGEST.load(Ordering::Relaxed);
            assert!(
                longest < BYTES / 2,
                "{fabric}, {strategy:?}, write {number}: {longest} bytes were allocated at once"
            );
            assert!(std::fs::read(&path).expect("the file") == expected);
        }
    }
    server.shutdown();
}

#[test]
fn nothing_as_long_as_the_data_is_allocated() {
    CLIENT.set(true);
    for strategy in [Strategy::Cached, Strategy::AllPhysical] {
        let directory = tempfile::tempdir().expect("a directory");
        write_all(directory.path(), strategy);
    }
}
