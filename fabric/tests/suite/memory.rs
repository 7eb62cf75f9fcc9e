use crate::{Ends, Subject, anew, connected, next, receive, send, served, while_polled};
use odafs_common::page::{Layout, PageSize};
use odafs_common::reference::Epoch;
use odafs_fabric::clock::{self, Nanos};
use odafs_fabric::memory::{Arena, ArenaConfig, FrameNumber, LifeWord};
use odafs_fabric::{
    Access, Completion, Local, PostError, Posted, QueuePair, Region, Remote, Sink, Source,
    SteeringTag,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub fn frames_of_eight() -> Arc<Arena> {
    eight(Layout::apart(PageSize::DEFAULT))
}

fn eight(layout: Layout) -> Arc<Arena> {
    let config = ArenaConfig {
        frames: 8,
        layout,
        huge: false,
        populate: false,
    };
    Arc::new(Arena::create(&config).unwrap())
}

fn sink(ends: &mut Ends, length: usize) -> Arc<Region> {
    while_polled(ends, move |client| {
        client.register(length, Access::BOTH).unwrap()
    })
}

pub fn loaded(region: &Region, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    assert!(region.load(offset, &mut bytes));
    bytes
}

/// Waits for the end of a post that may be pending; whether it went well.
fn ended(qp: &mut dyn QueuePair, posted: Result<Posted, PostError>, id: u64) -> bool {
    qp.flush();
    match posted {
        Ok(Posted::Done) => true,
        Ok(Posted::Pending) => match next(qp) {
            Some(
                Completion::Write { id: ended, result } | Completion::Read { id: ended, result },
            ) => {
                assert_eq!(ended, id);
                result.is_ok()
            }
            other => panic!("{other:?} instead of the end of post {id}"),
        },
        Err(error) => {
            assert_eq!(error, PostError::BadRange);
            false
        }
    }
}

/// Whether a post was done: its end says so, and a message behind it reaches the peer. What the
/// peer refuses may end the connection.
pub fn went_well(
    qp: &mut dyn QueuePair,
    peer: &mut dyn QueuePair,
    posted: Result<Posted, PostError>,
    id: u64,
) -> bool {
    let ((done, sent), seen) = served(peer, || {
        let done = ended(qp, posted, id);
        let sent = qp.post_send(9, &[b"behind it"]).is_ok();
        qp.flush();
        (done, sent)
    });
    done && sent && seen
}

pub fn regions(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let region = sink(&mut ends, 10_000);
    assert_eq!((region.len(), region.is_empty()), (10_000, false));
    assert_eq!(loaded(&region, 0, 10_000), vec![0; 10_000]);
    assert!(
        region.store(9_990, &[7; 10])
            && !region.store(9_991, &[7; 10])
            && !region.store(usize::MAX, b"x")
    );
    assert!(!region.load(9_999, &mut [0; 2]));
    let other = sink(&mut ends, 1);
    assert_ne!(region.tag(), other.tag());
    assert!(while_polled(&mut ends, |client| client
        .register(0, Access::BOTH)
        .is_err()));
    // The server's own: the client writes there.
    let own = ends.server.register(100, Access::BOTH).unwrap();
    let to = own.remote(90);
    let posted = ends.client.post_write(3, Source::Bytes(b"0123456789"), to);
    assert!(went_well(&mut *ends.client, &mut *ends.server, posted, 3));
    assert_eq!(loaded(&own, 90, 10), b"0123456789");
}

/// What was written is there when a later message is.
pub fn written_before_sent(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let region = sink(&mut ends, 1 << 20);
    for round in 0..200u32 {
        let (length, at) = (
            1 + round as usize * 97 % 9000,
            round as usize * 1031 % 100_000,
        );
        let bytes = vec![round as u8 + 1; length];
        let to = region.remote(at);
        ends.server
            .post_write(u64::from(round), Source::Bytes(&bytes), to)
            .unwrap();
        send(&mut *ends.server, b"written");
        assert_eq!(receive(&mut *ends.client), b"written");
        assert_eq!(loaded(&region, at, length), bytes);
        while ends.server.poll().is_some() {}
    }
}

pub fn frames(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let region = sink(&mut ends, 8192);
    let arena = frames_of_eight();
    arena.copy_in(FrameNumber(3), 0, &[9; 4096]);
    let from = Source::Frame {
        arena: &arena,
        frame: FrameNumber(3),
        offset: 96,
        length: 4000,
    };
    let posted = ends.server.post_write(1, from, region.remote(100));
    assert!(went_well(&mut *ends.server, &mut *ends.client, posted, 1));
    assert_eq!(
        loaded(&region, 99, 4002),
        [&[0][..], &[9; 4000], &[0]].concat()
    );
}

/// A marked write has the same bytes land; where writes are seen as they are made it marks its quarters, and nothing else.
pub fn marked(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let region = sink(&mut ends, 8192);
    let arena = frames_of_eight();
    arena.copy_in(FrameNumber(3), 0, &[9; 4096]);
    for (length, offset, mark) in [
        (4096u32, 0, 7u64),
        (2048, 64, 8),
        (1024, 0, 9),
        (4000, 0, 10),
    ] {
        assert!(region.store(0, &[1; 8192]));
        let from = Source::Frame {
            arena: &arena,
            frame: FrameNumber(3),
            offset: 96 % (4097 - length),
            length,
        };
        let to = region.remote(offset);
        let posted = ends.server.post_write_marked(1, from, to, mark);
        assert!(went_well(&mut *ends.server, &mut *ends.client, posted, 1));
        let end = offset + length as usize;
        assert_eq!(
            loaded(&region, offset, length as usize),
            vec![9; length as usize]
        );
        let marks = [0, 64, 128].map(|behind| region.marked(end + behind, mark));
        assert_eq!(
            marks,
            [subject.marks() && length.is_multiple_of(256) && length >= 2048; 3]
        );
        assert!(!region.marked(end + 192, mark));
    }
    let from = Source::Frame {
        arena: &arena,
        frame: FrameNumber(3),
        offset: 0,
        length: 4096,
    };
    let to = region.remote(4096);
    if subject.marks() {
        let beyond = ends.server.post_write_marked(2, from, to, 11);
        assert_eq!(beyond, Err(PostError::BadRange), "no room for the marks");
    }
}

pub fn reads(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let theirs = sink(&mut ends, 4096);
    assert!(theirs.store(7, b"client's"));
    let mine = ends.server.register(64, Access::BOTH).unwrap();
    let into = Sink::Region(Local {
        region: &mine,
        offset: 3,
        length: 8,
    });
    let posted = ends.server.post_read(9, into, theirs.remote(7));
    assert!(went_well(&mut *ends.server, &mut *ends.client, posted, 9));
    assert_eq!(loaded(&mine, 3, 8), b"client's");
}

/// Nothing beyond a region, and nothing under a tag that was never given.
pub fn out_of_range(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let cases = [
        (None, 4096u64, 1),
        (None, 4095, 2),
        (None, u64::MAX, 2),
        (None, u64::MAX - 3, 8),
        (Some(SteeringTag(0)), 0, 1),
        (Some(SteeringTag(77)), 0, 1),
        (Some(SteeringTag(u32::MAX)), 0, 1),
    ];
    for (tag, offset, length) in cases {
        for reads in [false, true] {
            if ends.client.is_closed() || ends.server.is_closed() {
                ends = anew(subject, ends);
            }
            let region = sink(&mut ends, 4096);
            let mine = ends.server.register(64, Access::BOTH).unwrap();
            let remote = match tag {
                Some(tag) => Remote { tag, offset },
                None => region.remote(0).ahead(offset),
            };
            let posted = if reads {
                ends.server.post_read(2, part(&mine, 0, length), remote)
            } else {
                let bytes = vec![1; length];
                ends.server.post_write(2, Source::Bytes(&bytes), remote)
            };
            let done = went_well(&mut *ends.server, &mut *ends.client, posted, 2);
            assert!(!done, "{tag:?} {offset} {length}");
            assert_eq!(loaded(&region, 4090, 6), [0; 6]);
        }
    }
    let mut ends = anew(subject, ends);
    let region = sink(&mut ends, 4096);
    let mine = ends.server.register(64, Access::BOTH).unwrap();
    let from = region.remote(0);
    let posted = ends.server.post_read(3, part(&mine, 60, 5), from);
    assert_eq!(posted, Err(PostError::BadRange));
    send(&mut *ends.client, b"unharmed");
    assert_eq!(receive(&mut *ends.server), b"unharmed");
}

fn part(region: &Arc<Region>, offset: usize, length: usize) -> Sink<'_> {
    Sink::Region(Local {
        region,
        offset,
        length,
    })
}

