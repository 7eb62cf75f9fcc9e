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

/// Tables of two exports in a file of options. The first is not for this machine's programs over TCP unless `open`.
fn options(place: &Path, open: bool) -> String {
    let table = |name: &str, more: &str| {
        let dir = place.join(name).display().to_string();
        format!("[[export]]\nname = '/{name}'\ndir = '{dir}'\n{more}\n")
    };
    let closed = "allow = ['192.0.2.0/24', 'no-loopback']\nsquash = 'all'";
    let one = table("one", if open { "" } else { closed });
    one + &table("two", "read-only = true")
}

#[test]
fn an_export_has_rights_of_its_own_which_are_reloaded() {
    let place = tempfile::tempdir().unwrap();
    directories(place.path());
    let file = place.path().join("options.toml");
    std::fs::write(&file, options(place.path(), false)).unwrap();
    let server = Server::start_exports(&["--config", file.to_str().unwrap()]);
    let listed = |url: String| text(&run(&["ls", &url]).stdout);
    let wanted = "one".repeat(3000).into_bytes();
    // On shared memory the kernel says who calls.
    assert_eq!(listed(server.shm_url("/")), "one\ntwo\n");
    assert_eq!(run(&["cat", &server.shm_url("/one/file")]).stdout, wanted);
    assert_eq!(listed(server.nfs_url("/")), "two\n");
    let refused = || {
        odafs()
            .args(["cat", &server.nfs_url("/one/file")])
            .output()
            .unwrap()
    };
    assert_eq!(refused().status.code(), Some(1));

    let hang_up = || {
        let pid = rustix::process::Pid::from_raw(server.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    if !common::ending_signals()
        .iter()
        .any(|(signal, _)| *signal == rustix::process::Signal::HUP)
    {
        // Under nohup the server does not hear it.
        return;
    }
    let until = |holds: &dyn Fn() -> bool| {
        let again = |_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            holds()
        };
        assert!((0..400).any(again));
    };
    std::fs::write(&file, options(place.path(), true)).unwrap();
    hang_up();
    until(&|| listed(server.nfs_url("/")) == "one\ntwo\n");
    assert_eq!(run(&["cat", &server.nfs_url("/one/file")]).stdout, wanted);
    // A mistake changes nothing, and ends nothing.
    std::fs::write(&file, "export = 3\n").unwrap();
    hang_up();
    std::fs::write(&file, options(place.path(), false)).unwrap();
    hang_up();
    until(&|| listed(server.nfs_url("/")) == "two\n");
    assert_eq!(refused().status.code(), Some(1));
    assert_eq!(run(&["cat", &server.shm_url("/one/file")]).stdout, wanted);
}

/// What belongs to DIR is not taken for a part of the name, and a mistyped option not for a part of the directory.
#[test]
fn an_option_is_not_taken_for_a_name_or_a_directory() {
    let place = tempfile::tempdir().unwrap();
    directories(place.path());
    let one = place.path().join("one").display().to_string();
    let serve = |arguments: &[&str]| {
        let mut serve = odafs();
        serve.args(["serve", "--cache", "1MiB", "--until-stdin-ends"]);
        serve.args(["--small-pages", "--nfs", "127.0.0.1:0", "--state"]);
        let output = serve
            .arg(place.path().join("state"))
            .args(arguments)
            .output();
        output.unwrap()
    };
    for name in [
        "/x,read-only",
        "/x,insecure",
        "/x,allow=10.0.0.0/8",
        "/x,direct=off",
        "/x,read-only,squash=root",
    ] {
        let output = serve(&[&one, "--export", name]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(
            said.contains(&format!(
                "options need a directory, as in {}",
                name.replacen("/x", "/x=DIR", 1)
            )),
            "{said}"
        );
    }
    let mistyped = format!("/a={one},ro");
    let output = serve(&["--export", &mistyped]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("\"ro\" is no option of an export; there are read-only"),
        "{said}"
    );
    // Directories and exports may have such names.
    std::fs::create_dir(format!("{one},ro")).unwrap();
    let output = serve(&["--export", &mistyped]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = serve(&[&one, "--export", "/x,ro"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn options_of_an_export_that_cannot_count_are_refused() {
    let place = tempfile::tempdir().unwrap();
    directories(place.path());
    let serve = |options: &str, more: &[&str]| {
        let export = format!("/a={}{options}", place.path().join("one").display());
        let output = odafs()
            .args(["serve", "--export", &export])
            .args(more)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{options}");
        text(&output.stderr)
    };
    for (options, more, told) in [
        (",insecure", &[][..], "squash=root or squash=none"),
        (",allow=no-loopback", &[], "name a network with allow= too"),
        (",allow=everybody", &[], "give networks such as 10.0.0.0/8"),
        (",squash=some", &[], "none, root or all"),
        (",fast=1", &[], "read-only, allow=CIDR"),
        (",squash=root", &["--shm"], "only shared memory is served"),
        (",anonuid=5", &["--shm"], "only shared memory is served"),
        (",anonuid=nobody", &[], "give a number, as in anonuid=65534"),
        (",anongid=4294967295", &[], "the system has no such id"),
        (",direct=one-sided", &[], "give guarded or off"),
        (
            ",direct=off",
            &["--direct", "one-sided"],
            "run a server for this export",
        ),
        (
            ",direct=guarded",
            &["--one-sided-for", "all"],
            match rustix::process::geteuid().is_root() {
                true => "run a server for this export",
                false => "serve as root",
            },
        ),
    ] {
        let said = serve(options, more);
        assert!(
            said.contains(told)
                && ["--export", "anongid=", "--one-sided-for"]
                    .iter()
                    .any(|name| said.contains(name)),
            "{options}: {said}"
        );
    }
}
