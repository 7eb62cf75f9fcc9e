//! `odafs put`: copies a file to a server.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use odafs::{CreateOptions, Url};

use crate::connection::{Clients, ConnectionArguments, url};
use crate::output;

/// Bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

/// Copy a file to a server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs put notes.txt nfs://127.0.0.1/notes.txt
  odafs put notes.txt nfs://127.0.0.1/inbox/            keeps its name
  tar c src | odafs put - odafs+shm:///run/odafs.sock?/src.tar

When it returns, the data is on the server's stable storage.")]
pub struct Arguments {
    /// The local file, or - for stdin
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
    /// Where to: a file, or a directory
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// Fail if the file exists already
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Copies.
pub fn run(arguments: Arguments) -> Result<()> {
    let stdin = arguments.local == Path::new("-");
    let mut source: Box<dyn Read> = match stdin {
        true => Box::new(std::io::stdin().lock()),
        false => {
            let opened = std::fs::File::open(&arguments.local);
            Box::new(opened.with_context(|| format!("cannot open {}", arguments.local.display()))?)
        }
    };
    let length = if stdin {
        0
    } else {
        std::fs::metadata(&arguments.local)?.len()
    };
    let mut clients = Clients::new(arguments.connection.options());
    let (client, mut path) = clients.at(&arguments.url)?;
    if client.stat(&path).is_ok_and(|m| m.is_dir())
        && let Some(name) = arguments.local.file_name()
    {
        path.push(name);
    }
    let file = client.create_with(
        path,
        &CreateOptions {
            exclusive: arguments.new,
            ..CreateOptions::default()
        },
    )?;
    let progress = output::byte_progress(length, "put");
    let mut buffer = vec![0; WRITE_BYTES];
    let mut offset = 0;
    loop {
        let n = source
            .read(&mut buffer)
            .with_context(|| format!("cannot read {}", arguments.local.display()))?;
        if n == 0 {
            break;
        }
        file.write_at(&buffer[..n], offset)?;
        offset += n as u64;
        progress.set_position(offset);
    }
    file.sync()?;
    progress.finish_and_clear();
    Ok(())
}
