//! What `odafs get` makes of the file that it writes: its rights, its links and its name.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use common::{Server, odafs, run, text};

fn served() -> (tempfile::TempDir, Server) {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("note"), "new").unwrap();
    std::fs::write(served.path().join("-"), "dash").unwrap();
    let server = Server::start(served.path(), &[]);
    (served, server)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// Runs `get` under a umask.
fn get_with_umask(umask: &str, url: &str, local: &Path) {
    let script = format!("umask {umask}; exec \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_odafs"), "get"]);
    let output = shell.arg(url).arg(local).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_new_file_gets_what_the_umask_leaves_and_an_old_one_keeps_its_mode() {
    let (_served, server) = served();
    let url = server.shm_url("/note");
    let local = tempfile::tempdir().unwrap();
    for (umask, wanted) in [("077", 0o600), ("022", 0o644), ("002", 0o664)] {
        let place = local.path().join(umask);
        get_with_umask(umask, &url, &place);
        assert_eq!(mode(&place), wanted, "{umask}");
    }
    let place = local.path().join("old");
    for wanted in [0o600, 0o640, 0o755] {
        std::fs::write(&place, "old").unwrap();
        std::fs::set_permissions(&place, PermissionsExt::from_mode(wanted)).unwrap();
        get_with_umask("022", &url, &place);
        assert_eq!(mode(&place), wanted);
        assert_eq!(std::fs::read(&place).unwrap(), b"new");
    }
}

/// Only root may give files away, and so has owners to keep.
#[test]
fn a_file_of_another_user_stays_theirs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_served, server) = served();
    let local = tempfile::tempdir().unwrap();
    let place = local.path().join("theirs");
    std::fs::write(&place, "old").unwrap();
    std::os::unix::fs::chown(&place, Some(3_141), Some(5_926)).unwrap();
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o4640)).unwrap();
    run(&["get", &server.shm_url("/note"), place.to_str().unwrap()]);
    let found = place.metadata().unwrap();
    assert_eq!((found.uid(), found.gid()), (3_141, 5_926));
    assert_eq!(mode(&place), 0o640, "set-id bits go");
}

#[test]
fn a_symbolic_link_stays_and_its_file_is_replaced() {
    let (_served, server) = served();
    let local = tempfile::tempdir().unwrap();
    let at = |name: &str| local.path().join(name);
    std::fs::create_dir(at("below")).unwrap();
    std::fs::write(at("below/file"), "old").unwrap();
    symlink("below/file", at("link")).unwrap();
    symlink("link", at("to-link")).unwrap();
    symlink("below/none", at("dangling")).unwrap();
    symlink("circle", at("circle")).unwrap();
    let url = server.shm_url("/note");
    for (link, file) in [("to-link", "below/file"), ("dangling", "below/none")] {
        run(&["get", &url, at(link).to_str().unwrap()]);
        assert!(at(link).is_symlink(), "{link}");
        assert_eq!(std::fs::read(at(file)).unwrap(), b"new", "{link}");
    }
    assert!(at("link").is_symlink());
    let circle = at("circle").display().to_string();
    let output = odafs().args(["get", &url, &circle]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("symbolic links") && at("circle").is_symlink());
}

/// Only the argument `-` is stdout.
#[test]
fn a_file_called_dash_is_a_file() {
    let (_served, server) = served();
    let local = tempfile::tempdir().unwrap();
    let get = |more: Option<&str>| {
        let mut get = odafs();
        get.current_dir(local.path()).arg("get");
        get.arg(server.shm_url("/-")).args(more);
        get.output().unwrap()
    };
    let output = get(None);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
    assert_eq!(std::fs::read(local.path().join("-")).unwrap(), b"dash");
    assert_eq!(get(Some("-")).stdout, b"dash");
}

/// Only stdout has a reader that may have seen enough.
#[test]
fn a_pipe_whose_reader_leaves_is_a_failure() {
    let (served, server) = served();
    std::fs::write(served.path().join("big"), vec![1; 4 << 20]).unwrap();
    let local = tempfile::tempdir().unwrap();
    let pipe = local.path().join("pipe");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let get = odafs()
        .args(["get", &server.shm_url("/big")])
        .arg(&pipe)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = std::fs::File::open(&pipe).unwrap();
    std::io::Read::read_exact(&mut reader, &mut [0; 10]).unwrap();
    drop(reader);
    let output = get.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Broken pipe"), "{said}");
}
