//! Reads several places at once, of one file and of two: all reads are in flight together, and cost one round trip.

use odafs::{Client, FileRequest, ReadRequest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
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
    let second = client.create("second.txt")?;
    second.write_at(b"a second file\n", 0)?;
    let mut requests = [
        FileRequest::new(&file, 4096, &mut head),
        FileRequest::new(&second, 0, &mut middle),
    ];
    client.read_batch(&mut requests)?;
    for request in &requests {
        println!("{} bytes of {}", request.bytes, request.file.path());
    }
    Ok(())
}
