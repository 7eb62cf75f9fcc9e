//! Data of several operations that go to the caller's memory, each to its own place.

use odafs_nic::calls::{ChunkSource, Placed};

use super::super::run::REPLY_OVERHEAD_BYTES;
use super::*;

/// 5000 bytes of each of two files, and a link.
fn furnished() -> Room {
    let room = Room::new();
    room.file(b"one", &[1; 5000]);
    room.file(b"two", &[2; 5000]);
    let client = Client::new(&room, b"maker", 9);
    let link = Operation::Create(CreateArgs {
        kind: CreateType::Symlink(Payload(b"elsewhere")),
        name: Name(b"link"),
        attributes: RawAttributes::default(),
    });
    let made = client.does(&[Operation::PutRootFileHandle, link]);
    assert_eq!(made.status(), Status::Ok);
    room
}

/// Looks a name up, and reads what it names.
fn read_of(name: &'static [u8], count: u32) -> [Operation<'static>; 3] {
    let what = match name {
        b"link" => Operation::ReadLink,
        _ => read(StateId::ANONYMOUS, 0, count),
    };
    [
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(name)),
        what,
    ]
}

/// What a placed result says of itself, and its data.
type Told = (u32, Vec<u8>);

/// The placed results of an answer with their data, and the reply with them.
fn put_together(room: &Room, answer: Answer, reply: Reply) -> (Vec<Told>, Reply) {
    let placed = match answer {
        Answer::Placed(placed) => placed,
        Answer::Replied => Placed::default(),
        answer => panic!("{answer:?}"),
    };
    let mut data = Vec::new();
    for piece in &placed.pieces {
        match piece {
            ChunkSource::Bytes(bytes) => data.extend_from_slice(bytes),
            ChunkSource::Frame {
                frame,
                offset,
                length,
            } => {
                let arena = room.world.export.arena();
                assert!(arena.is_pinned(frame.frame()));
                let mut bytes = vec![0; *length as usize];
                arena.copy_out(frame.frame(), *offset, &mut bytes);
                data.extend_from_slice(&bytes);
            }
        }
    }
    let (mut told, mut whole) = (Vec::new(), reply.0);
    let mut added = 0;
    for result in placed.results.iter() {
        let rest = data.split_off(result.bytes as usize);
        let mut one = std::mem::replace(&mut data, rest);
        told.push((result.result, one.clone()));
        one.resize(one.len().next_multiple_of(4), 0);
        let at = result.at as usize + added;
        added += one.len();
        whole.splice(at..at, one);
    }
    assert_eq!(data, [0; 0], "data of no result");
    (told, Reply(whole))
}

