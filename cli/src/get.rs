//! `odafs get`: copies a file from a server.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use odafs::{File, Url};
use odafs_fabric::entropy;

use crate::connection::{Clients, ConnectionArguments, shown, url, wants_directory};
use crate::{Usage, output};

/// Copy a file from a server
#[derive(Args)]
#[command(after_help = "Examples:
  odafs get nfs://127.0.0.1/notes.txt                    to ./notes.txt
  odafs get odafs+shm:///run/odafs.sock?/a.bin /tmp/     to /tmp/a.bin
  odafs get nfs://127.0.0.1/a.tar - | tar t              to stdout

The local file appears under its name when it is complete, not before. A device or a pipe
is written to.")]
pub struct Arguments {
    /// The file to copy
    #[arg(value_name = "URL", value_parser = url)]
    url: Url,
    /// Where to: a file, a directory, or - for stdout [default: the same name here]
    #[arg(value_name = "LOCAL")]
    local: Option<PathBuf>,
    #[command(flatten)]
    connection: ConnectionArguments,
}

/// Copies.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut clients = Clients::new(arguments.connection.options());
    let keep = arguments.connection.is_direct();
    let (client, path) = clients.at(&arguments.url)?;
    let Some(name) = path.file_name() else {
        bail!(Usage(format!("{} names no file", arguments.url)));
    };
    let target = match arguments.local {
        None => PathBuf::from(name),
        Some(local) if local.is_dir() => local.join(name),
        Some(local) if wants_directory(&local) => {
            let name = shown(&local);
            match Path::new(&name).exists() {
                true => bail!("{name} is not a directory"),
                false => bail!("there is no directory {name}"),
            }
        }
        Some(local) => local,
    };
    let file = client.open(&path)?;
    if target == Path::new("-") {
        return copy(&file, keep, &mut std::io::stdout().lock());
    }
    if target.metadata().is_ok_and(|there| !there.is_file()) {
        // A device or a pipe is written to, never replaced.
        let mut there = std::fs::OpenOptions::new()
            .write(true)
            .open(&target)
            .with_context(|| format!("cannot open {}", target.display()))?;
        return copy(&file, keep, &mut there)
            .with_context(|| format!("cannot copy to {}", target.display()));
    }
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let beside = directory.join(format!(".odafs-get-{:016x}", entropy::word()));
    let (mut local, unfinished) = output::create(&beside)
        .with_context(|| format!("cannot write in {}", directory.display()))?;
    local.set_permissions(Permissions::from_mode(0o644))?;
    copy(&file, keep, &mut local)
        .with_context(|| format!("cannot copy to {}", target.display()))?;
    unfinished
        .finish(|| fs::rename(&beside, &target))
        .with_context(|| format!("cannot make {}", target.display()))
}

fn copy(file: &File, keep_to_route: bool, out: &mut impl Write) -> Result<()> {
    let progress = output::byte_progress(file.metadata()?.size, "get");
    crate::copy::copy(file, keep_to_route, out, |bytes| {
        progress.set_position(bytes)
    })?;
    out.flush()?;
    progress.finish_and_clear();
    Ok(())
}
