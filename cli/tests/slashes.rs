//! Paths that end in a slash name directories, and nothing else is done to what is none.

mod common;

use std::path::Path;

use common::{Server, odafs, run, text};

/// What a command that must fail says.
fn refused(arguments: &[&str]) -> String {
    let output = odafs().args(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    said
}

/// A directory with files, a directory and links to both.
fn served() -> (tempfile::TempDir, Vec<String>) {
    let served = tempfile::tempdir().unwrap();
    let at = |name: &str| served.path().join(name);
    std::fs::write(at("file"), "old").unwrap();
    std::fs::write(at("other"), "other").unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::os::unix::fs::symlink("file", at("to-file")).unwrap();
    std::os::unix::fs::symlink("directory", at("to-directory")).unwrap();
    let names = names(served.path());
    (served, names)
}

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut all: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    all.sort();
    all
}

#[test]
fn what_ends_in_a_slash_and_is_no_directory_is_refused() {
    let (served, before) = served();
    let server = Server::start(served.path(), &[]);
    let new = served.path().join("other").display().to_string();
    let url = |path: &str| server.shm_url(path);
    let cases: [(&[&str], &str); 13] = [
        (&["put", &new, &url("/file/")], "/file is not a directory"),
        (&["put", &new, &url("/to-file/")], "is not a directory"),
        (&["put", &new, &url("/absent/")], "no directory /absent"),
        (
            &["mv", &url("/other"), &url("/file/")],
            "is not a directory",
        ),
        (
            &["mv", &url("/other"), &url("/to-file/")],
            "is not a directory",
        ),
        (
            &["mv", &url("/directory"), &url("/file/")],
            "is not a directory",
        ),
        (
            &["mv", &url("/other"), &url("/absent/")],
            "no directory /absent",
        ),
        (
            &["mv", &url("/other/"), &url("/absent")],
            "is not a directory",
        ),
        (&["cat", &url("/file/")], "is not a directory"),
        (&["stat", &url("/file/")], "is not a directory"),
        (&["rm", &url("/file/")], "is not a directory"),
        (&["rm", &url("/to-file/")], "is not a directory"),
        (&["rm", &url("/to-directory/")], "is not a directory"),
    ];
    for (arguments, expected) in cases {
        let said = refused(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert_eq!(names(served.path()), before, "{arguments:?}");
        let file = std::fs::read(served.path().join("file")).unwrap();
        assert_eq!(file, b"old", "{arguments:?}");
    }
}

#[test]
fn what_ends_in_a_slash_and_is_a_directory_is_gone_into() {
    let (served, _) = served();
    let server = Server::start(served.path(), &[]);
    let at = |name: &str| served.path().join(name);
    let new = at("file").display().to_string();
    let url = |path: &str| server.shm_url(path);
    run(&["put", &new, &url("/directory/")]);
    assert!(at("directory/file").exists());
    run(&["mv", &url("/other"), &url("/to-directory/")]);
    assert!(at("directory/other").exists());
    run(&["mkdir", &url("/made/")]);
    run(&["mv", &url("/directory/"), &url("/renamed/")]);
    assert!(at("renamed/other").exists());
    run(&["ls", &url("/renamed/")]);
    run(&["rm", "-r", &url("/renamed/"), &url("/made/")]);
    assert_eq!(names(served.path()), ["file", "to-directory", "to-file"]);
}

#[test]
fn a_local_directory_that_is_not_there_is_named() {
    let (served, _) = served();
    let server = Server::start(served.path(), &[]);
    let file = served.path().join("other");
    let url = server.shm_url("/file");
    let said = refused(&["get", &url, "/nonexist/"]);
    assert!(said.contains("there is no directory /nonexist"), "{said}");
    let slash = format!("{}/", file.display());
    let said = refused(&["get", &url, &slash]);
    assert!(said.contains("other is not a directory"), "{said}");
    assert_eq!(std::fs::read(file).unwrap(), b"other");
}

#[test]
fn a_file_in_the_way_of_a_directory_is_no_directory() {
    let (served, _) = served();
    let server = Server::start(served.path(), &[]);
    for path in ["/file", "/file/"] {
        let said = refused(&["mkdir", "-p", &server.shm_url(path)]);
        assert!(said.contains("/file is not a directory"), "{said}");
    }
    run(&["mkdir", "-p", &server.shm_url("/directory")]);
    run(&["mkdir", "-p", &server.shm_url("/to-directory/a/b/")]);
}

/// `..` may be the export, and `.` a directory that somebody means to empty.
#[test]
fn rm_refuses_a_path_that_ends_in_a_dot() {
    let (served, before) = served();
    let server = Server::start(served.path(), &[]);
    for path in [
        "/directory/..",
        "/directory/../",
        "/directory/.",
        "/directory/./",
        "/to-directory/..",
        "/.",
        "/..",
    ] {
        // The first URL is left alone too.
        let urls = [server.shm_url("/file"), server.shm_url(path)];
        let output = odafs().args(["rm", "-r"]).args(urls).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{path}: {said}");
        assert!(said.contains("ends in `.` or `..`"), "{path}: {said}");
        assert_eq!(names(served.path()), before, "{path}");
    }
}

#[test]
fn rm_spares_the_export_by_whatever_path() {
    let (served, before) = served();
    let server = Server::start(served.path(), &["--export", "/data"]);
    for path in ["/data", "/data/", "//data", "/data/directory/../../data"] {
        let url = server.shm_url(path);
        let output = odafs().args(["rm", "-r", &url]).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{path}");
        assert_eq!(names(served.path()), before, "{path}");
    }
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(one.path().join("file"), "text").unwrap();
    let export = |name: &str, at: &tempfile::TempDir| format!("/{name}={}", at.path().display());
    let exports = [export("a/one", &one), export("two", &two)];
    let server = Server::start_exports(&["--export", &exports[0], "--export", &exports[1]]);
    // The client of the root reaches the exports as well.
    for (path, status) in [("/a", 1), ("/a/one", 2)] {
        let urls = [server.shm_url("/"), server.shm_url(path)];
        let output = odafs().args(["rm", "-r"]).args(urls).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{path}: {said}");
        assert_eq!(names(one.path()), ["file"], "{path}: {said}");
    }
}

/// As mv(1) does: the link stays, and what is moved lies in the directory.
#[test]
fn mv_goes_into_a_directory_behind_a_link() {
    let (served, _) = served();
    let server = Server::start(served.path(), &[]);
    let at = |name: &str| served.path().join(name);
    run(&[
        "mv",
        &server.shm_url("/other"),
        &server.shm_url("/to-directory"),
    ]);
    assert!(at("to-directory").is_symlink());
    assert_eq!(std::fs::read(at("directory/other")).unwrap(), b"other");
}

#[test]
fn mv_names_the_path_that_is_in_the_way() {
    let (served, _) = served();
    let at = |name: &str| served.path().join(name);
    std::fs::create_dir_all(at("directory/file")).unwrap();
    std::fs::create_dir_all(at("directory/full/x")).unwrap();
    std::fs::create_dir_all(at("full")).unwrap();
    let before = names(served.path());
    let server = Server::start(served.path(), &[]);
    for (from, to, expected) in [
        ("/directory", "/file", "mv /file: not a directory"),
        ("/file", "/directory", "mv /directory/file: "),
        ("/full", "/directory", "mv /directory/full: "),
        ("/other", "/file/x", "/file is not a directory"),
        ("/full", "/full", "/full and /full are the same directory"),
        (
            "/directory",
            "/to-directory",
            "/directory and /to-directory are the same directory",
        ),
    ] {
        let said = refused(&["mv", &server.shm_url(from), &server.shm_url(to)]);
        assert!(said.contains(expected), "{from} {to}: {said}");
        assert_eq!(names(served.path()), before, "{from} {to}");
    }
}
