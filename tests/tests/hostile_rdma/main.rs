//! What a hostile peer sends to the RDMA listener (iWARP over TCP): each is answered, or ended by a Terminate that says
//! why, and costs nobody else anything.
#![cfg(not(shuttle))]

mod chunks;
mod verbs;

use chunks::{answer, its_read, write_call};

use odafs_common::wire::nfs3::{self, FileHandle};
use odafs_common::wire::rpc;
use odafs_tests::raw::{PATIENCE, RawRpc, xdr};
use odafs_tests::raw_rdma::{
    Ended, Fpdu, Header, LINUX, Messages, READ_REQUEST, READ_RESPONSE, RawRdma, SEND, TERMINATE,
    Terminate, To, WRITE, request,
};
use odafs_tests::served::Served;
use std::fs;
use std::time::Duration;
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
    serve_with(&[])
}

fn serve_with(options: &[&str]) -> World {
    let (directory, scratch) = (
        tempfile::tempdir().expect("dir"),
        tempfile::tempdir().expect("dir"),
    );
    fs::write(directory.path().join("file"), vec![7; 100_000]).expect("file");
    let options = [&["--rdma", "127.0.0.1:0"], options].concat();
    let server = Served::start(directory.path(), scratch.path(), &options);
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
    fn is_well(&self, beside: &mut impl Messages) {
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

fn is_answered(raw: &mut impl Messages) {
    let (xid, call) = raw.call(NULL);
    raw.send_message(&[Header::message(xid).bytes(), call].concat())
        .expect("call");
    let reply = raw.next_message().expect("reply");
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

/// Replies and errors that answer no call of the server (RFC 8167), as often as they come.
#[test]
fn answers_to_no_call_are_dropped() {
    let world = serve();
    let mut beside = world.connect();
    let mut raw = world.connect();
    is_answered(&mut raw);
    for round in 0..20 {
        for xid in 0..100 {
            let mut answer = Header::message(xid).bytes();
            if round % 2 == 0 {
                let reply = [xid, 1, 0, 0, 0, 0];
                answer.extend(reply.map(u32::to_be_bytes).concat());
            } else {
                answer = [xid, 1, 32, 4, 2].map(u32::to_be_bytes).concat();
            }
            raw.message(&answer).expect("an answer");
        }
        is_answered(&mut raw);
    }
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
