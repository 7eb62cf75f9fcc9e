//! MOUNT.

use std::cell::Cell;

use odafs_common::wire::mount3::{
    DirPath, Exports, MountResult, Mounts, PROGRAM, Procedure, Status, VERSION,
};
use odafs_common::wire::nfs3::{self, CreateResult, Payload, SetAttributes, SymlinkArgs};
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Decode, Encode};
use odafs_server::config::Squash;

use crate::harness::{Server, at, user};

fn ask<R: Decode<'static>>(server: &Server, procedure: Procedure, arguments: &impl Encode) -> R {
    ask_from(server, "127.0.0.1:700", procedure, arguments)
}

fn ask_from<R: Decode<'static>>(
    server: &Server,
    address: &str,
    procedure: Procedure,
    arguments: &impl Encode,
) -> R {
    let program = (PROGRAM, VERSION);
    let message = server.message(
        program,
        procedure.code(),
        &user(0, 0),
        &arguments.to_bytes(),
    );
    let reply = server.exchange(address, &message).expect("a reply");
    let reply = rpc::parse_reply(reply).expect("a reply's header");
    R::from_bytes(reply.body.expect("served").rest()).expect("the procedure's results")
}

fn mount(server: &Server, path: &str) -> MountResult<'static> {
    ask(server, Procedure::Mount, &DirPath(path.as_bytes()))
}

#[test]
fn the_export_and_directories_below_it_can_be_mounted() {
    let server = Server::new();
    let below = server.mkdir(server.root(), "a");
    let deeper = server.mkdir(below, "b");
    server.create(server.root(), "file");
    let root = mount(&server, "/export").expect("mounted");
    assert_eq!(root.file, server.root());
    assert_eq!(root.flavors, [1]);
    assert_eq!(
        mount(&server, "/export/").expect("mounted").file,
        server.root()
    );
    assert_eq!(mount(&server, "/export/a").expect("mounted").file, below);
    assert_eq!(
        mount(&server, "//export//a/./b").expect("mounted").file,
        deeper
    );
    let root_again = mount(&server, "/export/a/../..").expect("mounted");
    assert_eq!(root_again.file, server.root());
    for (path, status) in [
        ("/", Status::NoEnt),
        ("", Status::NoEnt),
        ("/exports", Status::NoEnt),
        ("/export/absent", Status::NoEnt),
        ("/export/file", Status::NotDir),
        ("/export/file/x", Status::NotDir),
    ] {
        assert_eq!(mount(&server, path).err(), Some(status), "{path}");
    }
    let long = format!("/export/{}", "n".repeat(300));
    assert_eq!(mount(&server, &long).err(), Some(Status::NameTooLong));
}

#[test]
fn links_that_stay_in_the_export_are_followed() {
    let server = Server::new();
    let a = server.mkdir(server.root(), "a");
    let b = server.mkdir(a, "b");
    server.create(server.root(), "file");
    let link = |directory, name, target: &'static str| {
        let arguments = SymlinkArgs {
            place: at(directory, name),
            attributes: SetAttributes::default(),
            target: Payload(target.as_bytes()),
        };
        let made: CreateResult<'static> = server.nfs(nfs3::Procedure::Symlink, &arguments);
        made.expect("made");
    };
    link(server.root(), "there", "./a//b");
    link(a, "up", "../there/..");
    link(b, "far", "../up/up/b");
    link(server.root(), "out", "a/../..");
    link(a, "absolute", "/export/a");
    link(server.root(), "round", "round");
    link(server.root(), "plain", "file");
    link(server.root(), "nowhere", "absent/x");
    let mounted = |path| mount(&server, path).map(|mounted| mounted.file);
    assert_eq!(mounted("/export/there"), Ok(b));
    assert_eq!(mounted("/export/a/up"), Ok(a));
    assert_eq!(mounted("/export/a/up/b"), Ok(b));
    assert_eq!(mounted("/export/there/far"), Ok(b));
    for (path, status) in [
        ("/export/out", Status::Access),
        ("/export/out/a", Status::Access),
        ("/export/a/absolute", Status::Access),
        ("/export/a/absolute/b", Status::Access),
        ("/export/round", Status::Inval),
        ("/export/plain", Status::NotDir),
        ("/export/nowhere", Status::NoEnt),
    ] {
        assert_eq!(mounted(path), Err(status), "{path}");
    }
}

