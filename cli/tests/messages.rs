//! What a server says on stderr: its log, and why it does not start.

mod common;

use std::process::Stdio;

use common::{odafs, text};

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let served = tempfile::tempdir().unwrap();
    let state = tempfile::tempdir().unwrap();
    let socket = state.path().join("sock");
    let mut server = odafs()
        .arg("serve")
        .arg(served.path())
        .args(["--until-stdin-ends", "--cache", "1MiB", "--shm"])
        .arg(&socket)
        .arg("--state")
        .arg(state.path().join("state"))
        .env("ODAFS_LOG", "info")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let stdout = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready).unwrap();
    common::run(&["ls", &format!("odafs+shm://{}?/", socket.display())]);
    let said = server.wait_with_output().unwrap().stderr;
    let said = text(&said);
    assert!(said.contains("INFO") && said.contains("mounted"), "{said}");
    assert!(!said.contains('\x1b'), "{said:?}");
}

#[test]
fn a_filter_of_the_log_that_makes_no_sense_is_wrong_usage() {
    let output = odafs()
        .args(["ls", "nfs://127.0.0.1:1/"])
        .env("ODAFS_LOG", "nonsense==")
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("ODAFS_LOG=nonsense==") && said.contains("debug"),
        "{said}"
    );
}
