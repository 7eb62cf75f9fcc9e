//! `odafs rm`: removes files and directories.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use odafs::{Client, Url};

use crate::connection::{Clients, ConnectionArguments, is_same, stat_itself, url};
use crate::each::each;
use crate::{Usage, output};

/// Remove files and directories
#[derive(Args)]
#[command(after_help = "Examples:
  odafs rm nfs://127.0.0.1/notes.txt
  odafs rm -d nfs://127.0.0.1/empty-directory
  odafs rm -r nfs://127.0.0.1/tree

It does not ask for confirmation. If one URL fails, the others are still removed, and the exit
status is 1.")]
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
    for url in &arguments.urls {
        check_name(url)?;
    }
    let mut clients = Clients::new(arguments.connection.options()?);
    each(&arguments.urls, |url| {
        let (client, path) = clients.to(url)?;
        let found = stat_itself(&client, &path, "rm")?;
        if !found.is_dir() {
            client.remove(&path)?;
        } else if is_same(&found, &client.stat(&client.server().export)?) {
            bail!(Usage(format!(
                "{url} is the export itself, which a client cannot remove"
            )));
        } else if let Some(parent) = path.parent()
            && client.stat(parent)?.filesystem_id != found.filesystem_id
        {
            bail!(Usage(other_file_system(&path)));
        } else if arguments.recursive {
            remove_tree(&client, &path, found.filesystem_id)?;
        } else if arguments.dir {
            client.rmdir(&path)?;
        } else {
            bail!("{url} is a directory; use -d if it is empty, or -r to remove all its contents");
        }
        Ok(())
    })
}

/// Refuses a path that ends in `.` or `..`, as rm(1) does: the directory has another name, and `..` may be the export.
fn check_name(url: &Url) -> Result<()> {
    let mut names = url.path.rsplit(|byte| *byte == b'/');
    match names.find(|name| !name.is_empty()) {
        Some(b"." | b"..") => bail!(Usage(format!(
            "{url} ends in `.` or `..`, and nothing is removed; name the directory itself"
        ))),
        _ => Ok(()),
    }
}

/// Why a directory stays in which another file system begins.
fn other_file_system(path: &Path) -> String {
    let path = path.display();
    let why = "an export or a mounted file system begins there, which a client cannot remove; name what is in it";
    format!("rm {path}: {why}")
}

/// Removes a directory with all that is in it on this file system.
fn remove_tree(client: &Client, root: &Path, filesystem_id: u64) -> Result<()> {
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
            let found = match entry.metadata {
                Some(metadata) => metadata,
                None => client.stat_link(&path)?,
            };
            if found.is_dir() && found.filesystem_id != filesystem_id {
                bail!(other_file_system(&path));
            }
            if found.is_dir() {
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
