//! A client and a server over nothing: their memory is vectors under steering tags, an RDMA operation is a copy.

use std::collections::HashMap;
use std::time::Duration;

use crate::rpcrdma::*;
use crate::wire::rpcrdma::{CHUNK_SEGMENTS_MAX, Gaps, Segment, Segments};
use crate::wire::xdr::Gap;

/// Registered memory of one side.
#[derive(Debug, Default)]
pub struct Memory {
    regions: HashMap<u32, Vec<u8>>,
    next_tag: u32,
    /// The largest segment given out.
    pub segment_max: usize,
    /// Most segments of a chunk.
    segments_max: usize,
    /// All segments of a chunk under one tag, or each under its own.
    pub one_tag: bool,
}

/// Where the first byte under every tag is.
const BASE: u64 = 0x1_0000;

impl Memory {
    pub fn new(segment_max: usize, one_tag: bool) -> Self {
        Self {
            next_tag: 0x100,
            segment_max,
            segments_max: CHUNK_SEGMENTS_MAX,
            one_tag,
            ..Self::default()
        }
    }

    /// The same, with no more segments in a chunk.
    pub fn of_segments(self, segments_max: usize) -> Self {
        Self {
            segments_max,
            ..self
        }
    }

    /// Registers `bytes`, in pieces.
    pub fn register(&mut self, bytes: &[u8]) -> Segments {
        let piece = self
            .segment_max
            .max(bytes.len().div_ceil(self.segments_max));
        let mut segments = Segments::default();
        let mut offset = BASE;
        let mut region = Vec::new();
        for part in bytes.chunks(piece) {
            region.extend_from_slice(part);
            let length = part.len() as u32;
            let handle = self.next_tag;
            assert!(segments.push(Segment {
                handle,
                length,
                offset
            }));
            offset += u64::from(length);
            if !self.one_tag {
                self.regions.insert(handle, std::mem::take(&mut region));
                self.next_tag += 1;
                offset = BASE;
            }
        }
        if self.one_tag {
            self.regions.insert(self.next_tag, region);
            self.next_tag += 1;
        }
        segments
    }

    fn at(&mut self, segment: &Segment) -> &mut [u8] {
        let region = self
            .regions
            .get_mut(&segment.handle)
            .expect("a tag that was given out");
        let start = (segment.offset - BASE) as usize;
        &mut region[start..start + segment.length as usize]
    }

    pub fn read(&mut self, segment: &Segment) -> Vec<u8> {
        self.at(segment).to_vec()
    }

    pub fn write(&mut self, segment: &Segment, bytes: &[u8]) {
        self.at(segment).copy_from_slice(bytes);
    }

    /// The first `length` bytes of a chunk.
    pub fn gather(&mut self, chunk: &Segments, length: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = chunk
            .iter()
            .flat_map(|segment| self.read(segment))
            .collect();
        bytes.truncate(length as usize);
        bytes
    }

    pub fn release(&mut self, chunk: &Segments) {
        for segment in chunk.iter() {
            self.regions.remove(&segment.handle);
        }
    }

    pub fn regions(&self) -> usize {
        self.regions.len()
    }
}

/// Puts a stream together.
pub fn assemble(assembly: &Assembly, message: &[u8], peer: &mut Memory) -> Vec<u8> {
    let mut stream = vec![0; assembly.length as usize];
    let mut put = |at: u32, bytes: &[u8]| {
        stream[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    };
    for piece in &assembly.inline {
        put(piece.at, &message[piece.from.clone()]);
    }
    for pull in &assembly.pulls {
        put(pull.at, &peer.read(&pull.from));
    }
    stream
}

/// One RPC.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub call: Vec<u8>,
    pub shape: CallShape,
    pub reply: Vec<u8>,
    /// The DDP-eligible results in it.
    pub data: Gaps,
}

/// What became of it, and how it went over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The reply put together again, or why there is none.
    pub reply: Result<Vec<u8>, Failure>,
    pub call_bytes: usize,
    pub reply_bytes: usize,
    pub writes: usize,
    pub pulls: usize,
    pub invalidate: Option<u32>,
}

/// Both ends of a connection.
pub struct World {
    pub requester: Requester,
    pub responder: Responder,
    pub client: Memory,
    pub server: Memory,
    pub exposed: HashMap<ExposureId, Vec<Segments>>,
    /// Receives posted by the server.
    pub receives: u32,
    pub inline: Inline,
}

