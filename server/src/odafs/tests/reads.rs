//! READ and GET_REFS.

use super::*;

#[test]
fn reads_bring_references() {
    let room = Room::guarded();
    let file = room.world.file("a", &[7; 3 * P + 5]);
    let session = room.session().accepted.session;
    let arguments = read_args(&file, PAGE, 2 * P as u32, session);
    assert_eq!(room.read(&arguments, Effort::ResidentOnly), None);
    room.read(&arguments, Effort::MayBlock).expect("read");
    let results = room.read(&arguments, Effort::ResidentOnly);
    let results = results.expect("resident");
    let done = ReadResult::from_bytes(&results)
        .expect("a result")
        .expect("read");
    assert_eq!((done.count, done.eof), (2 * P as u32, false));
    assert_eq!(done.data.0, [7; 2 * P]);
    assert_eq!(done.change, file.change());
    assert_eq!(done.attributes, Some(file.attributes().into()));
    let pages: Vec<u64> = done.references.iter().map(|found| found.page).collect();
    assert!(pages.starts_with(&[1, 2]), "{pages:?}");
    assert!(done.counter.is_some());
    let view = room.world.view();
    for found in &done.references {
        let mut data = vec![0; found.reference.length as usize];
        assert!(view.read(found.reference.address, &mut data, found.reference.epoch));
        assert!(data.iter().all(|byte| *byte == 7));
    }
    // Only if they are wanted, and for a session that exists.
    for (session, want_references) in [(session, false), (0, true), (999, true)] {
        let arguments = ReadArgs {
            session,
            want_references,
            ..arguments
        };
        let results = room.read(&arguments, Effort::ResidentOnly);
        let results = results.expect("resident");
        let done = ReadResult::from_bytes(&results)
            .expect("a result")
            .expect("read");
        assert_eq!(done.count, 2 * P as u32);
        assert!(done.references.is_empty() && done.counter.is_none());
    }
}

#[test]
fn a_read_brings_something_where_the_file_has_grown_before_it() {
    let room = Room::guarded();
    let file = room.world.file("a", b"old");
    room.world.write_unreported(&file, b"old and new");
    let results = room.read(&read_args(&file, 3, 100, 0), Effort::MayBlock);
    let results = results.expect("read");
    let done = ReadResult::from_bytes(&results)
        .expect("a result")
        .expect("read");
    assert_eq!((done.data.0, done.eof), (&b" and new"[..], true));
}

#[test]
fn replies_fit_the_transport() {
    let mut room = Room::guarded();
    let file = room.world.file("a", &[7; 64 * P]);
    let session = room.session().accepted.session;
    for bytes in [600, 5000, 40_000] {
        room.caller.reply_bytes_max = bytes;
        for count in [1, 1000, 64 * P as u32] {
            let arguments = read_args(&file, 0, count, session);
            let results = room.read(&arguments, Effort::MayBlock).expect("read");
            // Some room is left for the headers of RPC.
            assert!(
                results.len() + 64 <= bytes as usize,
                "{} of {bytes}",
                results.len()
            );
            let done = ReadResult::from_bytes(&results)
                .expect("a result")
                .expect("read");
            assert!(done.count > 0);
        }
        let arguments = GetRefsArgs {
            session,
            ranges: vec![Range {
                file: FileHandle(file.handle()),
                offset: 0,
                length: u64::MAX,
            }],
            resume: 0,
        };
        let results = room.replies(Procedure::GetRefs, &arguments);
        assert!(
            results.len() + 64 <= bytes as usize,
            "{} of {bytes}",
            results.len()
        );
    }
}

