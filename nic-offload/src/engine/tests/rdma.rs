//! RPC-over-RDMA over the simulator's fabric, by a client that writes its headers itself.

mod back;
mod memory;
mod pins;
mod read_read;
mod rig;

use odafs_common::rpcrdma::PrivateData;
use odafs_common::wire::rpcrdma::{
    Body, Chunks, HEADER_BYTES_MIN, ReadList, ReadSegment, Segments, TransportError, WriteList,
};
use odafs_fabric::Access;
use odafs_fabric::memory::FrameNumber;
use odafs_fabric::sim::NetworkConfig;
use odafs_fabric::sync::atomic::Ordering;

use crate::engine::RdmaConfig;
use crate::registration::{RegistrationConfig, Strategy};
use rig::{PAGE, PAGES, Rig, load, pages, segment};

/// What an engine grants by default.
const CREDITS: u32 = 128;

fn networks() -> [NetworkConfig; 2] {
    let slow = NetworkConfig {
        slow: true,
        receives: true,
        ..NetworkConfig::default()
    };
    [NetworkConfig::default(), slow]
}

fn strategies() -> [RdmaConfig; 4] {
    [
        Strategy::PerOperation,
        Strategy::Pooled,
        Strategy::Cached,
        Strategy::AllPhysical,
    ]
    .map(|strategy| RdmaConfig {
        registration: RegistrationConfig {
            strategy,
            dirty_watermark: 2,
            connection_bytes_max: 64 << 10,
            ..RegistrationConfig::default()
        },
        ..RdmaConfig::default()
    })
}

#[test]
fn calls_inline_and_credits() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        for _ in 0..300 {
            client.echo();
        }
        let message = client.message(b'e', &[]);
        let (header, _) = client.call(Chunks::default(), &message);
        assert_eq!(header.credits, CREDITS);
        assert_eq!(Rig::count(&rig.counts.calls), 301);
        assert_eq!(Rig::count(&rig.counts.connections), 1);
        rig.end();
    }
}

/// So an engine with many idle connections does not poll each of them.
#[test]
fn a_connection_rests_until_one_side_calls() {
    let (rig, mut engine) = Rig::at_rest(NetworkConfig::default(), RdmaConfig::default());
    let mut client = std::thread::scope(|scope| {
        let client = scope.spawn(|| rig.client());
        while engine.connections() == 0 {
            engine.poll_once();
        }
        client.join().unwrap()
    });
    for what in [b'e', b'c'] {
        while engine.poll_once() {}
        assert!(engine.lines[0].as_mut().unwrap().rests());
        let message = client.message(what, &[]);
        client.send(Body::Msg(Chunks::default()), &message);
        assert!(!engine.lines[0].as_mut().unwrap().rests());
        engine.poll_once();
        while client.qp.poll().is_none() {}
    }
    while engine.poll_once() {}
    assert!(engine.lines[0].as_mut().unwrap().rests());
    assert!(rig.shelf.ways.lock()[0].send(b"call it back".to_vec()));
    assert!(!engine.lines[0].as_mut().unwrap().rests());
}

#[test]
fn results_go_from_the_frames_to_the_write_chunk() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        let length = PAGES * PAGE as u32;
        let region = client.region(&vec![0; length as usize + 200], Access::WRITE);
        // Segments that cut frames in two, and one that is not needed.
        let cuts = [(100, 5000), (5100, 1), (5101, length - 5001), (0, 50)];
        let cuts = cuts.map(|(offset, length)| segment(&region, offset, length));
        let (chunk, all) = Segments::new(&cuts);
        assert!(all);
        for _ in 0..20 {
            assert!(region.store(100, &vec![0; length as usize]));
            let chunks = Chunks {
                writes: WriteList::one(&chunk),
                ..Chunks::default()
            };
            let message = client.message(b'r', &[]);
            let (header, reply) = client.call(chunks, &message);
            let Body::Msg(returned) = header.body else {
                panic!("{header:?}")
            };
            assert_eq!(returned.writes, chunks.writes.returned(&[length]));
            assert_eq!(reply[8..], *b"headtail");
            assert_eq!(load(&region, 100, length as usize), pages());
        }
        drop(client);
        rig.end();
    }
}

