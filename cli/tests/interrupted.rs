//! Commands that fail or are interrupted half-way: what was there stays, and nothing else is left behind.

mod common;

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Held, Server, ending_signals, odafs, run, text};
use odafs::{Cache, Client, Options, Route};
use rustix::process::{Pid, Signal, kill_process};

fn signal(pid: u32, which: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), which).unwrap();
}

/// Names and contents of a directory.
fn listing(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // It may go while we look.
        (name, std::fs::read(entry.path()).unwrap_or_default())
    };
    let mut all: Vec<_> = std::fs::read_dir(directory).unwrap().map(entry).collect();
    all.sort();
    all
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory with one file in it.
fn precious() -> (tempfile::TempDir, Vec<(String, Vec<u8>)>) {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("precious"), "old").unwrap();
    let there = listing(served.path());
    (served, there)
}

/// A `put` from a pipe that has sent some bytes and waits for more.
fn half_put(server: &Server, served: &Path, there: &[(String, Vec<u8>)]) -> Child {
    let mut put = odafs()
        .args(["put", "-", &server.shm_url("/precious")])
        .args(["--deadline", "1s"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.as_mut().unwrap().write_all(b"new").unwrap();
    await_that("nothing was put", || listing(served) != there);
    put
}

#[test]
fn a_put_of_what_cannot_be_read_leaves_the_file() {
    let (served, there) = precious();
    let server = Server::start(served.path(), &[]);
    let directory = served.path().display().to_string();
    // The second can be opened, and fails when it is read.
    for local in [directory.as_str(), "/proc/self/mem", "/nowhere"] {
        let url = server.shm_url("/precious");
        let output = odafs().args(["put", local, &url]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{local}: {said}");
        assert!(said.contains(local), "{said}");
        assert_eq!(listing(served.path()), there, "{local}");
    }
}

/// What was not made is not left, and nobody asked for the file beside the destination.
#[test]
fn a_put_that_is_refused_names_the_destination_and_nothing_else() {
    let (served, there) = precious();
    let server = Server::start(served.path(), &["--read-only"]);
    for path in ["/precious", "/x"] {
        let mut put = odafs()
            .args(["put", "-", &server.shm_url(path)])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(put.stdin.take());
        let output = put.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with(&format!("odafs: put {path}: the export is read-only")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(listing(served.path()), there);
    }
}

#[test]
fn a_put_without_the_right_to_make_files_names_the_destination() {
    let (served, there) = precious();
    let mode = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(served.path(), mode).unwrap();
    let server = Server::start(served.path(), &[]);
    // Root may do anything, but is nobody over TCP.
    let url = match rustix::process::geteuid().is_root() {
        true => server.nfs_url("/x"),
        false => server.shm_url("/x"),
    };
    let output = odafs().args(["put", "/dev/null", &url]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("odafs: put /x: permission denied (check the directory's mode"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(listing(served.path()), there);
}

/// After `kill -9` a file stays, under a name that the manual tells; it is in the way of nothing.
#[test]
fn what_a_killed_put_leaves_can_be_told_and_is_in_nobodys_way() {
    let (served, there) = precious();
    let server = Server::start(served.path(), &[]);
    let mut put = half_put(&server, served.path(), &there);
    put.kill().unwrap();
    put.wait().unwrap();
    let left: Vec<_> = (listing(served.path()).into_iter())
        .map(|(name, _)| name)
        .filter(|name| name != "precious")
        .collect();
    let [left] = &left[..] else {
        panic!("{left:?}")
    };
    let digits = left.strip_prefix(".odafs-put-").unwrap();
    assert!(digits.len() == 16 && digits.bytes().all(|d| d.is_ascii_hexdigit()));
    let manual = include_str!("../../docs/OPERATIONS.md");
    assert!(manual.contains("`.odafs-put-` and 16 hexadecimal digits"));

    let listed = text(&run(&["ls", &server.shm_url("/")]).stdout);
    assert!(
        listed.contains(left) && listed.contains("precious"),
        "{listed}"
    );
    let local = served.path().join("precious").display().to_string();
    run(&["put", &local, &server.shm_url("/precious")]);
    run(&["put", &local, &server.shm_url("/more")]);
    run(&["rm", &server.shm_url(&format!("/{left}"))]);
    let names: Vec<_> = (listing(served.path()).into_iter())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["more", "precious"]);
}

#[test]
fn a_put_that_is_interrupted_leaves_the_file_and_nothing_else() {
    let (served, there) = precious();
    let server = Server::start(served.path(), &[]);
    for (which, status) in ending_signals() {
        let mut put = half_put(&server, served.path(), &there);
        // Waiting closes what is held no more, and a put whose source has ended may be quicker than the signal.
        let _source = put.stdin.take();
        signal(put.id(), which);
        assert_eq!(put.wait().unwrap().code(), Some(status));
        assert_eq!(listing(served.path()), there);
    }
}

#[test]
fn a_put_whose_server_dies_leaves_the_file_and_says_what_it_left_beside_it() {
    let (served, _) = precious();
    let there = listing(served.path());
    let server = Server::start(served.path(), &[]);
    let mut put = half_put(&server, served.path(), &there);
    drop(server);
    drop(put.stdin.take());
    let output = put.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(".odafs-put-"), "{said}");
    assert_eq!(
        std::fs::read(served.path().join("precious")).unwrap(),
        b"old"
    );
}

#[test]
fn a_put_keeps_what_a_file_allows_and_a_new_one_replaces_nothing() {
    let (served, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (place, source) = (served.path().join("f"), local.path().join("source"));
    std::fs::write(&place, "a longer old text").unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o640)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&place, Some(12), Some(34)).unwrap();
    }
    let before = place.metadata().unwrap();
    std::fs::write(&source, "new").unwrap();
    let server = Server::start(served.path(), &[]);
    let (from, to) = (source.to_str().unwrap(), server.shm_url("/f"));

    let refused = odafs().args(["put", "--new", from, &to]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(std::fs::read(&place).unwrap(), b"a longer old text");

    run(&["put", from, &to]);
    let after = place.metadata().unwrap();
    assert_eq!(std::fs::read(&place).unwrap(), b"new");
    let rights = |m: &std::fs::Metadata| (m.mode(), m.uid(), m.gid());
    assert_eq!(rights(&after), rights(&before));

    run(&["put", "--new", from, &server.shm_url("/g")]);
    let link = served.path().join("link");
    std::os::unix::fs::symlink("g", &link).unwrap();
    std::fs::write(&source, "newer").unwrap();
    run(&["put", from, &server.shm_url("/link")]);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(std::fs::read(served.path().join("g")).unwrap(), b"newer");
    let names: Vec<_> = listing(served.path()).into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["f", "g", "link"]);
}

#[test]
fn a_get_that_is_interrupted_leaves_the_file_and_nothing_else() {
    let (served, (local, there)) = (tempfile::tempdir().unwrap(), precious());
    // Longer than anyone waits for.
    let large = std::fs::File::create(served.path().join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let server = Server::start(served.path(), &[]);
    for (which, status) in ending_signals() {
        let mut get = odafs()
            .args(["get", &server.shm_url("/large")])
            .arg(local.path().join("precious"))
            .spawn()
            .unwrap();
        let files = || std::fs::read_dir(local.path()).unwrap().count();
        await_that("nothing came", || files() > 1);
        signal(get.id(), which);
        assert_eq!(get.wait().unwrap().code(), Some(status));
        assert_eq!(listing(local.path()), there);
    }
}

/// A signal to a process group reaches a program once by the group and again by a parent that passes it on.
#[test]
fn one_signal_that_comes_twice_drains_a_server() {
    let served = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut server = Server::start(served.path(), &[]);
        run(&["ls", &server.shm_url("/")]);
        signal(server.id(), Signal::TERM);
        signal(server.id(), Signal::INT);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!server.shm.exists());
    }
}

/// A large page cache takes minutes at the start.
#[test]
fn a_server_that_still_starts_ends_at_the_first_signal() {
    let (served, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let held = Held::at(place.path().join("nfs4-clients"));
    for (which, _) in ending_signals() {
        let mut server = odafs()
            .args(["serve", "--until-stdin-ends", "--small-pages", "--cache"])
            .args(["16MiB", "--nfs", "127.0.0.1:0", "--shm"])
            .arg(place.path().join("sock"))
            .arg("--state")
            .args([place.path(), served.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let _writer = held.reached();
        signal(server.id(), which);
        await_that("it goes on", || server.try_wait().unwrap().is_some());
        let output = server.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(output.stdout, b"", "{said}");
        assert!(said.contains("before the server was ready"), "{said}");
    }
}

/// A terminal that is closed ends what ran in it, but not what nohup started.
#[test]
fn a_hangup_is_ignored_where_it_was() {
    let (served, there) = precious();
    let server = Server::start(served.path(), &[]);
    let mut put = std::process::Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .args([env!("CARGO_BIN_EXE_odafs"), "put", "-"])
        .arg(server.shm_url("/precious"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.as_mut().unwrap().write_all(b"new").unwrap();
    await_that("nothing was put", || listing(served.path()) != there);
    signal(put.id(), Signal::HUP);
    drop(put.stdin.take());
    assert_eq!(put.wait().unwrap().code(), Some(0));
    assert_eq!(
        std::fs::read(served.path().join("precious")).unwrap(),
        b"new"
    );
}

/// Nobody has poisoned the life word of a server that was killed, and no successor comes: a client notices by itself.
#[test]
fn what_a_killed_server_exposed_counts_no_more() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("f"), [7; 4096]).unwrap();
    let server = Server::start(served.path(), &["--direct", "one-sided"]);
    let options = Options {
        route: Route::OneSided,
        cache: Cache::Off,
        ..Options::default()
    };
    let client = Client::connect_with(&server.shm_url("/").parse().unwrap(), options).unwrap();
    let file = client.open("f").unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    assert_eq!(file.try_read_at(&mut page, 0), Some(4096));
    drop(server);
    await_that("the dead server's memory is still read", || {
        file.try_read_at(&mut page, 0).is_none()
    });
}
