//! Many clients of one user on shared memory. `CLIENTS=1000 cargo test --release -p odafs-cli --test many -- --nocapture`
//! tries as many as the defaults admit, and prints what they take.

mod common;

use std::fs;
use std::time::Instant;

use common::Server;
use odafs::{Cache, Client, ConnectError, File, Options, Route};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A client that has read a page directly, and the file that keeps it.
fn client(server: &Server) -> Result<File, ConnectError> {
    let options = Options {
        route: Route::Guarded,
        cache: Cache::Off,
        ..Options::default()
    };
    let client = Client::connect_with(&server.shm_url("/").parse().unwrap(), options)?;
    let file = client.open("file").unwrap();
    for _ in 0..2 {
        read(&file);
    }
    assert_eq!(client.statistics().guarded_hits, 1);
    Ok(file)
}

fn read(file: &File) {
    let mut page = [0; 4096];
    assert_eq!(file.read_at(&mut page, 0).unwrap(), 4096);
    assert_eq!(page, [7; 4096]);
}

fn served() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; 4096]).unwrap();
    directory
}

/// Lets this process open as many files as it may allow itself.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

#[test]
fn many_clients_of_one_user_read_directly() {
    let many: usize = std::env::var("CLIENTS").map_or(100, |many| many.parse().unwrap());
    raise_open_files();
    let directory = served();
    let server = Server::start(directory.path(), &[]);
    let descriptors = || {
        fs::read_dir(format!("/proc/{}/fd", server.id()))
            .unwrap()
            .count()
    };
    let before = descriptors();
    let began = Instant::now();
    let clients: Vec<File> = (0..many).map(|_| client(&server).unwrap()).collect();
    println!("{many} clients in {:?}", began.elapsed());
    let began = Instant::now();
    clients.iter().for_each(read);
    println!("a read of each in {:?}", began.elapsed());
    println!("{} descriptors of the server", descriptors() - before);
}

#[test]
fn a_client_too_many_is_told_of_the_option() {
    let directory = served();
    let server = Server::start(directory.path(), &["--shm-connections", "8"]);
    let mut clients = Vec::new();
    let refused = loop {
        match client(&server) {
            Ok(client) => clients.push(client),
            Err(error) => break error.to_string(),
        }
        assert!(clients.len() < 8, "nobody is refused");
    };
    assert!(refused.contains("--shm-connections"), "{refused}");
    assert!(!refused.contains("is it running"), "{refused}");
}