/// An exposed arena is read, by posts or loads, and never written.
pub fn arena(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let arena = arena_with_life();
    let exposed = ends.server.expose(&arena.0, &arena.1).unwrap();
    let (frame, address) = (FrameNumber(5), 5 * 4096);
    arena.0.copy_in(frame, 0, &[3; 4096]);
    let issued = arena.0.publish(frame);

    let region = sink(&mut ends, 8192);
    let reads = [
        (0, 4096, exposed.arena, address),
        (4096, 8, exposed.stamps, 5 * 8),
    ];
    for (at, length, from, offset) in reads {
        let into = part(&region, at, length);
        let posted = ends.client.post_read(1, into, from.ahead(offset));
        assert!(went_well(&mut *ends.client, &mut *ends.server, posted, 1));
    }
    assert_eq!(loaded(&region, 0, 4096), [3; 4096]);
    assert_eq!(loaded(&region, 4096, 8), issued.0.to_le_bytes());

    let view = ends.client.map_exposed(&exposed).unwrap();
    assert_eq!(view.is_some(), subject.has_loads());
    if let Some(view) = view {
        let mut bytes = [0; 100];
        assert!(view.read(address + 50, &mut bytes, issued) && bytes == [3; 100]);
        arena.0.revoke(frame);
        assert!(!view.read(address + 50, &mut bytes, issued));
        let now = arena.0.publish(frame);
        assert!(view.read(address, &mut bytes, now) && view.is_alive());
        arena.1.poison();
        assert!(!view.read(address, &mut bytes, Epoch(now.0)) && !view.is_alive());
    }
    for first in [true, false] {
        ends = anew(subject, ends);
        let exposed = ends.server.expose(&arena.0, &arena.1).unwrap();
        let to = if first { exposed.arena } else { exposed.stamps };
        let posted = ends.client.post_write(3, Source::Bytes(b"mine"), to);
        assert!(!went_well(&mut *ends.client, &mut *ends.server, posted, 3));
        let mut first = [0; 4];
        arena.0.copy_out(FrameNumber(0), 0, &mut first);
        assert_eq!(first, [0; 4]);
    }
}

