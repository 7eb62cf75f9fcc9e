//! What a hostile peer sends to the RDMA listener (iWARP over TCP): each is answered, or ended by a Terminate that says
//! why, and costs nobody else anything.
#![cfg(not(shuttle))]

use odafs_common::wire::nfs3::{self, FileHandle};
use odafs_common::wire::rpc;
use odafs_tests::raw::{PATIENCE, RawRpc, xdr};
use odafs_tests::raw_rdma::{
    Ended, Fpdu, Header, LINUX, READ_REQUEST, READ_RESPONSE, RawRdma, SEND, TERMINATE, Terminate,
    To, WRITE, request,
};
use odafs_tests::served::Served;
use std::fs;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NULL: (u32, u32, u32) = (nfs3::PROGRAM, nfs3::VERSION, 0);
const GETATTR: (u32, u32, u32) = (nfs3::PROGRAM, nfs3::VERSION, 1);
const NFS_READ: (u32, u32, u32) = (nfs3::PROGRAM, nfs3::VERSION, 6);
const NFS_WRITE: (u32, u32, u32) = (nfs3::PROGRAM, nfs3::VERSION, 7);

struct World {
    server: Served,
    _directory: TempDir,
    _scratch: TempDir,
}

fn serve() -> World {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    fs::write(directory.path().join("file"), vec![7; 100_000]).expect("file");
    let server = Served::start(directory.path(), scratch.path(), &["--rdma", "127.0.0.1:0"]);
    World {
        server,
        _directory: directory,
        _scratch: scratch,
    }
}

impl World {
    fn connect(&self) -> RawRdma {
        RawRdma::connect(&self.server.rdma, false)
    }

    /// A client that behaves is served: a new one, and `beside`, which was there before.
    fn is_well(&self, beside: &mut RawRdma) {
        is_answered(&mut self.connect());
        is_answered(beside);
    }

    fn resident_kib(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.server.pid())).expect("status");
        let line = status
            .lines()
            .find(|l| l.starts_with("VmRSS:"))
            .expect("VmRSS");
        line.split_whitespace()
            .nth(1)
            .and_then(|kib| kib.parse().ok())
            .expect("a number")
    }

    /// The handle of the export.
    fn root(&self) -> Vec<u8> {
        RawRpc::connect(&self.server.nfs).root()
    }
}

fn is_answered(raw: &mut RawRdma) {
    let (xid, call) = raw.call(NULL);
    raw.message(&[Header::message(xid).bytes(), call].concat())
        .expect("call");
    let reply = raw.receive().expect("reply");
    assert_eq!(reply[..4], xid.to_be_bytes());
    assert_eq!(reply[12..16], [0; 4], "RDMA_MSG");
    let answer = rpc::parse_reply(&reply[28..]).expect("RPC reply");
    assert!(answer.body.is_ok());
}

/// Word `index` of a message.
fn word(message: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(message[4 * index..4 * index + 4].try_into().expect("four"))
}

fn untagged(opcode: u8, number: u32, message: u32, offset: u32, payload: &[u8]) -> Fpdu {
    let to = To::Queue {
        number,
        message,
        offset,
    };
    Fpdu {
        opcode,
        last: true,
        to,
        payload: payload.to_vec(),
    }
}

fn tagged(opcode: u8, tag: u32, offset: u64, payload: &[u8]) -> Fpdu {
    let to = To::Tagged { tag, offset };
    Fpdu {
        opcode,
        last: true,
        to,
        payload: payload.to_vec(),
    }
}

