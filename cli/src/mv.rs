//! `odafs mv`: renames.

use std::io::ErrorKind;

use anyhow::{Result, bail};
use clap::Args;
use odafs::Url;

use crate::Usage;
use crate::connection::{
    Clients, ConnectionArguments, check_directory, path, stat_itself, url, wants_directory,
};

/// Rename a file or directory on its server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs mv nfs://127.0.0.1/draft.txt nfs://127.0.0.1/final.txt
  odafs mv nfs://127.0.0.1/a.txt nfs://127.0.0.1/archive/     keeps its name

What bears the new name is replaced. A new name that ends in a slash is a directory's: one to
move into, or that of a directory that is renamed.")]
pub struct Arguments {
    /// The file
    #[arg(value_name = "URL", value_parser = url)]
    from: Url,
    /// Its new name, or a directory to move it to; on the same server
    #[arg(value_name = "URL", value_parser = url)]
    to: Url,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Renames.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.from.server != arguments.to.server {
        bail!(Usage(
            "both URLs must name the same server; between servers use get and put".to_owned()
        ));
    }
    let mut clients = Clients::new(arguments.connection.options());
    let (client, from) = clients.to(&arguments.from)?;
    if wants_directory(&from) {
        stat_itself(&client, &from)?;
    }
    let mut to = path(&arguments.to);
    let mut into = client.stat_link(&to).is_ok_and(|m| m.is_dir());
    if wants_directory(&to) && !into {
        let absent = client
            .stat_link(&to)
            .is_err_and(|error| error.kind() == ErrorKind::NotFound);
        if !absent || !client.stat_link(&from)?.is_dir() {
            check_directory(&client, &to)?;
            into = true;
        }
    }
    if into && let Some(name) = from.file_name() {
        to.push(name);
    }
    client.rename(from, to)?;
    Ok(())
}