/// A compound with these chunks.
fn run(
    room: &Room,
    client: &mut Client<'_>,
    chunks: &[u32],
    operations: &[Operation<'_>],
) -> (Vec<Told>, Reply) {
    client.caller.placements = Placements::new(chunks);
    let bytes = client.next(operations);
    let (answer, reply) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    put_together(room, answer, reply)
}

#[test]
fn the_nth_result_goes_to_the_nth_chunk() {
    let room = furnished();
    let mut client = Client::new(&room, b"client", 1);
    let ask = [
        &read_of(b"one", 1025)[..],
        &read_of(b"link", 0),
        // It brings nothing, and that takes the third chunk.
        &read_of(b"one", 0),
        &read_of(b"two", 2001),
        &read_of(b"one", 7),
    ]
    .concat();
    let (_, whole) = run(&room, &mut client, &[], &ask);
    assert_eq!(whole.status(), Status::Ok);
    let (one, two, link) = (vec![1; 1025], vec![2; 2001], b"elsewhere".to_vec());
    let k = 1 << 10;
    for (chunks, expected) in [
        (
            &[4 * k, 4 * k, 4 * k, 4 * k, 4 * k][..],
            vec![
                (0, one.clone()),
                (1, link.clone()),
                (2, vec![]),
                (3, two.clone()),
                (4, vec![1; 7]),
            ],
        ),
        // Fewer chunks than results, and empty ones: those results are in the reply.
        (&[4 * k, 4 * k], vec![(0, one.clone()), (1, link.clone())]),
        (&[0, 0, 0, 4 * k], vec![(3, two.clone())]),
        (
            &[0, 9, 4 * k, 0, 7],
            vec![(1, link.clone()), (2, vec![]), (4, vec![1; 7])],
        ),
        (&[0; 8], vec![]),
    ] {
        let (told, reply) = run(&room, &mut client, chunks, &ask);
        assert_eq!(told, expected, "{chunks:?}");
        // The sequence number apart, which SEQUENCE returns.
        assert_eq!(reply.all()[1..], whole.all()[1..], "{chunks:?}");
    }
    // No more than a chunk holds.
    let (told, reply) = run(&room, &mut client, &[4 * k, 8], &ask);
    assert_eq!((told.len(), reply.status()), (1, Status::RepTooBig));
    let short = [&read_of(b"one", 1025)[..], &read_of(b"two", 2001)].concat();
    let (told, _) = run(&room, &mut client, &[100, 200], &short);
    assert_eq!(told, [(0, vec![1; 100]), (1, vec![2; 200])]);
}

#[test]
fn an_operation_that_fails_leaves_its_chunk_and_those_behind_it() {
    let room = furnished();
    let mut client = Client::new(&room, b"client", 1);
    let ask = [
        &read_of(b"one", 10)[..],
        &read_of(b"none", 10),
        &read_of(b"two", 10),
    ]
    .concat();
    let (told, reply) = run(&room, &mut client, &[100, 100, 100], &ask);
    assert_eq!(told, [(0, vec![1; 10])]);
    assert_eq!(reply.status(), Status::NoEnt);
    let ask = [
        &read_of(b"one", 10)[..],
        &[Operation::PutRootFileHandle, Operation::ReadLink],
        &read_of(b"two", 10),
    ]
    .concat();
    let (told, reply) = run(&room, &mut client, &[100, 100, 100], &ask);
    assert_eq!(told, [(0, vec![1; 10])]);
    assert_eq!(reply.status(), Status::WrongType);
}

/// A client whose replies may have so many bytes. Slots need not keep them.
fn client_of(room: &Room, max_response: u32) -> Client<'_> {
    let fore = ChannelAttributes {
        max_response,
        ..CHANNEL
    };
    let client = Client::of_channel(
        room,
        &max_response.to_be_bytes(),
        caller(1),
        0,
        (1, 1),
        fore,
    );
    client.completes();
    Client {
        keeps: false,
        ..client
    }
}

#[test]
fn the_data_of_all_reads_are_bounded_together() {
    let room = Room::new();
    let bytes = 600 << 10;
    room.file(b"big", &vec![7; bytes as usize]);
    let mut client = client_of(&room, 2 << 20);
    let ask = [&read_of(b"big", bytes)[..], &read_of(b"big", bytes)].concat();
    let (told, reply) = run(&room, &mut client, &[bytes; 2], &ask);
    assert_eq!(reply.status(), Status::Ok);
    let lengths: Vec<_> = told.iter().map(|(_, data)| data.len() as u32).collect();
    assert_eq!(lengths, [bytes, super::super::DATA_BYTES_MAX - bytes]);
    // A result that brings nothing without being the end would be taken for a failure, so it is one.
    let ask = [&ask[..], &read_of(b"big", 1)].concat();
    let (told, reply) = run(&room, &mut client, &[bytes; 3], &ask);
    assert_eq!((told.len(), reply.status()), (2, Status::RepTooBig));
}