/// Each of several results to its chunk, though they share a frame and a chunk's segments cut another.
#[test]
fn several_results_go_to_their_chunks() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        let length = PAGES * PAGE as u32;
        let region = client.region(&vec![0; length as usize + 100], Access::WRITE);
        let cuts = [&[5000, 1][..], &[], &[4095, 8192], &[length - 17_288]];
        let (mut chunks, mut at) = (Chunks::default(), 0);
        for cut in cuts {
            let segments = cut.iter().map(|length| {
                at += u64::from(*length);
                segment(&region, at - u64::from(*length), *length)
            });
            assert!(chunks.writes.push(&segments.collect::<Vec<_>>()));
        }
        for _ in 0..20 {
            assert!(region.store(0, &vec![0; length as usize]));
            let message = client.message(b'R', &[]);
            let (header, reply) = client.call(chunks, &message);
            assert_eq!(header.body, Body::Msg(chunks), "all are full");
            assert_eq!(reply[8..], *b"nextnextnextnext");
            assert_eq!(load(&region, 0, length as usize), pages());
        }
        drop(client);
        rig.end();
    }
}

/// Data that their chunk does not hold: nothing is written, nothing stays pinned.
#[test]
fn a_chunk_that_is_too_small_is_an_error() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        let length = PAGES * PAGE as u32 - 1;
        let region = client.region(&vec![0; length as usize], Access::WRITE);
        let chunks = Chunks {
            writes: WriteList::one(&Segments::one(segment(&region, 0, length))),
            ..Chunks::default()
        };
        let message = client.message(b'r', &[]);
        let (header, _) = client.call(chunks, &message);
        assert_eq!(header.body, Body::Error(TransportError::Chunk));
        assert_eq!(Rig::count(&rig.counts.overruns), 1);
        assert_eq!(Rig::count(&rig.counts.writes), 0);
        assert!(
            load(&region, 0, length as usize)
                .iter()
                .all(|byte| *byte == 0)
        );
        client.echo();
        let arena = &rig.shelf.arena;
        assert!((0..PAGES).all(|frame| !arena.is_pinned(FrameNumber(frame))));
        rig.end();
    }
}

#[test]
fn arguments_come_from_the_read_chunk_by_every_strategy() {
    for network in networks() {
        for config in strategies() {
            let rig = Rig::new(network, config);
            let mut client = rig.client();
            let data: Vec<u8> = (0..10_001u32).map(|i| (i * 7) as u8).collect();
            let region = client.region(&data, Access::READ);
            let reads = [
                segment(&region, 0, 4097),
                segment(&region, 4097, 10_001 - 4097),
            ]
            .map(|segment| ReadSegment {
                position: 12,
                segment,
            });
            let chunks = Chunks {
                reads: ReadList::new(&reads).0,
                ..Chunks::default()
            };
            for _ in 0..5 {
                let message = client.message(b'w', b"behind");
                let (header, reply) = client.call(chunks, &message);
                assert_eq!(header.body, Body::Msg(Chunks::default()));
                assert_eq!(reply[8..], *b"done");
                let padded = [&data[..], &[0; 3]].concat();
                let whole = [&message[..12], &padded, b"behind"].concat();
                assert_eq!(rig.shelf.taken.lock().pop(), Some(whole));
            }
            assert_eq!(Rig::count(&rig.counts.read_bytes), 50_005);
            drop(client);
            rig.end();
        }
    }
}

