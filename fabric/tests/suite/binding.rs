//! Tags over exact ranges, rights, and reads into frames.

use crate::memory::{frames_of_eight, loaded, went_well};
use crate::{Ends, Subject, anew, connected, next, receive, send};
use odafs_fabric::memory::{FrameNumber, Own};
use odafs_fabric::{
    Access, Completion, Local, Region, Remote, RemoteInvalidation, Sink, Source, SteeringTag,
};
use std::sync::Arc;

/// A region of the client's with `access`, and a window from byte 100 to byte 120 of it.
fn window(ends: &mut Ends, access: Access) -> (Arc<Region>, Remote) {
    let region = ends.client.register(4096, Access::LOCAL).unwrap();
    assert!(region.store(90, &[b'.'; 40]) && region.store(100, b"twenty bytes of them"));
    let bound = ends.client.bind(&region, 100, 20, access).unwrap();
    assert_ne!(bound.tag, region.tag());
    tell(ends);
    (region, bound)
}

/// A tag is good once a message behind it has come.
fn tell(ends: &mut Ends) {
    send(&mut *ends.client, b"bound");
    assert_eq!(receive(&mut *ends.server), b"bound");
}

fn writes(ends: &mut Ends, to: Remote, bytes: &[u8]) -> bool {
    let posted = ends.server.post_write(1, Source::Bytes(bytes), to);
    went_well(&mut *ends.server, &mut *ends.client, posted, 1)
}

fn reads(ends: &mut Ends, from: Remote, length: usize) -> Option<Vec<u8>> {
    let mine = ends.server.register(64, Access::LOCAL).unwrap();
    let into = Sink::Region(Local {
        region: &mine,
        offset: 8,
        length,
    });
    let posted = ends.server.post_read(2, into, from);
    went_well(&mut *ends.server, &mut *ends.client, posted, 2).then(|| loaded(&mine, 8, length))
}

/// A bound tag covers its range and no byte more.
pub fn bound_ranges(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let (region, bound) = window(&mut ends, Access::BOTH);
    assert_eq!(reads(&mut ends, bound.ahead(7), 5).unwrap(), b"bytes");
    assert!(writes(&mut ends, bound.ahead(15), b"those"));
    assert_eq!(loaded(&region, 98, 24), b"..twenty bytes ofthose..");
    assert!(ends.client.bind(&region, 4000, 97, Access::READ).is_err());
    if !subject.checks_ranges() {
        return;
    }
    for (offset, length) in [(20, 1), (16, 5), (u64::MAX, 1), (u64::MAX - 19, 20)] {
        ends = anew(subject, ends);
        let (region, bound) = window(&mut ends, Access::BOTH);
        assert!(
            !writes(&mut ends, bound.ahead(offset), &vec![1; length]),
            "{offset}"
        );
        assert_eq!(loaded(&region, 98, 24), b"..twenty bytes of them..");
        ends = anew(subject, ends);
        let (_region, bound) = window(&mut ends, Access::BOTH);
        assert_eq!(reads(&mut ends, bound.ahead(offset), length), None);
    }
}

/// A tag gives what it was given for.
pub fn rights(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let (_region, bound) = window(&mut ends, Access::READ);
    assert!(reads(&mut ends, bound, 6).is_some());
    assert!(!writes(&mut ends, bound, b"no"));
    let mut ends = anew(subject, ends);
    let (region, bound) = window(&mut ends, Access::WRITE);
    assert!(writes(&mut ends, bound, b"yes"));
    assert_eq!(loaded(&region, 100, 3), b"yes");
    if subject.checks_reads() {
        assert_eq!(reads(&mut ends, bound, 6), None);
    }
    // The region's own tag, which gives nothing.
    let mut ends = anew(subject, ends);
    let (region, _) = window(&mut ends, Access::BOTH);
    assert!(!writes(&mut ends, region.remote(0), b"no"));
    if subject.checks_reads() {
        let mut ends = anew(subject, ends);
        let (region, _) = window(&mut ends, Access::BOTH);
        assert_eq!(reads(&mut ends, region.remote(0), 6), None);
    }
}