/// A page and the stamp behind it, of which one read brings both, while the page changes: with a good stamp it is whole. The
/// stamp lands at the beginning of a page of memory, as it must on soft iWARP.
pub fn page_and_stamp(subject: &dyn Subject) {
    never_torn(subject, |client, id, region, from| {
        let posted = client.post_read(id, part(region, 4096, 4096 + 8), from);
        ended(client, posted, id)
    });
}

/// The same by two reads in one flush, where reads see memory in the order of their posts.
pub fn page_then_stamp(subject: &dyn Subject) {
    if !subject.orders_reads() {
        return;
    }
    never_torn(subject, |client, id, region, from| {
        let page = client.post_read(id, part(region, 4096, 4096), from);
        let stamp = client.post_read(id, part(region, 8192, 8), from.ahead(4096));
        ended(client, page, id) && ended(client, stamp, id)
    });
}

fn never_torn(
    subject: &dyn Subject,
    read: impl Fn(&mut dyn QueuePair, u64, &Arc<Region>, Remote) -> bool + Sync,
) {
    let mut ends = connected(subject);
    let (arena, life) = (
        eight(Layout::beside(PageSize::DEFAULT)),
        LifeWord::in_memory(0x11fe).unwrap(),
    );
    let exposed = ends.server.expose(&arena, &life).unwrap();
    let frame = FrameNumber(5);
    let from = exposed.arena;
    let from = from.ahead(arena.layout().place(arena.address(frame)));
    let region = sink(&mut ends, 3 * 4096);
    let fill = |content: u8| {
        // In steps, from back to front.
        for at in (0..4096).step_by(256).rev() {
            arena.copy_in(frame, at, &[content; 256]);
        }
        (arena.publish(frame), content)
    };
    let issued = Mutex::new(fill(1));
    let over = AtomicBool::new(false);
    let (whole, stale) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for content in (2..=u8::MAX).cycle() {
                if over.load(Relaxed) {
                    return;
                }
                clock::sleep(Nanos::from_micros(u64::from(content)));
                assert!(!arena.revoke(frame), "a pin");
                *issued.lock().unwrap() = fill(content);
            }
        });
        let (mut whole, mut stale) = (0, 0);
        let patience = clock::now() + Nanos::from_secs(30);
        for id in 0.. {
            if id >= 500 && (whole.min(stale) > 0 || clock::now() > patience) {
                break;
            }
            let (epoch, content) = *issued.lock().unwrap();
            let done = while_polled(&mut ends, |client| read(client, id, &region, from));
            assert!(done, "the read failed");
            let stamp = loaded(&region, 2 * 4096, 8).try_into().unwrap();
            if u64::from_le_bytes(stamp) <= epoch.0 {
                assert_eq!(loaded(&region, 4096, 4096), [content; 4096]);
                whole += 1;
            } else {
                stale += 1;
            }
        }
        over.store(true, Relaxed);
        (whole, stale)
    });
    assert!(whole > 0 && stale > 0, "{whole} whole, {stale} stale");
}

pub fn arena_with_life() -> (Arc<Arena>, LifeWord) {
    (frames_of_eight(), LifeWord::in_memory(0x11fe).unwrap())
}
