//! Looks up rows of one length by their numbers, as a service does that serves embeddings.

use odafs::Client;

const ROW: usize = 64 * size_of::<f32>();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
    let table = client.table("data.bin", ROW)?;
    println!("{} rows of {} bytes", table.rows()?, table.row_bytes());

    let mut row = [0; ROW];
    table.get(7, &mut row)?;
    println!("row 7 begins with {:?}", &row[..4]);

    let wanted = [42, 7, 42];
    let mut rows = vec![0; wanted.len() * ROW]; // a service keeps this buffer
    table.get_many(&wanted, &mut rows)?;
    for (number, row) in wanted.iter().zip(rows.chunks(ROW)) {
        println!("row {number} begins with {:?}", &row[..4]);
    }

    // A number behind the last row is an error that names the place.
    let beyond = table.rows()?;
    if let Err(error) = table.get(beyond, &mut row) {
        println!("row {beyond}: {error}");
    }
    Ok(())
}