/// After an invalidation, by either side, a tag gives nothing.
pub fn invalidated(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let (region, bound) = window(&mut ends, Access::BOTH);
    assert!(writes(&mut ends, bound, b"Twenty"));
    ends.client.invalidate(bound.tag);
    assert!(!writes(&mut ends, bound, b"no"));
    assert_eq!(loaded(&region, 100, 6), b"Twenty");

    let mut ends = anew(subject, ends);
    let (region, bound) = window(&mut ends, Access::BOTH);
    assert_ne!(ends.client.remote_invalidation(), RemoteInvalidation::Never);
    let other = ends.client.bind(&region, 0, 8, Access::BOTH).unwrap();
    tell(&mut ends);
    ends.server
        .post_send_invalidate(3, &[b"all ", b"yours"], bound.tag)
        .unwrap();
    ends.server.flush();
    let expected = Completion::Recv {
        bytes: 9,
        invalidated: subject.tells_of_invalidation().then_some(bound.tag),
    };
    assert_eq!(next(&mut *ends.client), Some(expected));
    assert_eq!(ends.client.message(), b"all yours");
    assert!(writes(&mut ends, other, b"still"));
    assert!(!writes(&mut ends, bound, b"no"));
    // What is gone cannot go again.
    let mut ends = anew(subject, ends);
    ends.server
        .post_send_invalidate(3, &[b"x"], SteeringTag(77))
        .unwrap();
    ends.server.flush();
    assert_eq!(next(&mut *ends.client), None);
}

/// Memory of a caller's own is lent for a use, ended by either side, and then nobody holds it.
pub fn own_memory(subject: &dyn Subject) {
    let mut own = Own::new(3 * 4096).unwrap();
    own.bytes_mut().fill(b'.');
    for by_the_peer in [false, true] {
        let mut ends = connected(subject);
        let region = own.lend();
        let bound = ends.client.bind(&region, 4090, 20, Access::WRITE).unwrap();
        tell(&mut ends);
        assert!(writes(&mut ends, bound.ahead(2), b"twelve bytes"));
        assert_eq!(loaded(&region, 4090, 16), b"..twelve bytes..");
        if by_the_peer && subject.tells_of_invalidation() {
            ends.server
                .post_send_invalidate(3, &[b"yours"], bound.tag)
                .unwrap();
            ends.server.flush();
            let invalidated = Some(bound.tag);
            let expected = Completion::Recv {
                bytes: 5,
                invalidated,
            };
            assert_eq!(next(&mut *ends.client), Some(expected));
        } else {
            ends.client.invalidate(bound.tag);
        }
        let Ok(back) = Own::take_back(region) else {
            panic!("the connection holds on to it")
        };
        own = back;
        assert!(!writes(&mut ends, bound, b"no"));
        assert_eq!(own.bytes()[4090..4106], *b"..twelve bytes..");
        own.bytes_mut().fill(b'.');
    }
}

/// An RDMA Read places its bytes in a frame, several at a time, in order.
pub fn frame_sinks(subject: &dyn Subject) {
    let mut ends = connected(subject);
    let arena = frames_of_eight();
    let theirs = ends.server.register(8192, Access::READ).unwrap();
    let bytes: Vec<u8> = (0..8192u32).map(|at| (at * 7 % 251) as u8).collect();
    assert!(theirs.store(0, &bytes));
    let mut pending = 0;
    for (id, (frame, offset, length, at)) in
        [(3, 0, 4096, 0), (5, 100, 3996, 4096), (6, 1, 1, 8191)]
            .into_iter()
            .enumerate()
    {
        let into = Sink::Frame {
            arena: &arena,
            frame: FrameNumber(frame),
            offset,
            length,
        };
        let from = theirs.remote(at);
        match ends.client.post_read(id as u64, into, from).unwrap() {
            odafs_fabric::Posted::Pending => pending += 1,
            odafs_fabric::Posted::Done => {}
        }
    }
    ends.client.flush();
    let (client, server) = (&mut ends.client, &mut ends.server);
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || receive(&mut **server));
        for _ in 0..pending {
            let read = next(&mut **client);
            assert!(matches!(
                read,
                Some(Completion::Read { result: Ok(()), .. })
            ));
        }
        client.post_send(0, &[b"done"]).unwrap();
        client.flush();
        assert_eq!(peer.join().unwrap(), b"done");
    });
    let frame = |number, offset, length: usize| {
        let mut copy = vec![0; length];
        arena.copy_out(FrameNumber(number), offset, &mut copy);
        copy
    };
    assert_eq!(frame(3, 0, 4096), bytes[..4096]);
    assert_eq!(frame(5, 100, 3996), bytes[4096..8092]);
    assert_eq!(frame(6, 0, 3), [0, bytes[8191], 0]);
    assert_eq!(frame(5, 0, 100), [0; 100]);
}

/// Who was offered no RDMA Reads has none.
pub fn no_reads(subject: &dyn Subject) {
    if !subject.keeps_depths() {
        return;
    }
    let mut ends = crate::connected_with(subject, 0);
    assert_eq!(ends.client.reads_max(), 0);
    let mine = ends.client.register(64, Access::LOCAL).unwrap();
    let theirs = ends.server.register(64, Access::READ).unwrap();
    let into = Sink::Region(Local {
        region: &mine,
        offset: 0,
        length: 8,
    });
    let posted = ends.client.post_read(1, into, theirs.remote(0));
    assert_eq!(posted, Err(odafs_fabric::PostError::Full));
}
