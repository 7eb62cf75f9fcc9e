//! The server's RDMA listener, by a client that writes its headers itself.

#![cfg(not(shuttle))]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use odafs_common::connect::{Nonce, PrivateData as OdafsPrivateData, Role};
use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::nfs3::{Procedure, ReadArgs, ReadResult, Stable};
use odafs_common::wire::rpc::{self, Auth, Rejection};
use odafs_common::wire::rpcrdma::{Chunks, ReadList, ReadSegment, Segment, Segments, WriteList};
use odafs_common::wire::xdr::{Apart, Decode, Encode, Reader, Writer};
use odafs_common::wire::{mount1, mount3, nfs2, nfs4, portmap};
use odafs_fabric::clock::Nanos;
use odafs_fabric::iwarp::{ConnectOptions, connect};
use odafs_fabric::{Access, Peer, QueuePair};
use odafs_nic::calls::{Caller, Calls as _, Notes, Outcome, Placements, Transport};
use odafs_server::config::{Direct, MinorVersions, ServerConfig};
use odafs_server::server::Server;

use common::{Client, NFS};

mod common;

fn start(directory: &std::path::Path, direct: Direct) -> Server {
    start_with(directory, |config| config.direct = direct)
}

fn start_with(directory: &std::path::Path, set: impl FnOnce(&mut ServerConfig)) -> Server {
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
    set(&mut config);
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
        writes: WriteList::one(&chunk),
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
    assert_eq!(chunks.writes, WriteList::one(&chunk.returned(bytes.into())));
    let mut r = Reader::new(&results).reduced(Apart::Next { bytes, data: &[] });
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
fn data_of_version_2_goes_both_ways_by_rdma() {
    const NFS: (u32, u32) = (nfs2::PROGRAM, nfs2::VERSION);
    let directory = tempfile::tempdir().expect("a directory");
    let server = start_with(directory.path(), |config| config.nfs2 = true);
    let mut client = stock(&server);
    let mount = (mount3::PROGRAM, mount1::VERSIONS[0]);
    let mounted = client.plain(mount, 1, &mount3::DirPath(b"/"));
    let root = mount1::MountResult::from_bytes(mounted).expect("a result");
    let place = nfs2::DirectoryName {
        directory: root.expect("mounted"),
        name: b"f",
    };
    let found = client.plain(NFS, nfs2::Procedure::Lookup.code(), &place);
    let found = nfs2::ObjectResult::from_bytes(found).expect("a result");
    let file = found.expect("found").file;

    // More than fits inline, either way.
    let data: Vec<u8> = (0..8001u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    let bytes = data.len() as u32;
    let region = client
        .qp
        .register(data.len(), Access::READ)
        .expect("memory");
    assert!(region.store(0, &data));
    let write = nfs2::Procedure::Write.code();
    let (_, results) = client.call(NFS, write, Chunks::default(), |w| {
        // The arguments without the data, of which the length remains.
        let arguments = nfs2::WriteArgs {
            file,
            begin_offset: 0,
            offset: 0,
            total_count: 0,
            data: nfs2::Payload(&[]),
        };
        arguments.encode(w);
        let at = w.position();
        w.patch_u32(at - 4, bytes);
        ReadList::one(ReadSegment {
            position: at as u32,
            segment: Segment {
                handle: region.tag().0,
                length: bytes,
                offset: region.remote(0).offset,
            },
        })
    });
    let written = nfs2::AttributesResult::from_bytes(&results).expect("a result");
    assert_eq!(written.expect("written").size, bytes);
    let on_disk = std::fs::read(directory.path().join("tree/f")).expect("the file");
    assert!(on_disk == data);

    let sink = client.qp.register(8192, Access::WRITE).expect("memory");
    let chunk = Segments::one(Segment {
        handle: sink.tag().0,
        length: 8192,
        offset: sink.remote(0).offset,
    });
    let chunks = Chunks {
        writes: WriteList::one(&chunk),
        ..Chunks::default()
    };
    let arguments = nfs2::ReadArgs {
        file,
        offset: 0,
        count: 8192,
        total_count: 0,
    };
    let (chunks, results) = client.call(NFS, nfs2::Procedure::Read.code(), chunks, |w| {
        arguments.encode(w);
        ReadList::default()
    });
    assert_eq!(chunks.writes, WriteList::one(&chunk.returned(bytes.into())));
    let mut r = Reader::new(&results).reduced(Apart::Next { bytes, data: &[] });
    let done = nfs2::ReadResult::decode(&mut r).expect("a result");
    assert_eq!(done.expect("read").attributes.size, bytes);
    let mut read = vec![0; data.len()];
    assert!(sink.load(0, &mut read));
    assert!(read == data);
    server.shutdown();
}

/// What follows the header of the reply to a call of a procedure.
fn ask(
    server: &Server,
    (program, version, procedure): (u32, u32, u32),
    arguments: &[u8],
) -> Result<Reader<'static>, Rejection> {
    let caller = Caller {
        peer: Peer::Address("127.0.0.1:700".parse().expect("an address")),
        local: None,
        connection: 1,
        transport: Transport::NfsTcp,
        reply_bytes_max: 1 << 20,
        placements: Placements::default(),
        apart: None,
        back: None,
        notes: Notes::default(),
    };
    let (mut message, mut reply) = (Vec::new(), Vec::new());
    let mut w = Writer::new(&mut message);
    rpc::call(&mut w, 1, program, version, procedure, &Auth::None);
    message.extend_from_slice(arguments);
    let outcome = server
        .assembly()
        .service()
        .call(&caller, &message, &mut reply);
    assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
    let reply: &'static [u8] = reply.leak();
    rpc::parse_reply(reply).expect("a reply").body
}

/// The versions of a program that a server refuses another for, and those that its portmapper tells.
fn versions(server: &Server, program: u32) -> ((u32, u32), Vec<u32>) {
    let Err(Rejection::ProgramMismatch { low, high }) = ask(server, (program, 9, 0), &[]) else {
        panic!("no mismatch");
    };
    let told = ask(server, (portmap::PROGRAM, portmap::VERSION, 4), &[]).expect("a list");
    let told = portmap::Mappings::from_bytes(told.rest())
        .expect("mappings")
        .0;
    let told = told.iter().filter(|mapping| mapping.program == program);
    let mut told: Vec<u32> = told.map(|mapping| mapping.version).collect();
    told.sort();
    ((low, high), told)
}

#[test]
fn version_2_is_served_and_told_if_it_is_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let four = MinorVersions::ALL;
    for (nfs2, nfs4, nfs, mount) in [
        (false, four, (3, 4), (3, 3)),
        (true, four, (2, 4), (1, 3)),
        (true, MinorVersions::NONE, (2, 3), (1, 3)),
        (false, MinorVersions::NONE, (3, 3), (3, 3)),
    ] {
        let server = start_with(directory.path(), |config| {
            config.nfs2 = nfs2;
            config.nfs4 = nfs4;
        });
        let all = |(low, high)| ((low, high), Vec::from_iter(low..=high));
        assert_eq!(versions(&server, nfs2::PROGRAM), all(nfs));
        assert_eq!(versions(&server, mount3::PROGRAM), all(mount));
        server.shutdown();
    }
}