/// A Read Request's payload: sink tag, sink offset, size, source tag, source offset.
fn read_request(bytes: u32, tag: u32, offset: u64) -> Vec<u8> {
    let words = [
        0x111_u32,
        0,
        0,
        bytes,
        tag,
        (offset >> 32) as u32,
        offset as u32,
    ];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn garbage_on_the_port_disturbs_nobody() {
    let world = serve();
    let mut beside = world.connect();
    let mut state = 0x9e37_79b9_u32;
    for length in [1, 3, 16, 20, 40, 333, 4096, 100_000] {
        let garbage: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(length)
        .collect();
        // Instead of a handshake, and behind one.
        let mut raw = RawRdma::silent(&world.server.rdma);
        let _ = raw.send(&garbage);
        let mut raw = world.connect();
        let _ = raw.send(&garbage);
        world.is_well(&mut beside);
    }
}

#[test]
fn handshakes_that_ask_for_what_is_not_there_are_refused() {
    let world = serve();
    let good = request(false, &LINUX);
    let mut cases = Vec::new();
    let mut with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        cases.push(bytes);
    };
    with(15, b'X'); // Not the key.
    with(7, b'?');
    with(16, 0x90); // Markers.
    with(17, 0); // A revision that never was.
    with(17, 9);
    with(18, 0xff); // 65,292 bytes of private data.
    with(19, 3); // Too short for IRD and ORD.
    cases.push([&good[..], &[0; 64]].concat()); // Bytes behind the request, which is no FPDU.
    for case in cases {
        let mut raw = RawRdma::silent(&world.server.rdma);
        let _ = raw.send(&case);
        // A reply that rejects, or none; then the end.
        let _ = raw.reply();
        raw.ended();
    }
    is_answered(&mut world.connect());
}

