//! Programs find the server of this machine where it listens by default.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{odafs, text};

#[test]
fn clients_look_where_a_server_listens() {
    let (served, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(served.path().join("f"), "found").unwrap();
    // Root's server does not use the second, and the socket that it uses may belong to a server of this machine.
    let variables = match rustix::process::geteuid().is_root() {
        true => &["RUNTIME_DIRECTORY"][..],
        false => &["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"],
    };
    for variable in variables {
        let mut server = odafs()
            .args(["serve", "--until-stdin-ends", "--small-pages", "--cache"])
            .args(["16MiB", "--shm", "--state"])
            .args([&place.path().join("state"), served.path()])
            .env_remove("RUNTIME_DIRECTORY")
            .env(variable, place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let stdout = server.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut ready).unwrap();
        let socket = place.path().join("odafs.sock");
        assert_eq!(ready, format!("ready shm={}\n", socket.display()));
        let mut cat = odafs();
        cat.args(["cat", "odafs+shm:///f"])
            .env_remove("RUNTIME_DIRECTORY")
            .env(variable, place.path());
        assert_eq!(text(&cat.output().unwrap().stdout), "found");
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
    }
}