impl World {
    /// `theirs`: what the server says, `ours`: what the client says.
    pub fn new(ours: PrivateData, theirs: PrivateData, client: Memory, server: Memory) -> Self {
        let terms = Terms::between(&ours, Some(&theirs));
        let requester = Requester::new(RequesterConfig {
            terms,
            credits: RequestPolicy::Fixed(32),
        });
        let mut responder = Responder::new(ResponderConfig {
            terms: Terms::between(&theirs, Some(&ours)),
            credits: GrantPolicy::Fixed(32),
            message_max: 1 << 20,
            read_read: ReadRead::default(),
            reverse_credits: 0,
        });
        let receives = responder.receives_due();
        Self {
            requester,
            responder,
            client,
            server,
            exposed: HashMap::new(),
            receives,
            inline: terms.inline,
        }
    }

    /// Carries one RPC to its end.
    pub fn run(&mut self, exchange: &Exchange) -> Outcome {
        let mut given = Vec::new();
        let sent = self.send(exchange, &mut given);
        self.arrive();
        let Received::Call(incoming) = self.responder.receive(&sent) else {
            panic!("the responder does not take the call");
        };
        let seen = assemble(&incoming.assembly, &sent, &mut self.client);
        assert_eq!(seen, exchange.call, "the call that arrived");
        let gaps = incoming.assembly.gaps;
        assert!(gaps.is_empty() || gaps == exchange.shape.arguments);
        let pulls = incoming.assembly.pulls.len();
        let (message, answer) = self.answer(incoming.ticket, exchange);
        self.post();
        assert!(message.len() <= self.inline.receive as usize);
        let event = self.requester.receive(&message);
        let reply = self.finish(event, &message, exchange, &given);
        for (_, segments) in given {
            self.client.release(&segments);
        }
        Outcome {
            reply,
            call_bytes: sent.len(),
            reply_bytes: message.len(),
            writes: answer.writes.len(),
            pulls,
            invalidate: answer.invalidate,
        }
    }

    pub fn send(&mut self, exchange: &Exchange, given: &mut Vec<(NeedKind, Segments)>) -> Vec<u8> {
        let mut sent = Vec::new();
        let client = &mut self.client;
        let read_read = self.responder.terms().read_read;
        let mut memory = |need: &Need| {
            let mut bytes: Vec<u8> = need
                .parts
                .iter()
                .flat_map(|part| exchange.call[part.range()].to_vec())
                .collect();
            let for_the_peer_to_read = matches!(need.kind, NeedKind::Argument | NeedKind::Call);
            assert_eq!(bytes.is_empty(), !for_the_peer_to_read);
            bytes.resize(need.bytes as usize, 0xee);
            let segments = client.register(&bytes);
            assert!(
                for_the_peer_to_read || !read_read,
                "no room for replies in the Read-Read design"
            );
            given.push((need.kind, segments));
            Some(segments)
        };
        let call = Call {
            message: &exchange.call,
            shape: &exchange.shape,
            health_check: false,
        };
        let out = self
            .requester
            .call(&call, &mut memory, &mut sent)
            .expect("a call that fits");
        for part in out.inline.iter() {
            sent.extend_from_slice(&exchange.call[part.range()]);
        }
        assert!(sent.len() <= self.inline.send as usize);
        sent
    }

    /// A message reaches the server: there must be a receive for it.
    pub fn arrive(&mut self) {
        self.receives = self.receives.checked_sub(1).expect("a posted receive");
    }

    pub fn post(&mut self) {
        self.receives += self.responder.receives_due();
        let promised = self.responder.granted();
        assert!(
            self.receives + self.responder.under_way() >= promised,
            "a grant above what is posted"
        );
    }

