//! Files by handle, as a mount sees them: a listing, a read, and a file that is made, renamed and removed.

use odafs::{
    Changes, Client,
    fs::{Cookie, Create, FileSystem},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("odafs+shm:///"))?;
    let fs = FileSystem::new(&client);
    let root = fs.root();
    for entry in fs.readdirplus(&root, Cookie::START) {
        let entry = entry?;
        if let Some(known) = entry.attributes {
            let (name, size) = (entry.name.to_string_lossy(), known.size);
            println!("{name}: {size} bytes, inode {}", entry.fileid);
        }
    }

    let data = fs.lookup(&root, "data.bin")?;
    let file = fs.open(&data.handle)?; // the file that Client::open gives
    println!("{} bytes read", file.read_at(&mut [0; 4096], 0)?);

    let private = Changes {
        mode: Some(0o600),
        ..Changes::default()
    };
    let made = fs.create(&root, ".kept.tmp", &Create::Guarded(private))?;
    fs.write(&made.handle, b"kept", 0)?;
    fs.commit(&made.handle)?;
    fs.rename(&root, ".kept.tmp", &root, "kept.txt")?; // the handle stays
    assert_eq!(fs.getattr(&made.handle)?.size, 4);
    fs.unlink(&root, "kept.txt")?;
    let gone = fs.getattr(&made.handle).unwrap_err();
    assert_eq!(
        std::io::Error::from(gone).kind(),
        std::io::ErrorKind::StaleNetworkFileHandle
    );
    println!("kept.txt: written, renamed and removed");
    Ok(())
}
