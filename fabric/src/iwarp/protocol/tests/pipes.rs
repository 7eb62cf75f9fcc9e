//! Two endpoints and two pipes of bytes, which split and cut anywhere.

use super::*;
use crate::fabric::{
    Access, Fault, Local, PostError, Posted, Region, Remote, Sink, Source, SteeringTag,
};
use crate::iwarp::protocol::ddp::TAGGED_BYTES;
use crate::memory::{Arena, ArenaConfig, FrameNumber};
use crate::sync::Arc;
use odafs_common::page::{Layout, PageSize};
use proptest::prelude::*;
use std::collections::VecDeque;

const REGION: usize = 20_000;

#[derive(Clone, Debug)]
enum Op {
    Send {
        length: usize,
        invalidates: bool,
    },
    Write {
        at: usize,
        length: usize,
    },
    /// Neighbours, one post each.
    WriteFrame {
        length: u32,
        at: usize,
        parts: u32,
    },
    Read {
        at: usize,
        length: usize,
    },
    ReadToFrame {
        length: u32,
        at: usize,
    },
    /// Bytes go on, in pieces of this size.
    Carry {
        bytes: usize,
        piece: usize,
    },
}

fn op() -> impl Strategy<Value = (bool, Op)> {
    let length = prop_oneof![0..200usize, 1000..9000usize, Just(4096)];
    let place = (0..REGION - 9000, length);
    let op = prop_oneof![
        (0..6000usize, any::<bool>()).prop_map(|(length, invalidates)| Op::Send {
            length,
            invalidates
        }),
        place
            .clone()
            .prop_map(|(at, length)| Op::Write { at, length }),
        (0..4097u32, 0..9000usize, 1..4u32).prop_map(|(length, at, parts)| Op::WriteFrame {
            length,
            at,
            parts
        }),
        place.prop_map(|(at, length)| Op::Read { at, length }),
        (0..4097u32, 0..9000usize).prop_map(|(length, at)| Op::ReadToFrame { length, at }),
        (0..20_000usize, 1..3000usize).prop_map(|(bytes, piece)| Op::Carry { bytes, piece }),
        (0..3000usize, 1..4usize).prop_map(|(bytes, piece)| Op::Carry { bytes, piece }),
    ];
    (any::<bool>(), op)
}

/// One end, and what it must see.
struct End {
    endpoint: Endpoint,
    arena: Arc<Arena>,
    /// Of the peer.
    remote: SteeringTag,
    /// What the peer may use here.
    region: Arc<Region>,
    /// What `region` must hold when all has arrived.
    model: Vec<u8>,
    spare: Arc<Region>,
    /// On the way from here.
    wire: VecDeque<u8>,
    /// Messages that the peer sent, with the tags that they take from us.
    expected: VecDeque<(Vec<u8>, Option<SteeringTag>)>,
    /// Posts that have not ended: id, and whether it is a read.
    pending: VecDeque<(u64, bool)>,
    ids: u64,
}

fn ends(crc: bool, frame_max: usize) -> [End; 2] {
    let config = ArenaConfig {
        frames: 4,
        layout: Layout::apart(PageSize::DEFAULT),
        huge: false,
        populate: false,
    };
    let mut ends = [true, false].map(|first| {
        let mut endpoint = Endpoint::new(&Agreed {
            peer_to_peer: true,
            frame_max,
            ..agreed(crc, first)
        });
        endpoint.post_receives(1000);
        let region = endpoint.register(REGION, Access::BOTH).unwrap();
        let spare = endpoint.register(9000, Access::LOCAL).unwrap();
        End {
            endpoint,
            arena: Arc::new(Arena::create(&config).unwrap()),
            remote: SteeringTag(0),
            region,
            model: vec![0; REGION],
            spare,
            wire: VecDeque::new(),
            expected: VecDeque::new(),
            pending: VecDeque::new(),
            ids: 0,
        }
    });
    let tags = [ends[0].region.tag(), ends[1].region.tag()];
    (ends[0].remote, ends[1].remote) = (tags[1], tags[0]);
    ends
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (seed.wrapping_mul(167) + at * 13 + (at >> 8)) as u8)
        .collect()
}

