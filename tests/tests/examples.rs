//! Every program in `client/examples` and `server/examples` does what its first line says.
#![cfg(not(shuttle))]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use odafs::Client;
use odafs_server::config::ServerConfig;
use odafs_server::server::Server;

/// Length of `data.bin`, in bytes.
const LENGTH: usize = 1 << 20;

/// An example, built by `cargo test --workspace`.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(Path::parent);
    let program = profile.expect("target/PROFILE").join("examples").join(name);
    assert!(
        program.exists(),
        "{} is missing: run `cargo test --workspace`",
        program.display()
    );
    Command::new(program)
}

/// Runs an example to its end; what it printed.
fn run(name: &str, url: &str) -> String {
    let output = example(name).arg(url).output().expect("start the example");
    assert!(output.status.success(), "{name}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Starts an example that goes on; its output is read by the line.
fn start(command: &mut Command) -> (Child, BufReader<ChildStdout>) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start the example");
    let lines = BufReader::new(child.stdout.take().expect("stdout"));
    (child, lines)
}

fn line(of: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    of.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

/// The names of the examples in a directory, in order. What is in a directory of its own is a package, with tests of its own.
fn names(directory: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("an example");
        assert!(text.starts_with("//! "), "{} says nothing", path.display());
        let name = path.file_stem().expect("a name");
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    names
}

#[test]
fn every_example_does_what_it_says() {
    let scratch = tempfile::tempdir().expect("a directory");
    let files = scratch.path().join("files");
    std::fs::create_dir(&files).expect("a directory");
    let data: Vec<u8> = (0..LENGTH).map(|at| (at * 7 + at / 251) as u8).collect();
    std::fs::write(files.join("data.bin"), &data).expect("a file");

    let socket: PathBuf = scratch.path().join("sock");
    let server = Server::start(ServerConfig {
        shm: Some(socket.clone()),
        state: Some(scratch.path().join("state")),
        cache_bytes: 16 << 20,
        huge_pages: false,
        ..ServerConfig::new(&files)
    });
    let server = server.expect("a server");
    let url = format!("odafs+shm://{}?/", socket.display());

    let mut ran = Vec::new();
    let mut shows = |name: &str, wanted: &[&str]| {
        let said = run(name, &url);
        for part in wanted {
            assert!(said.contains(part), "{name}: {part:?} is not in {said:?}");
        }
        ran.push(name.to_owned());
    };
    shows("read", &["4096 bytes; Statistics", "rpc_reads: 1,"]);
    shows("write", &["notes.txt: 14 bytes"]);
    shows(
        "batch",
        &[
            "512 bytes from 0\n",
            "4096 bytes from 100000\n",
            "0 bytes from 1099511627776\n512 bytes of data.bin\n14 bytes of second.txt\n",
        ],
    );
    shows(
        "rows",
        &[
            "4096 rows of 256 bytes\n",
            "row 7 begins with [7, 14, 21, 28]\n",
            "row 42 begins with [42, 49, 56, 63]\n",
            "row 4096: read data.bin at 1048576: ",
        ],
    );
    shows(
        "by_handle",
        &[
            "data.bin: 1048576 bytes, inode ",
            "4096 bytes read\n",
            "kept.txt: written, renamed and removed\n",
        ],
    );
    shows("asynchronous", &["8192 bytes"]);
    shows(
        "will_need",
        &["64 references came; 64 of 64 reads were direct"],
    );
    shows("trace", &["0..4096 rpc in ", "0..4096 guarded in "]);
    shows("statistics", &["data cache ", "refused "]);
    assert_eq!(
        std::fs::read(files.join("notes.txt")).expect("what was written"),
        b"one\ntwo\nthree\n"
    );

    let counts = run("statistics", &url);
    let served = counts.lines().take(3).map(|line| {
        let count = line.split_whitespace().last().expect("a count");
        count.parse::<u32>().expect("a number")
    });
    assert_eq!(served.sum::<u32>(), 1000, "{counts}");

    let (mut watching, mut lines) = start(example("watch").arg(&url));
    assert_eq!(line(&mut lines), format!("{LENGTH} bytes"));
    let client = Client::connect(&url).expect("connect");
    let file = client.open("data.bin").expect("open");
    file.write_at(b"more", LENGTH as u64).expect("write");
    assert_eq!(line(&mut lines), format!("changed: {} bytes", LENGTH + 4));
    assert!(watching.wait().expect("wait").success());
    ran.push("watch".to_owned());
    server.shutdown();

    ran.sort();
    assert_eq!(ran, names("../client/examples"));
}

#[test]
fn a_program_embeds_a_server() {
    assert_eq!(names("../server/examples"), ["embed"]);
    let scratch = tempfile::tempdir().expect("a directory");
    let files = scratch.path().join("files");
    std::fs::create_dir(&files).expect("a directory");
    std::fs::write(files.join("a"), "served").expect("a file");

    let (mut embedding, mut lines) = start(example("embed").arg(&files).arg(scratch.path()));
    let client = Client::connect(&line(&mut lines)).expect("connect");
    let file = client.open("a").expect("open");
    assert_eq!(file.read_to_end().expect("read"), b"served");
    assert!(client.create("b").is_err(), "it is served read-only");
    drop(embedding.stdin.take());
    assert!(embedding.wait().expect("wait").success());
    assert!(!scratch.path().join("odafs.sock").exists());
}
