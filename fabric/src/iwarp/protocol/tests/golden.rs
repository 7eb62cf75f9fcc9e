//! Bytes as the RFCs (and Linux's `siw`) have them.

use super::super::mpa::{Deframed, Deframer, Enhanced, Frame, FrameKind, FrameReader, MpaError};
use super::super::rdmap::{self, Fatal, Opcode, ReadRequest};
use super::super::{Endpoint, ddp, handshake};
use super::*;
use crate::fabric::{Access, Local, Remote, Sink, Source, SteeringTag};

/// The request that Linux's NFS/RDMA client makes on `siw`: revision 2, enhanced, IRD 128, ORD 0,
/// and the private data of RFC 8797.
const SIW_REQUEST: &[u8] =
    b"MPA ID Req Frame\x10\x02\x00\x0c\x00\x80\x00\x00\xf6\xab\x0e\x18\x01\x01\x03\x03";

fn read(kind: FrameKind, bytes: &[u8]) -> Result<(usize, Option<Frame>), MpaError> {
    FrameReader::new(kind).feed(bytes)
}

#[test]
fn a_request_of_siw_and_its_reply() {
    let (used, request) = read(FrameKind::Request, SIW_REQUEST).unwrap();
    let request = request.unwrap();
    assert_eq!(used, SIW_REQUEST.len());
    assert_eq!(request.private_data, b"\xf6\xab\x0e\x18\x01\x01\x03\x03");
    let enhanced = Enhanced {
        inbound_reads: 128,
        outbound_reads: 0,
        peer_to_peer: false,
    };
    assert_eq!((request.revision, request.enhanced), (2, Some(enhanced)));
    assert_eq!(request.encode(), SIW_REQUEST);
    let wishes = handshake::Wishes {
        crc: false,
        inbound_reads: 0,
        outbound_reads: 16,
        frame_max: 1460,
    };
    let (reply, agreed) = handshake::accept(&wishes, &request, b"hello");
    assert_eq!(
        reply.encode(),
        b"MPA ID Rep Frame\x10\x02\x00\x09\x00\x00\x00\x10hello"
    );
    assert_eq!((agreed.inbound_reads, agreed.outbound_reads), (0, 16));
    assert!(!agreed.crc && !agreed.sends_first && !agreed.peer_to_peer);
}

#[test]
fn frames_of_any_kind_read_back() {
    for kind in [FrameKind::Request, FrameKind::Reply] {
        for bits in 0..16u8 {
            let enhanced = Enhanced {
                inbound_reads: 0x3fff,
                outbound_reads: 3,
                peer_to_peer: bits & 8 != 0,
            };
            let frame = Frame {
                kind,
                revision: if bits & 4 != 0 { 2 } else { 1 },
                crc: bits & 1 != 0,
                reject: bits & 2 != 0,
                enhanced: (bits & 4 != 0).then_some(enhanced),
                private_data: vec![bits; usize::from(bits) * 33],
            };
            let mut bytes = frame.encode();
            let length = bytes.len();
            bytes.extend_from_slice(b"an FPDU");
            assert_eq!(read(kind, &bytes), Ok((length, Some(frame.clone()))));
            // One byte at a time.
            let mut reader = FrameReader::new(kind);
            for (at, byte) in bytes[..length].iter().enumerate() {
                let (used, whole) = reader.feed(&[*byte]).unwrap();
                assert_eq!((used, whole.is_some()), (1, at + 1 == length));
            }
        }
    }
}

#[test]
fn what_is_no_handshake() {
    let with = |at: usize, byte: u8| {
        let mut bytes = SIW_REQUEST.to_vec();
        bytes[at] = byte;
        read(FrameKind::Request, &bytes).map(|(_, frame)| frame.is_some())
    };
    assert_eq!(with(16, 0x90), Err(MpaError::Markers));
    assert_eq!(with(17, 3), Err(MpaError::Revision(3)));
    assert_eq!(with(17, 1), Err(MpaError::Revision(1)), "enhanced at 1");
    assert_eq!(with(18, 2), Err(MpaError::PrivateData(0x20c)));
    assert_eq!(with(19, 3), Err(MpaError::PrivateData(3)));
    assert_eq!(with(19, 13), Ok(false), "one byte is missing");
    assert_eq!(with(0, b'm'), Err(MpaError::Key));
    assert_eq!(read(FrameKind::Reply, SIW_REQUEST), Err(MpaError::Key));
    assert_eq!(read(FrameKind::Request, b"GET"), Err(MpaError::Key));
}

