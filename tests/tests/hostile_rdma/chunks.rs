//! Calls whose chunk lists lie, and peers that answer what the server asks of them wrongly or not at all.

use super::*;

/// Sends one call with this header; the answer.
pub fn answer(raw: &mut impl Messages, header: &Header, call: &[u8]) -> Vec<u8> {
    raw.send_message(&[header.bytes(), call.to_vec()].concat())
        .expect("call");
    raw.next_message().expect("an answer")
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
    out_of_bounds(&mut world.connect(), || world.is_well(&mut beside));
}

/// Chunk lists that lie, on this connection, and what is looked at after each.
pub fn out_of_bounds(raw: &mut impl Messages, mut is_well: impl FnMut()) {
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
            "nine write chunks",
            of(&|h| h.writes = vec![vec![segment]; 9]),
        ),
        (
            "33 segments in three write chunks",
            of(&|h| h.writes = vec![vec![segment; 11]; 3]),
        ),
        (
            "nine read chunks",
            of(&|h| h.reads = (0..9).map(|i| (4 + 4 * i, 1, 4, 0)).collect()),
        ),
        (
            "a read chunk within another",
            of(&|h| h.reads = vec![(8, 1, 64, 0), (24, 1, 4, 0)]),
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
        (
            "three chunks, together more than a call may be",
            of(&|h| h.reads = (0..3).map(|i| (8 + i * 400_000, 1, 400_000, 0)).collect()),
        ),
    ];
    for (what, mut header) in cases {
        let (xid, call) = raw.call(NULL);
        header.xid = xid;
        let reply = answer(raw, &header, &call);
        is_chunk_error(&reply, xid, what);
        is_answered(raw);
        is_well();
    }
    // Another version: ERR_VERS, with the versions that are spoken.
    let (xid, call) = raw.call(NULL);
    let reply = answer(
        raw,
        &Header {
            version: 2,
            ..Header::message(xid)
        },
        &call,
    );
    let said = [0, 1, 3, 4, 5, 6].map(|i| word(&reply, i));
    assert_eq!(said, [xid, 2, 4, 1, 1, 1]);
    // A call of another xid than its header.
    let (xid, mut call) = raw.call(NULL);
    call[3] ^= 1;
    let reply = answer(raw, &Header::message(xid), &call);
    is_chunk_error(&reply, xid, "another xid");
    // Lists that end in their middle, or claim what does not follow.
    for words in [
        vec![1_u32, 40, 1, 9],
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
        raw.send_message(&bytes).expect("send");
        is_chunk_error(
            &raw.next_message().expect("an answer"),
            xid,
            &format!("{words:?}"),
        );
        is_answered(raw);
    }
    // DONE for nothing, an error out of nowhere, headers cut short: nothing is said to them.
    for bytes in [
        &Header {
            procedure: 3,
            ..Header::message(9)
        }
        .bytes()[..16],
        &Header::message(9).bytes()[..24],
        &[0; 3],
        &[],
    ] {
        raw.send_message(bytes).expect("send");
    }
    let error: Vec<u8> = [9_u32, 1, 32, 4, 2]
        .iter()
        .flat_map(|w| w.to_be_bytes())
        .collect();
    raw.send_message(&error).expect("send");
    is_answered(raw);
    is_well();
}

/// A NFS WRITE of `bytes` whose data is in a read chunk: the header and the call.
pub fn write_call(raw: &mut RawRdma, root: &[u8], bytes: u32) -> (Header, Vec<u8>) {
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
pub fn its_read(raw: &mut RawRdma) -> (u32, u64, u32) {
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
        // Before the first grant there are receives for a few calls alone.
        is_answered(&mut raw);
        for number in 0..20 {
            let (header, call) = write_call(&mut raw, &root, 1 << 20);
            if let Err(error) = raw.message(&[header.bytes(), call].concat()) {
                panic!("call {number}: {error}; {:?}", raw.ended());
            }
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