#[test]
fn the_silent_are_shown_out_and_the_slow_are_served() {
    let world = serve();
    let mut beside = world.connect();
    let begun = Instant::now();
    let mut silent: Vec<RawRdma> = (0..20)
        .map(|i| {
            let mut raw = RawRdma::silent(&world.server.rdma);
            raw.send(&request(false, &LINUX)[..i]).expect("send");
            raw
        })
        .collect();
    let mut slow = RawRdma::silent(&world.server.rdma);
    for byte in request(false, &LINUX) {
        slow.send(&[byte]).expect("a byte");
        std::thread::sleep(Duration::from_millis(5));
    }
    slow.reply().expect("a reply to the slow one");
    // Its calls come byte by byte, too.
    let (xid, call) = slow.call(NULL);
    let message = [Header::message(xid).bytes(), call].concat();
    let frame = slow.framed(&untagged(SEND, 0, 1, 0, &message).bytes());
    for byte in frame {
        slow.send(&[byte]).expect("a byte");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(word(&slow.receive().expect("reply"), 0), xid);
    world.is_well(&mut beside);
    for raw in &mut silent {
        raw.ended();
    }
    assert!(begun.elapsed() < 2 * PATIENCE);
    world.is_well(&mut beside);
}

#[test]
fn a_thousand_idle_connections_cost_little() {
    let world = serve();
    let mut beside = world.connect();
    world.is_well(&mut beside);
    let before = world.resident_kib();
    let idle: Vec<RawRdma> = (0..1000).map(|_| world.connect()).collect();
    world.is_well(&mut beside);
    let grown = world.resident_kib().saturating_sub(before);
    assert!(grown < 1000 * 64, "1,000 idle connections cost {grown} KiB");
    drop(idle);
    world.is_well(&mut beside);
}

#[test]
fn what_ddp_and_rdmap_forbid_is_terminated() {
    let world = serve();
    let mut beside = world.connect();
    let null = {
        let (xid, call) = beside.call(NULL);
        [Header::message(xid).bytes(), call].concat()
    };
    let bits = |at: usize, byte: u8| {
        let mut bytes = untagged(SEND, 0, 1, 0, &null).bytes();
        bytes[at] = byte;
        bytes
    };
    // What is sent first on a fresh connection, and the layer that must say no: 0 RDMAP, 1 DDP, 2 MPA. No RDMA Read was
    // offered, so DDP has no buffer for a request.
    let cases = [
        (
            "an RDMA Write to no tag",
            tagged(WRITE, 0x4242, 0, &[1; 100]).bytes(),
            1,
        ),
        (
            "an RDMA Write of nothing to no tag at the end",
            tagged(WRITE, 0, u64::MAX, &[1]).bytes(),
            1,
        ),
        (
            "an RDMA Read of no tag",
            untagged(READ_REQUEST, 1, 1, 0, &read_request(4096, 0x4242, 0)).bytes(),
            1,
        ),
        (
            "an RDMA Read of a guessed tag",
            untagged(READ_REQUEST, 1, 1, 0, &read_request(8, 0x100, 0)).bytes(),
            1,
        ),
        (
            "a Read Response to nothing",
            tagged(READ_RESPONSE, 0x100, 0, &[1; 100]).bytes(),
            0,
        ),
        (
            "a Read Request that is too short",
            untagged(READ_REQUEST, 1, 1, 0, &[0; 20]).bytes(),
            0,
        ),
        ("queue 3", untagged(SEND, 3, 1, 0, &null).bytes(), 1),
        (
            "a message number ahead",
            untagged(SEND, 0, 7, 0, &null).bytes(),
            1,
        ),
        (
            "a message number of 0",
            untagged(SEND, 0, 0, 0, &null).bytes(),
            1,
        ),
        (
            "a message that begins in its middle",
            untagged(SEND, 0, 1, 512, &null).bytes(),
            1,
        ),
        ("DDP of another version", bits(0, 0x42), 1),
        ("RDMAP of another version", bits(1, 0x83), 0),
        ("an opcode that is none", bits(1, 0x4f), 0),
        ("a tagged Send", tagged(SEND, 0x100, 0, &null).bytes(), 0),
    ];
    let mut wrong = Vec::new();
    for (what, ulpdu, layer) in cases {
        let mut raw = world.connect();
        let frame = raw.framed(&ulpdu);
        raw.send(&frame).expect(what);
        match raw.ended() {
            Ended::Terminated(said) if said.layer == layer => {}
            ended => wrong.push((what, ended)),
        }
        world.is_well(&mut beside);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // Frames that cannot be: shorter than any header.
    for length in [0_usize, 1, 2, 13, 17] {
        let mut raw = world.connect();
        let frame = raw.framed(&vec![0x41; length]);
        raw.send(&frame).expect("send");
        raw.ended();
        world.is_well(&mut beside);
    }
    // One that says Terminate itself is gone.
    let mut raw = world.connect();
    raw.put(&untagged(TERMINATE, 2, 1, 0, &[0x01, 0, 0, 0]))
        .expect("send");
    assert_eq!(raw.ended(), Ended::Closed);
}

#[test]
fn a_wrong_checksum_is_terminated() {
    let world = serve();
    let mut beside = RawRdma::connect(&world.server.rdma, true);
    is_answered(&mut beside);
    for at in [0, 5, 40] {
        let mut raw = RawRdma::connect(&world.server.rdma, true);
        let (xid, call) = raw.call(NULL);
        let message = [Header::message(xid).bytes(), call].concat();
        let mut frame = raw.framed(&untagged(SEND, 0, 1, 0, &message).bytes());
        let at = frame.len() - 1 - at;
        frame[at] ^= 1;
        raw.send(&frame).expect("send");
        let said = Terminate {
            layer: 2,
            kind: 0,
            code: 2,
        };
        assert_eq!(raw.ended(), Ended::Terminated(said));
        world.is_well(&mut beside);
    }
}

#[test]
fn more_than_the_credits_ends_only_that_connection() {
    let world = serve();
    let mut beside = world.connect();
    let before = world.resident_kib();
    let mut raw = world.connect();
    // Without ever taking an answer: what is granted is bounded, and so is what waits for us.
    let (xid, call) = raw.call((nfs3::PROGRAM, nfs3::VERSION, 99));
    let message = [Header::message(xid).bytes(), call, vec![0; 900]].concat();
    raw.impatient();
    for _ in 0..100_000 {
        if raw.message(&message).is_err() {
            break;
        }
    }
    world.is_well(&mut beside);
    let grown = world.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "the server grew by {grown} KiB");
}

/// Sends one call with this header; the answer.
fn answer(raw: &mut RawRdma, header: &Header, call: &[u8]) -> Vec<u8> {
    raw.message(&[header.bytes(), call.to_vec()].concat())
        .expect("call");
    raw.receive().expect("an answer")
}

/// `RDMA_ERROR` with `ERR_CHUNK`.
fn is_chunk_error(reply: &[u8], xid: u32, what: &str) {
    assert_eq!(
        (word(reply, 0), word(reply, 3), word(reply, 4)),
        (xid, 4, 2),
        "{what}"
    );
}

#[test]
fn chunk_lists_out_of_bounds_are_answered_and_the_connection_goes_on() {
    let world = serve();
    let mut beside = world.connect();
    let mut raw = world.connect();
    let segment = (0x100, 4096, 0);
    let read = |position, tag| (position, tag, 4096, 0);
    let of = |change: &dyn Fn(&mut Header)| {
        let mut header = Header::message(0);
        change(&mut header);
        header
    };
    let cases = [
        (
            "1,000 read segments",
            of(&|h| h.reads = vec![read(40, 1); 150]),
        ),
        (
            "seventeen segments in a write chunk",
            of(&|h| h.writes = vec![vec![segment; 17]]),
        ),
        (
            "two write chunks",
            of(&|h| h.writes = vec![vec![segment]; 2]),
        ),
        (
            "seventeen segments in the reply chunk",
            of(&|h| h.reply = Some(vec![segment; 17])),
        ),
        ("RDMA_MSGP", of(&|h| h.procedure = 2)),
        ("a procedure that is none", of(&|h| h.procedure = 77)),
        ("a call that lies nowhere", of(&|h| h.procedure = 1)),
        (
            "4 GiB to be read",
            of(&|h| h.reads = vec![(40, 1, u32::MAX, 0)]),
        ),
        (
            "many times 256 MiB",
            of(&|h| h.reads = (0..16).map(|i| (40, i, 1 << 28, 0)).collect()),
        ),
    ];
    for (what, mut header) in cases {
        let (xid, call) = raw.call(NULL);
        header.xid = xid;
        let reply = answer(&mut raw, &header, &call);
        is_chunk_error(&reply, xid, what);
        is_answered(&mut raw);
        world.is_well(&mut beside);
    }
    // Another version: ERR_VERS, with the versions that are spoken.
    let (xid, call) = raw.call(NULL);
    let reply = answer(
        &mut raw,
        &Header {
            version: 2,
            ..Header::message(xid)
        },
        &call,
    );
    assert_eq!([0, 3, 4, 5, 6].map(|i| word(&reply, i)), [xid, 4, 1, 1, 1]);
    // Lists that end in their middle, or claim what does not follow.
    for words in [
        vec![1_u32],
        vec![1, 40, 1, 9],
        vec![0, 1, u32::MAX],
        vec![0, 0, 1, 0x7fff_ffff],
        vec![2, 0, 0],
    ] {
        let (xid, _) = raw.call(NULL);
        let bytes: Vec<u8> = [&[xid, 1, 32, 0], &words[..]]
            .concat()
            .iter()
            .flat_map(|w| w.to_be_bytes())
            .collect();
        raw.message(&bytes).expect("send");
        is_chunk_error(
            &raw.receive().expect("an answer"),
            xid,
            &format!("{words:?}"),
        );
        is_answered(&mut raw);
    }
    // DONE for nothing, an error out of nowhere, headers cut short: nothing is said to them.
    for bytes in [
        &Header {
            procedure: 3,
            ..Header::message(9)
        }
        .bytes()[..16],
        &[0; 3],
        &[],
    ] {
        raw.message(bytes).expect("send");
    }
    let error: Vec<u8> = [9_u32, 1, 32, 4, 2]
        .iter()
        .flat_map(|w| w.to_be_bytes())
        .collect();
    raw.message(&error).expect("send");
    is_answered(&mut raw);
    world.is_well(&mut beside);
}

/// A NFS WRITE of `bytes` whose data is in a read chunk: the header and the call.
fn write_call(raw: &mut RawRdma, root: &[u8], bytes: u32) -> (Header, Vec<u8>) {
    let (xid, mut call) = raw.call(NFS_WRITE);
    call.extend(xdr(&FileHandle(root)));
    call.extend([0; 8]);
    for value in [bytes, 2, bytes] {
        call.extend(value.to_be_bytes());
    }
    let mut header = Header::message(xid);
    header.reads = vec![(call.len() as u32, 0x5151, bytes, 0x1000)];
    (header, call)
}

/// The server's RDMA Read for the chunk of such a call: its sink's tag and offset, and its size.
fn its_read(raw: &mut RawRdma) -> (u32, u64, u32) {
    let asked = raw.get().expect("a Read Request");
    assert_eq!(asked.opcode, READ_REQUEST, "{asked:?}");
    let said = &asked.payload;
    assert_eq!(word(said, 4), 0x5151, "of another tag");
    (
        word(said, 0),
        u64::from(word(said, 1)) << 32 | u64::from(word(said, 2)),
        word(said, 3),
    )
}

#[test]
fn a_read_sink_takes_its_response_and_nothing_else() {
    let world = serve();
    let root = world.root();
    let mut beside = world.connect();
    type Answer = fn(u32, u64) -> Fpdu;
    let wrong: [(&str, Answer); 6] = [
        ("an RDMA Write to it", |tag, at| {
            tagged(WRITE, tag, at, &[1; 64])
        }),
        ("another tag", |tag, at| {
            tagged(READ_RESPONSE, tag ^ 0x100, at, &[1; 64])
        }),
        ("another key of the tag", |tag, at| {
            tagged(READ_RESPONSE, tag ^ 1, at, &[1; 64])
        }),
        ("a byte behind its place", |tag, at| {
            tagged(READ_RESPONSE, tag, at + 1, &[1; 64])
        }),
        ("more than was asked for", |tag, at| {
            tagged(READ_RESPONSE, tag, at, &[1; 4100])
        }),
        ("less than was asked for, as the last", |tag, at| {
            tagged(READ_RESPONSE, tag, at, &[1; 64])
        }),
    ];
    for (what, answer) in wrong {
        let mut raw = world.connect();
        let (header, call) = write_call(&mut raw, &root, 4096);
        raw.message(&[header.bytes(), call].concat()).expect("call");
        let (tag, offset, bytes) = its_read(&mut raw);
        assert_eq!(bytes, 4096);
        raw.put(&answer(tag, offset)).expect(what);
        assert!(
            matches!(raw.ended(), Ended::Terminated(_)),
            "{what}: no Terminate"
        );
        world.is_well(&mut beside);
    }
    // As it should be: the root is a directory, and the answer says so.
    let mut raw = world.connect();
    let (header, call) = write_call(&mut raw, &root, 4096);
    raw.message(&[header.bytes(), call].concat()).expect("call");
    let (tag, offset, bytes) = its_read(&mut raw);
    raw.put(&tagged(
        READ_RESPONSE,
        tag,
        offset,
        &vec![1; bytes as usize],
    ))
    .expect("response");
    assert_eq!(word(&raw.receive().expect("reply"), 0), header.xid);
    // Once only.
    raw.put(&tagged(READ_RESPONSE, tag, offset, &[1; 64]))
        .expect("again");
    assert!(matches!(raw.ended(), Ended::Terminated(_)));
    world.is_well(&mut beside);
}

#[test]
fn reads_that_nobody_answers_hold_a_bounded_memory() {
    let world = serve();
    let root = world.root();
    let mut beside = world.connect();
    world.is_well(&mut beside);
    let before = world.resident_kib();
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut raw = world.connect();
        for _ in 0..20 {
            let (header, call) = write_call(&mut raw, &root, 1 << 20);
            raw.message(&[header.bytes(), call].concat()).expect("call");
        }
        silent.push(raw);
    }
    world.is_well(&mut beside);
    // 400 MiB were announced.
    let grown = world.resident_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "the server grew by {grown} KiB");
    drop(silent);
    world.is_well(&mut beside);
}

