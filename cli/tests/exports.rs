//! Several exports of one server, by every route.

mod common;

use std::path::Path;

use common::{Server, odafs, run, text};

/// Three directories, each with a file that says which one it is.
fn directories(place: &Path) {
    for name in ["one", "two", "three"] {
        std::fs::create_dir(place.join(name)).unwrap();
        std::fs::write(place.join(name).join("file"), name.repeat(3000)).unwrap();
    }
}

fn exports(place: &Path) -> [String; 6] {
    let export = |name: &str, directory: &str, more: &str| {
        format!("{name}={}{more}", place.join(directory).display())
    };
    [
        "--export".to_owned(),
        export("/one", "one", ""),
        "--export".to_owned(),
        export("/deep/two", "two", ""),
        "--export".to_owned(),
        export("/three", "three", ",read-only"),
    ]
}

#[test]
fn each_export_is_read_and_written_by_every_route() {
    let place = tempfile::tempdir().unwrap();
    directories(place.path());
    let arguments = exports(place.path());
    let server = Server::start_exports(&arguments.each_ref().map(String::as_str));
    for url in [server.shm_url("/"), server.nfs_url("/")] {
        assert_eq!(text(&run(&["ls", &url]).stdout), "deep\none\nthree\n");
    }
    assert_eq!(
        text(&run(&["ls", &server.shm_url("/deep")]).stdout),
        "two\n"
    );
    for (path, content) in [("/one", "one"), ("/deep/two", "two"), ("/three", "three")] {
        let path = format!("{path}/file");
        let wanted = content.repeat(3000).into_bytes();
        assert!(
            run(&["cat", &server.nfs_url(&path)]).stdout == wanted,
            "{path}"
        );
        for route in ["rpc", "guarded", "one-sided", "policy"] {
            let read = run(&["cat", "--route", route, &server.shm_url(&path)]).stdout;
            assert!(read == wanted, "{path} by {route}");
        }
    }
    let local = place.path().join("local");
    std::fs::write(&local, "written").unwrap();
    let put = |path: &str| {
        let mut put = odafs();
        put.arg("put").arg(&local).arg(server.shm_url(path));
        put.output().unwrap()
    };
    assert!(put("/deep/two/file").status.success());
    let written = std::fs::read(place.path().join("two/file")).unwrap();
    assert_eq!(written, b"written");
    for refused in ["/three/file", "/file"] {
        let refused = put(refused);
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr).to_lowercase();
        assert!(said.contains("read-only"), "{said}");
    }
    // Nothing moves from one to the other.
    let (from, to) = (
        server.shm_url("/one/file"),
        server.shm_url("/deep/two/moved"),
    );
    let moved = odafs().args(["mv", &from, &to]).output().unwrap();
    assert_eq!(moved.status.code(), Some(1), "{}", text(&moved.stderr));
    assert!(place.path().join("one/file").exists());
    // A change from outside is seen in each of them.
    std::fs::write(place.path().join("one/file"), "changed").unwrap();
    let read = || run(&["cat", &server.shm_url("/one/file")]).stdout == b"changed";
    assert!((0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        read()
    }));
}

#[test]
fn exports_stand_in_a_file_of_options_too() {
    let place = tempfile::tempdir().unwrap();
    directories(place.path());
    let one = place.path().join("one");
    let file = place.path().join("options.toml");
    std::fs::write(
        &file,
        format!("export = [\"/a=\", \"/b={}\"]\n", one.display()),
    )
    .unwrap();
    let serve = || {
        odafs()
            .args(["serve", "--config"])
            .arg(&file)
            .output()
            .unwrap()
    };
    let refused = serve();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("/a=DIR"),
        "{}",
        text(&refused.stderr)
    );
    std::fs::write(&file, "export = 3\n").unwrap();
    let refused = serve();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("/NAME=DIR"),
        "{}",
        text(&refused.stderr)
    );
    std::fs::write(&file, format!("export = [\"/b={}\"]\n", one.display())).unwrap();
    let server = Server::start_exports(&["--config", file.to_str().unwrap()]);
    let read = run(&["cat", &server.nfs_url("/b/file")]).stdout;
    assert!(read == "one".repeat(3000).into_bytes());
}
