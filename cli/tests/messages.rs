//! What a server says on stderr: its log, and why it does not start.

mod common;

use std::process::Stdio;

use common::{Server, odafs, odafs_as, text};

/// What a server with these arguments says on stderr. `log` is its ODAFS_LOG. Meanwhile `act` runs, and gets the line that says
/// where the server listens.
fn said_by(arguments: &[&str], log: Option<&str>, act: impl FnOnce(&str)) -> String {
    let place = tempfile::tempdir().unwrap();
    let served = place.path().join("served");
    std::fs::create_dir(&served).unwrap();
    let mut serve = odafs();
    serve.arg("serve").arg(served).args(arguments);
    serve.args(["--until-stdin-ends", "--cache", "1MiB", "--small-pages"]);
    serve.arg("--state").arg(place.path().join("state"));
    serve.env_remove("NO_COLOR").env_remove("ODAFS_LOG");
    serve.envs(log.map(|filter| ("ODAFS_LOG", filter)));
    serve.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = serve.stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    let stdout = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready).unwrap();
    act(ready.trim());
    text(&server.wait_with_output().unwrap().stderr)
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("sock").display().to_string();
    let said = said_by(&["--shm", &socket], Some("info"), |_| {
        common::run(&["ls", &format!("odafs+shm://{socket}?/")]);
    });
    assert!(said.contains("INFO") && said.contains("mounted"), "{said}");
    assert!(!said.contains('\x1b'), "{said:?}");
}