    /// The server answers; its RDMA Writes are done. The message that it sends.
    pub fn answer(&mut self, ticket: Ticket, exchange: &Exchange) -> (Vec<u8>, ReplyPlan) {
        let mut message = Vec::new();
        let placements = ticket.placements();
        let read_read = self.responder.terms().read_read;
        // The server has all data apart that it can place.
        let mut results = Results::whole(exchange.reply.len());
        let (mut body, mut data) = (exchange.reply.clone(), Vec::new());
        for (number, gap) in exchange.data.iter().enumerate() {
            if !read_read && placements.get(number) < Some(gap.bytes) {
                continue;
            }
            data.extend_from_slice(&exchange.reply[gap.range()]);
            let at = gap.at as usize - (exchange.reply.len() - body.len());
            body.drain(at..at + gap.padded());
            assert!(results.apart.push(PlacedResult {
                result: number as u32,
                at: at as u32,
                bytes: gap.bytes,
            }));
        }
        results.length = body.len();
        let bytes = |source: &Source| match source {
            Source::Data(range) => data[range.start as usize..range.end as usize].to_vec(),
            Source::Message(range) => body[range.clone()].to_vec(),
        };
        let answer = if self.responder.terms().read_read {
            let (server, exposed) = (&mut self.server, &mut self.exposed);
            let mut expose = |what: &Expose| {
                let all = bytes(&what.from);
                let segments = server.register(&all);
                exposed.entry(what.id).or_default().push(segments);
                Some(segments)
            };
            let now = Duration::from_secs(1);
            self.responder
                .reply_exposed(ticket, &results, now, &mut expose, &mut message)
        } else {
            self.responder.reply(ticket, &results, &mut message)
        };
        for write in &answer.writes {
            assert_eq!(write.from.bytes(), write.to.length);
            self.client.write(&write.to, &bytes(&write.from));
        }
        if answer.inline {
            message.extend_from_slice(&body);
        }
        (message, answer)
    }

    pub fn finish(
        &mut self,
        event: Event,
        message: &[u8],
        exchange: &Exchange,
        given: &[(NeedKind, Segments)],
    ) -> Result<Vec<u8>, Failure> {
        let chunks = |of| {
            let of_kind = given.iter().filter(move |(kind, _)| *kind == of);
            of_kind.map(|(_, chunk)| chunk)
        };
        match event {
            Event::Failed { why, .. } => Err(why),
            Event::Reply(reply) => {
                let mut stream = match reply.stream {
                    Stream::Inline(range) => message[range].to_vec(),
                    Stream::Memory(bytes) => {
                        let chunk = chunks(NeedKind::Reply).next().expect("a reply chunk");
                        self.client.gather(chunk, bytes)
                    }
                };
                let mut write_chunks = chunks(NeedKind::Result);
                let maxima = exchange.shape.results_max.bytes().iter();
                for ((number, max), gap) in maxima.enumerate().zip(exchange.data.iter()) {
                    let chunk = if *max > 0 { write_chunks.next() } else { None };
                    let Some(bytes) = reply.results.get(number) else {
                        continue;
                    };
                    let mut data = self.client.gather(chunk.expect("a write chunk"), bytes);
                    data.resize(data.len().next_multiple_of(4), 0);
                    let at = gap.at as usize;
                    stream.splice(at..at, data);
                }
                Ok(stream)
            }
            Event::Pull(pulled) => {
                let reply = assemble(&pulled.assembly, message, &mut self.server);
                let mut done = Vec::new();
                assert!(self.requester.done(pulled.xid, &mut done));
                self.arrive();
                let Received::Done(id) = self.responder.receive(&done) else {
                    panic!("RDMA_DONE is not understood");
                };
                for segments in self.exposed.remove(&id).expect("what was exposed") {
                    self.server.release(&segments);
                }
                self.post();
                Ok(reply)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An RPC message of one kind with opaque items of these lengths in its midst, and where those are.
pub fn message(
    xid: u32,
    kind: u32,
    before: usize,
    data: &[usize],
    behind: usize,
) -> (Vec<u8>, Gaps) {
    let (mut bytes, mut gaps) = (Vec::new(), Gaps::default());
    let mut w = crate::wire::xdr::Writer::new(&mut bytes);
    w.u32(xid);
    w.u32(kind);
    let fill = |count: usize, seed: usize| -> Vec<u8> {
        (0..count).map(|i| (i * 7 + seed + 1) as u8).collect()
    };
    w.opaque_fixed(&fill(before * 4, 1));
    for (number, length) in data.iter().enumerate() {
        let (at, bytes) = (w.position() as u32 + 4, *length as u32);
        assert!(gaps.push(Gap { at, bytes }));
        w.payload(&fill(*length, 2 + number));
    }
    w.opaque_fixed(&fill(behind * 4, 3));
    (bytes, gaps)
}
