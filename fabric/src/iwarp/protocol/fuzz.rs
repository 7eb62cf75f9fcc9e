//! The functions of the fuzz targets `mpa` and `iwarp` in `fuzz/`. The tests replay their corpus.

use super::mpa::{
    Deframed, Deframer, Enhanced, Frame, FrameKind, FrameReader, HEAD_BYTES, PRIVATE_MAX,
};
use super::{Agreed, Endpoint};
use crate::fabric::{Access, Completion, Local, Remote, Sink, SteeringTag};
use crate::memory::Stretch;
use crate::memory::{Arena, ArenaConfig};
use crate::sync::Arc;
use odafs_common::page::{Layout, PageSize};

/// Handshake frames. The first octet says whether a request or a reply follows. A frame that is accepted must read back
/// from its encoding. The same bytes are also a stream of frames, with or without checksums, in pieces, which must give
/// the same result as in one piece.
pub fn mpa(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let kind = if choice & 1 == 0 {
        FrameKind::Request
    } else {
        FrameKind::Reply
    };
    let mut reader = FrameReader::new(kind);
    if let Ok((used, Some(frame))) = reader.feed(bytes) {
        assert!(used <= HEAD_BYTES + PRIVATE_MAX && used <= bytes.len());
        let reads = |enhanced: &Enhanced| (enhanced.inbound_reads, enhanced.outbound_reads);
        assert!(frame.enhanced.iter().all(|e| reads(e) <= (0x3fff, 0x3fff)));
        assert_eq!(again(&frame), frame);
    }
    let crc = choice & 2 != 0;
    let piece = usize::from(choice >> 2) + 1;
    assert_eq!(
        deframed(bytes, crc, bytes.len().max(1)),
        deframed(bytes, crc, piece)
    );
}

fn again(frame: &Frame) -> Frame {
    let bytes = frame.encode();
    match FrameReader::new(frame.kind).feed(&bytes) {
        Ok((used, Some(frame))) if used == bytes.len() => frame,
        other => panic!("{other:?}"),
    }
}

/// The ULPDUs of a stream of frames that comes in pieces, and whether a checksum ended it.
fn deframed(bytes: &[u8], crc: bool, piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut deframer, mut whole, mut present) = (Deframer::new(crc), Vec::new(), Vec::new());
    for mut chunk in bytes.chunks(piece) {
        while !chunk.is_empty() {
            match deframer.next(chunk) {
                Ok((used, piece)) => {
                    assert!(used > 0);
                    chunk = &chunk[used..];
                    match piece {
                        Deframed::Nothing => {}
                        Deframed::Begin(_) => present.clear(),
                        Deframed::Bytes(bytes) => present.extend_from_slice(bytes),
                        Deframed::End => whole.push(std::mem::take(&mut present)),
                        Deframed::Whole(bytes) => whole.push(bytes.to_vec()),
                    }
                }
                Err(_) => return (whole, true),
            }
        }
    }
    (whole, false)
}

/// A whole endpoint after its handshake. First octet: its kind (1 checksums, 2 initiator, 4 reads offered, 8 raw). Then
/// the peer's stream, for which correct framing is made up: one octet for the length of each ULPDU in units of 4, less
/// 2, then its bytes. With 8, the stream as it is.
///
/// Checks that memory out of bounds is unchanged, that queues are bounded, and that nothing happens after the end.
pub fn endpoint(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let crc = choice & 1 != 0;
    let mut endpoint = Endpoint::new(&Agreed {
        crc,
        inbound_reads: if choice & 4 != 0 { 3 } else { 0 },
        outbound_reads: 3,
        sends_first: choice & 2 != 0,
        peer_to_peer: true,
        frame_max: 512,
    });
    let mut watched = Watched::new(&mut endpoint);
    let framed;
    let mut stream = if choice & 8 != 0 {
        bytes
    } else {
        framed = with_framing(bytes, crc);
        &framed
    };
    loop {
        let completion = endpoint.poll();
        watched.look(&mut endpoint, completion);
        if completion.is_some() {
            continue;
        }
        let used = endpoint.receive(stream);
        stream = &stream[used..];
        if used == 0 && !endpoint.has_completion() {
            break;
        }
    }
    assert!(stream.is_empty() || endpoint.is_over());
    endpoint.close();
    while let Some(completion) = endpoint.poll() {
        watched.look(&mut endpoint, Some(completion));
    }
    assert_eq!(watched.reads_left, 0, "every read ends");
    assert_eq!((endpoint.receive(b"x"), endpoint.prepare()), (0, false));
}

fn with_framing(mut bytes: &[u8], crc: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some((&words, rest)) = bytes.split_first() {
        let length = (usize::from(words) * 4 + 2).min(rest.len());
        let start = stream.len();
        stream.extend_from_slice(&(length as u16).to_be_bytes());
        stream.extend_from_slice(&rest[..length]);
        let padded = stream.len() + super::mpa::padding(length);
        stream.resize(padded, 0);
        let sum = if crc {
            super::mpa::checksum(&stream[start..])
        } else {
            [0; 4]
        };
        stream.extend_from_slice(&sum);
        bytes = &rest[length..];
    }
    stream
}

/// Memory of the endpoint that the peer must not change, and counters.
struct Watched {
    region: Arc<crate::memory::Region>,
    arena: Arc<Arena>,
    receives_left: u32,
    reads_left: u32,
}

const REGION: usize = 256;

/// The first so many bytes of the region may be written.
const WRITABLE: usize = 64;

impl Watched {
    fn new(endpoint: &mut Endpoint) -> Watched {
        let config = ArenaConfig {
            frames: 2,
            layout: Layout::apart(PageSize::DEFAULT),
            huge: false,
            populate: false,
        };
        let arena = Arc::new(Arena::create(&config).expect("memory"));
        // Tags 0x100, 0x200 and 0x300, 0x400.
        let region = endpoint.register(REGION, Access::READ).expect("memory");
        endpoint.expose(&arena).expect("tags");
        endpoint
            .bind(&region, 0, WRITABLE, Access::WRITE)
            .expect("a tag");
        endpoint.post_receives(3);
        for (id, length) in [(0, 40), (1, 0), (2, 700)] {
            let sink = endpoint.register(1000, Access::LOCAL).expect("memory");
            let into = Sink::Region(Local {
                region: &sink,
                offset: 0,
                length,
            });
            let from = Remote {
                tag: SteeringTag(1),
                offset: 0,
            };
            endpoint.post_read(id, into, from).expect("room");
        }
        Watched {
            region,
            arena,
            receives_left: 3,
            reads_left: 3,
        }
    }

    fn look(&mut self, endpoint: &mut Endpoint, completion: Option<Completion>) {
        match completion {
            Some(Completion::Recv { bytes, .. }) => {
                self.receives_left -= 1;
                assert_eq!(endpoint.message().len(), bytes as usize);
            }
            Some(Completion::Read { .. }) => self.reads_left -= 1,
            Some(other) => panic!("{other:?}, and nothing such was posted"),
            None => {}
        }
        let mut held = [0; REGION];
        assert!(self.region.load(0, &mut held));
        assert_eq!(held[WRITABLE..], [0; REGION - WRITABLE]);
        let mut first = [0; 64];
        self.arena
            .copy_out(crate::memory::FrameNumber(0), 0, &mut first);
        assert_eq!(first, [0; 64]);
        while endpoint.prepare() {
            let queued: usize = endpoint
                .stretches()
                .map(|stretch: Stretch<'_>| stretch.len())
                .sum();
            assert!(queued == endpoint.queued() && queued < 512 << 10);
            endpoint.sent(queued);
        }
    }
}
