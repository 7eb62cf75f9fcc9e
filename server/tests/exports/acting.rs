//! As whom a caller acts in an export, and what goes from one export to another.

use odafs_common::wire::nfs3::{
    DirectoryName, FileHandle, LinkArgs, LinkResult, Procedure, RenameArgs, RenameResult, Status,
};
use odafs_common::wire::nfs4::{self, Name, Operation, OperationResult};
use odafs_common::wire::nlm4;
use odafs_fabric::Peer;
use odafs_nic::calls::Transport;
use odafs_server::access::{Anonymous, Rule};
use odafs_server::config::Squash;

use crate::harness::{Client, Server, closed_rule, open_rule};

#[test]
fn callers_act_in_each_export_as_its_rule_says() {
    let server = Server::new();
    let private = |export: &[&str]| server.handle(&[export, &["private"]].concat());
    let (closed, open) = (private(&["deep", "closed"]), private(&["open"]));
    let owner = server.client("10.1.0.1:700", 5);
    assert_eq!(owner.reads(&closed), Ok(4096));
    assert_eq!(owner.reads_4(&closed), Ok(4096));
    assert_eq!(owner.lock(&closed), nlm4::Status::Granted);
    for squashed in [&owner, &server.client("10.2.0.1:700", 5)] {
        assert_eq!(squashed.reads(&open), Err(Status::Access));
        assert_eq!(squashed.reads_4(&open), Err(nfs4::Status::Access));
        assert_eq!(squashed.read(&open, 0), Err(Status::Access));
        assert_eq!(squashed.lock(&open), nlm4::Status::Failed);
    }
    for other in [0, 6] {
        let other = server.client("10.1.0.1:700", other);
        assert_eq!(other.reads(&closed), Err(Status::Access));
        assert_eq!(other.reads_4(&closed), Err(nfs4::Status::Access));
    }
    // On this host the kernel vouches for a caller, wherever it goes.
    let local = Peer::Uid {
        uid: 5,
        gid: 5,
        groups: [].into(),
        pid: 1,
    };
    let local = server.client_over(local, 0, Transport::Shm);
    assert_eq!(local.reads(&open), Ok(4096));
    assert_eq!(local.reads(&closed), Ok(4096));
}

#[test]
fn nothing_goes_from_an_export_to_another_by_two_handles() {
    let server = Server::new();
    let closed = server.handle(&["deep", "closed"]);
    let open = server.handle(&["open"]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    let rename = |client: &Client<'_>| {
        let place = |directory| DirectoryName {
            directory: FileHandle(directory),
            name: b"public",
        };
        let arguments = RenameArgs {
            from: place(&open),
            to: place(&closed),
        };
        let moved: RenameResult = client.nfs(Procedure::Rename, &arguments);
        moved.expect_err("refused").status
    };
    assert_eq!(
        (rename(&inside), rename(&outside)),
        (Status::XDev, Status::Stale)
    );
    let file = server.handle(&["open", "public"]);
    let link = |client: &Client<'_>| {
        let arguments = LinkArgs {
            file: FileHandle(&file),
            place: DirectoryName {
                directory: FileHandle(&closed),
                name: b"new",
            },
        };
        let linked: LinkResult = client.nfs(Procedure::Link, &arguments);
        linked.expect_err("refused").status
    };
    assert_eq!(
        (link(&inside), link(&outside)),
        (Status::XDev, Status::Stale)
    );
    // One operation has one credential: who acts as another there reads and writes instead.
    let private = server.handle(&["deep", "closed", "private"]);
    let copy = inside.compound(&[
        Operation::PutFileHandle(nfs4::FileHandle(&private)),
        Operation::SaveFileHandle,
        Operation::PutFileHandle(nfs4::FileHandle(&file)),
        Operation::Link(Name(b"x")),
    ]);
    assert!(matches!(copy, OperationResult::Link(Err(_))), "{copy:?}");
    // The credential goes with the file handle, also when a saved one comes back.
    let back = inside.compound(&[
        Operation::PutFileHandle(nfs4::FileHandle(&private)),
        Operation::SaveFileHandle,
        Operation::PutFileHandle(nfs4::FileHandle(&file)),
        Operation::RestoreFileHandle,
        Operation::Read(nfs4::ReadArgs {
            state: nfs4::StateId::ANONYMOUS,
            offset: 0,
            count: 1,
        }),
    ]);
    assert!(matches!(back, OperationResult::Read(Ok(_))), "{back:?}");
}

/// What the file `private` of an export, which is user 5's, gives a client by each protocol.
fn by_each_protocol(client: &Client<'_>, export: &[&str]) -> [bool; 7] {
    let path = [export, &["private"]].concat();
    let file = client.server.handle(&path);
    let session = client.session("/").expect("a session");
    [
        client.reads_2(&path) == Ok(4096),
        client.reads(&file) == Ok(4096),
        client.reads_4(&file) == Ok(4096),
        client.lock(&file) == nlm4::Status::Granted,
        client.sets_acl(&file) == Ok(()),
        client.read(&file, 0) == Ok(0),
        client.refs(&file, session) == Ok((Status::Ok, 1)),
    ]
}

#[test]
fn squashed_callers_act_as_the_anonymous_user_of_the_export() {
    let (open, closed) = (["open"], ["deep", "closed"]);
    let anonymous = |uid| Anonymous {
        uid: Some(uid),
        gid: None,
    };
    let rules = |uid| {
        let [mut open, mut closed] = [open_rule(), closed_rule()];
        (open.anonymous, closed.anonymous) = (anonymous(uid), anonymous(uid));
        (open, closed)
    };
    let (rule, closed_rule) = rules(5);
    let server = Server::with(rule, closed_rule, Vec::new());
    let anyone = server.client("10.2.0.1:7000", 9);
    let root = server.client("10.1.0.1:700", 0);
    let user = server.client("10.1.0.1:700", 6);
    assert_eq!(by_each_protocol(&anyone, &open), [true; 7]);
    assert_eq!(by_each_protocol(&root, &closed), [true; 7]);
    // Who keeps its own ids is not concerned.
    assert_eq!(by_each_protocol(&user, &closed), [false; 7]);
    assert_eq!(by_each_protocol(&user, &open), [true; 7]);
    // Other ids after a reload.
    let (rule, closed_rule) = rules(8);
    let above = Rule::new(Vec::new(), Squash::All);
    let replaced = server.access.replace(above, vec![rule, closed_rule]);
    let replaced = replaced.expect("as many rules");
    assert!(replaced.concerns("10.2.0.1".parse().unwrap()));
    server
        .export
        .close_sessions(|address| replaced.concerns(address));
    assert_eq!(by_each_protocol(&anyone, &open), [false; 7]);
    assert_eq!(by_each_protocol(&root, &closed), [false; 7]);
}
