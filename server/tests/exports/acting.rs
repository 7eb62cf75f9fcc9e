//! As whom a caller acts in an export, and what goes from one export to another.


use odafs_common::wire::nfs3::{
    DirectoryName, FileHandle, LinkArgs,
    LinkResult, Procedure, RenameArgs, RenameResult, Status,
};
use odafs_common::wire::nfs4::{self, Name, Operation, OperationResult};
use odafs_common::wire::nlm4;
use odafs_fabric::Peer;
use odafs_nic::calls::Transport;

use crate::harness::{Client, Server};

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
