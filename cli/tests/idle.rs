//! What clients and servers cost that do nothing; `--nocapture` prints the figures of docs/BENCHMARKS.md.

mod common;

use std::fs;
use std::time::Duration;

use common::Server;
use odafs::{Cache, Client, File, Options, Route};

/// Clients at a time.
const CLIENTS: usize = 16;

/// Ticks of an idle server in two seconds.
const IDLE: u64 = 1;

/// A figure of `/proc/PROCESS/status`, in KiB.
fn kib(process: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// Processor time of a process, user's and system's, in ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name, in parentheses, may hold anything; times are the 14th and 15th fields of all.
    let (_, rest) = text.rsplit_once(')').unwrap();
    let times = rest.split_whitespace().skip(11).take(2);
    times.map(|time| time.parse::<u64>().unwrap()).sum()
}

/// A client that has read two pages directly, and the file that keeps it.
fn client(server: &Server) -> File {
    let options = Options {
        route: Route::Guarded,
        cache: Cache::Off,
        ..Options::default()
    };
    let client = Client::connect_with(&server.shm_url("/").parse().unwrap(), options).unwrap();
    let file = client.open("file").unwrap();
    let mut page = [0; 4096];
    for offset in [0, 4096, 0] {
        assert_eq!(file.read_at(&mut page, offset).unwrap(), 4096);
    }
    file
}

/// One test, so that no other takes memory meanwhile.
#[test]
fn idle_clients_take_little_memory_and_an_idle_server_no_time() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; 8192]).unwrap();
    let server = Server::start(directory.path(), &[]);
    let of_server = server.id().to_string();
    // What the first one makes for all of a process.
    let first = client(&server);
    let own = || kib("self", "RssAnon:");
    let servers = || kib(&of_server, "RssAnon:");
    let shared = || kib("self", "RssShmem:");
    let before = (own(), servers(), shared());
    let clients: Vec<File> = (0..CLIENTS).map(|_| client(&server)).collect();
    let each = |now: u64, before: u64| now.saturating_sub(before) / CLIENTS as u64;
    let (own, servers) = (each(own(), before.0), each(servers(), before.1));
    println!(
        "an idle client: {own} KiB of its own, {servers} KiB of the server's, {} KiB of rings and sink in use",
        each(shared(), before.2)
    );
    // Engines have fallen asleep.
    std::thread::sleep(Duration::from_millis(500));
    let in_two_seconds = || {
        let begin = ticks(server.id());
        std::thread::sleep(Duration::from_secs(2));
        ticks(server.id()) - begin
    };
    // Something may happen once in a while, or a tick hit by chance; a server that does not sleep shows it at all times.
    let mut used = in_two_seconds();
    for _ in 0..4 {
        if used > IDLE {
            used = used.min(in_two_seconds());
        }
    }
    println!(
        "an idle server with {} clients: {used} ticks in 2 s",
        CLIENTS + 1
    );
    drop((first, clients));
    assert!(own <= 64, "{own} KiB for a client");
    assert!(servers <= 64, "{servers} KiB for a client at the server");
    assert!(used <= IDLE, "{used} ticks");
}