#[test]
fn a_reply_larger_than_its_room_is_an_error_and_no_overrun() {
    let world = serve();
    let mut rpc = RawRpc::connect(&world.server.nfs);
    let root = rpc.root();
    let name = nfs3::DirectoryName {
        directory: FileHandle(&root),
        name: b"file",
    };
    let (status, found) = rpc.nfs(3, &xdr(&name));
    assert_eq!(status, 0);
    let handle = found[4..4 + word(&found, 0) as usize].to_vec();
    let mut beside = world.connect();
    let mut raw = world.connect();
    let read = nfs3::ReadArgs {
        file: FileHandle(&handle),
        offset: 0,
        count: 65_536,
    };
    // A write chunk of 100 bytes for 64 KiB, no chunk at all, a reply chunk that is too small.
    for (writes, reply) in [
        (vec![vec![(0x77, 100, 0)]], None),
        (vec![], None),
        (vec![], Some(vec![(0x77, 64, 0)])),
    ] {
        let (xid, mut call) = raw.call(NFS_READ);
        call.extend(xdr(&read));
        let header = Header {
            writes,
            reply,
            ..Header::message(xid)
        };
        raw.message(&[header.bytes(), call].concat()).expect("call");
        let mut written = 0;
        let said = loop {
            let fpdu = raw.get().expect("an answer");
            if fpdu.opcode != WRITE {
                break fpdu;
            }
            written += fpdu.payload.len();
            assert!(written <= 100, "written beyond the chunk");
        };
        assert_eq!(word(&said.payload, 0), xid);
        is_answered(&mut raw);
    }
    // With room it is written there, within bounds, before the reply.
    let (xid, mut call) = raw.call(NFS_READ);
    call.extend(xdr(&read));
    let header = Header {
        writes: vec![vec![(0x77, 40_000, 0x500), (0x78, 40_000, 0)]],
        ..Header::message(xid)
    };
    raw.message(&[header.bytes(), call].concat()).expect("call");
    let mut written = 0;
    loop {
        let fpdu = raw.get().expect("an answer");
        match fpdu.to {
            To::Tagged { tag, offset } => {
                let expected = if written < 40_000 {
                    (0x77, 0x500 + written)
                } else {
                    (0x78, written - 40_000)
                };
                assert_eq!((tag, offset), expected);
                assert!(fpdu.payload.iter().all(|&byte| byte == 7));
                written += fpdu.payload.len() as u64;
            }
            To::Queue { .. } => {
                assert_eq!(word(&fpdu.payload, 0), xid);
                break;
            }
        }
    }
    assert_eq!(written, 65_536);
    world.is_well(&mut beside);
}

#[test]
fn connections_cut_in_their_middle_leave_nothing() {
    let world = serve();
    let root = world.root();
    let mut beside = world.connect();
    let mut whole = world.connect();
    let (header, call) = write_call(&mut whole, &root, 4096);
    let message = [header.bytes(), call].concat();
    let frame = whole.framed(&untagged(SEND, 0, 1, 0, &message).bytes());
    for cut in (0..frame.len()).step_by(7) {
        let mut raw = world.connect();
        raw.send(&frame[..cut]).expect("send");
    }
    // Behind the server's Read Request, too.
    for _ in 0..20 {
        let mut raw = world.connect();
        raw.send(&frame).expect("send");
        its_read(&mut raw);
    }
    world.is_well(&mut beside);
    let (xid, mut call) = beside.call(GETATTR);
    call.extend(xdr(&FileHandle(&root)));
    assert_eq!(
        word(&answer(&mut beside, &Header::message(xid), &call), 0),
        xid
    );
}
