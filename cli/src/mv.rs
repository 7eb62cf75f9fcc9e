//! `odafs mv`: renames files and directories.

use std::io::ErrorKind;

use anyhow::{Result, bail};
use clap::Args;
use odafs::{Metadata, Url};

use crate::Usage;
use crate::connection::{
    Clients, ConnectionArguments, check_directory, check_parent, is_same, path, stat_itself, url,
    wants_directory,
};

/// Rename a file or directory on its server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs mv nfs://127.0.0.1/draft.txt nfs://127.0.0.1/final.txt
  odafs mv nfs://127.0.0.1/a.txt nfs://127.0.0.1/archive/     keeps its name

A file that already has the new name is replaced. If the new name ends in a slash, it must be a
directory to move into, or the new name of a directory.")]
pub struct Arguments {
    /// The file or directory
    #[arg(value_name = "FROM", value_parser = url)]
    from: Url,
    /// Its new name, or a directory to move it into; on the same server
    #[arg(value_name = "TO", value_parser = url)]
    to: Url,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    if arguments.from.server != arguments.to.server {
        bail!(Usage(
            "both URLs must name the same server, by the same scheme; to move a file between servers, use get and put"
                .to_owned()
        ));
    }
    let mut clients = Clients::new(arguments.connection.options()?);
    let (client, from) = clients.to(&arguments.from)?;
    if wants_directory(&from) {
        stat_itself(&client, &from, "mv")?;
    }
    let mut to = path(&arguments.to);
    // As mv(1): a symbolic link to a directory is gone into, not replaced.
    let place = client.stat(&to).ok().filter(Metadata::is_dir);
    if let Some(place) = &place
        && is_same(&stat_itself(&client, &from, "mv")?, place)
    {
        bail!(
            "{} and {} are the same directory",
            from.display(),
            to.display()
        );
    }
    let mut into = place.is_some();
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
    client.rename(&from, &to).or_else(|error| {
        // The server's status fits either name.
        match error.kind() {
            ErrorKind::NotFound => {
                stat_itself(&client, &from, "mv")?;
                check_parent(&client, &to)?;
            }
            // The server checks the directories first, then what is to be replaced.
            ErrorKind::NotADirectory => {
                stat_itself(&client, &from, "mv")?;
                check_parent(&client, &to)?;
                return Err(error.about("mv", &to).into());
            }
            ErrorKind::IsADirectory | ErrorKind::DirectoryNotEmpty => {
                return Err(error.about("mv", &to).into());
            }
            ErrorKind::InvalidInput if to.starts_with(&from) => bail!(
                "{} cannot move into itself: {} lies below it",
                from.display(),
                to.display()
            ),
            _ => {}
        }
        Err(error.about("mv", &from).into())
    })
}
