//! A stranger reads our headers: messages in iWARP frames, as they would go over TCP, through tshark. Without tshark
//! there is nothing to test (apt-get install tshark).

use std::io::ErrorKind;
use std::process::Command;

use crate::wire::rpcrdma::*;
use crate::wire::xdr::Encode;

/// One TCP connection in a capture file, without its handshake.
struct Capture {
    file: Vec<u8>,
    sequence: [u32; 2],
    messages: [u32; 2],
}

impl Capture {
    fn new() -> Self {
        let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(65535_u32.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        let mut capture = Self {
            file,
            sequence: [1; 2],
            messages: [1; 2],
        };
        // RFC 5044, section 7.1: no markers, no CRC, revision 1, no private data.
        capture.packet(0, b"MPA ID Req Frame\x00\x01\x00\x00");
        capture.packet(1, b"MPA ID Rep Frame\x00\x01\x00\x00");
        capture
    }

    /// A Send (RFC 5040, 5041): one FPDU, untagged, the last of its message, on queue 0.
    fn send(&mut self, from: usize, message: &[u8]) {
        let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
        ulpdu.extend(self.messages[from].to_be_bytes());
        ulpdu.extend([0; 4]);
        ulpdu.extend(message);
        self.messages[from] += 1;
        let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
        frame.extend(ulpdu);
        frame.resize(frame.len().next_multiple_of(4) + 4, 0);
        self.packet(from, &frame);
    }

    fn packet(&mut self, from: usize, payload: &[u8]) {
        let ports = [[3, 132], [0x4e, 0x35]];
        let mut tcp = [ports[from], ports[1 - from]].concat();
        tcp.extend(self.sequence[from].to_be_bytes());
        tcp.extend(self.sequence[1 - from].to_be_bytes());
        tcp.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        self.sequence[from] += payload.len() as u32;
        let mut frame = [&[0; 12][..], &[8, 0, 0x45, 0]].concat();
        frame.extend((20 + tcp.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1 + from as u8, 10, 0, 0, 2 - from as u8]);
        frame.extend(tcp);
        self.file.extend([0; 8]);
        self.file
            .extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
        self.file.extend(frame);
    }
}

const FIELDS: &[&str] = &[
    "xid",
    "version",
    "flow_control",
    "msg_type",
    "reads_count",
    "writes_count",
    "reply_count",
    "position",
    "segment_count",
    "rdma_handle",
    "rdma_length",
    "rdma_offset",
    "errcode",
    "vers_low",
    "vers_high",
];

/// What tshark says of each message, field by field; `None` where there is no tshark.
fn dissect(capture: &Capture) -> Option<Vec<Vec<String>>> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("capture.pcap");
    std::fs::write(&path, &capture.file).expect("a file");
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(&path)
        .args(["-Y", "rpcordma", "-T", "fields"]);
    for field in FIELDS {
        command.args(["-e", &format!("rpcordma.{field}")]);
    }
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Nobody sees what a test that passes has said.
            let required = std::env::var("ODAFS_REQUIRED").unwrap_or_default();
            let is_required = required.split_whitespace().any(|word| word == "tshark");
            assert!(!is_required, "tshark is required");
            eprintln!("SKIPPED: there is no tshark");
            return None;
        }
        output => output.expect("tshark runs"),
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");
    let fields = |line: &str| line.split('\t').map(str::to_owned).collect();
    Some(text.lines().map(fields).collect())
}

