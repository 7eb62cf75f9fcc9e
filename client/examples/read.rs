//! Reads a page twice, and counts by which routes: the program in README.md.

use odafs::Client;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
    let file = client.open("data.bin")?;
    let mut page = [0; 4096];
    let bytes = file.read_at(&mut page, 8192)?; // by RPC: the reply brings a reference
    file.read_at(&mut page, 8192)?; // from the data cache, or directly
    println!("{bytes} bytes; {:?}", client.statistics());
    Ok(())
}
