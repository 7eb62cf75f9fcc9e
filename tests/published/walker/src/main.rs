//! A program of somebody else's: it serves a directory, and walks, reads and writes it by handle, from a thread and
//! from async code.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use odafs::fs::{Cookie, Create, FileHandle, FileSystem};
use odafs::{Changes, Client, FileKind};
use odafs_server::config::ServerConfig;
use odafs_server::server::Server;

/// Every file below `directory`: its path from there, and its bytes.
fn walk(
    fs: &FileSystem,
    directory: &FileHandle,
    path: &Path,
    found: &mut BTreeMap<PathBuf, Vec<u8>>,
) -> Result<(), Box<dyn Error>> {
    for entry in fs.readdirplus(directory, Cookie::START) {
        let entry = entry?;
        if entry.name == "." || entry.name == ".." {
            continue;
        }
        let path = path.join(&entry.name);
        let known = fs.lookup(directory, &entry.name)?;
        if known.attributes.kind == FileKind::Directory {
            walk(fs, &known.handle, &path, found)?;
        } else {
            let mut data = vec![0; usize::try_from(known.attributes.size)?];
            let count = fs.read(&known.handle, &mut data, 0)?;
            assert_eq!(count, data.len(), "{}", path.display());
            found.insert(path, data);
        }
    }
    Ok(())
}

fn blocking(url: &str) -> Result<(), Box<dyn Error>> {
    let fs = FileSystem::new(&Client::connect(url)?);
    let root = fs.root();
    let made = fs.mkdir(&root, "made", &Changes::default())?;
    let file = fs.create(&made.handle, "file", &Create::Guarded(Changes::default()))?;
    fs.write(&file.handle, &[7; 10_000], 0)?;
    fs.commit(&file.handle)?;
    let mut found = BTreeMap::new();
    walk(&fs, &root, Path::new(""), &mut found)?;
    let expected = [
        ("given", b"from outside".to_vec()),
        ("made/file", vec![7; 10_000]),
    ];
    assert_eq!(
        found,
        expected.map(|(path, data)| (path.into(), data)).into()
    );
    println!("a thread walked, read and wrote {} files", found.len());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn asynchronous(url: &str) -> Result<(), Box<dyn Error>> {
    let client = odafs::tokio::Client::connect(url).await?;
    let fs = odafs::tokio::FileSystem::new(&client);
    let found = fs
        .call(|fs| {
            let made = fs.lookup(&fs.root(), "made")?;
            fs.lookup(&made.handle, "file")
        })
        .await?;
    let file = fs.open(found.handle).await?;
    file.write_at(vec![8; 5_000], 5_000).await?;
    file.sync().await?;
    let (head, tail) = tokio::try_join!(file.read_at(0, 5_000), file.read_at(5_000, 6_000))?;
    assert_eq!((head, tail), (vec![7; 5_000], vec![8; 5_000]));
    println!("a task read and wrote 10000 bytes");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let served = scratch.path().join("served");
    std::fs::create_dir(&served)?;
    std::fs::write(served.join("given"), "from outside")?;
    let server = Server::start(ServerConfig {
        shm: Some(scratch.path().join("odafs.sock")),
        state: Some(scratch.path().join("state")),
        cache_bytes: 16 << 20,
        huge_pages: false,
        ..ServerConfig::new(served)
    })?;
    let socket = server.addresses().shm.as_ref().ok_or("no socket")?;
    let url = format!("odafs+shm://{}?/", socket.display());
    blocking(&url)?;
    asynchronous(&url)?;
    server.shutdown();
    Ok(())
}
