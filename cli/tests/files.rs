//! Files through the commands, over shared memory and over NFS.

mod common;

use std::io::{BufRead, Write};
use std::process::Stdio;

use common::{Server, ending_signals, odafs, run, text};
use serde_json::Value;

/// Puts, lists, reads, moves and removes files by URLs that `url` makes.
fn round_trip(url: &dyn Fn(&str) -> String, served: &std::path::Path) {
    let local = tempfile::tempdir().unwrap();
    let at = |name: &str| local.path().join(name).display().to_string();
    let data: Vec<u8> = (0..300_001u32).map(|i| (i * 7 % 251) as u8).collect();
    std::fs::write(at("data.bin"), &data).unwrap();

    run(&["mkdir", "-p", &url("/a/b")]);
    run(&["put", &at("data.bin"), &url("/a/b")]);
    assert_eq!(std::fs::read(served.join("a/b/data.bin")).unwrap(), data);
    assert_eq!(run(&["cat", &url("/a/b/data.bin")]).stdout, data);
    run(&["get", &url("/a/b/data.bin"), &at("back.bin")]);
    assert_eq!(std::fs::read(at("back.bin")).unwrap(), data);

    assert_eq!(text(&run(&["ls", &url("/a/b")]).stdout), "data.bin\n");
    let listed: Value =
        serde_json::from_slice(&run(&["ls", "--json", &url("/a/b")]).stdout).unwrap();
    assert_eq!(listed[0]["entries"][0]["size"], 300_001);
    let stat: Value =
        serde_json::from_slice(&run(&["stat", "--json", &url("/a/b/data.bin")]).stdout).unwrap();
    assert_eq!(
        (&stat[0]["kind"], &stat[0]["size"]),
        (&"file".into(), &300_001.into())
    );

    run(&["mv", &url("/a/b/data.bin"), &url("/a/moved.bin")]);
    assert!(!served.join("a/b/data.bin").exists());
    assert_eq!(run(&["cat", &url("/a/moved.bin")]).stdout, data);
    let missing = odafs()
        .args(["cat", &url("/a/b/data.bin")])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("data.bin"),
        "{}",
        text(&missing.stderr)
    );

    let refused = odafs().args(["rm", &url("/a/b")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "a directory needs -d");
    run(&["rm", "-d", &url("/a/b")]);
    run(&["rm", "-r", &url("/a")]);
    assert!(!served.join("a").exists());
}

#[test]
fn a_round_trip_over_shared_memory() {
    let served = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &[]);
    round_trip(&|path| server.shm_url(path), served.path());
}

#[test]
fn a_round_trip_over_nfs() {
    let served = tempfile::tempdir().unwrap();
    // Root's programs come from the ports that such a server asks for.
    let insecure: &[&str] = if rustix::process::geteuid().is_root() {
        &[]
    } else {
        &["--insecure"]
    };
    let options = [&["--squash", "none"], insecure].concat();
    let server = Server::start(served.path(), &options);
    round_trip(&|path| server.nfs_url(path), served.path());
}

#[test]
fn get_writes_to_a_pipe_and_leaves_it_one() {
    let (served, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(served.path().join("note"), "read me").unwrap();
    let server = Server::start(served.path(), &[]);
    let pipe = local.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    run(&["get", &server.shm_url("/note"), pipe.to_str().unwrap()]);
    assert_eq!(reader.join().unwrap(), "read me");
    let kind = std::os::unix::fs::FileTypeExt::is_fifo(&pipe.metadata().unwrap().file_type());
    assert!(kind, "the pipe was replaced");
}

#[test]
fn stdin_and_stdout() {
    let served = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &[]);
    let url = server.shm_url("/note");
    let mut put = odafs()
        .args(["put", "-", &url])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    put.stdin.take().unwrap().write_all(b"by pipe").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(run(&["get", &url, "-"]).stdout, b"by pipe");
}

#[test]
fn why_shows_an_rpc_first_and_a_direct_read_then() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("f"), vec![1; 10_000]).unwrap();
    let server = Server::start(served.path(), &["--direct", "one-sided"]);
    let url = server.shm_url("/f");
    let rows: Value = serde_json::from_slice(
        &run(&["cat", "--why", "--json", "--route", "one-sided", &url]).stdout,
    )
    .unwrap();
    let rows = rows.as_array().unwrap();
    let bytes: Vec<_> = rows
        .iter()
        .map(|row| row["length"].as_u64().unwrap())
        .collect();
    assert_eq!(bytes.iter().sum::<u64>(), 20_000, "{rows:?}");
    assert!(!bytes.contains(&0), "{rows:?}");
    let route = |pass: u64| rows.iter().find(|r| r["pass"] == pass).unwrap()["route"].clone();
    assert_eq!(
        (route(1), route(2)),
        ("rpc".into(), "one-sided".into()),
        "{rows:?}"
    );
}

