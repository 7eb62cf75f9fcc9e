//! A client of NFS version 4 in a session, with several chunks each way. It writes its headers itself.

use std::sync::atomic::{AtomicU32, Ordering};

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc::{self, Auth, Rejection};
use odafs_common::wire::rpcrdma::{
    Body, Chunks, Header, ReadList, ReadSegment, Segment, TransportError,
};
use odafs_common::wire::xdr::{Apart, Encode, Gap, Reader, Writer};
use odafs_fabric::clock::Nanos;
use odafs_fabric::iwarp::{ConnectOptions, connect};
use odafs_fabric::memory::Region;
use odafs_fabric::sync::Arc;
use odafs_fabric::{Access, Completion, QueuePair};
use odafs_server::server::Server;

const CHANNEL: ChannelAttributes = ChannelAttributes {
    header_padding: 0,
    max_request: 1 << 20,
    max_response: 1 << 20,
    max_response_cached: 1000,
    max_operations: 32,
    max_requests: 8,
    rdma_reads: AtMostOne(None),
};

/// A client that writes its headers itself.
pub struct Client {
    pub qp: Box<dyn QueuePair>,
    minor: u32,
    pub xid: u32,
    session: SessionId,
    sequence: u32,
}

/// What came back: the lists, and the results or why there are none.
pub type Answered = Result<(Chunks, Vec<u8>), Refused>;

#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    Transport(TransportError),
    Rpc(Rejection),
}

impl Client {
    pub fn new(server: &Server, minor: u32) -> Self {
        let address = server.addresses().rdma.expect("an RDMA listener");
        let options = ConnectOptions::default();
        let qp = connect(address, &PrivateData::default().encode(), &options);
        let mut qp = qp.expect("a connection");
        qp.post_receives(16);
        let mut client = Self {
            qp,
            minor,
            xid: 0,
            session: SessionId::default(),
            sequence: 0,
        };
        client.begin();
        client
    }

    /// Makes a session.
    fn begin(&mut self) {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = MADE.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let exchange = Operation::ExchangeId(ExchangeIdArgs {
            client: ClientOwner {
                verifier: [1; 8],
                id: Opaque(&name),
            },
            flags: 0,
            protection: StateProtection::None,
            implementation: AtMostOne(None),
        });
        let results = self.plain(&[exchange]);
        let [OperationResult::ExchangeId(Ok(known))] = &all(&results, &[])[..] else {
            panic!("{:?}", all(&results, &[]));
        };
        let create = Operation::CreateSession(CreateSessionArgs {
            client_id: known.client_id,
            sequence: known.sequence,
            flags: 0,
            fore: CHANNEL,
            back: CHANNEL,
            callback_program: 0,
            callback_security: List(vec![CallbackSecurity::None]),
        });
        let results = self.plain(&[create]);
        let [OperationResult::CreateSession(Ok(made))] = &all(&results, &[])[..] else {
            panic!("{:?}", all(&results, &[]));
        };
        self.session = made.session;
        let (_, results) = self.does(&[Operation::ReclaimComplete(ReclaimCompleteArgs {
            one_file_system: false,
        })]);
        assert_eq!(status(&results), Status::Ok);
    }

    fn plain(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        let message = self.message(operations);
        let (_, results) = self.call(Chunks::default(), &message).expect("results");
        results
    }

    /// An RPC message of a COMPOUND.
    pub fn message(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.xid += 1;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        let procedure = Procedure::Compound.code();
        rpc::call(&mut w, self.xid, PROGRAM, VERSION, procedure, &Auth::None);
        let call = CallWriter::compound(&mut w, Opaque(b""), self.minor);
        let call = operations.iter().fold(call, |call, it| call.push(it));
        call.finish();
        message
    }

    /// The same in the session.
    pub fn in_session(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.sequence += 1;
        self.in_slot(operations, false)
    }