#[test]
fn a_filter_of_the_log_that_makes_no_sense_is_wrong_usage() {
    let ls = |filter: &str| {
        let mut ls = odafs();
        ls.args(["ls", "nfs://127.0.0.1:1/"])
            .env("ODAFS_LOG", filter);
        let output = ls.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for filter in [
        "nonsense==",
        "nonsense",
        "odafs_server=loud",
        "odafs-server=debug",
    ] {
        let (status, said) = ls(filter);
        assert_eq!(status, Some(2), "{said}");
        assert!(
            said.contains(&format!("ODAFS_LOG={filter}:")) && said.contains("debug"),
            "{said}"
        );
    }
    let right = [
        "",
        " ",
        "DEBUG",
        " debug ",
        "off",
        "odafs",
        "tokio=trace",
        "odafs_server=trace,warn",
    ];
    for filter in right {
        assert_eq!(ls(filter).0, Some(1), "{filter}");
    }
}

/// Each names the thing, its option, and what to do.
#[test]
fn why_a_server_does_not_start_names_the_option_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("file"), "x").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (file, missing, state) = (path("file"), path("missing"), path("state"));
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--state", &file], &[&file, "--state"]),
        (&["--state", "/proc/none"], &["/proc/none", "--state"]),
        (
            &["--shm", "/proc/sock"],
            &["/proc/sock", "may write to with --shm"],
        ),
        (
            &["--admit", &missing],
            &[&missing, "--admit: cannot read the key file"],
        ),
        (
            &["--config", &missing],
            &[&missing, "--config: cannot read the TOML file"],
        ),
        (&["--nfs", &taken], &[&taken, "--nfs", "stop it"]),
        (&["--rdma", &taken], &[&taken, "--rdma", "stop it"]),
        (
            &["--nfs", "127.0.0.1:0", "--metrics", &taken],
            &[&taken, "another address with --metrics"],
        ),
    ];
    for (arguments, expected) in cases {
        let mut serve = odafs();
        serve.args(["serve", "/", "--cache", "1MiB", "--until-stdin-ends"]);
        if arguments[0] != "--state" {
            serve.args(["--state", &state]);
        }
        let output = serve.args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        for part in expected {
            assert!(said.contains(part), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn a_directory_that_is_not_there_is_named_as_the_table_of_messages_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let output = odafs()
        .arg("serve")
        .arg(dir.path().join("none"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("none: there is no such directory"), "{said}");
    let manual = include_str!("../../docs/OPERATIONS.md");
    for message in [
        "| cannot serve …: there is no such directory |",
        "| cannot listen on …: Address already in use |",
    ] {
        assert!(manual.contains(message), "{message}");
    }
}

/// A directory that this user may not enter is there all the same. (Only root can be another user.)
#[test]
fn a_closed_directory_is_not_called_missing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let program = tempfile::tempdir_in("/tmp").unwrap();
    let closed = tempfile::tempdir().unwrap();
    std::fs::create_dir(closed.path().join("below")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(closed.path(), mode).unwrap();
    let mut serve = odafs_as(3_141_592, program.path());
    serve.args(["serve", "/", "--cache", "1MiB", "--shm"]);
    let output = serve
        .arg(closed.path().join("below/sock"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("closed to this user; name another place with --shm"),
        "{said}"
    );
}

#[test]
fn a_client_that_is_not_admitted_is_told_of_the_access_list() {
    let served = tempfile::tempdir().unwrap();
    let arguments = ["--allow", "10.0.0.0/8", "--allow", "no-loopback"];
    let server = Server::start(served.path(), &arguments);
    let output = odafs().args(["ls", &server.nfs_url("/")]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("odafs serve --allow"), "{said}");
    assert!(!said.contains("no export"), "{said}");
}

/// Whoever runs the server looks into its log.
#[test]
fn a_refusal_of_a_stranger_is_in_the_log() {
    let arguments = ["--nfs", "127.0.0.1:0", "--allow", "10.0.0.0/8"];
    let arguments = [&arguments[..], &["--allow", "no-loopback"]].concat();
    let said = said_by(&arguments, None, |ready| {
        let address = ready.split_once("nfs=").unwrap().1;
        let ls = || odafs().args(["ls", &format!("nfs://{address}/")]).output();
        for _ in 0..3 {
            assert_eq!(ls().unwrap().status.code(), Some(1));
        }
    });
    let line = said.lines().next().unwrap();
    assert!(line.contains("WARN") && line.contains("untold=0"), "{said}");
    assert!(
        line.contains("mount refused: not in the access list (--allow)"),
        "{said}"
    );
}

/// A caller asked for `rm`, and for no `stat` on the way.
#[test]
fn an_error_names_the_command() {
    let served = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &[]);
    let (none, new) = (server.shm_url("/none"), server.shm_url("/new"));
    let cases: [(&[&str], &str); 4] = [
        (&["ls", &none], "odafs: ls /none: no such file"),
        (&["rm", &none], "odafs: rm /none: no such file"),
        (&["stat", &none], "odafs: stat /none: no such file"),
        (&["mv", &none, &new], "odafs: mv /none: no such file"),
    ];
    for (arguments, expected) in cases {
        let output = odafs().args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(expected), "{said}");
    }
}

/// Each says once what is wrong, and what to do.
#[test]
fn a_server_that_is_not_reached_is_told_with_a_remedy() {
    let cases = [
        (
            "odafs+shm:///nowhere/sock?/",
            "/nowhere/sock: no server listens there (No such file or directory); is it running? Start it with `odafs serve`, or \
             name the socket that its option `--shm` names\n",
        ),
        (
            "nfs://127.0.0.1:1/",
            "(is it running, and is this its address?)\n",
        ),
    ];
    for (url, expected) in cases {
        let output = odafs().args(["ls", url]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.ends_with(expected), "{said}");
        assert_eq!(said.matches('(').count(), 1, "{said}");
    }
}

#[test]
fn the_findings_of_doctor_are_words() {
    let taken: Vec<_> = [2049, 20_049]
        .into_iter()
        .map(|port| std::net::TcpListener::bind(("127.0.0.1", port)))
        .collect();
    let output = odafs().arg("doctor").output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("2049: Address already in use"), "{said}");
    assert!(!said.contains("os error"), "{said}");
    drop(taken);
}

#[test]
fn an_error_names_the_path_that_is_wrong() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("file"), "text").unwrap();
    std::fs::create_dir(served.path().join("dir")).unwrap();
    let server = Server::start(served.path(), &[]);
    let local = served.path().join("file").display().to_string();
    let url = |path: &str| server.shm_url(path);
    let mount_point = served.path().join("dir").display().to_string();
    let nfs_port = server.nfs_url("/").replace("nfs://", "odafs://");
    let cases: [(&[&str], &str); 8] = [
        (
            &["mv", &url("/file"), &url("/none/file")],
            "there is no directory /none",
        ),
        (
            &["mv", &url("/dir"), &url("/dir/inner")],
            "/dir cannot move into itself: /dir/inner lies below it",
        ),
        (
            &["put", &local, &url("/none/file")],
            "there is no directory /none",
        ),
        (
            &["mkdir", &url("/none/dir")],
            "there is no directory /none (-p creates missing parents)",
        ),
        (
            &["mkdir", &url("/file/dir")],
            "mkdir /file/dir: not a directory",
        ),
        (
            &["mount", &url("/none"), &mount_point],
            "mount /none: no such file or directory",
        ),
        (
            &["mount", &url("/"), &local],
            "Not a directory (name another directory)",
        ),
        (
            &["ls", &nfs_port],
            "check the port, and use nfs:// for a server's NFS port",
        ),
    ];
    for (arguments, expected) in cases {
        let output = odafs().args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn a_port_alone_is_one_of_the_loopback_interface() {
    let served = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &["--metrics", "0"]);
    assert!(server.word("metrics=").starts_with("127.0.0.1:"));
}
