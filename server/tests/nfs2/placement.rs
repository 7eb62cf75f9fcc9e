//! What travels apart by RDMA (RFC 8267, section 3): data of READ and WRITE, and what symbolic links say.

use odafs_common::wire::nfs2::{
    Payload, Procedure, ReadLinkResult, SetAttributes, SymlinkArgs, WriteArgs,
};
use odafs_common::wire::rpc::{Rejection, parse_reply};
use odafs_common::wire::xdr::{Encode, padding};
use odafs_fabric::memory::Own;
use odafs_nic::calls::{Caller, ChunkSource, ChunkedArguments, Outcome, Placements, Transport};
use odafs_nic::registration::Contents;

use crate::harness::{NFS, Server, at, caller, range, user};

fn placing(room: u32) -> Caller {
    Caller {
        transport: Transport::Iwarp,
        // What fits inline.
        reply_bytes_max: 4000,
        placements: Placements::one(room),
        ..caller("127.0.0.1:749")
    }
}

impl Server {
    fn gather(&self, pieces: Vec<ChunkSource>) -> Vec<u8> {
        let mut data = Vec::new();
        for piece in pieces {
            match piece {
                ChunkSource::Bytes(bytes) => data.extend(bytes),
                ChunkSource::Frame {
                    frame,
                    offset,
                    length,
                } => {
                    let mut bytes = vec![0; length as usize];
                    let arena = self.export.arena();
                    arena.copy_out(frame.frame(), offset, &mut bytes);
                    data.extend(bytes);
                }
            }
        }
        data
    }

    /// The reply with room for the data elsewhere is the one without it, less the data. How many bytes went apart.
    fn same_with_placement(&self, procedure: Procedure, arguments: &impl Encode) -> usize {
        let arguments = arguments.to_bytes();
        let message = self.message(NFS, procedure.code(), &user(0, 0), &arguments);
        let (outcome, whole) = self.outcome(&caller("127.0.0.1:1"), &message);
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        let (outcome, mut reply) = self.outcome(&placing(8192), &message);
        let placed = match outcome {
            Outcome::Replied => 0,
            Outcome::Placed(placed) => {
                let [result] = &placed.results[..] else {
                    panic!("{placed:?}");
                };
                let at = result.at as usize;
                let mut data = self.gather(placed.pieces);
                let bytes = data.len();
                assert_eq!((result.result, result.bytes as usize), (0, bytes));
                data.resize(bytes + padding(bytes), 0);
                reply.splice(at..at, data);
                bytes
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(reply, whole);
        placed
    }
}

#[test]
fn results_that_are_placed() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let data: Vec<u8> = (0..8001_u32).map(|i| ((i * 13) >> 3) as u8).collect();
    server.write(file, 0, &data).expect("written");
    for (offset, count, expected) in [(0, 8192, 8001), (4095, 2, 2), (8000, 9, 1), (8001, 9, 0)] {
        let placed = server.same_with_placement(Procedure::Read, &range(file, offset, count));
        assert_eq!(placed, expected, "{offset} {count}");
    }
    let link = SymlinkArgs {
        place: at(server.root(), "link"),
        target: Payload(b"somewhere else"),
        attributes: SetAttributes::default(),
    };
    let made: odafs_common::wire::nfs2::ChangeResult = server.nfs(Procedure::Symlink, &link);
    made.expect("made");
    let link = server.lookup(server.root(), "link").expect("found").file;
    assert_eq!(server.same_with_placement(Procedure::ReadLink, &link), 14);
    // Refusals, and all other results, are in the message.
    let root = server.root();
    assert_eq!(server.same_with_placement(Procedure::ReadLink, &root), 0);
    assert_eq!(
        server.same_with_placement(Procedure::Read, &range(root, 0, 9)),
        0
    );
    assert_eq!(
        server.same_with_placement(Procedure::GetAttributes, &root),
        0
    );
    // No more than there is room for, whatever the reply could hold.
    let arguments = range(file, 0, 8192).to_bytes();
    let message = server.message(NFS, Procedure::Read.code(), &user(0, 0), &arguments);
    let (outcome, _) = server.outcome(&placing(5000), &message);
    let Outcome::Placed(placed) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(server.gather(placed.pieces), data[..5000]);
}

#[test]
fn arguments_that_come_apart() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let served = |procedure: Procedure, arguments: &dyn Encode, from_end: usize, bytes: usize| {
        let arguments = arguments.to_bytes();
        let mut message = server.message(NFS, procedure.code(), &user(0, 0), &arguments);
        let start = message.len() - from_end;
        let mut chunk = message.split_off(start);
        let behind = chunk.split_off(chunk.len().min(bytes.next_multiple_of(4)));
        chunk.resize(bytes, 0);
        message.extend(behind);
        let mut memory = Own::new(chunk.len()).expect("memory");
        memory.bytes_mut().copy_from_slice(&chunk);
        let mut apart = ChunkedArguments::new(Contents::from(memory.lend()));
        assert!(apart.push(start as u32, 0..chunk.len()));
        let caller = Caller {
            apart: Some(apart),
            ..placing(100)
        };
        let (outcome, reply) = server.outcome(&caller, &message);
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        match parse_reply(&reply).expect("a reply").body {
            Ok(_) => true,
            Err(Rejection::GarbageArguments) => false,
            Err(other) => panic!("{other:?}"),
        }
    };
    let write = WriteArgs {
        file,
        begin_offset: 0,
        offset: 0,
        total_count: 0,
        data: Payload(b"hello"),
    };
    for (from_end, bytes, expected) in [
        (8, 5, true),
        (8, 8, true),
        (8, 4, false),
        (8, 12, false),
        (12, 5, false),
        (4, 4, false),
    ] {
        let taken = served(Procedure::Write, &write, from_end, bytes);
        assert_eq!(taken, expected, "{bytes} bytes at -{from_end}");
    }
    assert_eq!(server.content(file), b"hello");
    // The attributes, of 32 bytes, follow the target.
    let link = SymlinkArgs {
        place: at(server.root(), "link"),
        target: Payload(b"here"),
        attributes: SetAttributes::default(),
    };
    assert!(!served(Procedure::Symlink, &link, 40, 4));
    assert!(!served(Procedure::Symlink, &link, 32, 4));
    assert!(served(Procedure::Symlink, &link, 36, 4));
    let made = server.lookup(server.root(), "link").expect("found").file;
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &made);
    assert_eq!(said.expect("read").0, b"here");
    assert!(!served(Procedure::GetAttributes, &file, 32, 32));
}
