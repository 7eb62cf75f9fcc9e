//! A client of RPC-over-RDMA that writes its headers itself.

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::mount3::{self, DirPath, MountResult};
use odafs_common::wire::nfs3::{
    self, DirectoryName, FileHandle, LookupResult, Payload, Procedure, Stable, WriteArgs,
    WriteResult,
};
use odafs_common::wire::rpc::{self, Auth};
use odafs_common::wire::rpcrdma::{Body, Chunks, Header, ReadList, ReadSegment, Segment};
use odafs_common::wire::xdr::{Decode, Encode, Reader, Writer};
use odafs_fabric::clock::Nanos;
use odafs_fabric::memory::Region;
use odafs_fabric::{Completion, QueuePair};

pub const NFS: (u32, u32) = (nfs3::PROGRAM, nfs3::VERSION);
const MOUNT: (u32, u32) = (mount3::PROGRAM, mount3::VERSION);

pub struct Client {
    pub qp: Box<dyn QueuePair>,
    xid: u32,
}

impl Client {
    /// By a connection that no call was made on.
    pub fn new(mut qp: Box<dyn QueuePair>) -> Self {
        let answer = PrivateData::decode(qp.private_data()).expect("an answer");
        assert_eq!(answer.receive_bytes, 4096);
        qp.post_receives(16);
        Self { qp, xid: 0 }
    }

    /// Calls, with chunks for the reply beside those that the arguments say; the reply's header and results.
    pub fn call(
        &mut self,
        (program, version): (u32, u32),
        procedure: u32,
        chunks: Chunks,
        arguments: impl FnOnce(&mut Writer<'_>) -> ReadList,
    ) -> (Chunks, Vec<u8>) {
        self.xid += 1;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        rpc::call(&mut w, self.xid, program, version, procedure, &Auth::None);
        let reads = arguments(&mut w);
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
    pub fn plain(
        &mut self,
        program: (u32, u32),
        procedure: u32,
        arguments: &impl Encode,
    ) -> &'static [u8] {
        let (_, results) = self.call(program, procedure, Chunks::default(), |w| {
            arguments.encode(w);
            ReadList::default()
        });
        results.leak()
    }

    /// The handle of a file in the root.
    pub fn find(&mut self, name: &[u8]) -> FileHandle<'static> {
        let mounted = self.plain(MOUNT, 1, &DirPath(b"/"));
        let root = MountResult::from_bytes(mounted).expect("a result");
        let directory = root.expect("mounted").file;
        let place = DirectoryName { directory, name };
        let found = self.plain(NFS, Procedure::Lookup.code(), &place);
        let found = LookupResult::from_bytes(found).expect("a result");
        found.expect("found").file
    }

    /// Writes all of a region, by a chunk.
    pub fn write(&mut self, file: FileHandle<'_>, offset: u64, region: &Region, stable: Stable) {
        let length = region.len() as u32;
        let (_, results) = self.call(NFS, Procedure::Write.code(), Chunks::default(), |w| {
            // The arguments without the data, of which the length remains.
            let arguments = WriteArgs {
                file,
                offset,
                count: length,
                stable,
                data: Payload(&[]),
            };
            arguments.encode(w);
            let at = w.position();
            w.patch_u32(at - 4, length);
            let segment = Segment {
                handle: region.tag().0,
                length,
                offset: region.remote(0).offset,
            };
            ReadList::one(ReadSegment {
                position: at as u32,
                segment,
            })
        });
        let written = WriteResult::from_bytes(&results).expect("a result");
        assert_eq!(written.expect("written").count, length);
    }
}