#[test]
fn only_the_chosen_minor_versions_are_served() {
    use nfs4::{CallWriter, Opaque, Operation, Results, Status};
    let directory = tempfile::tempdir().expect("a directory");
    for chosen in [&[1][..], &[0, 2], &[2]] {
        let all = chosen.iter();
        let minors = all.fold(MinorVersions::NONE, |all, minor| all.with(*minor));
        let server = start_with(directory.path(), |config| config.nfs4 = minors);
        for minor in 0..=3 {
            let mut arguments = Vec::new();
            let mut w = Writer::new(&mut arguments);
            let call = CallWriter::compound(&mut w, Opaque(b"tag"), minor);
            call.push(&Operation::PutRootFileHandle).finish();
            let compound = (nfs4::PROGRAM, nfs4::VERSION, 1);
            let body = ask(&server, compound, &arguments).expect("results");
            let results = Results::begin(body).expect("results");
            let status = results.header().status;
            let (wanted, count) = match minor {
                _ if !chosen.contains(&minor) => (Status::MinorVersMismatch, 0),
                0 => (Status::Ok, 1),
                // Here the root is not asked for in a session.
                _ => (Status::OpNotInSession, 1),
            };
            let found = (status, results.count());
            assert_eq!(found, (wanted, count), "{minor} of {chosen:?}");
        }
        server.shutdown();
    }
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
