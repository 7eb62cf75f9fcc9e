//! Data of several operations that go to the caller's memory, each to its own place.

use odafs_nic::calls::{ChunkSource, Placed};

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

#[test]
fn the_data_of_all_reads_are_bounded_together() {
    let room = Room::new();
    let bytes = 600 << 10;
    room.file(b"big", &vec![7; bytes as usize]);
    let mut client = Client::new(&room, b"client", 1);
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
