//! The server's RDMA listener, by a client that writes its headers itself.

#![cfg(not(shuttle))]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use odafs_common::connect::{Nonce, PrivateData as OdafsPrivateData, Role};
use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::nfs3::{Procedure, ReadArgs, ReadResult, Stable};
use odafs_common::wire::rpcrdma::{Chunks, ReadList, Segment, Segments};
use odafs_common::wire::xdr::{Apart, Decode, Encode, Reader};
use odafs_fabric::clock::Nanos;
use odafs_fabric::iwarp::{ConnectOptions, connect};
use odafs_fabric::{Access, QueuePair};
use odafs_server::config::{Direct, ServerConfig};
use odafs_server::server::Server;

use common::{Client, NFS};

mod common;

fn start(directory: &std::path::Path, direct: Direct) -> Server {
    let tree = directory.join("tree");
    std::fs::create_dir_all(&tree).expect("a directory");
    let file = tree.join("f");
    std::fs::write(&file, b"").expect("a file");
    // Where root serves, callers are nobody.
    std::fs::set_permissions(file, Permissions::from_mode(0o666)).expect("rights");
    let mut config = ServerConfig::new(tree);
    config.state = Some(directory.join("state"));
    config.rdma = Some("127.0.0.1:0".parse().expect("an address"));
    config.cache_bytes = 8 << 20;
    config.huge_pages = false;
    config.direct = direct;
    Server::start(config).expect("a server")
}

fn connected(server: &Server, private_data: &[u8]) -> Box<dyn QueuePair> {
    let address = server.addresses().rdma.expect("an RDMA listener");
    connect(address, private_data, &ConnectOptions::default()).expect("a connection")
}

/// A stock client.
fn stock(server: &Server) -> Client {
    let qp = connected(server, &PrivateData::default().encode());
    assert_eq!(qp.reads_max(), 0, "it may read nothing here");
    Client::new(qp)
}

#[test]
fn data_goes_both_ways_by_rdma() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), Direct::Guarded);
    let mut client = stock(&server);
    let file = client.find(b"f");
    let data: Vec<u8> = (0..300_001u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    let bytes = data.len() as u32;

    let region = client
        .qp
        .register(data.len(), Access::READ)
        .expect("memory");
    assert!(region.store(0, &data));
    client.write(file, 0, &region, Stable::FileSync);
    let on_disk = std::fs::read(directory.path().join("tree/f")).expect("the file");
    assert!(on_disk == data);

    let sink = client
        .qp
        .register(data.len() + 64, Access::WRITE)
        .expect("memory");
    let chunk = Segments::one(Segment {
        handle: sink.tag().0,
        length: bytes + 64,
        offset: sink.remote(0).offset,
    });
    let chunks = Chunks {
        write: Some(chunk),
        ..Chunks::default()
    };
    let arguments = ReadArgs {
        file,
        offset: 0,
        count: bytes + 64,
    };
    let (chunks, results) = client.call(NFS, Procedure::Read.code(), chunks, |w| {
        arguments.encode(w);
        ReadList::default()
    });
    assert_eq!(chunks.write, Some(chunk.returned(bytes.into())));
    let mut r = Reader::new(&results).reduced(Some(Apart { bytes, data: &[] }));
    let done = ReadResult::decode(&mut r).expect("a result").expect("read");
    assert!(done.eof && done.count == bytes);
    let mut read = vec![0; data.len()];
    assert!(sink.load(0, &mut read));
    assert!(read == data);

    let counts = server.assembly().rdma();
    let get = |count: &odafs_fabric::sync::atomic::AtomicU64| {
        count.load(odafs_fabric::sync::atomic::Ordering::Relaxed)
    };
    assert_eq!(get(&counts.calls), 4);
    assert_eq!(get(&counts.read_bytes), bytes.into());
    assert_eq!(get(&counts.written_bytes), bytes.into());
    server.shutdown();
}

#[test]
fn a_client_is_heard_after_the_server_is_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), Direct::Guarded);
    let mut client = stock(&server);
    let file = client.find(b"f").0.to_vec();
    server.shutdown();
    while !client.qp.is_closed() {
        client.qp.poll();
        let _ = client.qp.wait(Some(Nanos::from_millis(10)));
    }
    let server = start(directory.path(), Direct::Guarded);
    let mut client = stock(&server);
    assert_eq!(client.find(b"f").0, file, "a handle outlives the server");
    server.shutdown();
}

#[test]
fn reads_are_offered_to_one_sided_connections_alone() {
    let says = |role, one_sided| {
        OdafsPrivateData {
            role,
            one_sided,
            nonce: Nonce::default(),
        }
        .encode()
    };
    let directory = tempfile::tempdir().expect("a directory");
    for (direct, role, one_sided, offered) in [
        (Direct::Guarded, Role::Direct, true, false),
        (Direct::OneSided, Role::Direct, false, false),
        (Direct::OneSided, Role::Rpc, true, false),
        (Direct::OneSided, Role::Direct, true, true),
    ] {
        let server = start(directory.path(), direct);
        let qp = connected(&server, &says(role, one_sided));
        assert_eq!(qp.reads_max() > 0, offered, "{direct:?} {role:?}");
        drop(qp);
        server.shutdown();
    }
}
