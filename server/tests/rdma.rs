//! The server's RDMA listener, by a client that writes its headers itself.

#![cfg(not(shuttle))]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use odafs_common::connect::{Nonce, PrivateData as OdafsPrivateData, Role};
use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::mount3::{self, DirPath, MountResult};
use odafs_common::wire::nfs3::{
    self, DirectoryName, FileHandle, LookupResult, Payload, Procedure, ReadArgs, ReadResult,
    Stable, WriteArgs, WriteResult,
};
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::rpcrdma::{Body, Chunks, Header, ReadList, ReadSegment, Segment, Segments};
use odafs_common::wire::xdr::{Apart, Decode, Encode, Reader, Writer};
use odafs_fabric::clock::Nanos;
use odafs_fabric::tcp::{ConnectOptions, connect};
use odafs_fabric::{Access, Completion, QueuePair};
use odafs_server::config::{Direct, ServerConfig};
use odafs_server::server::Server;

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

struct Client {
    qp: Box<dyn QueuePair>,
    xid: u32,
}

const NFS: (u32, u32) = (nfs3::PROGRAM, nfs3::VERSION);
const MOUNT: (u32, u32) = (mount3::PROGRAM, mount3::VERSION);

impl Client {
    fn new(server: &Server) -> Self {
        let mut qp = connected(server, &PrivateData::default().encode());
        assert_eq!(qp.reads_max(), 0, "a stock client may read nothing here");
        let answer = PrivateData::decode(qp.private_data()).expect("an answer");
        assert_eq!(answer.receive_bytes, 4096);
        qp.post_receives(16);
        Self { qp, xid: 0 }
    }

    /// Calls, and gives the reply's header and results.
    fn call(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        chunks: Chunks,
        arguments: impl FnOnce(&mut Writer<'_>) -> Chunks,
    ) -> (Chunks, Vec<u8>) {
        self.xid += 1;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        let (number, version) = program;
        rpc::call(&mut w, self.xid, number, version, procedure, &Auth::None);
        let reads = arguments(&mut w).reads;
        let header = Header {
            xid: self.xid,
            credits: 8,
            body: Body::Msg(Chunks { reads, ..chunks }),
        };
        self.qp
            .post_send(0, &[&header.to_bytes(), &message])
            .expect("room");
        self.qp.flush();
        self.receive()
    }

    fn receive(&mut self) -> (Chunks, Vec<u8>) {
        loop {
            match self.qp.poll() {
                Some(Completion::Recv { .. }) => break,
                Some(_) => {}
                None => self
                    .qp
                    .wait(Some(Nanos::from_secs(30)))
                    .expect("the connection lives"),
            }
        }
        self.qp.post_receives(1);
        let mut r = Reader::new(self.qp.message());
        let header = Header::decode(&mut r).expect("a header");
        assert_eq!(header.xid, self.xid);
        let Body::Msg(chunks) = header.body else {
            panic!("{header:?}")
        };
        let reply = rpc::parse_reply(r.rest()).expect("a reply");
        let results = reply.body.expect("accepted").rest().to_vec();
        (chunks, results)
    }

    /// A call with nothing but its arguments.
    fn plain(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        arguments: &impl Encode,
    ) -> &'static [u8] {
        let (_, results) = self.call(program, procedure, Chunks::default(), |w| {
            arguments.encode(w);
            Chunks::default()
        });
        results.leak()
    }

    /// The handle of the file.
    fn find(&mut self) -> FileHandle<'static> {
        let mounted = self.plain(MOUNT, 1, &DirPath(b"/"));
        let root = MountResult::from_bytes(mounted).expect("a result");
        let directory = root.expect("mounted").file;
        let place = DirectoryName {
            directory,
            name: b"f",
        };
        let found = self.plain(NFS, Procedure::Lookup.code(), &place);
        let found = LookupResult::from_bytes(found).expect("a result");
        found.expect("found").file
    }
}

#[test]
fn data_goes_both_ways_by_rdma() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), Direct::Guarded);
    let mut client = Client::new(&server);
    let file = client.find();
    let data: Vec<u8> = (0..300_001u32).map(|i| (i ^ (i >> 7)) as u8).collect();
    let bytes = data.len() as u32;

    let region = client
        .qp
        .register(data.len(), Access::READ)
        .expect("memory");
    assert!(region.store(0, &data));
    let (_, results) = client.call(NFS, Procedure::Write.code(), Chunks::default(), |w| {
        // The arguments without the data, of which the length remains.
        let arguments = WriteArgs {
            file,
            offset: 0,
            count: bytes,
            stable: Stable::FileSync,
            data: Payload(&[]),
        };
        arguments.encode(w);
        let at = w.position();
        w.patch_u32(at - 4, bytes);
        let segment = Segment {
            handle: region.tag().0,
            length: bytes,
            offset: region.remote(0).offset,
        };
        Chunks {
            reads: ReadList::one(ReadSegment {
                position: at as u32,
                segment,
            }),
            ..Chunks::default()
        }
    });
    let written = WriteResult::from_bytes(&results).expect("a result");
    assert_eq!(written.expect("written").count, bytes);
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
        Chunks::default()
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
    let mut client = Client::new(&server);
    let file = client.find().0.to_vec();
    server.shutdown();
    while !client.qp.is_closed() {
        client.qp.poll();
        let _ = client.qp.wait(Some(Nanos::from_millis(10)));
    }
    let server = start(directory.path(), Direct::Guarded);
    let mut client = Client::new(&server);
    assert_eq!(client.find().0, file, "a handle outlives the server");
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