/// The longest reply of a session is that of a message without chunks. The transport's is that of the message alone.
#[test]
fn what_is_placed_counts_for_the_longest_reply_of_the_session() {
    let room = furnished();
    let longest = 8000;
    let mut client = client_of(&room, longest);
    let ask = [&read_of(b"one", 5000)[..], &read_of(b"two", 5000)].concat();
    let (_, inline) = run(&room, &mut client, &[], &ask);
    client.caller.reply_bytes_max = 1024;
    let (told, placed) = run(&room, &mut client, &[5000; 2], &ask);
    assert_eq!(placed.status(), Status::Ok);
    assert_eq!(told[0].1, [1; 5000]);
    assert!(
        (1000..3000).contains(&told[1].1.len()),
        "{}",
        told[1].1.len()
    );
    assert_eq!(placed.all()[1..], inline.all()[1..]);
    // A link is not cut short.
    let target = vec![b'x'; 3000];
    let link = Operation::Create(CreateArgs {
        kind: CreateType::Symlink(Payload(&target)),
        name: Name(b"long"),
        attributes: RawAttributes::default(),
    });
    let made = client.does(&[Operation::PutRootFileHandle, link]);
    assert_eq!(made.status(), Status::Ok);
    let read_link = [Operation::Lookup(Name(b"long")), Operation::ReadLink];
    let root = [Operation::PutRootFileHandle];
    let ask = [&read_of(b"one", 4500)[..], &root, &read_link].concat();
    let (told, reply) = run(&room, &mut client, &[5000; 2], &ask);
    assert_eq!((told.len(), reply.status()), (2, Status::Ok));
    let ask = [&read_of(b"one", 4950)[..], &root, &read_link].concat();
    let (told, reply) = run(&room, &mut client, &[5000; 2], &ask);
    assert_eq!((told.len(), reply.status()), (1, Status::RepTooBig));
    // Nor is a change made whose result has no room beside the data.
    let ask = [&read_of(b"one", 4500)[..], &root, &read_link].concat();
    let (_, fits) = run(&room, &mut client, &[5000; 2], &ask);
    let fits = fits.0.len() as u32 + REPLY_OVERHEAD_BYTES as u32;
    let ask = [&ask[..], &root, &[Operation::Remove(Name(b"long"))]].concat();
    for (more, status) in [(32, Status::RepTooBig), (36, Status::Ok)] {
        let mut client = client_of(&room, fits + more);
        let (told, reply) = run(&room, &mut client, &[5000; 2], &ask);
        assert_eq!((told.len(), reply.status()), (2, status));
    }
}

/// Data that were placed are kept with their reply. Those for which a repetition has chunks are placed again.
#[test]
fn a_reply_is_kept_with_its_data() {
    let room = furnished();
    let mut client = Client::new(&room, b"client", 1);
    let ask = [
        &read_of(b"one", 1025)[..],
        &read_of(b"link", 0),
        &read_of(b"one", 0),
        &read_of(b"two", 2001),
        &[
            Operation::PutRootFileHandle,
            Operation::Remove(Name(b"two")),
        ],
    ]
    .concat();
    let (told, whole) = run(&room, &mut client, &[4096; 4], &ask);
    assert_eq!((told.len(), whole.status()), (4, Status::Ok));
    let other = Client::new(&room, b"other", 2);
    let root = Operation::PutRootFileHandle;
    let change = write(StateId::ANONYMOUS, 0, Stable::FileSync, &[9; 5000]);
    let changed = other.does(&[root, Operation::Lookup(Name(b"one")), change]);
    assert_eq!(changed.status(), Status::Ok);
    let bytes = client.again(&ask);
    for (chunks, is_placed) in [
        (&[4096; 4][..], [true; 4]),
        (&[1025, 9, 0, 2001], [true, true, false, true]),
        // The transport refuses what is longer than its chunk.
        (&[1024, 9, 8, 2000], [true; 4]),
        (&[4096; 3], [true, true, true, false]),
        (&[0, 0, 0, 4096], [false, false, false, true]),
        (&[], [false; 4]),
    ] {
        let (told_again, again) = repeated(&room, &mut client, chunks, &bytes);
        assert_eq!(again.0, whole.0, "{chunks:?}");
        let expected = told
            .iter()
            .zip(is_placed)
            .filter(|(_, is_placed)| *is_placed);
        let expected: Vec<_> = expected.map(|(one, _)| one.clone()).collect();
        assert_eq!(told_again, expected, "{chunks:?}");
    }
}

/// A compound again, with other chunks.
fn repeated(
    room: &Room,
    client: &mut Client<'_>,
    chunks: &[u32],
    bytes: &[u8],
) -> (Vec<Told>, Reply) {
    client.caller.placements = Placements::new(chunks);
    let (answer, again) = room.run(&client.caller, &client.who, bytes, Effort::ResidentOnly);
    put_together(room, answer, again)
}