/// Three arguments, the call itself in memory too, its segments cut by all of them.
#[test]
fn several_arguments_come_from_their_chunks_by_every_strategy() {
    for network in networks() {
        for config in strategies() {
            let rig = Rig::new(network, config);
            let mut client = rig.client();
            let data = [5001, 3, 8192].map(|length: u32| -> Vec<u8> {
                (0..length).map(|i| (i * 7 + length) as u8).collect()
            });
            let regions = [0, 1, 2].map(|at: usize| client.region(&data[at], Access::READ));
            let whole = |region, length| segment(region, 0, length);
            // Behind 12 bytes, at once behind the first with its padding, and behind four more words.
            let of = |position, segment| ReadSegment { position, segment };
            let apart = [
                of(5020 + 16, segment(&regions[2], 0, 4000)),
                of(5016, whole(&regions[1], 3)),
                of(12, whole(&regions[0], 5001)),
                of(5020 + 16, segment(&regions[2], 4000, 4192)),
            ];
            for long in [false, true] {
                let message = client.message(b'w', b"and four words behind it");
                let call = client.region(&message, Access::READ);
                let cuts = [(0, 8), (8, 20), (28, message.len() as u32 - 28)];
                let zero = cuts.map(|(at, length)| of(0, segment(&call, at, length)));
                let reads = match long {
                    true => [&apart[..2], &zero, &apart[2..]].concat(),
                    false => apart.to_vec(),
                };
                let chunks = Chunks {
                    reads: ReadList::new(&reads).0,
                    ..Chunks::default()
                };
                match long {
                    true => client.send(Body::Nomsg(chunks), &[]),
                    false => client.send(Body::Msg(chunks), &message),
                }
                let (header, reply) = client.receive();
                assert_eq!(header.body, Body::Msg(Chunks::default()));
                assert_eq!(reply[8..], *b"done");
                let expected = [
                    &message[..12],
                    &data[0],
                    &[0; 3],
                    &data[1],
                    &[0; 1],
                    &message[12..28],
                    &data[2],
                    &message[28..],
                ];
                assert_eq!(rig.shelf.taken.lock().pop(), Some(expected.concat()));
            }
            drop(client);
            rig.end();
        }
    }
}

#[test]
fn a_short_call_with_data_that_waits_for_nothing_takes_no_worker() {
    for network in networks() {
        for config in strategies() {
            let rig = Rig::new(network, config);
            rig.threads.full.store(true, Ordering::Relaxed);
            let mut client = rig.client();
            let data = [5; 4096];
            let region = client.region(&data, Access::READ);
            let read = ReadSegment {
                position: 12,
                segment: segment(&region, 0, 4096),
            };
            let chunks = Chunks {
                reads: ReadList::one(read),
                ..Chunks::default()
            };
            for _ in 0..5 {
                let message = client.message(b's', b"behind");
                let (header, reply) = client.call(chunks, &message);
                assert_eq!(header.body, Body::Msg(Chunks::default()));
                assert_eq!(reply[8..], *b"done");
                let whole = [&message[..12], &data, b"behind"].concat();
                assert_eq!(rig.shelf.taken.lock().pop(), Some(whole));
            }
            drop(client);
            rig.end();
        }
    }
}

#[test]
fn the_only_tag_of_a_call_is_invalidated_if_the_client_says_so() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut client = rig.client_that_says(&PrivateData::default());
    let region = client.region(&[3; 100], Access::READ);
    let read = ReadSegment {
        position: 12,
        segment: segment(&region, 0, 100),
    };
    let chunks = Chunks {
        reads: ReadList::one(read),
        ..Chunks::default()
    };
    let message = client.message(b'w', &[]);
    let (header, _) = client.call(chunks, &message);
    assert_eq!(header.body, Body::Msg(Chunks::default()));
    let message = client.message(b'w', &[]);
    let (header, _) = client.call(chunks, &message);
    assert_eq!(header.body, Body::Error(TransportError::Chunk));
    rig.end();
}

