//! Data that goes ahead of a reply into the caller's memory.

use odafs_common::wire::nfs3::{
    self, FileHandle, LookupResult, Payload, Procedure, ReadArgs, ReadLinkResult, ReadResult,
    SetAttributes, Stable, SymlinkArgs, WriteArgs,
};
use odafs_common::wire::rpc::{Rejection, parse_reply};
use odafs_common::wire::xdr::{Encode, padding};
use odafs_fabric::memory::Own;
use odafs_nic::calls::{Caller, ChunkSource, ChunkedArguments, Outcome, Placements, Transport};
use odafs_nic::registration::Contents;

use crate::harness::{Server, at, caller, user};

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
    fn nfs_message(&self, procedure: Procedure, arguments: &impl Encode) -> Vec<u8> {
        let program = (nfs3::PROGRAM, nfs3::VERSION);
        self.message(
            program,
            procedure.code(),
            &user(0, 0),
            &arguments.to_bytes(),
        )
    }

    /// The data of the pieces.
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
                    let arena = self.export.arena();
                    assert!(arena.is_pinned(frame.frame()));
                    let mut bytes = vec![0; length as usize];
                    arena.copy_out(frame.frame(), offset, &mut bytes);
                    data.extend(bytes);
                }
            }
        }
        data
    }

    /// Calls with room for the data; puts the data back where they are missing, and the reply must be the one that
    /// comes without such room. How many bytes went apart.
    fn same_with_placement(
        &self,
        room: u32,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> usize {
        let message = self.nfs_message(procedure, arguments);
        let (outcome, whole) = self.outcome(&caller("127.0.0.1:1"), &message);
        assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
        let (outcome, mut reply) = self.outcome(&placing(room), &message);
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

fn range(file: FileHandle<'_>, offset: u64, count: u32) -> ReadArgs<'_> {
    ReadArgs {
        file,
        offset,
        count,
    }
}

#[test]
fn read_data_goes_from_the_page_cache() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let data: Vec<u8> = (0..10_001u32).map(|i| ((i * 13) >> 3) as u8).collect();
    server.write(file, 0, &data);
    for (offset, count, expected) in [
        (0, 10_001, 10_001),
        (0, 20_000, 10_001),
        (5, 4096, 4096),
        (4095, 2, 2),
        (10_000, 100, 1),
        (10_001, 5, 0),
        (0, 0, 0),
    ] {
        let arguments = range(file, offset, count);
        let placed = server.same_with_placement(1 << 20, Procedure::Read, &arguments);
        assert_eq!(placed, expected, "{offset} {count}");
    }
    // No more than there is room for, whatever the reply could hold.
    let message = server.nfs_message(Procedure::Read, &range(file, 0, 10_001));
    let (outcome, _) = server.outcome(&placing(5000), &message);
    let Outcome::Placed(placed) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(placed.bytes(), 5000);
    assert_eq!(server.gather(placed.pieces), data[..5000]);
}

#[test]
fn a_megabyte_that_is_resident_takes_no_worker() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, &vec![7; 1 << 20]);
    let arguments = range(file, 0, 1 << 20);
    server.same_with_placement(1 << 20, Procedure::Read, &arguments);
    let before = server.deferred();
    let message = server.nfs_message(Procedure::Read, &arguments);
    let (outcome, _) = server.outcome(&placing(1 << 20), &message);
    let Outcome::Placed(placed) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        placed
            .pieces
            .iter()
            .all(|piece| matches!(piece, ChunkSource::Frame { .. }))
    );
    assert_eq!(server.gather(placed.pieces), vec![7; 1 << 20]);
    assert_eq!(server.deferred(), before);
}