/// Only the names of the export's own directory count. What else the host has, or has not, makes no difference.
#[test]
fn links_that_lead_out_of_the_export_and_back_into_it_are_followed() {
    let server = Server::new();
    let a = server.mkdir(server.root(), "a");
    let b = server.mkdir(a, "b");
    let made = Cell::new(0);
    let ends = |directory, target: &str, then: &str| {
        let name = format!("link-{}", made.replace(made.get() + 1));
        let arguments = SymlinkArgs {
            place: at(directory, &name),
            attributes: SetAttributes::default(),
            target: Payload(target.as_bytes()),
        };
        let linked: CreateResult<'static> = server.nfs(nfs3::Procedure::Symlink, &arguments);
        linked.expect("made");
        let below = if directory == a { "a/" } else { "" };
        let found = mount(&server, &format!("/export/{below}{name}{then}"));
        found.map(|mounted| mounted.file)
    };
    let root = server.root();
    for (directory, target, end) in [
        (root, "/srv/link/shared", root),
        (root, "/data/disk/shared", root),
        (root, "//data/./disk//shared/", root),
        (root, "/srv/link/shared/a/b", b),
        (a, "/data/disk/shared/a", a),
        (root, "../shared/a", a),
        (a, "../../shared/a/b", b),
        (root, "../../../data/disk/shared/a/b", b),
        (root, "../../../../../data/disk/shared", root),
        (root, "../../../srv/link/shared/a", a),
        // Above a directory that was named through a link is its real parent.
        (root, "/srv/link/shared/../../disk/shared/a", a),
        (root, "/data/../data/disk/shared/a/../a", a),
        (root, "/data/disk/shared/link-0/a", a),
    ] {
        assert_eq!(ends(directory, target, ""), Ok(end), "{target}");
    }
    assert_eq!(ends(root, "/srv/link/shared", "/a/b"), Ok(b));
    assert_eq!(ends(root, "..", "/shared/a"), Ok(a));
    for target in [
        "/",
        "..",
        "../..",
        "/srv",
        "/srv/link",
        "/data/disk",
        "/etc",
        "/absent",
        "/etc/passwd/x",
        "/data/disk/share",
        "/data/disk/shared2/a",
        "/data/disk/other/../shared",
        "/data/disk/shared/..",
        "../other/../shared",
        "../link/shared",
        // Where this leads the names do not tell.
        "/srv/link/../link/shared",
        "/export/a",
    ] {
        assert_eq!(ends(root, target, ""), Err(Status::Access), "{target}");
    }
    assert_eq!(ends(root, "/data/disk", "/other"), Err(Status::Access));
    let absent = ends(root, "/data/disk/shared/absent", "");
    assert_eq!(absent, Err(Status::NoEnt));
    let itself = format!("/data/disk/shared/a/link-{}", made.get());
    assert_eq!(ends(a, &itself, ""), Err(Status::Inval));
}

#[test]
fn a_caller_outside_the_access_list_is_told_so() {
    let server = Server::new();
    let path = DirPath(b"/export");
    let refused: MountResult<'_> = ask_from(&server, "10.2.0.1:1", Procedure::Mount, &path);
    assert_eq!(refused.err(), Some(Status::Access));
    assert_eq!(server.deferred(), 0, "no thread of the pool refuses");
    let mounted: MountResult<'_> = ask_from(&server, "10.1.0.1:1", Procedure::Mount, &path);
    assert!(mounted.is_ok());
    // It hears of no clients and networks either.
    let mounts: Mounts<'_> = ask_from(&server, "10.2.0.1:1", Procedure::Dump, &());
    let exports: Exports<'_> = ask_from(&server, "10.2.0.1:1", Procedure::Export, &());
    assert!(mounts.0.is_empty());
    assert_eq!(exports.0.len(), 1);
    assert!(exports.0[0].groups.is_empty());
    let mounts: Mounts<'_> = ask_from(&server, "10.1.0.2:1", Procedure::Dump, &());
    assert_eq!(mounts.0.len(), 1);
}

#[test]
fn where_all_are_squashed_no_credential_is_needed() {
    let server = Server::with(Squash::All);
    assert_eq!(mount(&server, "/export").expect("mounted").flavors, [1, 0]);
}

#[test]
fn mounts_are_listed_until_they_end() {
    let server = Server::new();
    server.mkdir(server.root(), "a");
    let dump = || {
        let mounts: Mounts<'static> = ask(&server, Procedure::Dump, &());
        let mut paths: Vec<_> = mounts.0.iter().map(|mount| mount.directory.0).collect();
        paths.sort_unstable();
        assert!(mounts.0.iter().all(|mount| mount.host.0 == b"127.0.0.1"));
        paths
    };
    for path in ["/export", "/export/a", "/export"] {
        mount(&server, path).expect("mounted");
    }
    assert_eq!(dump(), [&b"/export"[..], b"/export/a"]);
    let () = ask(&server, Procedure::Unmount, &DirPath(b"/export"));
    assert_eq!(dump(), [b"/export/a"]);
    let () = ask(&server, Procedure::UnmountAll, &());
    assert!(dump().is_empty());
}

#[test]
fn the_export_is_listed_with_who_may_mount_it() {
    let server = Server::new();
    let exports: Exports<'static> = ask(&server, Procedure::Export, &());
    assert_eq!(exports.0.len(), 1);
    assert_eq!(exports.0[0].directory.0, b"/export");
    assert_eq!(exports.0[0].groups[0].0, b"10.1.0.0/16");
}
