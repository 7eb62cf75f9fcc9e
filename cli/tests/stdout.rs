//! A stdout that takes no more: its reader has left, or its disk is full.

mod common;

use std::io::Read;
use std::process::{Command, Output, Stdio};

use common::{Server, odafs, run, text};

/// What becomes of a command whose stdout nobody reads.
fn unread(command: &mut Command) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer).output().unwrap()
}

#[test]
fn a_reader_that_leaves_hides_no_failure() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("big"), vec![b'x'; 4 << 20]).unwrap();
    let server = Server::start(served.path(), &[]);
    let (none, big) = (server.shm_url("/none"), server.shm_url("/big"));
    let cases: [(&[&str], i32); 8] = [
        (&["cat", &big], 0),
        (&["cat", &none, &big], 1),
        (&["cat", "--why", "--json", &none, &big], 1),
        (&["ls", &big], 0),
        (&["ls", &none, &big], 1),
        (&["ls", "--json", &none, &big], 1),
        (&["stat", &none, &big], 1),
        (&["refs", &none, &big], 1),
    ];
    for (arguments, status) in cases {
        let output = unread(odafs().args(arguments));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(!said.contains("Broken pipe"), "{arguments:?}: {said}");
        assert_eq!(said.contains("/none"), status == 1, "{arguments:?}: {said}");
    }
}

/// Whoever waits for the line learns of the addresses by nothing else.
#[test]
fn a_server_that_cannot_say_that_it_is_ready_has_failed() {
    let served = tempfile::tempdir().unwrap();
    let mut serve = odafs();
    serve.arg("serve").arg(served.path());
    serve.args(["--nfs", "127.0.0.1:0", "--cache", "1MiB", "--small-pages"]);
    serve.arg("--state").arg(served.path().join("state"));
    let output = unread(&mut serve);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot print the line `ready`"), "{said}");
}

#[test]
fn a_full_stdout_is_named() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("f"), "text").unwrap();
    let server = Server::start(served.path(), &[]);
    let url = server.shm_url("/f");
    let cases: [&[&str]; 9] = [
        &["ls", &url],
        &["ls", "--json", &url],
        &["stat", &url],
        &["stat", "--json", &url],
        &["cat", &url],
        &["cat", "--why", &url],
        &["cat", "--why", "--json", &url],
        &["doctor"],
        &["completions", "bash"],
    ];
    for arguments in cases {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = odafs()
            .args(arguments)
            .stdout(full.unwrap())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(
            said, "odafs: cannot write to stdout: No space left on device\n",
            "{arguments:?}"
        );
    }
}

#[test]
fn a_list_of_nothing_is_printed_only_if_nothing_failed() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("empty"), "").unwrap();
    let server = Server::start(served.path(), &[]);
    let (none, empty) = (server.shm_url("/none"), server.shm_url("/empty"));
    for command in [
        &["cat", "--why", "--json"][..],
        &["ls", "--json"],
        &["stat", "--json"],
        &["refs", "--json"],
    ] {
        let output = odafs().args(command).arg(&none).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert_eq!(text(&output.stdout), "", "{command:?}");
    }
    assert_eq!(run(&["cat", "--why", "--json", &empty]).stdout, b"[]\n");
}

/// The reader of a long list may leave in the middle of it.
#[test]
fn what_is_printed_until_the_reader_leaves_is_no_failure() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("f"), vec![1; 8 << 20]).unwrap();
    let server = Server::start(served.path(), &[]);
    let mut cat = odafs()
        .args(["cat", "--why", "--json", &server.shm_url("/f")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = cat.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 100]).unwrap();
    drop(stdout);
    let output = cat.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}