#[test]
fn reads_go_to_chunks() {
    let room = Room::guarded();
    let file = room.world.file("a", &[7; 2 * P]);
    room.world.read(&file, 0, 2 * P as u32);
    let session = room.session().accepted.session;
    let arguments = ReadArgs {
        chunk: Some(Chunk {
            tag: 5,
            offset: 100,
            length: P as u32 + 10,
        }),
        ..read_args(&file, 0, 1 << 20, session)
    };
    let (answer, results) = room.call(Procedure::Read, &arguments, Effort::MayBlock);
    let Answer::Write(writes) = answer else {
        panic!("{answer:?}")
    };
    let done = ReadResult::from_bytes(&results)
        .expect("a result")
        .expect("read");
    assert_eq!(
        done.count,
        P as u32 + 10,
        "no more than the chunk has room for"
    );
    assert!(done.data.0.is_empty());
    let mut next = 100;
    for write in writes {
        assert_eq!((write.to.tag.0, write.to.offset), (5, next));
        let ChunkSource::Frame { frame, length, .. } = write.from else {
            panic!("a copy of what can be pinned")
        };
        let arena = room.world.export.arena();
        assert!(arena.is_pinned(frame.frame()));
        next += u64::from(length);
    }
    assert_eq!(next, 100 + PAGE + 10);
}

/// There is nobody to write the data for: they are in the reply.
#[test]
fn chunks_over_tcp_are_no_places() {
    let mut room = Room::guarded();
    room.caller.transport = Transport::NfsTcp;
    let file = room.world.file("a", &[7; 2 * P]);
    room.world.read(&file, 0, 2 * P as u32);
    let arguments = ReadArgs {
        chunk: Some(Chunk {
            tag: 5,
            offset: 100,
            length: P as u32 + 10,
        }),
        ..read_args(&file, 0, 1 << 20, 0)
    };
    let results = room.read(&arguments, Effort::MayBlock).expect("read");
    let done = ReadResult::from_bytes(&results)
        .expect("a result")
        .expect("read");
    assert_eq!(done.count, P as u32 + 10, "no more than the chunk holds");
    assert_eq!(done.data.0, [7; P + 10]);
}

/// Data of a whole MiB leave room for references.
#[test]
fn the_longest_reads_bring_references() {
    let mut room = Room::guarded();
    let session = room.session().accepted.session;
    room.caller.transport = Transport::NfsTcp;
    // As over TCP.
    room.caller.reply_bytes_max = (1 << 20) + (64 << 10);
    let file = room.world.file("a", &[7; 300 * P]);
    room.world.read(&file, 0, 300 * P as u32);
    let arguments = read_args(&file, 0, 1 << 20, session);
    for _ in 0..2 {
        let results = room.read(&arguments, Effort::MayBlock).expect("read");
        let done = ReadResult::from_bytes(&results)
            .expect("a result")
            .expect("read");
        assert_eq!(done.count, 1 << 20);
        let pages: Vec<u64> = done.references.iter().map(|found| found.page).collect();
        assert_eq!(pages, (0..32).collect::<Vec<_>>());
    }
}

#[test]
fn reads_fail_with_a_status() {
    let room = Room::guarded();
    let file = room.world.file("a", &[7; P]);
    let mut forged = file.handle().to_vec();
    forged[30] ^= 1;
    let arguments = ReadArgs {
        file: FileHandle(&forged),
        ..read_args(&file, 0, 1, 0)
    };
    let results = room.read(&arguments, Effort::MayBlock).expect("an answer");
    let refused = ReadResult::from_bytes(&results).expect("a result");
    assert_eq!(refused.expect_err("forged").status, Status::BadHandle);
}

/// All answers to a question, one call after the other.
fn all_references(room: &Room, session: u32, files: &[&File]) -> Vec<(u32, PageReference)> {
    let ranges: Vec<Range<'_>> = files
        .iter()
        .map(|file| Range {
            file: FileHandle(file.handle()),
            offset: 0,
            length: u64::MAX,
        })
        .collect();
    let (mut found, mut resume) = (Vec::new(), 0);
    for _ in 0..1000 {
        let arguments = GetRefsArgs {
            session,
            ranges: ranges.clone(),
            resume,
        };
        let results = room.replies(Procedure::GetRefs, &arguments);
        let done = GetRefsResult::from_bytes(&results)
            .expect("a result")
            .expect("references");
        for file in done.files {
            assert_eq!(file.status, Status::Ok);
            assert!(file.counter.is_some());
            found.extend(file.references.into_iter().map(|page| (file.range, page)));
        }
        if done.resume == 0 {
            return found;
        }
        assert_ne!(done.resume, resume);
        resume = done.resume;
    }
    panic!("no end of references");
}