/// The first time it came over another transport, or with other chunks.
#[test]
fn a_reply_that_was_kept_whole_goes_to_the_chunks_of_a_repetition() {
    let room = furnished();
    let mut client = Client::new(&room, b"client", 1);
    let ask = [&read_of(b"one", 1025)[..], &read_of(b"link", 0)].concat();
    let (told, whole) = run(&room, &mut client, &[], &ask);
    assert_eq!((told.len(), whole.status()), (0, Status::Ok));
    let bytes = client.again(&ask);
    let (told, again) = repeated(&room, &mut client, &[4096, 4096], &bytes);
    assert_eq!(told, [(0, vec![1; 1025]), (1, b"elsewhere".to_vec())]);
    assert_eq!(again.0, whole.0);
}

/// Linux asks for as much as a READ of 1 MiB needs, and 904 bytes (`nfs41_maxread_overhead`).
#[test]
fn a_read_of_1_mib_fits_the_longest_reply_of_linux() {
    let room = Room::new();
    room.file(b"big", &vec![7; 1 << 20]);
    let mut client = client_of(&room, (1 << 20) + 904);
    for chunks in [&[1 << 20][..], &[]] {
        let (_, reply) = run(&room, &mut client, chunks, &read_of(b"big", 1 << 20));
        assert_eq!(last!(reply, Read).data.0.len(), 1 << 20, "{chunks:?}");
    }
}

/// A client that asks for it gets a reply that is kept, or is told that it cannot be (RFC 8881, section 2.10.6.4).
#[test]
fn data_that_are_too_long_to_be_kept_are_refused() {
    let room = furnished();
    let mut client = Client::new(&room, b"client", 1);
    let root = || Operation::PutRootFileHandle;
    let ask = [
        &[root(), Operation::Remove(Name(b"link"))][..],
        &read_of(b"one", 5000),
    ]
    .concat();
    let (told, refused) = run(&room, &mut client, &[5000], &ask);
    assert_eq!(
        (told.len(), refused.status()),
        (0, Status::RepTooBigToCache)
    );
    let bytes = client.again(&ask);
    let (_, again) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
    assert_eq!(again.0, refused.0);
    // Nor is anything done for which the slot has no room beside the data.
    let ask = [
        &read_of(b"one", 3940)[..],
        &[root(), Operation::Remove(Name(b"two"))],
    ]
    .concat();
    let (_, refused) = run(&room, &mut client, &[5000], &ask);
    assert_eq!(refused.status(), Status::RepTooBigToCache);
    let there = client.does(&[root(), Operation::Lookup(Name(b"two"))]);
    assert_eq!(there.status(), Status::Ok);
}

/// SEQUENCE does not fail where it comes first (RFC 8881, section 2.10.6.1.3).
#[test]
fn a_repetition_of_what_was_not_kept_fails_behind_sequence() {
    let room = furnished();
    let mut client = client_of(&room, 1 << 20);
    let ask = read_of(b"one", 5000);
    let (told, first) = run(&room, &mut client, &[5000], &ask);
    assert_eq!((told.len(), first.status()), (1, Status::Ok));
    let again = |operations: &[Operation<'_>]| {
        let bytes = client.again(operations);
        let (answer, again) = room.run(&client.caller, &client.who, &bytes, Effort::MayBlock);
        assert!(matches!(answer, Answer::Replied), "{answer:?}");
        again
    };
    let reply = again(&ask);
    assert_eq!(reply.status(), Status::RetryUncachedRep);
    let all = reply.all();
    assert_eq!(all[0], first.all()[0]);
    let uncached = OperationResult::PutRootFileHandle(Err(Status::RetryUncachedRep));
    assert_eq!(all[1..], [uncached]);
    // SEQUENCE alone is answered anew.
    let alone = again(&[]);
    assert_eq!((alone.status(), alone.all().len()), (Status::Ok, 1));
    assert_eq!(client.does(&ask[..2]).status(), Status::Ok);
}
