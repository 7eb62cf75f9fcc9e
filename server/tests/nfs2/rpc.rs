//! Calls that are none, or not ours to serve; obsolete ones; repeated ones.

use std::collections::HashSet;

use odafs_common::wire::nfs2::{self, ChangeResult, FileHandle, Procedure, SymlinkArgs, WriteArgs};
use odafs_common::wire::rpc::{self, Auth, AuthStat, Rejection};
use odafs_common::wire::xdr::{Decode as _, Encode as _};
use odafs_common::wire::{mount3, nfs3};

use crate::harness::{NFS, Server, at, mode, user};

fn rejection(server: &Server, program: (u32, u32), procedure: u32, arguments: &[u8]) -> Rejection {
    match server.call(program, procedure, &user(0, 0), arguments) {
        Ok(results) => panic!("served, with {} bytes", results.len()),
        Err(rejection) => rejection,
    }
}

#[test]
fn the_versions_that_are_served_are_named() {
    let server = Server::new();
    let rejection = |program, procedure| rejection(&server, program, procedure, &[]);
    let between = |low, high| Rejection::ProgramMismatch { low, high };
    for version in [0, 1, 4] {
        assert_eq!(rejection((nfs2::PROGRAM, version), 0), between(2, 3));
    }
    for version in [0, 4] {
        assert_eq!(rejection((mount3::PROGRAM, version), 0), between(1, 3));
    }
    for (program, beyond) in [
        (NFS, 18),
        (NFS, u32::MAX),
        ((mount3::PROGRAM, 1), 6),
        ((mount3::PROGRAM, 1), 7),
        ((mount3::PROGRAM, 2), 6),
        ((mount3::PROGRAM, 2), 8),
        ((mount3::PROGRAM, 3), 7),
    ] {
        assert_eq!(rejection(program, beyond), Rejection::ProcedureUnavailable);
    }
}

#[test]
fn what_is_obsolete_says_nothing() {
    let server = Server::new();
    for procedure in [Procedure::Null, Procedure::Root, Procedure::WriteCache] {
        let results = server.call(NFS, procedure.code(), &user(0, 0), &[]);
        assert_eq!(results, Ok(&[][..]), "{procedure:?}");
    }
}

#[test]
fn arguments_that_do_not_decode_are_garbage() {
    let server = Server::new();
    let without = [Procedure::Null, Procedure::Root, Procedure::WriteCache];
    for procedure in Procedure::ALL.iter().filter(|p| !without.contains(p)) {
        for arguments in [&[][..], &[0xFF; 31], &[0, 0, 0, 65]] {
            assert_eq!(
                rejection(&server, NFS, procedure.code(), arguments),
                Rejection::GarbageArguments,
                "{procedure:?}"
            );
        }
    }
    // Lengths beyond what the protocol has, with and without as many bytes.
    let garbage = |procedure: Procedure, arguments: &[u8]| {
        let rejection = rejection(&server, NFS, procedure.code(), arguments);
        assert_eq!(rejection, Rejection::GarbageArguments, "{procedure:?}");
    };
    let file = server.create(server.root(), "f");
    for length in [8193_u32, 1 << 20, u32::MAX] {
        let mut write = [&file.to_bytes()[..], &[0; 12], &length.to_be_bytes()].concat();
        garbage(Procedure::Write, &write);
        write.resize(write.len() + (length as usize).min(2 << 20), 7);
        garbage(Procedure::Write, &write);
        let mut name = [&file.to_bytes()[..], &length.to_be_bytes()].concat();
        garbage(Procedure::Lookup, &name);
        name.resize(name.len() + (length as usize).min(2 << 20), b'n');
        garbage(Procedure::Remove, &name);
    }
    assert_eq!(server.attributes(file).size, 0);
}

#[test]
fn every_prefix_of_a_call_is_survived() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let write = WriteArgs {
        file,
        begin_offset: 0,
        offset: 0,
        total_count: 0,
        data: nfs2::Payload(b"data"),
    };
    let symlink = SymlinkArgs {
        place: at(server.root(), "link"),
        target: nfs2::Payload(b"target"),
        attributes: mode(0o777),
    };
    for (procedure, arguments) in [
        (Procedure::Write, write.to_bytes()),
        (Procedure::Symlink, symlink.to_bytes()),
    ] {
        let message = server.message(NFS, procedure.code(), &user(0, 0), &arguments);
        for length in 0..message.len() {
            let reply = server.exchange("127.0.0.1:700", &message[..length]);
            if let Some(reply) = reply {
                rpc::parse_reply(reply).expect("a reply's header");
            }
        }
    }
    assert_eq!(server.attributes(file).size, 0);
    assert!(server.lookup(server.root(), "link").is_err());
}

#[test]
fn callers_who_are_not_let_in_learn_nothing_but_that() {
    let server = Server::new();
    let root = server.root().to_bytes();
    let ask = |address, procedure: Procedure, who: &Auth<'_>| {
        let message = server.message(NFS, procedure.code(), who, &root);
        let reply = server.exchange(address, &message).expect("a reply");
        let reply = rpc::parse_reply(reply).expect("a reply's header");
        reply.body.err()
    };
    let (get, root_user) = (Procedure::GetAttributes, user(0, 0));
    let weak = Some(Rejection::Auth(AuthStat::TooWeak));
    assert_eq!(ask("10.2.0.1:700", get, &root_user), weak);
    assert_eq!(ask("10.2.0.1:700", Procedure::Root, &root_user), weak);
    assert_eq!(ask("10.2.0.1:700", Procedure::Null, &root_user), None);
    assert_eq!(ask("10.1.0.1:700", get, &root_user), None);
    assert_eq!(ask("10.1.0.1:40000", get, &root_user), weak);
}

