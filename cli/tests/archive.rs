//! A tar archive, served and read by every route.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Server, odafs, run, text};

fn tar(archive: &Path, tree: &Path) -> bool {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(tree).arg("-cf").arg(archive).arg(".");
    tar.status().is_ok_and(|status| status.success())
}

#[test]
fn each_byte_of_an_archive_is_read_by_every_route() {
    let place = tempfile::tempdir().unwrap();
    let (tree, archive) = (place.path().join("tree"), place.path().join("a.tar"));
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    let files = [
        ("empty", 0),
        ("a/one", 1),
        ("a/page", 4096),
        ("a/b/long", 700_001),
    ];
    let data = |bytes: u32| -> Vec<u8> { (0..bytes).map(|i| (i * 7 % 251) as u8).collect() };
    for (name, bytes) in files {
        std::fs::write(tree.join(name), data(bytes)).unwrap();
    }
    if !tar(&archive, &tree) {
        eprintln!("left out: there is no tar");
        return;
    }
    let server = Server::start(&archive, &[]);
    assert_eq!(
        text(&run(&["ls", &server.shm_url("/")]).stdout),
        "a\nempty\n"
    );
    for (name, bytes) in files {
        let (shm, nfs) = (
            server.shm_url(&format!("/{name}")),
            server.nfs_url(&format!("/{name}")),
        );
        assert_eq!(run(&["cat", &nfs]).stdout, data(bytes));
        assert_eq!(run(&["cat", &shm]).stdout, data(bytes));
        for route in ["rpc", "guarded", "one-sided"] {
            let read = run(&["cat", "--route", route, &shm]).stdout;
            assert!(read == data(bytes), "{name} by {route}");
        }
    }
    let refused = odafs()
        .args(["rm", &server.shm_url("/empty")])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr).to_lowercase();
    assert!(said.contains("read-only"), "{said}");
}

#[test]
fn what_is_no_archive_is_told_with_the_remedy() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let state = place.path().join("state");
        let mut serve = odafs();
        serve.args(["serve", "--nfs", "127.0.0.1:0", "--cache", "1MiB"]);
        let refused = serve.arg("--state").arg(state).arg(&path);
        let refused = refused.output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        text(&refused.stderr)
    };
    let compressed = said(b"\x1f\x8b\x08\0\0\0");
    assert!(compressed.contains("gunzip "), "{compressed}");
    let other = said(b"text");
    assert!(other.contains("nor a tar archive"), "{other}");
}
