//! Who may reach an export: by names, by file handles and by MOUNT.

use odafs_common::wire::mount3::{self, DirPath, Exports, MountResult, Mounts};
use odafs_common::wire::nfs3::{
    self, CreateResult, DirectoryName, Failed, FileHandle, GetAttributesResult, MakeDirectoryArgs,
    Procedure, Status, SymlinkArgs,
};
use odafs_common::wire::nfs4::{self};
use odafs_common::wire::nlm4;
use odafs_common::wire::rpc::Rejection;
use odafs_common::wire::xdr::Encode;

use crate::harness::{Client, Server};

/// By MOUNT a symbolic link may name the directory of its own export, and not that of another.
#[test]
fn a_link_leads_to_its_own_export_alone() {
    let server = Server::new();
    let root = server.handle(&["open"]);
    let client = server.client("10.1.0.1:700", 5);
    for (name, target, found) in [
        ("own", "/srv/open", Ok(())),
        ("up", "../open/own", Ok(())),
        ("other", "/srv/closed", Err(mount3::Status::Access)),
        ("beside", "../closed", Err(mount3::Status::Access)),
        ("by-name", "/open", Err(mount3::Status::Access)),
        ("table", "..", Err(mount3::Status::Access)),
    ] {
        let arguments = SymlinkArgs {
            place: DirectoryName {
                directory: FileHandle(&root),
                name: name.as_bytes(),
            },
            attributes: nfs3::SetAttributes::default(),
            target: nfs3::Payload(target.as_bytes()),
        };
        let made: CreateResult<'static> = client.nfs(Procedure::Symlink, &arguments);
        made.expect("made");
        let path = format!("/open/{name}");
        let path = DirPath(path.as_bytes());
        let mounted: MountResult<'static> = client.mount(mount3::Procedure::Mount, &path);
        let handle = mounted.map(|mounted| assert_eq!(mounted.file.0, root));
        assert_eq!(handle, found, "{name}");
    }
}