fn post(ends: &mut [End; 2], from: usize, op: &Op) {
    let [one, two] = ends;
    let (me, peer) = if from == 0 { (one, two) } else { (two, one) };
    me.ids += 1;
    let id = me.ids;
    let remote = |offset: usize| Remote {
        tag: me.remote,
        offset: offset as u64,
    };
    match *op {
        Op::Send {
            length,
            invalidates,
        } => {
            let message = pattern(id, length);
            let window = invalidates.then(|| {
                let window = peer.endpoint.bind(&peer.region, 5, 10, Access::READ);
                window.unwrap().tag
            });
            let (head, tail) = message.split_at(length / 3);
            match me.endpoint.post_send(&[head, &[], tail], window) {
                Ok(posted) => {
                    assert_eq!(posted, Posted::Done);
                    peer.expected.push_back((message, window));
                }
                Err(error) => assert_eq!(error, PostError::Full),
            }
        }
        Op::Write { at, length } => {
            let bytes = pattern(id, length);
            let posted = me
                .endpoint
                .post_write(id, Source::Bytes(&bytes), remote(at));
            if let Ok(posted) = posted {
                assert_eq!(posted, Posted::Done);
                peer.model[at..at + length].copy_from_slice(&bytes);
            }
        }
        Op::WriteFrame { length, at, parts } => {
            let frame = FrameNumber(1);
            if me.pending.iter().any(|(_, reads)| !reads) {
                // The frame's bytes are still those of an earlier write.
                return;
            }
            let bytes = pattern(id, length as usize);
            me.arena.copy_in(frame, 0, &bytes);
            for part in 0..parts {
                let (start, end) = (length * part / parts, length * (part + 1) / parts);
                let source = Source::Frame {
                    arena: &me.arena,
                    frame,
                    offset: start,
                    length: end - start,
                };
                let (from, to) = (start as usize, end as usize);
                let id = id + u64::from(part);
                let Ok(posted) = me.endpoint.post_write(id, source, remote(at + from)) else {
                    break;
                };
                peer.model[at + from..at + to].copy_from_slice(&bytes[from..to]);
                if posted == Posted::Pending {
                    me.pending.push_back((id, false));
                }
            }
            me.ids += u64::from(parts);
        }
        Op::Read { .. } | Op::ReadToFrame { .. } => {
            let (into, at) = match *op {
                Op::Read { at, length } => {
                    let into = Sink::Region(Local {
                        region: &me.spare,
                        offset: 0,
                        length,
                    });
                    (into, at)
                }
                Op::ReadToFrame { length, at } => {
                    let into = Sink::Frame {
                        arena: &me.arena,
                        frame: FrameNumber(2),
                        offset: 4096 - length,
                        length,
                    };
                    (into, at)
                }
                _ => unreachable!(),
            };
            if me.endpoint.post_read(id, into, remote(at)).is_ok() {
                me.pending.push_back((id, true));
            }
        }
        Op::Carry { bytes, piece } => carry(ends, from, bytes, piece),
    }
}

/// Moves bytes from one end to the other.
fn carry(ends: &mut [End; 2], from: usize, bytes: usize, piece: usize) {
    let [one, two] = ends;
    let (me, peer) = if from == 0 { (one, two) } else { (two, one) };
    let more = outgoing(&mut me.endpoint);
    me.wire.extend(more);
    take(me);
    let mut left = bytes.min(me.wire.len());
    while left > 0 {
        let now: Vec<u8> = me.wire.drain(..piece.min(left)).collect();
        left -= now.len();
        let mut now = &now[..];
        while !now.is_empty() {
            if let Some((memory, at, length)) = peer.endpoint.landing() {
                let landed = length.min(now.len());
                memory.store(at, &now[..landed]);
                peer.endpoint.landed(landed);
                now = &now[landed..];
                continue;
            }
            let used = peer.endpoint.receive(now);
            assert!(used > 0 || peer.endpoint.has_completion());
            now = &now[used..];
            take(peer);
        }
    }
}

/// Takes what has completed at an end.
fn take(end: &mut End) {
    while let Some(completion) = end.endpoint.poll() {
        match completion {
            Completion::Recv { bytes, invalidated } => {
                let (message, window) = end.expected.pop_front().expect("nobody sent it");
                assert_eq!(bytes as usize, message.len());
                assert!(end.endpoint.message() == message && invalidated == window);
            }
            Completion::Read { id, result } => {
                assert_eq!(result, Ok(()));
                assert!(ended(end, id));
            }
            Completion::Write { id, result } => {
                assert_eq!(result, Ok(()));
                assert!(!ended(end, id));
            }
            Completion::Send { .. } => panic!("sends are over at once"),
        }
    }
}

/// Reads end in their order, and so do writes; whether it was a read.
fn ended(end: &mut End, id: u64) -> bool {
    let at = end.pending.iter().position(|(known, _)| *known == id);
    let (_, reads) = end.pending[at.expect("ends once")];
    let first = end.pending.iter().position(|(_, other)| *other == reads);
    assert_eq!(at, first, "in order");
    at.and_then(|at| end.pending.remove(at));
    reads
}

