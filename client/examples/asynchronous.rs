//! Reads from an async program on tokio: what needs no waiting is done on the spot, all else on threads that may block.

use odafs::tokio::Client;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///")).await?;
    let file = client.open("data.bin").await?;
    let (head, next) = tokio::try_join!(file.read_at(0, 4096), file.read_at(4096, 4096))?;
    println!("{} bytes", head.len() + next.len());
    Ok(())
}
