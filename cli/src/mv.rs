//! `odafs mv`: renames.

use anyhow::{Result, bail};
use clap::Args;
use odafs::Url;

use crate::Usage;
use crate::connection::{Clients, ConnectionArguments, path, url};

/// Rename a file or directory on its server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs mv nfs://127.0.0.1/draft.txt nfs://127.0.0.1/final.txt
  odafs mv nfs://127.0.0.1/a.txt nfs://127.0.0.1/archive/     keeps its name

What bears the new name is replaced.")]
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
    let (client, from) = clients.at(&arguments.from)?;
    let mut to = path(&arguments.to);
    if client.stat_link(&to).is_ok_and(|m| m.is_dir())
        && let Some(name) = from.file_name()
    {
        to.push(name);
    }
    client.rename(from, to)?;
    Ok(())
}
