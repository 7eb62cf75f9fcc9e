//! `odafs mkdir`: creates directories.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, anyhow};
use clap::Args;
use odafs::{Client, Url};

use crate::connection::{Clients, ConnectionArguments, check_directory, check_parent, url};
use crate::each::each;

/// Create directories
#[derive(Args)]
#[command(after_help = "Examples:
  odafs mkdir nfs://127.0.0.1/inbox
  odafs mkdir -p nfs://127.0.0.1/a/b/c")]
pub struct Arguments {
    /// Directories to create
    #[arg(required = true, value_name = "URL", value_parser = url)]
    urls: Vec<Url>,
    /// Create missing parents too; a directory that exists is no error
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.connection.options()?);
    each(&arguments.urls, |url| {
        let (client, path) = clients.to(url)?;
        match arguments.parents {
            true => make_all(&client, &path)?,
            false => make(&client, &path)?,
        }
        Ok(())
    })
}

fn make(client: &Client, path: &Path) -> Result<()> {
    let made = client.mkdir(path);
    if made
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound)
    {
        check_parent(client, path).map_err(|why| anyhow!("{why} (-p creates missing parents)"))?;
    }
    Ok(made?)
}

fn make_all(client: &Client, path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !client.stat(ancestor).is_ok_and(|m| m.is_dir()))
        .collect();
    for directory in missing.into_iter().rev() {
        match client.mkdir(directory) {
            // Somebody else may have created it meanwhile.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                check_directory(client, directory)?;
            }
            made => made?,
        }
    }
    Ok(())
}
