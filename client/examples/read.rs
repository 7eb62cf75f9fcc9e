//! The program of README.md.

use odafs::Client;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("odafs+shm:///run/odafs.sock?/")?;
    let file = client.open("data.bin")?;
    let mut page = [0; 4096];
    let bytes = file.read_at(&mut page, 8192)?; // by RPC: the reply brings a reference
    file.read_at(&mut page, 8192)?; // from the data cache, or directly
    println!("{bytes} bytes; {:?}", client.statistics());
    Ok(())
}