#[test]
fn an_export_is_invisible_to_those_who_may_not_reach_it() {
    let server = Server::new();
    let root = server.handle(&[]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    assert_eq!(inside.names(&root), [".", "..", "deep", "open"]);
    assert_eq!(outside.names(&root), [".", "..", "open"]);
    assert_eq!(inside.names_4(), ["deep", "open"]);
    assert_eq!(outside.names_4(), ["open"]);
    let deep = server.handle(&["deep"]);
    assert_eq!(inside.names(&deep), [".", "..", "closed"]);
    assert_eq!(outside.names(&deep), [".", ".."]);
    assert!(inside.lookup(&deep, "closed").is_ok());
    assert_eq!(outside.lookup(&deep, "closed"), Err(Status::NoEnt));
    assert_eq!(outside.lookup(&root, "deep"), Err(Status::NoEnt));
    assert!(outside.lookup(&root, "open").is_ok());
    assert_eq!(inside.lookup_4(&["deep", "closed", "public"]), Ok(()));
    assert_eq!(outside.lookup_4(&["deep"]), Err(nfs4::Status::NoEnt));
    assert_eq!(outside.lookup_4(&["open", "public"]), Ok(()));
    // Who may reach no export is refused as a whole.
    let stranger = server.client("192.0.2.1:700", 5);
    let program = (nfs3::PROGRAM, nfs3::VERSION);
    let refused = stranger.call(program, 1, &FileHandle(&root).to_bytes());
    assert!(matches!(refused, Err(Rejection::Auth(_))), "{refused:?}");
}

#[test]
fn a_handle_is_stale_to_those_who_may_not_reach_its_export() {
    let server = Server::new();
    let file = server.handle(&["deep", "closed", "public"]);
    let (inside, outside) = (
        server.client("10.1.0.1:700", 6),
        server.client("10.2.0.1:700", 6),
    );
    // Resident by now.
    assert_eq!(inside.reads(&file), Ok(4096));
    assert_eq!(inside.reads_4(&file), Ok(4096));
    assert_eq!(inside.read(&file, 0), Ok(0));
    assert_eq!(outside.reads(&file), Err(Status::Stale));
    assert_eq!(outside.reads_4(&file), Err(nfs4::Status::Stale));
    assert_eq!(outside.read(&file, 0), Err(Status::Stale));
    let found: GetAttributesResult = outside.nfs(Procedure::GetAttributes, &FileHandle(&file));
    assert_eq!(found.unwrap_err().status, Status::Stale);
    let directory = server.handle(&["deep", "closed"]);
    let make = MakeDirectoryArgs {
        place: DirectoryName {
            directory: FileHandle(&directory),
            name: b"x",
        },
        attributes: nfs3::SetAttributes::default(),
    };
    let made: CreateResult<'static> = outside.nfs(Procedure::MakeDirectory, &make);
    let Err(Failed { status, rest }) = made else {
        panic!("made");
    };
    assert_eq!((status, rest.after), (Status::Stale, None));
    assert_eq!(inside.lock(&file), nlm4::Status::Granted);
    assert_eq!(outside.lock(&file), nlm4::Status::StaleHandle);
    // A port that the export does not believe: Linux says the same.
    let ordinary = server.client("10.1.0.1:7000", 6);
    assert_eq!(ordinary.reads(&file), Err(Status::Perm));
    assert_eq!(ordinary.reads_4(&file), Err(nfs4::Status::Perm));
    let deep = server.handle(&["deep"]);
    assert_eq!(ordinary.lookup(&deep, "closed"), Err(Status::Perm));
    assert_eq!(
        ordinary.reads(&server.handle(&["open", "public"])),
        Ok(4096)
    );
}

#[test]
fn mount_shows_and_gives_what_may_be_reached() {
    let server = Server::new();
    let (inside, outside) = (
        server.client("10.1.0.1:700", 5),
        server.client("10.2.0.1:700", 5),
    );
    let mount = |client: &Client<'_>, path: &str| {
        let path = DirPath(path.as_bytes());
        let mounted: MountResult<'static> = client.mount(mount3::Procedure::Mount, &path);
        mounted.map(|mounted| mounted.flavors)
    };
    assert_eq!(mount(&inside, "/deep/closed"), Ok(vec![1]));
    assert_eq!(mount(&inside, "/open"), Ok(vec![1, 0]));
    assert_eq!(mount(&outside, "/open"), Ok(vec![1, 0]));
    assert!(mount(&outside, "/").is_ok());
    assert_eq!(mount(&outside, "/deep/closed"), Err(mount3::Status::Access));
    assert_eq!(mount(&outside, "/deep"), Err(mount3::Status::NoEnt));
    assert_eq!(
        mount(&outside, "/open/../deep/closed"),
        Err(mount3::Status::NoEnt)
    );
    // No way leads through it either, and none tells what is in it.
    for path in [
        "/open/../deep/closed/../../open",
        "/open/../deep/closed/public/../../../open",
        "/open/../deep/closed/nothing",
        "/./deep/closed",
    ] {
        assert_eq!(mount(&outside, path), Err(mount3::Status::NoEnt), "{path}");
    }
    let ordinary = server.client("10.1.0.1:7000", 5);
    assert_eq!(
        mount(&ordinary, "/deep/closed"),
        Err(mount3::Status::Access)
    );
    let listed = |client: &Client<'_>| {
        let listed: Exports<'static> = client.mount(mount3::Procedure::Export, &());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let groups = |export: &mount3::Export<'_>| {
            let groups = export.groups.iter().map(|group| text(group.0));
            groups.collect::<Vec<_>>().join(" ")
        };
        let all = listed.0.iter();
        all.map(|export| (text(export.directory.0), groups(export)))
            .collect::<Vec<_>>()
    };
    let line = |name: &str, groups: &str| (name.to_owned(), groups.to_owned());
    let both = line("/", "10.0.0.0/8 10.1.0.0/16");
    let open = line("/open", "10.0.0.0/8");
    assert_eq!(listed(&outside), [both.clone(), open.clone()]);
    let closed = line("/deep/closed", "10.1.0.0/16");
    assert_eq!(listed(&inside), [both, open, closed]);
    let dumped = |client: &Client<'_>| {
        let mounts: Mounts<'static> = client.mount(mount3::Procedure::Dump, &());
        let of_closed = |mount: &&mount3::Mount<'_>| mount.directory.0 == b"/deep/closed";
        mounts.0.iter().filter(of_closed).count()
    };
    assert_eq!((dumped(&inside), dumped(&outside)), (1, 0));
}