#[test]
fn a_repeated_call_is_answered_as_before_and_not_served_again() {
    let server = Server::new();
    let root = server.root();
    let file = server.create(root, "f");
    server.create(root, "once");
    server.mkdir(root, "d");
    let to = |name| at(root, name);
    let rename = nfs2::RenameArgs {
        from: to("f"),
        to: to("g"),
    };
    let link = nfs2::LinkArgs {
        file,
        place: to("hard"),
    };
    let symlink = SymlinkArgs {
        place: to("soft"),
        target: nfs2::Payload(b"f"),
        attributes: mode(0o777),
    };
    let create = |name| nfs2::CreateArgs {
        place: to(name),
        attributes: mode(0o755),
    };
    let set = nfs2::SetAttributesArgs {
        file,
        attributes: mode(0o600),
    };
    let write = WriteArgs {
        file,
        begin_offset: 0,
        offset: 0,
        total_count: 0,
        data: nfs2::Payload(b"data"),
    };
    for (procedure, arguments) in [
        (Procedure::Remove, to("once").to_bytes()),
        (Procedure::RemoveDirectory, to("d").to_bytes()),
        (Procedure::Rename, rename.to_bytes()),
        (Procedure::Link, link.to_bytes()),
        (Procedure::Symlink, symlink.to_bytes()),
        (Procedure::MakeDirectory, create("e").to_bytes()),
        (Procedure::Create, create("c").to_bytes()),
        (Procedure::SetAttributes, set.to_bytes()),
        (Procedure::Write, write.to_bytes()),
    ] {
        let message = server.message(NFS, procedure.code(), &user(0, 0), &arguments);
        let first = server.exchange("127.0.0.1:700", &message).expect("a reply");
        let results = rpc::parse_reply(first).expect("a header").body;
        let status = results.expect("served").rest()[..4].to_vec();
        assert_eq!(status, [0; 4], "{procedure:?}");
        let before = server.deferred();
        let again = server.exchange("127.0.0.1:999", &message).expect("a reply");
        assert_eq!(first, again, "{procedure:?}");
        assert_eq!(server.deferred(), before, "{procedure:?}");
    }
    let removed: ChangeResult = server.nfs(Procedure::Remove, &to("once"));
    assert!(removed.is_err(), "another call finds nothing to remove");
}

/// CREATE of version 2 has the number of MKDIR of version 3, and so on.
#[test]
fn a_call_of_another_version_is_no_repetition() {
    let server = Server::new();
    let create = Procedure::Create.code();
    let mut message = server.message(NFS, create, &user(0, 0), &[0xFF; 32]);
    let garbage = |message: &[u8]| {
        let reply = server.exchange("127.0.0.1:700", message).expect("a reply");
        let reply = rpc::parse_reply(reply).expect("a header");
        assert_eq!(reply.body.err(), Some(Rejection::GarbageArguments));
    };
    garbage(&message);
    // The version is the fifth word.
    message[16..20].copy_from_slice(&nfs3::VERSION.to_be_bytes());
    let before = server.deferred();
    garbage(&message);
    assert_eq!(server.deferred(), before + 1, "it was served");
}

#[test]
fn what_takes_too_long_gets_no_reply_and_is_served_when_it_comes_again() {
    let server = Server::new();
    let file = server.create(server.root(), "f");
    let write = WriteArgs {
        file,
        begin_offset: 0,
        offset: 0,
        total_count: 0,
        data: nfs2::Payload(b"data"),
    };
    let message = server.message(NFS, Procedure::Write.code(), &user(0, 0), &write.to_bytes());
    // As after a restart, while clients of version 4 may reclaim delegations.
    server.export.promises().close(HashSet::new());
    assert!(server.exchange("127.0.0.1:700", &message).is_none());
    server.export.promises().open();
    let reply = server.exchange("127.0.0.1:700", &message).expect("a reply");
    let results = rpc::parse_reply(reply).expect("a header").body;
    let results = results.expect("served").rest();
    let written = nfs2::AttributesResult::from_bytes(results).expect("a result");
    assert_eq!(written.expect("written").size, 4);
}

#[test]
fn a_handle_is_of_one_version_alone() {
    let server = Server::new();
    let root = server.export.handle(server.export.root());
    let mut end = [0; 32];
    end.copy_from_slice(&root[8..]);
    let result: nfs2::AttributesResult = server.nfs(Procedure::GetAttributes, &FileHandle(&end));
    assert_eq!(result, Err(nfs2::Status::Stale));
    let program = (nfs3::PROGRAM, nfs3::VERSION);
    let handle = nfs3::FileHandle(&server.root).to_bytes();
    let get = nfs3::Procedure::GetAttributes.code();
    let results = server.call(program, get, &user(0, 0), &handle);
    let result = nfs3::GetAttributesResult::from_bytes(results.expect("served"));
    let failed = result.expect("a result").expect_err("refused");
    assert_eq!(failed.status, nfs3::Status::BadHandle);
}
