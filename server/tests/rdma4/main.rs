//! COMPOUNDs of NFS version 4 with several chunks each way (RFC 8267, section 6.4.1), over the server's RDMA listener.

#![cfg(not(shuttle))]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use odafs_common::wire::nfs4::*;
use odafs_common::wire::rpc::Rejection;
use odafs_common::wire::rpcrdma::{
    Body, Chunks, Header, ReadList, ReadSegment, Segment, TransportError,
};
use odafs_common::wire::xdr::{Apart, Decode, Gap, Reader};
use odafs_fabric::Completion;
use odafs_fabric::clock::Nanos;
use odafs_server::config::ServerConfig;
use odafs_server::server::Server;

use client::{Client, Read, Refused, all, status};

mod client;
mod repeated;

const FILES: [&str; 2] = ["one", "two"];

/// Bytes that differ from file to file.
fn content(file: usize, length: usize) -> Vec<u8> {
    let seed = 31 * (file + 1);
    (0..length).map(|i| (i ^ (i >> 7) ^ seed) as u8).collect()
}

fn start(directory: &Path, length: usize) -> Server {
    let tree = directory.join("tree");
    std::fs::create_dir_all(&tree).expect("a directory");
    // Where root serves, callers are nobody.
    let open = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    open(&tree, 0o777).expect("rights");
    for (at, name) in FILES.iter().enumerate() {
        std::fs::write(tree.join(name), content(at, length)).expect("a file");
        open(&tree.join(name), 0o666).expect("rights");
    }
    std::os::unix::fs::symlink("elsewhere", tree.join("link")).expect("a link");
    let mut config = ServerConfig::new(tree);
    config.state = Some(directory.join("state"));
    config.rdma = Some("127.0.0.1:0".parse().expect("an address"));
    config.cache_bytes = 8 << 20;
    config.huge_pages = false;
    Server::start(config).expect("a server")
}

fn find(name: &'static str) -> [Operation<'static>; 2] {
    [
        Operation::PutRootFileHandle,
        Operation::Lookup(Name(name.as_bytes())),
    ]
}

fn read(offset: u64, count: u32) -> Operation<'static> {
    Operation::Read(ReadArgs {
        state: StateId::ANONYMOUS,
        offset,
        count,
    })
}

fn write(offset: u64, data: &[u8]) -> Operation<'_> {
    Operation::Write(WriteArgs {
        state: StateId::ANONYMOUS,
        offset,
        stable: Stable::FileSync,
        data: Payload(data),
    })
}

/// What each READ said: whether its file ended there.
fn ends(results: &[OperationResult<'_>]) -> Vec<bool> {
    let ends = results.iter().filter_map(|result| match result {
        OperationResult::Read(Ok(ok)) => Some(ok.eof),
        _ => None,
    });
    ends.collect()
}

#[test]
fn two_reads_go_to_two_chunks() {
    let directory = tempfile::tempdir().expect("a directory");
    let length = 20_001;
    let server = start(directory.path(), length);
    for minor in [1, 2] {
        let mut client = Client::new(&server, minor);
        let ask = [
            &find("one")[..],
            &[read(0, 30_000)],
            &find("two"),
            &[read(4095, 4098)],
        ]
        .concat();
        // On a thread that may block, and from the page cache.
        for _ in 0..3 {
            let chunks: [&[u32]; 2] = [&[5000, 1, 20_000], &[4098]];
            let told = client.reads(&chunks, &ask);
            assert_eq!(ends(&told.all()), [true, false]);
            assert!(
                told.chunks[0] == content(0, length),
                "of minor version {minor}"
            );
            assert!(told.chunks[1] == content(1, length)[4095..8193]);
        }
        // A third without a chunk comes in the reply, and so does one whose chunk is empty. A link is a result like others.
        let ask = [
            &find("one")[..],
            &[read(1, 9)],
            &find("link"),
            &[Operation::ReadLink],
            &find("two"),
            &[read(0, 4096), read(3, 3)],
        ]
        .concat();
        for _ in 0..2 {
            let told = client.reads(&[&[], &[100], &[4096]], &ask);
            let data = content(0, 10);
            assert_eq!(told.chunks, [&b""[..], b"elsewhere", &content(1, 4096)]);
            // The first and the last are in the message.
            let gaps = [(0, 9), (0, 4096)].map(|(at, bytes)| Gap { at, bytes });
            let mut r = Reader::new(&told.results);
            let mut found = Results::begin(r.clone()).expect("results");
            let first = found.nth(3).expect("a result").expect("a result");
            let OperationResult::Read(Ok(first)) = first else {
                panic!("{first:?}");
            };
            assert_eq!(first.data.0, &data[1..]);
            let at = told
                .results
                .windows(9)
                .position(|bytes| bytes == &data[1..]);
            r = r.forward_to(at.expect("the data") + 12).expect("more");
            let rest = r.rest();
            let mut rest = Reader::new(rest).reduced(Apart::Gaps(&gaps));
            let mut next = || OperationResult::decode(&mut rest).expect("a result");
            for _ in 0..6 {
                next();
            }
            let last = next();
            assert!(
                matches!(&last, OperationResult::Read(Ok(ok)) if ok.data.0 == &content(1, 6)[3..]),
                "{last:?}"
            );
        }
    }
    server.shutdown();
}

#[test]
fn two_writes_come_from_two_chunks() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), 10);
    for minor in [1, 2] {
        // More than a thread that polls takes, and less.
        for length in [100_001, 5001] {
            let mut client = Client::new(&server, minor);
            let data = [content(2, length), content(3, length + 2)];
            let between = content(4, 8);
            let ask = [
                &find("one")[..],
                &[write(0, &data[0])],
                &find("two"),
                // This one is in the message.
                &[write(length as u64 + 2, &between), write(0, &data[1])],
                &[Operation::GetFileHandle],
            ]
            .concat();
            let mut message = client.in_session(&ask);
            let (chunks, _regions) = client.apart(&mut message, &[&data[0], &data[1]]);
            let (returned, results) = client.call(chunks, &message).expect("results");
            assert_eq!(returned, Chunks::default());
            assert_eq!(status(&results), Status::Ok);
            let counts = all(&results, &[])
                .into_iter()
                .filter_map(|result| match result {
                    OperationResult::Write(Ok(ok)) => Some(ok.count as usize),
                    _ => None,
                });
            assert_eq!(counts.collect::<Vec<_>>(), [length, 8, length + 2]);
            let tree = directory.path().join("tree");
            let on_disk = FILES.map(|name| std::fs::read(tree.join(name)).expect("a file"));
            assert!(on_disk[0][..length] == data[0]);
            assert!(on_disk[1][..length + 10] == [&data[1][..], &between].concat());
        }
    }
    server.shutdown();
}

