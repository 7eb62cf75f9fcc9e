//! Waits until a file changes: a look at its change counter costs no call where the server grants direct reads.

use std::time::Duration;

use odafs::Client;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
    let file = client.open("data.bin")?;
    println!("{} bytes", file.metadata()?.size);
    while file.revalidate()? {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("changed: {} bytes", file.metadata()?.size);
    Ok(())
}