#[test]
fn long_calls_and_long_replies() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        let message = client.message(b'l', &[9; 5000]);
        let call = client.region(&message, Access::READ);
        let reply = client.region(&[0; 30_000], Access::WRITE);
        let whole = ReadSegment {
            position: 0,
            segment: segment(&call, 0, message.len() as u32),
        };
        let room = Segments::one(segment(&reply, 16, 25_000));
        let chunks = Chunks {
            reads: ReadList::one(whole),
            reply: Some(room),
            ..Chunks::default()
        };
        client.send(Body::Nomsg(chunks), &[]);
        let (header, inline) = client.receive();
        let Body::Nomsg(returned) = header.body else {
            panic!("{header:?}")
        };
        assert_eq!(returned.reply, Some(room.returned(20_000)));
        assert!(inline.is_empty());
        assert_eq!(load(&reply, 16, 4), message[..4]);
        assert_eq!(load(&reply, 16 + 8, 19_992), [b'l'; 19_992]);

        // Without room for it, the call is answered by an error, and the next one as ever.
        let message = client.message(b'l', &[]);
        let (header, _) = client.call(Chunks::default(), &message);
        assert_eq!(header.body, Body::Error(TransportError::Chunk));
        assert_eq!(Rig::count(&rig.counts.overruns), 1);
        client.echo();
        rig.end();
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_disturbs_nobody() {
    for network in networks() {
        for config in strategies() {
            let rig = Rig::new(network, config);
            let mut bystander = rig.client();
            let mut client = rig.client();
            let region = client.region(&[1; 5000], Access::READ);
            // The second segment is not there.
            let reads = [segment(&region, 0, 4096), segment(&region, 4096, 4096)];
            let reads = reads.map(|segment| ReadSegment {
                position: 12,
                segment,
            });
            let chunks = Chunks {
                reads: ReadList::new(&reads).0,
                ..Chunks::default()
            };
            for _ in 0..20 {
                let message = client.message(b'w', &[]);
                let (header, _) = client.call(chunks, &message);
                assert_eq!(header.body, Body::Error(TransportError::Chunk));
                bystander.echo();
            }
            assert!(rig.shelf.taken.lock().is_empty());
            client.echo();
            rig.end();
        }
    }
}

#[test]
fn a_chunk_that_may_not_be_written_ends_its_connection_alone() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut bystander = rig.client();
        let mut client = rig.client();
        let region = client.region(&[1; 40_000], Access::READ);
        let chunks = Chunks {
            writes: WriteList::one(&Segments::one(segment(&region, 0, 40_000))),
            ..Chunks::default()
        };
        let message = client.message(b'r', &[]);
        client.send(Body::Msg(chunks), &message);
        client.until_closed();
        bystander.echo();
        rig.end();
    }
}

#[test]
fn nonsense_is_answered_or_ignored() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut client = rig.client();
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_be_bytes()).collect() };
    let another_version = words(&[7, 2, 1, 0, 0, 0, 0]);
    client.qp.post_send(0, &[&another_version]).unwrap();
    client.qp.flush();
    let (header, _) = client.receive();
    let versions = TransportError::Version { low: 1, high: 1 };
    assert_eq!((header.xid, header.body), (7, Body::Error(versions)));
    // Neither a header nor anything that can be answered; a DONE for nothing.
    client.qp.post_send(0, &[&another_version[..24]]).unwrap();
    client.send(Body::Done, &[]);
    client.echo();
    assert_eq!(Rig::count(&rig.counts.malformed), 1);
    assert_eq!(Rig::count(&rig.counts.ignored), 1);
    assert_eq!(Rig::count(&rig.counts.dones), 1);
    rig.end();
}

