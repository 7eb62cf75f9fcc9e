//! `odafs rm`: removes files and directories.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use odafs::{Client, Url};

use crate::connection::{Clients, ConnectionArguments, stat_itself, url};
use crate::each::each;
use crate::{Usage, output};

/// Remove files and directories
#[derive(Args)]
#[command(after_help = "Examples:
  odafs rm nfs://127.0.0.1/notes.txt
  odafs rm -d nfs://127.0.0.1/empty-directory
  odafs rm -r nfs://127.0.0.1/tree

It does not ask for confirmation. If one URL fails, the others are removed all the same, and the
exit status is 1.")]
pub struct Arguments {
    /// The files to remove; symbolic links are removed, not followed
    #[arg(required = true, value_name = "URL", value_parser = url)]
    urls: Vec<Url>,
    /// Remove empty directories too
    #[arg(short, long)]
    dir: bool,
    /// Remove directories with all their contents
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Runs the command.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.connection.options());
    each(&arguments.urls, |url| {
        let (client, path) = clients.to(url)?;
        if !stat_itself(&client, &path, "rm")?.is_dir() {
            client.remove(&path)?;
        } else if path == Path::new(&client.server().export) {
            bail!(Usage(format!(
                "{url} is the export itself, which a client cannot remove"
            )));
        } else if arguments.recursive {
            remove_tree(&client, &path)?;
        } else if arguments.dir {
            client.rmdir(&path)?;
        } else {
            bail!("{url} is a directory; use -d if it is empty, or -r to remove all its contents");
        }
        Ok(())
    })
}

fn remove_tree(client: &Client, root: &Path) -> Result<()> {
    let progress = output::step_progress(0, "rm");
    let mut pending = vec![(root.to_owned(), false)];
    while let Some((directory, emptied)) = pending.pop() {
        if emptied {
            client.rmdir(&directory)?;
            continue;
        }
        pending.push((directory.clone(), true));
        // Take all names before removing the first, because a listing need not survive changes.
        let entries = client
            .read_dir(&directory)?
            .collect::<Result<Vec<_>, _>>()?;
        for entry in entries {
            let path = directory.join(&entry.name);
            let is_dir = match entry.metadata {
                Some(metadata) => metadata.is_dir(),
                None => client.stat_link(&path)?.is_dir(),
            };
            if is_dir {
                pending.push((path, false));
            } else {
                client.remove(&path)?;
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
}
