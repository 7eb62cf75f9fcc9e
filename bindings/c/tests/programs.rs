//! Programs in C and C++, compiled as a user would, against a server.

use odafs_tests::served::Served;
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

/// A served directory with a file of 1 MiB and 100 bytes, and a place for programs.
struct World {
    directory: TempDir,
    scratch: TempDir,
    server: Served,
}

impl World {
    fn start() -> Self {
        let (directory, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let data: Vec<u8> = (0..(1u32 << 20) + 100)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        fs::write(directory.path().join("data"), data).unwrap();
        // All that a program does it may do by any fabric.
        let options = ["--rdma", "127.0.0.1:0", "--squash", "none", "--insecure"];
        let server = Served::start(directory.path(), scratch.path(), &options);
        Self {
            directory,
            scratch,
            server,
        }
    }

    fn url(&self) -> String {
        let socket = self.server.shm.display().to_string();
        format!("odafs+shm://{}/", socket.replace('/', "%2F"))
    }

    /// Compiles with every warning an error.
    fn compile(&self, compiler: &str, flags: &[&str], source: &str) -> PathBuf {
        let program = self.scratch.path().join("program");
        let compiled = Command::new(compiler)
            .args(flags)
            .args(["-Wall", "-Wextra", "-Werror", "-g", "-o"])
            .arg(&program)
            .arg(here(source))
            .arg("-I")
            .arg(here("include"))
            .arg(library())
            .args("-lgcc_s -lutil -lrt -lpthread -lm -ldl".split(' '))
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error} (install a C compiler)"));
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        program
    }
}

/// A program that ends with its test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The static library that cargo made together with the one that this test links to: the newest.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let made = fs::read_dir(test.parent().unwrap()).unwrap().flatten();
    made.map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new("a")))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libodafs_c")
        })
        .max_by_key(|path| path.metadata().and_then(|known| known.modified()).unwrap())
        .expect("libodafs_c.a beside the test")
}

fn run(program: &Path, arguments: &[&OsStr]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn a_program_in_c_gets_what_the_directory_holds() {
    let world = World::start();
    let program = world.compile("cc", &["-std=c11", "-D_GNU_SOURCE"], "tests/program.c");
    let server = &world.server;
    for url in [world.url(), server.rdma_url("/"), server.nfs_url("/")] {
        let done = run(&program, &[url.as_ref(), world.directory.path().as_ref()]);
        assert!(done.status.success(), "{url}: {}", text(&done.stderr));
    }
}

#[test]
fn the_examples_do_what_they_say() {
    let world = World::start();
    let (url, directory) = (world.url(), world.directory.path());
    let read = world.compile("cc", &["-std=c11"], "examples/read.c");
    let done = run(&read, &[url.as_ref(), "data".as_ref()]);
    let said = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(said.contains("48 bytes of 3 ranges: 16, 16, 16"), "{said}");
    assert!(said.contains("   1048676 data\n"), "{said}");
    let done = run(&read, &[url.as_ref(), "nothing".as_ref()]);
    assert!(text(&done.stderr).contains("no such file"));

    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("the C++ example is left out: there is no c++ (install g++)");
        return;
    }
    let copy = world.compile("c++", &["-std=c++17"], "examples/copy.cpp");
    let done = run(&copy, &[url.as_ref(), "data".as_ref(), "copied".as_ref()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let held = |name| fs::read(directory.join(name)).unwrap();
    assert!(held("data") == held("copied"));
}

/// A program reads on and on while its server is killed and started again.
#[test]
fn a_program_in_c_outlives_its_server() {
    let mut world = World::start();
    let program = world.compile("cc", &["-std=c11", "-D_GNU_SOURCE"], "tests/killed.c");
    let mut child = Command::new(&program)
        .arg(world.url())
        .arg(world.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut told = std::io::BufReader::new(child.0.stdout.take().unwrap());
    let mut wait_for = |word: &str| {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut told, &mut line).unwrap();
        assert_eq!(line.trim(), word);
    };
    wait_for("reading");
    world.server.kill();
    wait_for("failed by its deadline");
    world.server.restart();
    wait_for("reading again");
    assert!(child.0.wait().unwrap().success());
}

/// Whether every thread of a process is stopped (`T` in proc(5)).
fn stopped(pid: u32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .expect("its threads")
        .all(|thread| {
            let path = thread.expect("a thread").path().join("stat");
            let stat = std::fs::read_to_string(path).expect("its state");
            let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
            rest.trim_start().starts_with('T')
        })
}

#[test]
fn a_ring_on_a_stopped_server_ends_within_a_few_deadlines() {
    use std::io::{BufRead as _, Write as _};
    let world = World::start();
    let program = world.compile("cc", &["-std=c11", "-D_GNU_SOURCE"], "tests/stopped.c");
    let mut child = Command::new(&program)
        .arg(world.server.nfs_url("/"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut line = String::new();
    let mut told = std::io::BufReader::new(child.0.stdout.take().unwrap());
    told.read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    let signal = |name: &str| {
        let pid = world.server.pid().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    };
    signal("-STOP");
    // The signal is sent; each of its threads stops when it sees that.
    while !stopped(world.server.pid()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let ended = child.0.wait().unwrap();
    signal("-CONT");
    assert!(ended.success(), "{ended}");
}