#[test]
fn reads_and_writes_in_one_compound() {
    let directory = tempfile::tempdir().expect("a directory");
    let length = 9000;
    let server = start(directory.path(), length);
    for minor in [1, 2] {
        let mut client = Client::new(&server, minor);
        let data = [content(5, 6001), content(6, 7003)];
        let target = format!("to/{minor}");
        let name = format!("made-{minor}");
        let link = Operation::Create(CreateArgs {
            kind: CreateType::Symlink(Payload(target.as_bytes())),
            name: Name(name.as_bytes()),
            attributes: RawAttributes::default(),
        });
        let ask = [
            &find("one")[..],
            &[read(0, 8000), write(0, &data[0]), read(0, 8000)],
            &[Operation::PutRootFileHandle, link, Operation::ReadLink],
            &find("two"),
            &[write(100, &data[1]), read(100, 8000)],
        ]
        .concat();
        let mut message = client.in_session(&ask);
        let payloads = [&data[0][..], target.as_bytes(), &data[1]];
        let (reads, _regions) = client.apart(&mut message, &payloads);
        let (room, regions) = client.room(&[&[8000], &[4096, 4096], &[64], &[9000]]);
        let before = FILES.map(|name| std::fs::read(directory.path().join("tree").join(name)));
        let before = before.map(|content| content.expect("a file"));
        let chunks = Chunks {
            reads: reads.reads,
            ..room
        };
        let (returned, results) = client.call(chunks, &message).expect("results");
        let told = Read::new(&returned, &regions, results);
        assert_eq!(status(&told.results), Status::Ok);
        assert_eq!(ends(&told.all()), [false, false, false]);
        let mut one = before[0].clone();
        one[..6001].copy_from_slice(&data[0]);
        assert!(told.chunks[0] == before[0][..8000]);
        assert!(told.chunks[1] == one[..8000]);
        assert_eq!(told.chunks[2], target.as_bytes());
        assert!(
            told.chunks[3][..7003] == data[1] && told.chunks[3][7003..] == before[1][7103..8100]
        );
    }
    server.shutdown();
}