/// iSCSI's vectors for CRC32C (RFC 3720 appendix B.4), in the order of their bytes on the wire.
#[test]
fn checksums() {
    assert_eq!(mpa::checksum(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(mpa::checksum(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!(mpa::checksum(&rising), [0x4e, 0x79, 0xdd, 0x46]);
}

#[test]
fn a_send() {
    let mut endpoint = Endpoint::new(&agreed(false, true));
    endpoint.post_send(&[b"he", b"llo"], None).unwrap();
    let expected = b"\x00\x17\x41\x43\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0hello\0\0\0\0\0\0\0";
    assert_eq!(outgoing(&mut endpoint), expected);
    endpoint
        .post_send(&[b"hello!"], Some(SteeringTag(0xa1b2c3d4)))
        .unwrap();
    let expected = b"\x00\x18\x41\x44\xa1\xb2\xc3\xd4\0\0\0\0\0\0\0\x02\0\0\0\0hello!\0\0\0\0\0\0";
    assert_eq!(outgoing(&mut endpoint), expected);
}

#[test]
fn a_write_and_a_read() {
    let mut endpoint = Endpoint::new(&agreed(true, true));
    let to = Remote {
        tag: SteeringTag(0x01020304),
        offset: 0x1122_3344_5566_7788,
    };
    endpoint.post_write(1, Source::Bytes(b"abcd"), to).unwrap();
    let mut expected =
        b"\x00\x12\xc1\x40\x01\x02\x03\x04\x11\x22\x33\x44\x55\x66\x77\x88abcd".to_vec();
    expected.extend_from_slice(&crc32c::crc32c(&expected).to_le_bytes());
    assert_eq!(outgoing(&mut endpoint), expected);

    let region = endpoint.register(64, Access::LOCAL).unwrap();
    let into = Sink::Region(Local {
        region: &region,
        offset: 8,
        length: 16,
    });
    endpoint.post_read(2, into, to).unwrap();
    let sent = outgoing(&mut endpoint);
    assert_eq!(
        sent[..20],
        *b"\x00\x2e\x41\x41\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0"
    );
    let request = ReadRequest::decode(sent[20..48].try_into().unwrap());
    assert_eq!((request.length, request.source_tag), (16, 0x01020304));
    assert_eq!(request.source_offset, 0x1122_3344_5566_7788);
    let answer = tagged(Opcode::ReadResponse, request.sink_tag, 0, true, &[7; 16]);
    let done = Completion::Read {
        id: 2,
        result: Ok(()),
    };
    assert_eq!(
        feed(&mut endpoint, &framed(&answer, true)),
        [(done, vec![])]
    );
    let mut bytes = [0; 18];
    assert!(region.load(7, &mut bytes));
    assert_eq!(bytes[1..17], [7; 16]);
    assert_eq!((bytes[0], bytes[17]), (0, 0));
}

#[test]
fn terminates() {
    let fatal = Fatal::WRITE_BOUNDS;
    let header = tagged(Opcode::Write, 0x01020304, 5, true, b"");
    let message = rdmap::terminate(fatal, 14 + 9, &header);
    assert_eq!(message[..6], [0x11, 0x01, 0xc0, 0x00, 0, 23]);
    assert_eq!(message[6..], header);
    assert_eq!(rdmap::terminated(&message), Some(fatal));
    let header = untagged(Opcode::ReadRequest, 1, 1, 0, true, &[9; 28]);
    let message = rdmap::terminate(Fatal::READ_TAG, 46, &header);
    assert_eq!(message[..6], [0x01, 0x00, 0xe0, 0x00, 0, 46]);
    assert_eq!(message.len(), 6 + 46);
    assert_eq!(
        rdmap::terminate(Fatal::CRC, 0, &[]),
        [0x20, 0x02, 0x00, 0x00]
    );
}

#[test]
fn headers_read_back() {
    for bits in 0..16 {
        let Some(opcode) = Opcode::decode(bits) else {
            assert!(bits > 7);
            continue;
        };
        let place = if opcode.is_tagged() {
            ddp::SegmentTarget::Tagged {
                tag: 0xffee_ddcc,
                offset: u64::MAX - 5,
            }
        } else {
            ddp::SegmentTarget::Untagged {
                invalidate: 1,
                queue: 2,
                number: 3,
                offset: 0x8000_0004,
            }
        };
        for last in [false, true] {
            let header = ddp::Header {
                opcode,
                last,
                place,
            };
            let bytes = segment(&header, b"");
            assert_eq!(ddp::Header::decode(&bytes), Ok(header));
            assert!(ddp::Header::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}

/// With checksums or without, however a stream of frames is split, the same ULPDUs come out.
#[test]
fn frames_split_anywhere() {
    for crc in [false, true] {
        let ulpdus: Vec<Vec<u8>> = [0, 1, 2, 3, 4, 40, 255, 256, 1000]
            .map(|length| (0..length).map(|at| at as u8).collect())
            .into();
        let stream: Vec<u8> = ulpdus.iter().flat_map(|u| framed(u, crc)).collect();
        for size in (1..60).chain([stream.len()]) {
            let (mut deframer, mut came) = (Deframer::new(crc), Vec::new());
            let mut present = Vec::new();
            for mut chunk in stream.chunks(size) {
                while !chunk.is_empty() {
                    let (used, piece) = deframer.next(chunk).unwrap();
                    match piece {
                        Deframed::Nothing => {}
                        Deframed::Begin(_) => present.clear(),
                        Deframed::Bytes(bytes) => present.extend_from_slice(bytes),
                        Deframed::End => came.push(present.clone()),
                        Deframed::Whole(bytes) => came.push(bytes.to_vec()),
                    }
                    chunk = &chunk[used..];
                }
            }
            assert_eq!(came, ulpdus, "{size}");
            assert!(deframer.is_between());
        }
    }
}
