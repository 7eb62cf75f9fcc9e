//! Writes a file: unstable writes, and one sync that brings all of them to stable storage.

use odafs::Client;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
    let file = client.create("notes.txt")?;
    let mut end = 0;
    for line in ["one\n", "two\n", "three\n"] {
        file.write_at(line.as_bytes(), end)?; // a crash of the server may lose it
        end += line.len() as u64;
    }
    file.sync()?; // from here on none of it is lost
    println!("notes.txt: {} bytes", client.stat("notes.txt")?.size);
    Ok(())
}
