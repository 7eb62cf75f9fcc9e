//! GETATTR, SETATTR, ACCESS, READ, WRITE, COMMIT, and what a file system says of itself.

use odafs_common::wire::nfs3::{
    AccessArgs, AccessResult, CommitArgs, CommitResult, CreateResult, FileHandle, FileType,
    FsInfoResult, FsStatResult, GetAttributesResult, PathConfResult, Payload, Procedure, ReadArgs,
    ReadOk, ReadResult, RemoveResult, SetAttributes, SetAttributesArgs, SetAttributesResult,
    SetTime, Stable, Status, SymlinkArgs, Time, WriteArgs, WriteResult, access,
};

use odafs_server::store::OutsideChange;

use crate::harness::{Server, at, mode, refused, user};

fn read(server: &Server, file: FileHandle<'_>, offset: u64, count: u32) -> ReadOk<'static> {
    let arguments = ReadArgs {
        file,
        offset,
        count,
    };
    let result: ReadResult<'static> = server.nfs(Procedure::Read, &arguments);
    let done = result.expect("read");
    assert_eq!(done.count as usize, done.data.0.len());
    assert!(done.attributes.is_some());
    done
}

fn setattr(
    server: &Server,
    file: FileHandle<'_>,
    attributes: SetAttributes,
    guard: Option<Time>,
) -> SetAttributesResult {
    let arguments = SetAttributesArgs {
        file,
        attributes,
        guard,
    };
    server.nfs(Procedure::SetAttributes, &arguments)
}

#[test]
fn reads_tell_the_end_of_the_file_exactly() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    assert_eq!(server.write(file, 0, b"0123456789").count, 10);
    let outcome = |offset, count| {
        let done = read(&server, file, offset, count);
        (done.data.0, done.eof)
    };
    assert_eq!(outcome(0, 4), (&b"0123"[..], false));
    assert_eq!(outcome(6, 4), (&b"6789"[..], true));
    assert_eq!(outcome(6, 100), (&b"6789"[..], true));
    assert_eq!(outcome(9, 1), (&b"9"[..], true));
    assert_eq!(outcome(3, 0), (&b""[..], false));
    assert_eq!(outcome(10, 5), (&b""[..], true));
    assert_eq!(outcome(u64::MAX, u32::MAX), (&b""[..], true));
}

#[test]
fn resident_pages_are_read_without_the_pool() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, &[7; 10_000]);
    read(&server, file, 0, 10_000);
    let before = server.deferred();
    assert_eq!(read(&server, file, 5_000, 5_000).data.0, [7; 5_000]);
    assert_eq!(server.deferred(), before);
}

#[test]
fn attributes_and_rights_at_hand_are_told_without_the_pool() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, b"abc");
    server.attributes(file);
    let before = server.deferred();
    assert_eq!(server.attributes(file).size, 3);
    let arguments = AccessArgs {
        file,
        access: access::READ,
    };
    let result: AccessResult = server.nfs(Procedure::Access, &arguments);
    assert_eq!(result.expect("an answer").access, access::READ);
    assert_eq!(server.deferred(), before);
    // What somebody else did to the file has to be dealt with, elsewhere.
    read(&server, file, 0, 3);
    let object = server.object(file);
    let change = OutsideChange::Write {
        offset: 0,
        data: b"other bytes",
    };
    server
        .store
        .outside_change(object, change)
        .expect("changed");
    assert_eq!(server.attributes(file).size, 11);
    assert_eq!(server.deferred(), before + 1);
    assert_eq!(read(&server, file, 0, 100).data.0, b"other bytes");
}

#[test]
fn holes_are_zeros_and_a_write_beyond_the_end_grows_the_file() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 10_000, b"end");
    assert_eq!(server.attributes(file).size, 10_003);
    let all = read(&server, file, 0, 20_000);
    assert!(all.data.0[..10_000].iter().all(|byte| *byte == 0));
    assert_eq!(&all.data.0[10_000..], b"end");
    assert!(all.eof);
}