#[test]
fn an_operation_that_fails_leaves_the_chunks_behind_it_unused() {
    let directory = tempfile::tempdir().expect("a directory");
    let length = 9000;
    let server = start(directory.path(), length);
    for minor in [1, 2] {
        let mut client = Client::new(&server, minor);
        let data = content(7, 5000);
        let ask = [
            &find("one")[..],
            &[read(0, 5000)],
            // A directory cannot be read.
            &[Operation::PutRootFileHandle, read(0, 5000)],
            &find("two"),
            &[read(0, 5000), write(0, &data)],
        ]
        .concat();
        let mut message = client.in_session(&ask);
        let (reads, _regions) = client.apart(&mut message, &[&data]);
        let (room, regions) = client.room(&[&[5000], &[5000], &[2000, 3000]]);
        let chunks = Chunks {
            reads: reads.reads,
            ..room
        };
        let (returned, results) = client.call(chunks, &message).expect("results");
        let told = Read::new(&returned, &regions, results);
        assert_eq!(status(&told.results), Status::IsDir);
        assert!(told.chunks[0] == content(0, length)[..5000]);
        assert_eq!(told.chunks[1..], [[0; 0]; 2]);
        let on_disk = std::fs::read(directory.path().join("tree/two")).expect("the file");
        assert!(
            on_disk == content(1, length),
            "a WRITE behind the failure ran"
        );
    }
    server.shutdown();
}

/// None of these is executed, and the connection goes on.
#[test]
fn chunks_that_no_argument_takes_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), 10);
    for minor in [1, 2] {
        let mut client = Client::new(&server, minor);
        let data = [content(8, 5000), content(9, 5000)];
        let ask = [
            &find("one")[..],
            &[write(0, &data[0])],
            &find("two"),
            &[write(0, &data[1]), Operation::GetFileHandle],
        ]
        .concat();
        let mut message = client.message(&ask);
        let (chunks, _regions) = client.apart(&mut message, &[&data[0], &data[1]]);
        let [last, first] = chunks.reads[..] else {
            panic!("{chunks:?}");
        };
        let at = |read: ReadSegment, position| ReadSegment { position, ..read };
        let of = |read: ReadSegment, length| ReadSegment {
            segment: Segment {
                length,
                ..read.segment
            },
            ..read
        };
        let garbage = Refused::Rpc(Rejection::GarbageArguments);
        let chunk_error = Refused::Transport(TransportError::Chunk);
        for (what, reads, refused) in [
            (
                "a word behind the data",
                vec![first, at(last, last.position + 4)],
                &garbage,
            ),
            (
                "a word before them",
                vec![at(first, first.position - 4), last],
                &garbage,
            ),
            (
                "less than the data",
                vec![of(first, 4996), of(last, 4996)],
                &garbage,
            ),
            ("more", vec![first, of(last, 5004)], &garbage),
            (
                "one too many",
                vec![first, last, at(of(last, 4), last.position + 5000)],
                &garbage,
            ),
            (
                "the same place for both",
                vec![first, at(last, first.position)],
                &garbage,
            ),
            (
                "one within the other",
                vec![first, at(last, first.position + 8)],
                &chunk_error,
            ),
            (
                "beyond the end",
                vec![first, at(last, last.position + 4096)],
                &chunk_error,
            ),
            (
                "nine chunks",
                (0..9).map(|n| at(of(first, 4), 40 + 8 * n)).collect(),
                &chunk_error,
            ),
        ] {
            client.xid += 1;
            message[..4].copy_from_slice(&client.xid.to_be_bytes());
            let chunks = Chunks {
                reads: ReadList::new(&reads).0,
                ..Chunks::default()
            };
            let answer = client.call(chunks, &message);
            assert_eq!(answer.as_ref().err(), Some(refused), "{what}");
        }
        // Nine write chunks, and more segments than all may have together.
        let one = Segment {
            handle: 1,
            length: 1,
            offset: 0,
        };
        for (chunks, segments) in [(9, 1), (3, 11)] {
            let mut header = vec![client.xid + 1, 1, 8, 0, 0];
            for _ in 0..chunks {
                header.extend([1, segments]);
                (0..segments).for_each(|_| header.extend([one.handle, one.length, 0, 0]));
            }
            header.extend([0, 0]);
            let header: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
            let ask = client.message(&find("one"));
            client.qp.post_send(0, &[&header, &ask]).expect("room");
            client.qp.flush();
            while !matches!(client.qp.poll(), Some(Completion::Recv { .. })) {
                let _ = client.qp.wait(Some(Nanos::from_secs(30)));
            }
            client.qp.post_receives(1);
            let answer = Header::decode(&mut Reader::new(client.qp.message()));
            let answer = answer.expect("a header");
            assert_eq!(answer.body, Body::Error(TransportError::Chunk));
        }
        // As it should be, though not in a session: it is understood.
        let (chunks, _regions) = {
            message = client.message(&ask);
            client.apart(&mut message, &[&data[0], &data[1]])
        };
        let (_, results) = client.call(chunks, &message).expect("results");
        assert_eq!(status(&results), Status::OpNotInSession);
    }
    for name in FILES.iter().enumerate() {
        let on_disk = std::fs::read(directory.path().join("tree").join(name.1)).expect("a file");
        assert_eq!(on_disk, content(name.0, 10));
    }
    server.shutdown();
}
