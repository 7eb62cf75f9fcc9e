//! Counts how reads were served: by the data cache, directly, or by RPC.

use odafs::Client;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
    let file = client.open("data.bin")?;
    let mut page = [0; 4096];
    for read in 0..1000 {
        file.read_exact_at(&mut page, read * 7 % 64 * 4096)?;
    }
    let counted = client.statistics();
    println!("data cache  {:5}", counted.cache_hits);
    println!("direct      {:5}", counted.direct_hits);
    println!("RPC         {:5}", counted.rpc_reads);
    println!("refused     {:5}", counted.stale_hits); // these went on by RPC
    println!("calls       {:5}", counted.calls);
    Ok(())
}