#[test]
fn only_regular_files_are_read_and_only_by_those_who_may() {
    let server = Server::new();
    let read_as = |who, file| {
        let arguments = ReadArgs {
            file,
            offset: 0,
            count: 1,
        };
        let result: ReadResult<'static> = server.nfs_as(&who, Procedure::Read, &arguments);
        refused(result)
    };
    assert_eq!(read_as(user(0, 0), server.root()), Status::IsDir);
    let file = server.create(server.root(), "f");
    setattr(&server, file, mode(0o600), None).expect("set");
    assert_eq!(read_as(user(5, 5), file), Status::Access);
    assert_eq!(
        read_as(user(0, 0), FileHandle(b"made up")),
        Status::BadHandle
    );
    let mut forged = file.0.to_vec();
    *forged.last_mut().expect("bytes") ^= 1;
    assert_eq!(read_as(user(0, 0), FileHandle(&forged)), Status::BadHandle);
    let removed: RemoveResult = server.nfs(Procedure::Remove, &at(server.root(), "f"));
    removed.expect("removed");
    assert_eq!(read_as(user(0, 0), file), Status::Stale);
    let gone: GetAttributesResult = server.nfs(Procedure::GetAttributes, &file);
    assert_eq!(refused(gone), Status::Stale);
}

#[test]
fn writes_are_as_stable_as_asked_for_and_the_verifier_ties_them_to_commits() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let first = server.write(file, 0, b"abc");
    assert_eq!(first.wcc.before.map(|before| before.size), Some(0));
    assert_eq!(first.wcc.after.map(|after| after.size), Some(3));
    for stable in [Stable::DataSync, Stable::FileSync] {
        let arguments = WriteArgs {
            file,
            offset: 0,
            count: 3,
            stable,
            data: Payload(b"xyz"),
        };
        let written: WriteResult = server.nfs(Procedure::Write, &arguments);
        let written = written.expect("written");
        assert!(written.committed >= stable);
        assert_eq!(written.verifier, first.verifier);
    }
    let arguments = CommitArgs {
        file,
        offset: 0,
        count: 0,
    };
    let committed: CommitResult = server.nfs(Procedure::Commit, &arguments);
    let committed = committed.expect("committed");
    assert_eq!(committed.verifier, first.verifier);
    assert!(committed.wcc.after.is_some());
}

#[test]
fn a_count_that_does_not_fit_the_data_is_refused_and_a_shorter_one_obeyed() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let write = |offset, count| -> WriteResult {
        let arguments = WriteArgs {
            file,
            offset,
            count,
            stable: Stable::FileSync,
            data: Payload(b"abcd"),
        };
        server.nfs(Procedure::Write, &arguments)
    };
    assert_eq!(refused(write(0, 5)), Status::Inval);
    assert_eq!(write(0, 2).expect("written").count, 2);
    assert_eq!(read(&server, file, 0, 10).data.0, b"ab");
    assert_eq!(refused(write(u64::MAX - 1, 4)), Status::FBig);
}

#[test]
fn what_is_no_regular_file_is_refused_with_its_attributes() {
    let server = Server::new();
    let arguments = SymlinkArgs {
        place: at(server.root(), "link"),
        attributes: mode(0o777),
        target: Payload(b"nowhere"),
    };
    let made: CreateResult<'static> = server.nfs(Procedure::Symlink, &arguments);
    let link = made.expect("made").file.expect("a handle");
    let directory = server.mkdir(server.root(), "d");
    for (object, expected) in [(directory, Status::IsDir), (link, Status::Inval)] {
        let now = Some(server.attributes(object));
        let (offset, count) = (0, 1);
        let read = ReadArgs {
            file: object,
            offset,
            count,
        };
        let read: ReadResult<'static> = server.nfs(Procedure::Read, &read);
        let read = read.expect_err("refused");
        assert_eq!((read.status, read.rest), (expected, now));
        let write = WriteArgs {
            file: object,
            offset,
            count,
            stable: Stable::Unstable,
            data: Payload(b"x"),
        };
        let written: WriteResult = server.nfs(Procedure::Write, &write);
        let written = written.expect_err("refused");
        assert_eq!((written.status, written.rest.after), (expected, now));
        let commit = CommitArgs {
            file: object,
            offset,
            count,
        };
        let committed: CommitResult = server.nfs(Procedure::Commit, &commit);
        let committed = committed.expect_err("refused");
        assert_eq!((committed.status, committed.rest.after), (expected, now));
    }
}

