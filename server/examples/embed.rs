//! Embeds a server in a program of one's own: serves a directory over shared memory until standard input ends.

use std::io::Read as _;
use std::path::PathBuf;

use odafs_server::config::ServerConfig;
use odafs_server::server::Server;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(directory), Some(scratch)) = (arguments.next(), arguments.next()) else {
        return Err(
            "usage: embed DIR SCRATCH (DIR is served; SCRATCH takes socket and state)".into(),
        );
    };
    let server = Server::start(ServerConfig {
        shm: Some(scratch.join("odafs.sock")),
        state: Some(scratch.join("state")),
        cache_bytes: 64 << 20,
        huge_pages: false, // they take about 2 s a GiB at the start
        read_only: true,
        ..ServerConfig::new(directory)
    })?;
    if let Some(socket) = &server.addresses().shm {
        println!("odafs+shm://{}?/", socket.display());
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.shutdown(); // calls under way are finished
    Ok(())
}