/// However long a file is, what is told of its reads takes no memory.
#[test]
fn why_is_told_while_the_file_is_read() {
    let served = tempfile::tempdir().unwrap();
    let endless = std::fs::File::create(served.path().join("f")).unwrap();
    endless.set_len(1 << 40).unwrap();
    let server = Server::start(served.path(), &[]);
    for (json, count) in [(None, 40), (Some("--json"), 3000)] {
        let mut cat = odafs()
            .args(["cat", "--why", &server.shm_url("/f")])
            .args(json)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufReader::new(cat.stdout.take().unwrap()).lines();
        let (told, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(lines.take(count).count()));
        let lines = wait.recv_timeout(std::time::Duration::from_secs(60));
        cat.kill().unwrap();
        cat.wait().unwrap();
        assert_eq!(lines, Ok(count), "{json:?}");
    }
}

#[test]
fn neighbouring_pages_share_a_row_and_a_summary_follows_many() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("f"), vec![1; 2 << 20]).unwrap();
    let server = Server::start(served.path(), &[]);
    let url = server.shm_url("/f");
    let why = |more: &[&str]| {
        let output = run(&[&["cat", "--why", &url], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let (few, many) = (why(&[]), why(&["--passes", "12"]));
    assert!(few.lines().count() <= 21, "{few}");
    assert!(!few.contains("In all:"), "{few}");
    let (rows, summary) = many.split_once("\nIn all:\n").expect(&many);
    assert!(rows.lines().count() < 100, "{many}");
    let bytes: u64 = summary
        .lines()
        .skip(1)
        .map(|line| {
            line.split("  ")
                .filter(|cell| !cell.is_empty())
                .nth(2)
                .unwrap()
        })
        .map(|bytes| bytes.trim().replace(',', "").parse::<u64>().unwrap())
        .sum();
    assert_eq!(bytes, 12 * (2 << 20), "{summary}");
    let pages: Value = serde_json::from_str(&why(&["--json"])).unwrap();
    assert_eq!(pages.as_array().unwrap().len(), 2 * 512);
}

#[test]
fn references_of_resident_pages() {
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("f"), vec![1; 10_000]).unwrap();
    let server = Server::start(served.path(), &[]);
    let url = server.shm_url("/f");
    run(&["cat", &url]);
    let files: Value = serde_json::from_slice(&run(&["refs", "--json", &url]).stdout).unwrap();
    let references = files[0]["references"].as_array().unwrap();
    assert_eq!(references.len(), 3, "{files}");
    assert_eq!(references[2]["length"], 10_000 - 8192);
}

#[test]
fn a_read_only_server_refuses_changes() {
    let served = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &["--read-only"]);
    let output = odafs()
        .args(["mkdir", &server.shm_url("/d")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!served.path().join("d").exists());
}

#[test]
fn a_signal_drains_and_ends_it_with_0() {
    let served = tempfile::tempdir().unwrap();
    for (signal, _) in ending_signals() {
        let mut server = Server::start(served.path(), &[]);
        run(&["ls", &server.shm_url("/")]);
        let pid = rustix::process::Pid::from_raw(server.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(server.wait().code(), Some(0));
        assert!(!server.shm.exists(), "the socket goes with it");
    }
}

#[test]
fn a_port_and_a_socket_in_use_are_named() {
    let served = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let server = Server::start(served.path(), &[]);
    let try_start = |listener: [&str; 2]| {
        let state = other.path().join("state").display().to_string();
        let output = odafs()
            .arg("serve")
            .arg(other.path())
            .args(listener)
            .args(["--state", &state])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    let port = try_start(["--nfs", &server.nfs]);
    assert!(
        port.contains(&server.nfs) || port.contains("in use"),
        "{port}"
    );
    let socket = try_start(["--shm", &server.shm.display().to_string()]);
    assert!(
        socket.contains("runs") && socket.contains("--shm"),
        "{socket}"
    );
}
