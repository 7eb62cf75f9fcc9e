//! Says what will be read, so that the references come in one call, and then reads directly from the server's memory.

use odafs::{Cache, Client, Options, Route};

/// Bytes of a page of the server's.
const PAGE: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("odafs+shm:///");
    let options = Options {
        route: Route::Guarded, // the default, by policy, reads directly where it pays
        cache: Cache::Off,     // so that each read goes to the server
        ..Options::default()
    };
    let client = Client::connect_with(&url.parse()?, options)?;
    let file = client.open("data.bin")?;
    file.read_to_end()?; // pages in the server's memory have references, others have none

    let ranges = [0..32 * PAGE, 100 * PAGE..132 * PAGE];
    let references = file.will_need(&ranges)?;
    let before = client.statistics().direct_hits;
    let mut page = [0; PAGE as usize];
    for offset in ranges.into_iter().flatten().step_by(PAGE as usize) {
        file.read_exact_at(&mut page, offset)?;
    }
    let direct = client.statistics().direct_hits - before;
    println!("{references} references came; {direct} of 64 reads were direct");
    Ok(())
}
