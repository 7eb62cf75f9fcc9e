//! How a server starts, and takes over other options while it runs.

#![cfg(not(shuttle))]

use std::path::Path;
use std::sync::Arc;

use odafs_server::config::{Direct, ExportOptions, Grantee, ServerConfig, Squash};
use odafs_server::server::Server;
use odafs_server::store::MemoryStore;

fn config(directory: &Path) -> ServerConfig {
    ServerConfig {
        state: Some(directory.join("state")),
        cache_bytes: 8 << 20,
        huge_pages: false,
        ..ServerConfig::new(directory)
    }
}

/// A client takes the first socket that it finds, and a server may need seconds for its memory.
#[test]
fn the_socket_is_there_only_once_it_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let config = ServerConfig {
        shm: Some(socket.clone()),
        ..config(directory.path())
    };
    let server = Server::start_with(config, |_, _| {
        assert!(!socket.exists(), "the files are not even open");
        Ok(Arc::new(MemoryStore::new(1)))
    });
    let server = server.unwrap();
    assert!(socket.exists());
    server.shutdown();
    assert!(!socket.exists());
}

/// Of a server that has taken over the path meanwhile.
#[test]
fn a_server_that_stops_leaves_the_socket_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let config = ServerConfig {
        shm: Some(socket.clone()),
        ..config(directory.path())
    };
    let server = Server::start(config).unwrap();
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "another's").unwrap();
    server.shutdown();
    assert_eq!(std::fs::read(&socket).unwrap(), b"another's");
}

#[test]
fn only_options_of_access_are_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let export = |name: &str| ExportOptions::new(format!("/{name}"), directory.path().join(name));
    let before = ServerConfig {
        exports: vec![export("a"), export("b")],
        ..config(directory.path())
    };
    let server = Server::start(before.clone()).unwrap();
    let mut after = before.clone();
    after.exports[0].squash = Some(Squash::Root);
    after.exports[0].anonymous.uid = Some(99);
    after.exports[1].allow = Some(vec!["10.0.0.0/8".parse().unwrap()]);
    after.loopback = false;
    server.reload(&after).unwrap();
    let access = server.assembly().service().access();
    assert!(access.admits_address("10.0.0.1".parse().unwrap()));
    assert!(!access.admits_address("127.0.0.1".parse().unwrap()));
    let changes: [fn(&mut ServerConfig); 5] = [
        |config| config.exports[0].read_only = true,
        |config| config.exports[0].directory.push("below"),
        |config| config.exports[0].direct = Some(Direct::Off),
        |config| config.exports.reverse(),
        |config| drop(config.exports.pop()),
    ];
    for change in changes {
        let mut other = before.clone();
        change(&mut other);
        let refused = server.reload(&other).unwrap_err();
        assert!(refused.contains("restart the server"), "{refused}");
        // Nothing has changed.
        assert!(!access.admits_address("127.0.0.1".parse().unwrap()));
    }
    drop(server);
    let one_sided = ServerConfig {
        direct: Direct::OneSided,
        ..before
    };
    let server = Server::start(one_sided.clone()).unwrap();
    let refused = server.reload(&one_sided).unwrap_err();
    assert!(refused.contains("--direct one-sided"), "{refused}");
}

#[test]
fn what_the_server_does_not_grant_an_export_cannot_have() {
    let export = |direct| ExportOptions {
        direct,
        ..ExportOptions::new("/a", "/srv/a")
    };
    let told = |export, direct, one_sided_for: &[Grantee]| {
        let config = ServerConfig {
            exports: vec![export],
            direct,
            one_sided_for: one_sided_for.to_vec(),
            ..ServerConfig::new("/")
        };
        config.check().err()
    };
    let all = [Grantee::All];
    for (direct, of_server, users) in [
        (Direct::Off, Direct::OneSided, &[][..]),
        (Direct::Guarded, Direct::Auto, &all),
        (Direct::Guarded, Direct::Off, &[]),
        (Direct::OneSided, Direct::OneSided, &[]),
    ] {
        let said = told(export(Some(direct)), of_server, users).expect("refused");
        assert!(said.contains("--export /a=...,direct="), "{said}");
    }
    assert_eq!(told(export(Some(Direct::Off)), Direct::Auto, &[]), None);
    assert_eq!(told(export(None), Direct::OneSided, &all), None);
    let mut nobody = export(None);
    nobody.anonymous.gid = Some(u32::MAX);
    let said = told(nobody, Direct::Auto, &[]).expect("refused");
    assert!(said.contains("anongid=4294967295"), "{said}");
}

/// Of all exports one mapping shows the pages.
#[test]
fn an_export_with_less_keeps_the_memory_from_everyone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let export = |name: &str| ExportOptions::new(format!("/{name}"), directory.path().join(name));
    let granted = |direct| {
        let mut exports = vec![export("a"), export("b")];
        exports[1].direct = direct;
        let config = ServerConfig {
            exports,
            ..config(directory.path())
        };
        let server = Server::start(config).unwrap();
        server.assembly().export().config().direct
    };
    assert_eq!(granted(None), Direct::Auto);
    assert_eq!(granted(Some(Direct::Guarded)), Direct::Guarded);
    assert_eq!(granted(Some(Direct::Off)), Direct::Guarded);
}