#[test]
fn what_links_say_is_placed_and_refusals_are_not() {
    let server = Server::new();
    let arguments = SymlinkArgs {
        place: at(server.root(), "link"),
        attributes: SetAttributes::default(),
        target: Payload(b"somewhere else"),
    };
    let made: nfs3::CreateResult<'static> = server.nfs(Procedure::Symlink, &arguments);
    let link = made.expect("made").file.expect("a handle");
    let said: ReadLinkResult<'static> = server.nfs(Procedure::ReadLink, &link);
    assert_eq!(said.expect("read").target.0, b"somewhere else");
    assert_eq!(
        server.same_with_placement(100, Procedure::ReadLink, &link),
        14
    );
    // Where there is no room for it, it is not put elsewhere: that answers nothing.
    let message = server.nfs_message(Procedure::ReadLink, &link);
    let (outcome, _) = server.outcome(&placing(13), &message);
    assert!(
        matches!(&outcome, Outcome::Placed(placed) if placed.bytes() == 14),
        "{outcome:?}"
    );
    let root = server.root();
    assert_eq!(
        server.same_with_placement(100, Procedure::ReadLink, &root),
        0
    );
    assert_eq!(
        server.same_with_placement(100, Procedure::Read, &range(root, 0, 10)),
        0
    );
    assert_eq!(
        server.same_with_placement(100, Procedure::GetAttributes, &root),
        0
    );
}

/// What of a call came in a chunk may be the data of WRITE and the target of SYMLINK, all of it, and nothing else (RFC
/// 8166, section 6.1).
#[test]
fn chunks_of_calls_hold_what_they_may() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let write = WriteArgs {
        file,
        offset: 0,
        count: 5,
        stable: Stable::Unstable,
        data: Payload(b"hello"),
    };
    let link = SymlinkArgs {
        place: at(server.root(), "link"),
        attributes: SetAttributes::default(),
        target: Payload(b"here"),
    };
    let served = |procedure, arguments: &dyn Encode, from_end: u32, bytes: u32| {
        let program = (nfs3::PROGRAM, nfs3::VERSION);
        let arguments = arguments.to_bytes();
        let mut message = server.message(program, procedure, &user(0, 0), &arguments);
        let start = message.len() - from_end as usize;
        let mut chunk = message.split_off(start);
        let behind = chunk.split_off(chunk.len().min(bytes.next_multiple_of(4) as usize));
        chunk.resize(bytes as usize, 0);
        message.extend(behind);
        let mut memory = Own::new(chunk.len()).expect("memory");
        memory.bytes_mut().copy_from_slice(&chunk);
        let mut apart = ChunkedArguments::new(Contents::from(memory.lend()));
        assert!(apart.push(start as u32, 0..chunk.len()));
        let caller = Caller {
            apart: Some(apart),
            back: None,
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
    let (write_code, link_code) = (Procedure::Write.code(), Procedure::Symlink.code());
    for (from_end, bytes, expected) in [
        (8, 5, true),
        (8, 8, true),
        (8, 4, false),
        (8, 6, false),
        (8, 12, false),
        (12, 5, false),
        (4, 4, false),
    ] {
        let taken = served(write_code, &write, from_end, bytes);
        assert_eq!(taken, expected, "{bytes} bytes at -{from_end}");
    }
    let range = ReadArgs {
        file,
        offset: 0,
        count: 100,
    };
    let read: ReadResult<'_> = server.nfs(Procedure::Read, &range);
    assert_eq!(read.expect("read").data.0, b"hello");
    assert!(!served(link_code, &link, 8, 4));
    assert!(served(link_code, &link, 4, 4));
    let found: LookupResult<'_> = server.nfs(Procedure::Lookup, &at(server.root(), "link"));
    let made = found.expect("the link").file;
    let read: ReadLinkResult<'_> = server.nfs(Procedure::ReadLink, &made);
    assert_eq!(read.expect("a link").target.0, b"here");
    // A file handle is no data.
    let handle = file.to_bytes().len() as u32 - 4;
    assert!(!served(
        Procedure::GetAttributes.code(),
        &file,
        handle,
        handle
    ));
}
