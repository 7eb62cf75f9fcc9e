//! Commands of several URLs do what they can; listings tell all names apart.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::{Server, odafs, run, text};
use serde_json::Value;

#[test]
fn one_that_fails_does_not_keep_the_others_from_being_done() {
    let served = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::write(served.path().join(name), name).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let urls = ["/a", "/no", "/b", "/none"].map(|path| server.shm_url(path));
    let cases: [&[&str]; 11] = [
        &["ls"],
        &["ls", "-l"],
        &["ls", "--json"],
        &["stat"],
        &["stat", "--json"],
        &["cat"],
        &["cat", "--why"],
        &["cat", "--why", "--json"],
        &["refs"],
        &["refs", "--json"],
        &["rm"],
    ];
    for command in cases {
        let output = odafs().args(command).args(&urls).output().unwrap();
        let (out, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        for missing in ["/no:", "/none:"] {
            assert!(said.contains(missing), "{command:?}: {said}");
        }
        assert_eq!(said.lines().count(), 2, "{command:?}: {said}");
        match command {
            ["cat", "--why"] => assert_eq!(out.lines().count(), 5, "{out}"),
            ["cat"] => assert_eq!(out, "ab"),
            ["rm"] => assert_eq!(std::fs::read_dir(served.path()).unwrap().count(), 0),
            _ => assert!(out.contains("?/a") && out.contains("?/b"), "{out}"),
        }
        if command.contains(&"--json") {
            serde_json::from_str::<Value>(&out).unwrap();
        }
    }
}

/// As it would be if each were alone: where all that fails is wrong usage, so is the command.
#[test]
fn what_is_wrong_usage_is_so_in_company_too() {
    let served = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &[]);
    let rm = |paths: &[&str]| {
        let urls = paths.iter().map(|path| server.shm_url(path));
        let output = odafs().args(["rm", "-r"]).args(urls).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), paths.len(), "{said}");
        output.status.code()
    };
    assert_eq!(rm(&["/"]), Some(2));
    assert_eq!(rm(&["/", "//"]), Some(2));
    assert_eq!(rm(&["/", "/none"]), Some(1));
    assert_eq!(rm(&["/none", "/"]), Some(1));
}

/// Each try may take until the deadline.
#[test]
fn a_server_that_does_not_answer_is_tried_once() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = |path: &str| format!("nfs://{}{path}", silent.local_addr().unwrap());
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("a"), "a").unwrap();
    let server = Server::start(served.path(), &[]);
    let output = odafs()
        .args(["cat", "--deadline", "300ms", &url("/x"), &url("/y")])
        .arg(server.shm_url("/a"))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("no answer within").count(), 1, "{said}");
    assert!(said.contains("/y: not tried"), "{said}");
    assert_eq!(text(&output.stdout), "a");
}

/// What is asked for next cannot be printed either.
#[test]
fn where_nothing_more_can_be_printed_the_rest_is_not_read() {
    let served = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::write(served.path().join(name), vec![7; 1 << 16]).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = odafs()
        .args(["cat", &server.shm_url("/a"), &server.shm_url("/b")])
        .stdout(full.unwrap())
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("cannot write to stdout").count(), 1, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn no_two_names_look_the_same() {
    let served = tempfile::tempdir().unwrap();
    let names: [&[u8]; 6] = [
        b"a\nb",
        b"a\\nb",
        b"a\xff",
        b"a\xfe",
        b"a\\xff",
        b"\xc3\xa4",
    ];
    for name in names {
        std::fs::write(served.path().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let server = Server::start(served.path(), &[]);
    let url = server.shm_url("/");
    let listed = text(&run(&["ls", &url]).stdout);
    let expected = [r"a\nb", r"a\\nb", r"a\\xff", r"a\xfe", r"a\xff", "\u{e4}"];
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    let long = text(&run(&["ls", "-l", &url]).stdout);
    assert!(long.contains(r"a\xfe"), "{long}");

    let json: Value = serde_json::from_slice(&run(&["ls", "--json", &url]).stdout).unwrap();
    let entries = json[0]["entries"].as_array().unwrap();
    let told = |entry: &Value| entry["name_bytes"].as_str().map(str::to_owned);
    let bytes: Vec<_> = entries.iter().map(told).collect();
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(bytes, [None, None, None, some("a%FE"), some("a%FF"), None]);
    assert_eq!(entries[0]["name"], "a\nb");
    assert_eq!(run(&["cat", &server.shm_url("/a%FF")]).stdout, b"a\xff");
}