/// The same from the header itself.
fn expected(header: &Header) -> Vec<String> {
    let mut fields = vec![String::new(); FIELDS.len()];
    let mut set = |name: &str, values: Vec<String>| {
        let at = FIELDS
            .iter()
            .position(|field| *field == name)
            .expect("a field");
        fields[at] = values.join(",");
    };
    let one = |value: u32| vec![value.to_string()];
    let hex = |value: u32| format!("0x{value:08x}");
    set("xid", vec![hex(header.xid)]);
    set("version", one(VERSION));
    set("flow_control", one(header.credits));
    let (kind, chunks) = match &header.body {
        Body::Msg(chunks) => (0, Some(chunks)),
        Body::Nomsg(chunks) => (1, Some(chunks)),
        Body::Done => (3, None),
        Body::Error(_) => (4, None),
    };
    set("msg_type", one(kind));
    match header.body {
        Body::Error(TransportError::Version { low, high }) => {
            set("errcode", one(1));
            set("vers_low", one(low));
            set("vers_high", one(high));
        }
        Body::Error(TransportError::Chunk) => set("errcode", one(2)),
        _ => {}
    }
    if let Some(chunks) = chunks {
        set("reads_count", one(chunks.reads.len() as u32));
        set("writes_count", one(chunks.writes.len() as u32));
        set("reply_count", one(chunks.reply.iter().len() as u32));
        let reads = &chunks.reads;
        set(
            "position",
            reads.iter().map(|read| read.position.to_string()).collect(),
        );
        let reply = chunks.reply.iter().map(|chunk| &chunk[..]);
        let written: Vec<_> = chunks.writes.chunks().chain(reply).collect();
        set(
            "segment_count",
            written
                .iter()
                .map(|chunk| chunk.len().to_string())
                .collect(),
        );
        let segments: Vec<Segment> = reads
            .iter()
            .map(|read| read.segment)
            .chain(written.iter().flat_map(|chunk| chunk.iter().copied()))
            .collect();
        let each = |show: &dyn Fn(&Segment) -> String| segments.iter().map(show).collect();
        set("rdma_handle", each(&|segment| hex(segment.handle)));
        set("rdma_length", each(&|segment| segment.length.to_string()));
        set(
            "rdma_offset",
            each(&|segment| format!("0x{:016x}", segment.offset)),
        );
    }
    fields
}

fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0xffff_8880_0000_0000 + u64::from(handle),
    }
}

fn headers() -> Vec<Header> {
    let mut reads = ReadList::default();
    let elsewhere = ReadSegment {
        position: 104,
        segment: segment(0x11, 100_000),
    };
    let zero = ReadSegment {
        position: 0,
        segment: segment(0x22, 5000),
    };
    assert!(reads.push(zero) && reads.push(elsewhere));
    let long = Segments::new(&[segment(0x33, 4096), segment(0x44, 100)]).0;
    let (mut several, mut writes) = (ReadList::one(elsewhere), WriteList::default());
    let behind = ReadSegment {
        position: 100_152,
        segment: segment(0x66, 8),
    };
    assert!(several.push(behind));
    assert!(writes.push(&long) && writes.push(&[]) && writes.push(&[segment(0x77, 1)]));
    let chunks = Chunks::default();
    let bodies = [
        Body::Msg(chunks),
        Body::Msg(Chunks {
            reads: ReadList::one(elsewhere),
            ..chunks
        }),
        Body::Msg(Chunks {
            writes: WriteList::one(&Segments::one(segment(0x55, 4096))),
            ..chunks
        }),
        Body::Msg(Chunks {
            writes: WriteList::one(&long),
            ..chunks
        }),
        Body::Msg(Chunks {
            reads: several,
            ..chunks
        }),
        Body::Msg(Chunks {
            writes,
            reply: Some(long),
            ..chunks
        }),
        Body::Msg(Chunks {
            reply: Some(long),
            ..chunks
        }),
        Body::Nomsg(Chunks {
            reads,
            reply: Some(long),
            ..chunks
        }),
        Body::Nomsg(Chunks {
            reads: ReadList::one(zero),
            ..chunks
        }),
        Body::Done,
        Body::Error(TransportError::Chunk),
        Body::Error(TransportError::Version { low: 1, high: 1 }),
    ];
    let header = |(xid, body)| Header {
        xid,
        credits: 32,
        body,
    };
    (0x0100_0000..).zip(bodies).map(header).collect()
}

#[test]
fn tshark_reads_every_header_as_it_was_meant() {
    let headers = headers();
    let mut capture = Capture::new();
    for header in &headers {
        let mut message = header.to_bytes();
        if let Body::Msg(_) = header.body {
            // A call of the NULL procedure of NFS.
            let call = [header.xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
            message.extend(call.iter().flat_map(|word| word.to_be_bytes()));
        }
        capture.send(0, &message);
    }
    let Some(dissected) = dissect(&capture) else {
        return;
    };
    let expected: Vec<_> = headers.iter().map(expected).collect();
    for (dissected, expected) in dissected.iter().zip(&expected) {
        assert_eq!(dissected, expected);
    }
    assert_eq!(dissected.len(), expected.len());
}