#[test]
fn setattr_sets_what_is_given_and_minds_its_guard() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.write(file, 0, b"0123456789");
    let old = server.attributes(file);
    let new = SetAttributes {
        mode: Some(0o4711),
        uid: Some(7),
        gid: Some(8),
        size: Some(4),
        atime: SetTime::To(Time {
            seconds: 11,
            nanoseconds: 12,
        }),
        mtime: SetTime::To(Time {
            seconds: 13,
            nanoseconds: 14,
        }),
    };
    let other = Time {
        seconds: 1,
        nanoseconds: 1,
    };
    let failed = setattr(&server, file, new, Some(other)).expect_err("guarded");
    assert_eq!(failed.status, Status::NotSync);
    assert_eq!(server.attributes(file), old);
    let wcc = setattr(&server, file, new, Some(old.ctime)).expect("set");
    assert_eq!(wcc.before.map(|before| before.size), Some(10));
    let now = server.attributes(file);
    assert_eq!(wcc.after, Some(now));
    assert_eq!((now.mode, now.uid, now.gid, now.size), (0o4711, 7, 8, 4));
    assert_eq!((now.atime.seconds, now.mtime.nanoseconds), (11, 14));
    assert_eq!(read(&server, file, 0, 10).data.0, b"0123");
    // Grown again, what was cut off is zeros.
    let grown = SetAttributes {
        size: Some(6),
        ..SetAttributes::default()
    };
    setattr(&server, file, grown, None).expect("set");
    assert_eq!(read(&server, file, 0, 10).data.0, b"0123\0\0");
    let arguments = SetAttributesArgs {
        file,
        attributes: mode(0o777),
        guard: None,
    };
    let stranger: SetAttributesResult =
        server.nfs_as(&user(99, 99), Procedure::SetAttributes, &arguments);
    assert_eq!(refused(stranger), Status::Perm);
}

#[test]
fn access_tells_what_would_be_granted() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let asked = access::READ | access::MODIFY | access::EXTEND | access::EXECUTE | access::DELETE;
    let granted = |who, file| {
        let arguments = AccessArgs {
            file,
            access: asked | access::LOOKUP,
        };
        let result: AccessResult = server.nfs_as(&who, Procedure::Access, &arguments);
        let granted = result.expect("an answer");
        assert!(granted.attributes.is_some());
        granted.access
    };
    assert_eq!(granted(user(5, 5), file), access::READ);
    assert_eq!(
        granted(user(0, 0), file) & !access::DELETE,
        access::READ | access::MODIFY | access::EXTEND
    );
    let directory = server.mkdir(server.root(), "d");
    assert_eq!(
        granted(user(5, 5), directory),
        access::READ | access::LOOKUP
    );
}

#[test]
fn the_file_system_describes_itself() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.attributes(file);
    let before = server.deferred();
    let info: FsInfoResult = server.nfs(Procedure::FsInfo, &server.root());
    let info = info.expect("info");
    assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
    assert_eq!(info.properties, 0x1b);
    assert!(info.file_max > 0);
    assert!(
        info.attributes
            .is_some_and(|root| root.kind == FileType::Directory)
    );
    let limits: PathConfResult = server.nfs(Procedure::PathConf, &server.root());
    let limits = limits.expect("limits");
    assert_eq!(limits.name_max, 255);
    assert!(limits.no_truncate && limits.case_preserving && !limits.case_insensitive);
    let space: FsStatResult = server.nfs(Procedure::FsStat, &server.root());
    let space = space.expect("space");
    assert!(space.available_bytes <= space.total_bytes && space.total_bytes > 0);
    // A change shows at once.
    let now = || {
        let now: FsStatResult = server.nfs(Procedure::FsStat, &file);
        now.expect("space").free_bytes
    };
    let free = now();
    server.write(file, 0, &[7; 100_000]);
    assert!(now() < free);
    assert_eq!(server.deferred(), before + 1, "only the write");
    // Of a file that is gone nothing is known.
    let gone = server.create(server.root(), "gone");
    let removed: RemoveResult = server.nfs(Procedure::Remove, &at(server.root(), "gone"));
    removed.expect("removed");
    let space: FsStatResult = server.nfs(Procedure::FsStat, &gone);
    assert_eq!(refused(space), Status::Stale);
    let limits: PathConfResult = server.nfs(Procedure::PathConf, &gone);
    assert_eq!(refused(limits), Status::Stale);
}

#[test]
fn a_read_only_store_changes_nothing() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    server.store.set_read_only(true);
    let arguments = WriteArgs {
        file,
        offset: 0,
        count: 1,
        stable: Stable::Unstable,
        data: Payload(b"x"),
    };
    let written: WriteResult = server.nfs(Procedure::Write, &arguments);
    assert_eq!(refused(written), Status::RoFs);
    assert_eq!(refused(setattr(&server, file, mode(0), None)), Status::RoFs);
    let removed: RemoveResult = server.nfs(Procedure::Remove, &at(server.root(), "f"));
    assert_eq!(refused(removed), Status::RoFs);
    assert_eq!(read(&server, file, 0, 1).count, 0);
}
