//! `odafs mkdir`: creates directories.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use odafs::{Client, Url};

use crate::connection::{Clients, ConnectionArguments, check_directory, url};
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
    let mut clients = Clients::new(arguments.connection.options());
    each(&arguments.urls, |url| {
        let (client, path) = clients.to(url)?;
        match arguments.parents {
            true => make_all(&client, &path)?,
            false => client.mkdir(path)?,
        }
        Ok(())
    })
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