    /// The same, and the slot is asked to keep the reply.
    pub fn kept_in_session(&mut self, operations: &[Operation<'_>]) -> Vec<u8> {
        self.sequence += 1;
        self.in_slot(operations, true)
    }

    fn in_slot(&mut self, operations: &[Operation<'_>], cache: bool) -> Vec<u8> {
        let sequence = Operation::Sequence(SequenceArgs {
            session: self.session,
            sequence: self.sequence,
            slot: 0,
            highest_slot: 0,
            cache,
        });
        self.message(&[&[sequence], operations].concat())
    }

    /// The message as its repetition.
    pub fn again(&mut self, message: &mut [u8]) {
        self.xid += 1;
        message[..4].copy_from_slice(&self.xid.to_be_bytes());
    }

    fn does(&mut self, operations: &[Operation<'_>]) -> (Chunks, Vec<u8>) {
        let message = self.in_session(operations);
        self.call(Chunks::default(), &message).expect("results")
    }

    pub fn call(&mut self, chunks: Chunks, message: &[u8]) -> Answered {
        let body = Body::Msg(chunks);
        let (xid, credits) = (self.xid, 8);
        let header = Header { xid, credits, body }.to_bytes();
        self.qp.post_send(0, &[&header, message]).expect("room");
        self.qp.flush();
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
        assert_eq!(header.xid, xid);
        let chunks = match header.body {
            Body::Msg(chunks) => chunks,
            Body::Error(error) => return Err(Refused::Transport(error)),
            body => panic!("{body:?}"),
        };
        let body = rpc::parse_reply(r.rest()).expect("a reply").body;
        let results = body.map_err(Refused::Rpc)?.rest().to_vec();
        Ok((chunks, results))
    }

    fn region(&mut self, bytes: &[u8], access: Access) -> Arc<Region> {
        let region = self.qp.register(bytes.len(), access).expect("memory");
        assert!(region.store(0, bytes));
        region
    }

    /// Calls with write chunks of these lengths. Those that came back, and what is in each.
    pub fn reads(&mut self, lengths: &[&[u32]], operations: &[Operation<'_>]) -> Read {
        let message = self.in_session(operations);
        let (chunks, regions) = self.room(lengths);
        let (returned, results) = self.call(chunks, &message).expect("results");
        Read::new(&returned, &regions, results)
    }

    /// Memory for write chunks of segments of these lengths, which stands in the chunk's order.
    pub fn room(&mut self, lengths: &[&[u32]]) -> (Chunks, Vec<Arc<Region>>) {
        let (mut chunks, mut regions) = (Chunks::default(), Vec::new());
        for lengths in lengths {
            let all: u32 = lengths.iter().sum();
            let region = self.region(&vec![0xee; all.max(1) as usize], Access::WRITE);
            let mut at = 0;
            let segments = lengths.iter().map(|length| {
                let remote = region.remote(0).ahead(at);
                at += u64::from(*length);
                Segment {
                    handle: remote.tag.0,
                    length: *length,
                    offset: remote.offset,
                }
            });
            assert!(chunks.writes.push(&segments.collect::<Vec<_>>()));
            regions.push(region);
        }
        (chunks, regions)
    }

    /// Takes these payloads out of a message, into read chunks. The last of them comes first in the list.
    pub fn apart(
        &mut self,
        message: &mut Vec<u8>,
        payloads: &[&[u8]],
    ) -> (Chunks, Vec<Arc<Region>>) {
        let (mut reads, mut regions, mut missing) = (Vec::new(), Vec::new(), 0);
        for payload in payloads {
            let word = (payload.len() as u32).to_be_bytes();
            let item = [&word[..], payload].concat();
            let found = message.windows(item.len()).position(|bytes| bytes == item);
            let at = found.expect("a payload") + 4;
            message.drain(at..at + payload.len().next_multiple_of(4));
            let more = [payload, &[0xee; 8][..]].concat();
            let region = self.region(&more, Access::READ);
            reads.push(ReadSegment {
                position: (at + missing) as u32,
                segment: Segment {
                    handle: region.tag().0,
                    length: payload.len() as u32,
                    offset: region.remote(0).offset,
                },
            });
            missing += payload.len().next_multiple_of(4);
            regions.push(region);
        }
        reads.reverse();
        let reads = ReadList::new(&reads).0;
        let chunks = Chunks {
            reads,
            ..Chunks::default()
        };
        (chunks, regions)
    }
}

/// What a COMPOUND brought.
pub struct Read {
    /// What was written to each chunk.
    pub chunks: Vec<Vec<u8>>,
    pub results: Vec<u8>,
}

impl Read {
    pub fn new(returned: &Chunks, regions: &[Arc<Region>], results: Vec<u8>) -> Self {
        assert!(returned.reads.is_empty() && returned.reply.is_none());
        assert_eq!(returned.writes.len(), regions.len());
        let load = |(chunk, region): (&[Segment], &Arc<Region>)| {
            let length: u32 = chunk.iter().map(|segment| segment.length).sum();
            let mut bytes = vec![0; region.len()];
            assert!(region.load(0, &mut bytes));
            let behind = bytes.split_off(length as usize);
            assert!(behind.iter().all(|byte| *byte == 0xee), "more was written");
            bytes
        };
        let chunks = returned.writes.chunks().zip(regions).map(load).collect();
        Self { chunks, results }
    }

    /// The results. Each payload is as long as what is in its chunk, and those without are in the message.
    pub fn all(&self) -> Vec<OperationResult<'_>> {
        let gap = |chunk: &Vec<u8>| Gap {
            at: 0,
            bytes: chunk.len() as u32,
        };
        let gaps: Vec<Gap> = self.chunks.iter().map(gap).collect();
        all(&self.results, gaps.leak())
    }
}

pub fn all<'a>(results: &'a [u8], gaps: &'a [Gap]) -> Vec<OperationResult<'a>> {
    let r = Reader::new(results).reduced(Apart::Gaps(gaps));
    let results = Results::begin(r).expect("results");
    results.map(|result| result.expect("a result")).collect()
}

pub fn status(results: &[u8]) -> Status {
    let results = Results::begin(Reader::new(results)).expect("results");
    results.header().status
}
