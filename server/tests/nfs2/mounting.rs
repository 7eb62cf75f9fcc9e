//! MOUNT, versions 1 and 2.

use odafs_common::wire::mount1::{MountResult, PATH_CONF, PathConf, VERSIONS, mask};
use odafs_common::wire::mount3::{DirPath, Exports, Mounts, PROGRAM, Procedure};
use odafs_common::wire::nfs2::Status;
use odafs_common::wire::rpc;
use odafs_common::wire::xdr::{Decode, Encode};

use crate::harness::{Server, user};

fn ask<R: Decode<'static>>(
    server: &Server,
    address: &str,
    (version, procedure): (u32, u32),
    arguments: &impl Encode,
) -> R {
    let arguments = arguments.to_bytes();
    let message = server.message((PROGRAM, version), procedure, &user(0, 0), &arguments);
    let reply = server.exchange(address, &message).expect("a reply");
    let reply = rpc::parse_reply(reply).expect("a reply's header");
    R::from_bytes(reply.body.expect("served").rest()).expect("the procedure's results")
}

const HERE: &str = "127.0.0.1:700";

#[test]
fn the_export_and_directories_below_it_can_be_mounted() {
    let server = Server::new();
    let below = server.mkdir(server.root(), "a");
    server.create(server.root(), "file");
    for version in VERSIONS {
        let mount = |address: &str, path: &str| -> MountResult<'static> {
            let procedure = (version, Procedure::Mount.code());
            ask(&server, address, procedure, &DirPath(path.as_bytes()))
        };
        assert_eq!(mount(HERE, "/export").expect("mounted"), server.root());
        assert_eq!(mount(HERE, "/export/a").expect("mounted"), below);
        for (path, status) in [
            ("/", Status::NoEnt),
            ("/export/absent", Status::NoEnt),
            ("/export/file", Status::NotDir),
        ] {
            assert_eq!(mount(HERE, path), Err(status), "{path}");
        }
        let long = format!("/export/{}", "n".repeat(300));
        assert_eq!(mount(HERE, &long), Err(Status::NameTooLong));
        // The list, and the ports that anyone may have.
        assert_eq!(mount("10.2.0.1:700", "/export"), Err(Status::Access));
        assert_eq!(mount("127.0.0.1:40000", "/export"), Err(Status::Access));
        assert!(mount("10.1.0.1:700", "/export").is_ok());
    }
}

#[test]
fn all_versions_remember_and_list_the_same() {
    let server = Server::new();
    let (mount, dump) = (Procedure::Mount.code(), Procedure::Dump.code());
    let (forget, export) = (Procedure::Unmount.code(), Procedure::Export.code());
    let path = DirPath(b"/export");
    let mounted: MountResult<'static> = ask(&server, HERE, (1, mount), &path);
    mounted.expect("mounted");
    for version in [1, 2, 3] {
        let mounts: Mounts<'static> = ask(&server, HERE, (version, dump), &());
        assert_eq!(mounts.0.len(), 1, "{version}");
        let exports: Exports<'static> = ask(&server, HERE, (version, export), &());
        assert_eq!(exports.0[0].directory, path, "{version}");
    }
    let () = ask(&server, HERE, (2, forget), &path);
    let mounts: Mounts<'static> = ask(&server, HERE, (1, dump), &());
    assert!(mounts.0.is_empty());
}

#[test]
fn version_2_says_what_pathconf_does() {
    let server = Server::new();
    let path_conf = |address: &str, path: &str| -> PathConf {
        ask(&server, address, (2, PATH_CONF), &DirPath(path.as_bytes()))
    };
    let told = path_conf(HERE, "/export");
    assert_eq!((told.name_max, told.path_max), (255, 1024));
    assert_eq!(told.mask & mask::ERROR, 0);
    assert_eq!(told.mask & mask::NO_TRUNCATE, mask::NO_TRUNCATE);
    let error = PathConf {
        mask: mask::ERROR,
        ..PathConf::default()
    };
    assert_eq!(path_conf(HERE, "/export/absent"), error);
    assert_eq!(path_conf("10.2.0.1:700", "/export"), error);
}
