//! Reads several places of a file at once: all reads are in flight together, and cost one round trip rather than many.

use odafs::{Client, ReadRequest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///run/odafs.sock?/"))?;
    let file = client.open("data.bin")?;
    let (mut head, mut middle, mut beyond) = ([0; 512], [0; 4096], [0; 64]);
    let mut requests = [
        ReadRequest::new(0, &mut head),
        ReadRequest::new(100_000, &mut middle),
        ReadRequest::new(1 << 40, &mut beyond), // behind the end: no bytes, and no error
    ];
    file.read_batch(&mut requests)?;
    for request in &requests {
        println!("{} bytes from {}", request.bytes, request.offset);
    }
    Ok(())
}