fn settle(ends: &mut [End; 2]) {
    for _ in 0..20 {
        for from in [0, 1] {
            carry(ends, from, usize::MAX, 7777);
        }
    }
}

/// Neighbours that are written one by one leave in one frame, and each ends with the last of them.
#[test]
fn neighbours_travel_together() {
    let mut ends = ends(false, 16_000);
    outgoing(&mut ends[0].endpoint);
    let write = Op::WriteFrame {
        length: 4096,
        at: 100,
        parts: 3,
    };
    post(&mut ends, 0, &write);
    assert_eq!(ends[0].pending.len(), 3);
    let bytes = outgoing(&mut ends[0].endpoint);
    assert_eq!(bytes.len(), framed(&[0; TAGGED_BYTES + 4096], false).len());
    take(&mut ends[0]);
    assert!(ends[0].pending.is_empty());
    // What has left is not lengthened.
    post(&mut ends, 0, &write);
    ends[0].wire.extend(bytes);
    settle(&mut ends);
    let mut held = vec![0; REGION];
    assert!(ends[1].region.load(0, &mut held));
    assert!(held == ends[1].model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// All arrives, whole and in order, at the right place.
    #[test]
    fn all_arrives(
        crc: bool,
        frame_max in prop_oneof![Just(1460usize), Just(16_000)],
        ops in proptest::collection::vec(op(), 1..60),
    ) {
        let mut ends = ends(crc, frame_max);
        for (first, op) in &ops {
            post(&mut ends, usize::from(!*first), op);
        }
        settle(&mut ends);
        for end in &mut ends {
            prop_assert!(end.expected.is_empty() && end.pending.is_empty());
            let mut held = vec![0; REGION];
            assert!(end.region.load(0, &mut held));
            prop_assert!(held == end.model);
            prop_assert!(!end.endpoint.is_over() && end.endpoint.queued() == 0);
        }
        // Reads at the end see it all.
        let end = &mut ends[0];
        let sink = end.endpoint.register(REGION, Access::LOCAL).unwrap();
        let into = Sink::Region(Local { region: &sink, offset: 0, length: REGION });
        let from = |offset| Remote { tag: end.remote, offset };
        end.endpoint.post_read(0, into, from(0)).unwrap();
        let into = Sink::Frame {
            arena: &end.arena,
            frame: FrameNumber(3),
            offset: 6,
            length: 4090,
        };
        end.endpoint.post_read(1, into, from(777)).unwrap();
        end.pending.extend([(0, true), (1, true)]);
        settle(&mut ends);
        let mut held = vec![0; REGION];
        assert!(sink.load(0, &mut held));
        prop_assert!(held == ends[1].model);
        ends[0].arena.copy_out(FrameNumber(3), 6, &mut held[..4090]);
        prop_assert!(held[..4090] == ends[1].model[777..777 + 4090]);
    }

    /// A stream that is cut at any byte ends everything that was under way, once.
    #[test]
    fn cut_anywhere(
        crc: bool,
        ops in proptest::collection::vec(op(), 1..40),
        cut in 0..30_000usize,
    ) {
        let mut ends = ends(crc, 3000);
        for (first, op) in &ops {
            post(&mut ends, usize::from(!*first), op);
        }
        carry(&mut ends, 0, cut, 1000);
        carry(&mut ends, 1, cut / 2, 1000);
        for end in &mut ends {
            end.endpoint.close();
            prop_assert!(end.endpoint.is_over());
            while let Some(completion) = end.endpoint.poll() {
                let (Completion::Read { id, result } | Completion::Write { id, result }) = completion else {
                    panic!("{completion:?} after the end");
                };
                prop_assert_eq!(result, Err(Fault::Flushed));
                ended(end, id);
            }
            prop_assert!(end.pending.is_empty());
            prop_assert_eq!(end.endpoint.post_send(&[b"x"], None), Err(PostError::Closed));
            prop_assert_eq!(end.endpoint.receive(b"x"), 0);
            prop_assert!(!end.endpoint.prepare());
        }
    }

    /// Whatever comes, nothing breaks and nothing grows.
    #[test]
    fn any_bytes(crc: bool, bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let mut endpoint = Endpoint::new(&agreed(crc, true));
        endpoint.post_receives(3);
        feed(&mut endpoint, &bytes);
        prop_assert!(outgoing(&mut endpoint).len() < 200);
    }
}
