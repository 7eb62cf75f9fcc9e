//! Shows which route each part of a read took, and why: what `odafs cat --why` prints.

use odafs::{Cache, Client, Options, Route};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("odafs+shm:///");
    let options = Options {
        route: Route::Guarded,
        cache: Cache::Off,
        ..Options::default()
    };
    let client = Client::connect_with(&url.parse()?, options)?;
    let file = client.open("data.bin")?;
    let mut page = [0; 4096];
    for _ in 0..2 {
        // The first goes by RPC, whose reply brings a reference; the second uses it.
        for step in file.read_traced(&mut page, 0)?.steps {
            println!("{step}");
        }
    }
    Ok(())
}