/// As many wrong calls as there are credits, at once, again and again: each is answered, and has its receive again by
/// then.
#[test]
fn who_is_refused_keeps_his_credits() {
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let mut client = rig.client();
        client.echo();
        client.qp.post_receives(CREDITS);
        for _ in 0..4 {
            for _ in 0..CREDITS {
                client.message(b'e', &[]);
                client.send(Body::Nomsg(Chunks::default()), &[]);
            }
            for _ in 0..CREDITS {
                let (header, _) = client.receive();
                assert_eq!(header.body, Body::Error(TransportError::Chunk));
            }
        }
        client.echo();
        rig.end();
    }
}

/// RFC 8166, section 4.5.2.
#[test]
fn a_long_call_of_another_xid_than_its_header_is_refused() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut client = rig.client();
    let message = client.message(b'w', &[9; 5000]);
    let call = client.region(&message, Access::READ);
    let its = client.xid;
    // The xid in two segments, as well.
    for cut in [2, 100] {
        let bytes = message.len() as u32;
        let parts = [
            segment(&call, 0, cut),
            segment(&call, cut.into(), bytes - cut),
        ];
        let reads = parts.map(|segment| ReadSegment {
            position: 0,
            segment,
        });
        let chunks = Chunks {
            reads: ReadList::new(&reads).0,
            ..Chunks::default()
        };
        for (other, taken) in [(0, true), (1, false), (0x0100_0000, false)] {
            let xid = its ^ other;
            client.xid = xid;
            client.send(Body::Nomsg(chunks), &[]);
            let (header, _) = client.receive();
            let refused = header.body == Body::Error(TransportError::Chunk);
            assert_eq!((header.xid, refused), (xid, !taken));
        }
    }
    assert_eq!(rig.shelf.taken.lock().len(), 2);
    rig.end();
}

/// RFC 8166, section 4.5.4: a reply that there will never be is told by the end of the connection.
#[test]
fn work_that_comes_to_grief_ends_its_connection_alone() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut bystander = rig.client();
    let mut client = rig.client();
    let message = client.message(b'g', &[]);
    client.send(Body::Msg(Chunks::default()), &message);
    client.until_closed();
    bystander.echo();
    rig.end();
}

/// Whose calls the workers have no room for waits, others do not, and none of them is lost: inline ones, and those whose
/// data is read first.
#[test]
fn calls_wait_for_workers_without_room() {
    const CALLS: u32 = 6;
    for network in networks() {
        let rig = Rig::new(network, RdmaConfig::default());
        let (mut bystander, mut client) = (rig.client(), rig.client());
        client.echo();
        rig.threads.full.store(true, Ordering::Relaxed);
        let data = client.region(&[7; 5000], Access::READ);
        for number in 0..CALLS {
            let message = client.message(b'w', &[]);
            let mut chunks = Chunks::default();
            if number % 2 == 1 {
                chunks.reads = ReadList::one(ReadSegment {
                    position: 12,
                    segment: segment(&data, 0, 5000),
                });
            }
            client.send(Body::Msg(chunks), &message);
        }
        bystander.echo();
        assert!(rig.shelf.taken.lock().len() < CALLS as usize);
        rig.threads.full.store(false, Ordering::Relaxed);
        let first = client.xid + 1 - CALLS;
        let mut answered: Vec<u32> = (0..CALLS).map(|_| client.receive().0.xid).collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(first..first + CALLS));
        client.echo();
        rig.end();
    }
}

#[test]
fn messages_are_no_longer_than_was_agreed() {
    let rig = Rig::new(NetworkConfig::default(), RdmaConfig::default());
    let mut bystander = rig.client();
    let mut client = rig.client();
    // Header, what every call begins with, and the rest.
    let rest = 4096 - HEADER_BYTES_MIN - 12;
    let fits = client.message(b'w', &vec![0; rest]);
    let (_, reply) = client.call(Chunks::default(), &fits);
    assert_eq!(reply[8..], *b"done");
    let long = client.message(b'w', &vec![0; rest + 1]);
    client.send(Body::Msg(Chunks::default()), &long);
    client.until_closed();
    bystander.echo();
    rig.end();
}
