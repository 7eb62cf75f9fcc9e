//! What a server says of its configuration: at the start, and when SIGHUP has it read the file again.

mod common;

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use common::{Held, ending_signals, odafs, text};
use rustix::process::{Pid, Signal, kill_process};

/// A server with a file of options.
struct Server {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Server {
    fn start(place: &Path, file: &Path) -> Self {
        let mut child = odafs()
            .args(["serve", "--until-stdin-ends", "--small-pages", "--config"])
            .arg(file)
            .arg("--state")
            .arg(place.join("state"))
            .env("RUNTIME_DIRECTORY", place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, said }
    }

    /// The line that says where it listens, or nothing if it has failed.
    fn ready(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line
    }

    /// What it says next, after SIGHUP.
    fn reloaded(&mut self) -> String {
        self.hang_up();
        self.said.next().unwrap().unwrap()
    }

    fn hang_up(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whether it still ran or has ended, afterwards it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Under nohup the server does not hear SIGHUP.
fn hears_hangups() -> bool {
    ending_signals()
        .iter()
        .any(|(which, _)| *which == Signal::HUP)
}

#[test]
fn a_reload_that_was_asked_for_during_the_start_comes_after_it() {
    if !hears_hangups() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("c.toml");
    let options = format!("dir = '{}'\nnfs = '127.0.0.1:0'\n", place.path().display());
    std::fs::write(&file, options + "cache = '1MiB'\n").unwrap();
    let state = place.path().join("state");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&state)
        .unwrap();
    let held = Held::at(state.join("nfs4-clients"));
    let mut server = Server::start(place.path(), &file);
    let writer = held.reached();
    server.hang_up();
    drop(writer);
    assert!(server.ready().starts_with("ready "));
    let said = server.said.next().unwrap().unwrap();
    assert!(said.starts_with("odafs: reloaded allow, squash"), "{said}");
}

#[test]
fn what_a_reload_does_not_take_over_is_named() {
    if !hears_hangups() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("c.toml");
    let options = format!("dir = '{}'\nnfs = '127.0.0.1:0'\n", place.path().display());
    let write = |more: &str| std::fs::write(&file, options.clone() + more).unwrap();
    write("cache = '1MiB'\n");
    let mut server = Server::start(place.path(), &file);
    assert!(server.ready().starts_with("ready "));
    let reloaded = |server: &mut Server| {
        let said = server.reloaded();
        let (before, later) = said.split_once("c.toml").expect(&said);
        assert!(
            before.starts_with("odafs: reloaded allow, squash"),
            "{said}"
        );
        later.to_owned()
    };
    write("cache = '1MiB'\nallow = '10.0.0.0/8'\nread-only = false\n");
    assert_eq!(reloaded(&mut server), "");
    let only_later = "; other changes take effect only when the server is restarted: ";
    write("cache = '2MiB'\nread-only = true\ndirect = 'off'\nmetrics = 0\nexport = '/x'\n");
    let wanted = format!("{only_later}export, metrics, cache, read-only, direct");
    assert_eq!(reloaded(&mut server), wanted);
    // It goes on with the options of its start.
    let wanted = format!("{only_later}cache, admit");
    let keys = place.path().join("keys");
    std::fs::write(&keys, "0a".repeat(32)).unwrap();
    write(&format!(
        "rdma = '127.0.0.1:0'\nadmit = '{}'\n",
        keys.display()
    ));
    assert_eq!(
        reloaded(&mut server),
        wanted.replace("cache", "rdma, cache")
    );
    write("cache = '1MiB'\n");
    assert_eq!(reloaded(&mut server), "");
    std::fs::remove_file(&file).unwrap();
    let said = server.reloaded();
    assert!(
        said.starts_with("odafs: SIGHUP has changed nothing: "),
        "{said}"
    );
    assert!(
        said.contains("c.toml: No such file") && !said.contains("os error"),
        "{said}"
    );
}

#[test]
fn a_listener_for_others_that_admits_none_is_told_of() {
    let place = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str]| {
        let mut serve = odafs();
        serve.args(["serve", "--cache", "1MiB", "--small-pages"]);
        serve.args(["--until-stdin-ends", "--state"]);
        let output = serve
            .arg(place.path().join("state"))
            .args(arguments)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let dir = place.path().display().to_string();
    let export = format!("/a={dir}");
    let told = said(&[&dir, "--nfs", "0.0.0.0:0", "--rdma", "[::]:0"]);
    assert!(
        told.contains("--nfs 0.0.0.0:0 and --rdma [::]:0: "),
        "{told}"
    );
    assert!(told.contains("only loopback is admitted") && told.contains("--allow"));
    let told = said(&["--nfs", "0.0.0.0:0", "--export", &export]);
    assert!(told.contains("--nfs 0.0.0.0:0: "), "{told}");
    for arguments in [
        &[&dir, "--nfs", "127.0.0.1:0"][..],
        &[&dir, "--nfs", "0.0.0.0:0", "--allow", "10.0.0.0/8"],
        &[
            "--nfs",
            "0.0.0.0:0",
            "--export",
            &format!("{export},allow=10.0.0.0/8"),
        ],
    ] {
        let told = said(arguments);
        assert!(!told.contains("loopback"), "{arguments:?}: {told}");
    }
}