#[test]
fn references_of_whole_files() {
    let mut room = Room::guarded();
    let session = room.session().accepted.session;
    let (a, b) = (
        room.world.file("a", &[1; 100 * P]),
        room.world.file("b", &[2; 20 * P + 1]),
    );
    let empty = room.world.file("c", &[]);
    assert!(all_references(&room, session, &[&a, &b]).is_empty());
    room.world.read(&a, 0, 100 * P as u32);
    room.world.read(&b, 0, 21 * P as u32);
    for bytes in [600, 700, 5000, 64 << 10] {
        room.caller.reply_bytes_max = bytes;
        let found = all_references(&room, session, &[&a, &empty, &b]);
        let pages = |range| -> Vec<u64> {
            let of = found.iter().filter(|(of, _)| *of == range);
            of.map(|(_, found)| found.page).collect()
        };
        assert_eq!(pages(0), (0..100).collect::<Vec<_>>());
        assert_eq!(pages(2), (0..21).collect::<Vec<_>>());
        assert_eq!(found.len(), 121);
    }
    let distinct: std::collections::HashSet<Reference> = all_references(&room, session, &[&a, &b])
        .into_iter()
        .map(|(_, found)| found.reference)
        .collect();
    assert_eq!(distinct.len(), 121);
}

#[test]
fn questions_that_make_no_sense_are_answered() {
    let room = Room::guarded();
    let session = room.session().accepted.session;
    let file = room.world.file("a", &[1; 3 * P]);
    room.world.read(&file, 0, 3 * P as u32);
    let ask = |session, offset, length, resume| {
        let arguments = GetRefsArgs {
            session,
            ranges: vec![Range {
                file: FileHandle(file.handle()),
                offset,
                length,
            }],
            resume,
        };
        let results = room.replies(Procedure::GetRefs, &arguments);
        GetRefsResult::from_bytes(&results).expect("a result")
    };
    assert_eq!(ask(0, 0, 1, 0), Err(OdafsStatus::NoSession));
    for (offset, length, resume) in [
        (u64::MAX, u64::MAX, 0),
        (0, 0, 0),
        (0, u64::MAX, u64::MAX),
        (0, u64::MAX, 1 << 52 | 99),
        (0, u64::MAX, 5),
        (1 << 63, 1, 1 << 52),
    ] {
        let done = ask(session, offset, length, resume).expect("an answer");
        assert_eq!(done.resume, 0);
    }
}

#[test]
fn a_file_that_a_session_may_not_read() {
    let mut room = Room::guarded();
    let file = room.world.file("a", &[1; P]);
    let new = crate::vfs::SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    crate::vfs::write::set_attributes(&room.world.export, &owner(), file.object(), &new, None)
        .expect("chmod");
    let stranger = room.world.client(&other());
    let arguments = GetRefsArgs {
        session: stranger.session.nic().id().0,
        ranges: vec![Range {
            file: FileHandle(file.handle()),
            offset: 0,
            length: 1,
        }],
        resume: 0,
    };
    let results = room.replies(Procedure::GetRefs, &arguments);
    let refused = GetRefsResult::from_bytes(&results).expect("a result");
    assert_eq!(refused, Err(OdafsStatus::NoSession), "another's session");

    room.who = other();
    room.caller.peer = Peer::Simulated(arguments.session);
    let results = room.replies(Procedure::GetRefs, &arguments);
    let done = GetRefsResult::from_bytes(&results)
        .expect("a result")
        .expect("an answer");
    assert_eq!(done.files[0].status, Status::Access);
    assert!(done.files[0].references.is_empty());
}
